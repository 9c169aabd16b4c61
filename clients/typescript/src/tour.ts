// Everything once, over Connect: create a definition, publish it, start a run, watch it wait, approve, and see it through. Also what an error looks like.

import assert from "node:assert/strict";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { PayloadFormat } from "#ductor/common_pb";
import { EdgeType, StepType } from "#ductor/definition_pb";
import { NodeStatus, RunStatus, WaitingType } from "#ductor/run_pb";
import { WorkflowDefinitionService } from "#ductor/workflow_definition_service_pb";
import { WorkflowService } from "#ductor/workflow_service_pb";
import { WorkflowSignalService } from "#ductor/workflow_signal_service_pb";
import { WorkflowTriggerService } from "#ductor/workflow_trigger_service_pb";
import { ErrorInfoSchema } from "#google/rpc/error_details_pb";
import { connect } from "./transports";

const transport = connect();
const definitions = createClient(WorkflowDefinitionService, transport);
const triggers = createClient(WorkflowTriggerService, transport);
const runs = createClient(WorkflowService, transport);
const signals = createClient(WorkflowSignalService, transport);

const draft = await definitions.createWorkflowDefinition({
  familySlug: `expense-ts-${Date.now().toString(36)}`,
  title: "An expense, from TypeScript",
  steps: [
    { ref: "file", type: StepType.ACTION, action: "core:echo", args: { amount: "${{ TRIGGER.payload.amount }}" } },
    { ref: "manager", type: StepType.APPROVAL, approval: { timeoutMs: 60_000 } },
    {
      ref: "pay",
      type: StepType.ACTION,
      action: "core:echo",
      args: { paid: "${{ STEPS.file.output.amount }}", comment: "${{ STEPS.manager.output.comment }}" },
    },
  ],
  edges: [
    { sourceRef: "file", targetRef: "manager", type: EdgeType.SUCCESS },
    { sourceRef: "manager", targetRef: "pay", type: EdgeType.APPROVED },
  ],
});
const { id, familySlug } = draft.data!;
console.log(`created    ${familySlug}`);

try {
  await triggers.triggerWorkflow({ definitionId: id });
  assert.fail("a draft was started");
} catch (error) {
  const refused = ConnectError.from(error);
  const [info] = refused.findDetails(ErrorInfoSchema);
  assert.equal(refused.code, Code.FailedPrecondition);
  console.log(`refused    ${info?.reason}: ${refused.rawMessage}`);
}

const { published } = await definitions.publishWorkflowDefinition({ id });
console.log(`published  version ${published!.version}`);

const { runId } = await triggers.triggerWorkflow({
  definitionId: id,
  inputJson: JSON.stringify({ amount: 480, what: "train" }),
  idempotencyKey: `tour-${familySlug}`, // sent again, it is the same run
});
console.log(`triggered  ${runId}`);

for await (const { nodes, summary } of runs.watchRun({ runId }, { timeoutMs: 60_000 })) {
  for (const node of nodes) {
    console.log(`watched    ${node.stepRef} ${NodeStatus[node.status].toLowerCase()}`);
    if (node.waiting?.type === WaitingType.APPROVAL) {
      await signals.approveStep({ runId, stepRef: node.stepRef, comment: "was cheap" });
      console.log(`approved   ${node.stepRef}`);
    }
  }
  if (summary) console.log(`watched    the run: ${RunStatus[summary.status].toLowerCase()}`);
}

const { data: run } = await runs.getRun({ runId, payloadFormat: PayloadFormat.JSON });
assert.equal(run?.summary?.status, RunStatus.COMPLETED);
assert.deepEqual(JSON.parse(run.resultJson!), { pay: { paid: 480, comment: "was cheap" } });
console.log(`completed  ${run.resultJson}`);
