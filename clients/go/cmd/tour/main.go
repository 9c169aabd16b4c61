// A run from its definition to its output: create, publish, trigger, watch until it waits, approve, watch to its end.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"time"

	"google.golang.org/protobuf/proto"

	"ductor.io/clients/go/ductor"
	workflowv1 "ductor.io/gen/go/ductor/workflow/v1"
)

func main() {
	log.SetFlags(0)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := tour(ctx); err != nil {
		log.Fatal(err)
	}
}

func tour(ctx context.Context) error {
	connection, err := ductor.Dial()
	if err != nil {
		return err
	}
	defer connection.Close()
	definitions := workflowv1.NewWorkflowDefinitionServiceClient(connection)
	runs := workflowv1.NewWorkflowServiceClient(connection)
	name := fmt.Sprintf("expense-go-%d", time.Now().UnixNano())

	created, err := definitions.CreateWorkflowDefinition(ctx, &workflowv1.CreateWorkflowDefinitionRequest{
		FamilySlug: name,
		Steps: []*workflowv1.StepDefinition{
			{
				Ref: "claim", Type: workflowv1.StepType_STEP_TYPE_ACTION, Action: proto.String("core:echo"),
				ArgsJson: proto.String(`{"cents": "${{ TRIGGER.payload.cents }}"}`),
			},
			{Ref: "review", Type: workflowv1.StepType_STEP_TYPE_APPROVAL, Approval: &workflowv1.ApprovalStep{}},
			{
				Ref: "pay", Type: workflowv1.StepType_STEP_TYPE_ACTION, Action: proto.String("core:echo"),
				ArgsJson: proto.String(`{"paid": "${{ STEPS.claim.output.cents }}", "comment": "${{ STEPS.review.output.comment }}"}`),
			},
		},
		Edges: []*workflowv1.EdgeDefinition{
			{SourceRef: "claim", TargetRef: "review", Type: workflowv1.EdgeType_EDGE_TYPE_SUCCESS},
			{SourceRef: "review", TargetRef: "pay", Type: workflowv1.EdgeType_EDGE_TYPE_APPROVED},
		},
	})
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	fmt.Println("created", name)

	published, err := definitions.PublishWorkflowDefinition(ctx, &workflowv1.PublishWorkflowDefinitionRequest{Id: created.Data.Id})
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	fmt.Println("published version", published.Published.Version)

	run, err := workflowv1.NewWorkflowTriggerServiceClient(connection).TriggerWorkflow(ctx, &workflowv1.TriggerWorkflowRequest{
		DefinitionId:   created.Data.Id,
		SubjectType:    "expense",
		SubjectId:      name,
		InputJson:      proto.String(`{"cents": 9007199254740993}`), // more than a float64 holds: only the _json fields keep every digit
		IdempotencyKey: name,
	})
	if err != nil {
		return fmt.Errorf("trigger: %w", err)
	}
	fmt.Println("triggered run", run.RunId)

	approved := false
	for message, err := range ductor.Watch(ctx, runs, run.RunId) {
		if err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		for _, node := range message.Nodes {
			if node.StepRef == "review" && node.Status == workflowv1.NodeStatus_NODE_STATUS_WAITING && !approved {
				fmt.Println("waits for a decision about", node.StepRef)
				if err := approve(ctx, workflowv1.NewWorkflowSignalServiceClient(connection), run.RunId); err != nil {
					return err
				}
				approved = true
			}
		}
	}

	read, err := runs.GetRun(ctx, &workflowv1.GetRunRequest{RunId: run.RunId, PayloadFormat: workflowv1.PayloadFormat_PAYLOAD_FORMAT_JSON})
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if status := read.Data.Summary.Status; status != workflowv1.RunStatus_RUN_STATUS_COMPLETED {
		return fmt.Errorf("the run is %s: %s", status, read.Data.Error)
	}
	var result struct {
		Pay struct {
			Paid    int64
			Comment string
		}
	}
	if err := json.Unmarshal([]byte(read.Data.GetResultJson()), &result); err != nil {
		return fmt.Errorf("result: %w", err)
	}
	if result.Pay.Paid != 9007199254740993 || result.Pay.Comment != "have a good trip" {
		return fmt.Errorf("unexpected result: %s", read.Data.GetResultJson())
	}
	fmt.Println("completed:", read.Data.GetResultJson())
	return nil
}

func approve(ctx context.Context, signals workflowv1.WorkflowSignalServiceClient, runID string) error {
	_, err := signals.ApproveStep(ctx, &workflowv1.ApproveStepRequest{
		RunId:     runID,
		StepRef:   "review",
		RequestId: "approve-" + runID, // the same call again is the same decision
		Comment:   "have a good trip",
	})
	if err != nil {
		return fmt.Errorf("approve: %w", err)
	}
	fmt.Println("approved")
	return nil
}
