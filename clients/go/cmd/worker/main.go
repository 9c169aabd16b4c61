// A worker with the four actions of the conformance (clients/README.md): put yours in their place.
package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"ductor.io/clients/go/ductor"
	"ductor.io/clients/go/ductor/worker"
	workflowv1 "ductor.io/gen/go/ductor/workflow/v1"
)

func main() {
	connection, err := ductor.Dial()
	if err != nil {
		slog.Error("cannot start", "error", err)
		os.Exit(2)
	}
	defer connection.Close()
	queue := os.Getenv("DUCTOR_QUEUE")
	if queue == "" {
		slog.Error("DUCTOR_QUEUE is not set: the queue to poll")
		os.Exit(2)
	}
	drainMs, _ := strconv.Atoi(os.Getenv("DUCTOR_DRAIN_MS"))
	w := worker.Worker{
		Client: workflowv1.NewTaskServiceClient(connection),
		Queues: []string{queue},
		Actions: map[string]worker.Action{
			"conformance:echo":       echo,
			"conformance:sleep":      sleep,
			"conformance:fail":       fail,
			"conformance:bad_output": badOutput,
		},
		Drain: time.Duration(drainMs) * time.Millisecond,
	}

	// The first signal drains, a second one gives everything back at once.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	drain := make(chan struct{})
	ctx, giveBack := context.WithCancel(context.Background())
	go func() {
		<-signals
		close(drain)
		<-signals
		giveBack()
	}()
	w.Run(ctx, drain)
}

func echo(_ context.Context, task *worker.Task) (any, error) {
	return json.RawMessage(task.InputJson), nil
}

type slept struct {
	Ms int64 `json:"slept_ms"`
}

// sleep goes on where an attempt before this one was lost.
func sleep(ctx context.Context, task *worker.Task) (any, error) {
	var args struct{ Ms int64 }
	if err := json.Unmarshal([]byte(task.InputJson), &args); err != nil {
		return nil, &worker.Error{Code: "INVALID_ARGUMENT", Message: err.Error(), NonRetryable: true}
	}
	var before slept
	if task.HeartbeatDetailsJson != nil {
		if err := json.Unmarshal([]byte(*task.HeartbeatDetailsJson), &before); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	now := func() slept { return slept{before.Ms + time.Since(began).Milliseconds()} }
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for now().Ms < args.Ms {
		if err := task.Progress(now()); err != nil {
			return nil, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return map[string]any{
		"slept_ms": now().Ms, "resumed_at_ms": before.Ms, "tenant_id": task.TenantId, "run_id": task.RunId, "step_ref": task.StepRef,
		"item_index": task.ItemIndex, "attempt": task.Attempt, "idempotency_key": task.IdempotencyKey,
	}, nil
}

func fail(_ context.Context, task *worker.Task) (any, error) {
	args := struct {
		Code, Message string
		Times         *int32
		NonRetryable  bool   `json:"non_retryable"`
		RetryAfterMs  *int64 `json:"retry_after_ms"`
	}{Code: "UNKNOWN"}
	if err := json.Unmarshal([]byte(task.InputJson), &args); err != nil {
		return nil, &worker.Error{Code: "INVALID_ARGUMENT", Message: err.Error(), NonRetryable: true}
	}
	if args.Times != nil && task.Attempt > *args.Times {
		return map[string]any{"attempt": task.Attempt}, nil
	}
	failure := &worker.Error{Code: args.Code, Message: args.Message, NonRetryable: args.NonRetryable}
	if args.RetryAfterMs != nil {
		after := time.Duration(*args.RetryAfterMs) * time.Millisecond
		failure.RetryAfter = &after
	}
	return nil, failure
}

// badOutput answers what is no JSON. The engine fails the attempt for it, and the worker goes on.
func badOutput(context.Context, *worker.Task) (any, error) {
	return json.RawMessage(`{"open":`), nil
}
