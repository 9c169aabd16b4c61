package io.ductor.client;

import com.google.gson.JsonParser;
import io.ductor.workflow.v1.*;
import io.grpc.Context;
import io.grpc.ManagedChannel;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/** A run from its definition to its output: create, publish, trigger, watch until it waits, approve, watch to its end. */
public final class Tour {
  public static void main(String[] arguments) throws Exception {
    var channel = Ductor.connect();
    var timer = Executors.newSingleThreadScheduledExecutor();
    try {
      // The deadline of every call below.
      Context.current().withDeadlineAfter(1, TimeUnit.MINUTES, timer).call(() -> tour(channel));
    } finally {
      timer.shutdownNow();
      channel.shutdownNow();
    }
  }

  private static Void tour(ManagedChannel channel) throws InterruptedException {
    var definitions = WorkflowDefinitionServiceGrpc.newBlockingStub(channel);
    var name = "expense-java-" + System.currentTimeMillis();

    var created = definitions.createWorkflowDefinition(CreateWorkflowDefinitionRequest.newBuilder()
        .setFamilySlug(name)
        .addSteps(StepDefinition.newBuilder()
            .setRef("claim")
            .setType(StepType.STEP_TYPE_ACTION)
            .setAction("core:echo")
            .setArgsJson("""
                {"cents": "${{ TRIGGER.payload.cents }}"}"""))
        .addSteps(StepDefinition.newBuilder()
            .setRef("review")
            .setType(StepType.STEP_TYPE_APPROVAL)
            .setApproval(ApprovalStep.getDefaultInstance()))
        .addSteps(StepDefinition.newBuilder()
            .setRef("pay")
            .setType(StepType.STEP_TYPE_ACTION)
            .setAction("core:echo")
            .setArgsJson("""
                {"paid": "${{ STEPS.claim.output.cents }}", "comment": "${{ STEPS.review.output.comment }}"}"""))
        .addEdges(EdgeDefinition.newBuilder().setSourceRef("claim").setTargetRef("review").setType(EdgeType.EDGE_TYPE_SUCCESS))
        .addEdges(EdgeDefinition.newBuilder().setSourceRef("review").setTargetRef("pay").setType(EdgeType.EDGE_TYPE_APPROVED))
        .build());
    var definitionId = created.getData().getId();
    System.out.println("created " + name);

    var published = definitions.publishWorkflowDefinition(PublishWorkflowDefinitionRequest.newBuilder().setId(definitionId).build());
    System.out.println("published version " + published.getPublished().getVersion());

    var runId = WorkflowTriggerServiceGrpc.newBlockingStub(channel)
        .triggerWorkflow(TriggerWorkflowRequest.newBuilder()
            .setDefinitionId(definitionId)
            .setSubjectType("expense")
            .setSubjectId(name)
            .setInputJson("""
                {"cents": 9007199254740993}""") // more than a double holds: only the _json fields keep every digit
            .setIdempotencyKey(name)
            .build())
        .getRunId();
    System.out.println("triggered run " + runId);

    var approved = new AtomicBoolean();
    Ductor.watch(channel, runId, message -> {
      var waits = message.getNodesList().stream()
          .anyMatch(node -> node.getStepRef().equals("review") && node.getStatus() == NodeStatus.NODE_STATUS_WAITING);
      if (waits && !approved.getAndSet(true)) {
        System.out.println("waits for a decision about review");
        WorkflowSignalServiceGrpc.newBlockingStub(channel).approveStep(ApproveStepRequest.newBuilder()
            .setRunId(runId)
            .setStepRef("review")
            .setRequestId("approve-" + runId) // the same call again is the same decision
            .setComment("have a good trip")
            .build());
        System.out.println("approved");
      }
    });

    var run = WorkflowServiceGrpc.newBlockingStub(channel)
        .getRun(GetRunRequest.newBuilder().setRunId(runId).setPayloadFormat(PayloadFormat.PAYLOAD_FORMAT_JSON).build())
        .getData();
    if (run.getSummary().getStatus() != RunStatus.RUN_STATUS_COMPLETED) {
      throw new IllegalStateException("the run is " + run.getSummary().getStatus() + ": " + run.getError());
    }
    var pay = JsonParser.parseString(run.getResultJson()).getAsJsonObject().getAsJsonObject("pay");
    if (pay.get("paid").getAsLong() != 9007199254740993L || !pay.get("comment").getAsString().equals("have a good trip")) {
      throw new IllegalStateException("unexpected result: " + run.getResultJson());
    }
    System.out.println("completed: " + run.getResultJson());
    return null;
  }
}
