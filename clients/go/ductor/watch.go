package ductor

import (
	"context"
	"iter"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	workflowv1 "ductor.io/gen/go/ductor/workflow/v1"
)

// Watch follows a run until its last message. A stream that breaks because its server goes away is opened again, behind what was already told.
func Watch(ctx context.Context, client workflowv1.WorkflowServiceClient, runID string) iter.Seq2[*workflowv1.WatchRunResponse, error] {
	return func(yield func(*workflowv1.WatchRunResponse, error) bool) {
		ctx, hangUp := context.WithCancel(ctx)
		defer hangUp()
		request := &workflowv1.WatchRunRequest{RunId: runID}
		for {
			stream, err := client.WatchRun(ctx, request)
			for err == nil {
				var message *workflowv1.WatchRunResponse
				if message, err = stream.Recv(); err == nil {
					if !yield(message, nil) || message.Ended {
						return
					}
					request.RunId, request.AfterSeq = message.RunId, &message.Seq
				}
			}
			// Cancelled, and not by us: a server that stopped before it took the call up.
			if code := status.Code(err); ctx.Err() != nil || code != codes.Unavailable && code != codes.Canceled {
				yield(nil, err)
				return
			}
			select {
			case <-time.After(500 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
}
