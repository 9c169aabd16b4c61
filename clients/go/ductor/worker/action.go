package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	workflowv1 "ductor.io/gen/go/ductor/workflow/v1"
)

// Action does the work of a task. It returns the output, which becomes JSON (a json.RawMessage is sent as it stands), or an error: an *Error to choose
// what the retry rules see. It must end when ctx does: the attempt is out of time, the run asked for it, the lease is lost, or the worker drains;
// context.Cause says which.
type Action func(ctx context.Context, task *Task) (any, error)

// Task is the attempt that an action works for. IdempotencyKey goes along with every effect.
type Task struct {
	*workflowv1.Task
	details atomic.Pointer[string]
}

// Progress tells how far the action is. It goes with the next heartbeat, feeds the step's heartbeat time-out, and the next attempt finds it in
// HeartbeatDetailsJson if this one is lost.
func (t *Task) Progress(details any) error {
	text, err := toJSON(details)
	if err == nil {
		t.details.Store(&text)
	}
	return err
}

// Error is a failure with a code: a gRPC code's name, or one of the action's own.
type Error struct {
	Code         string
	Message      string
	NonRetryable bool           // another try is useless
	RetryAfter   *time.Duration // where the action knows better than the step
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Why an action was stopped, as context.Cause tells it.
var (
	ErrTimedOut error = &Error{Code: "DEADLINE_EXCEEDED", Message: "the attempt's time-out passed"}
	ErrAsked    error = &Error{Code: "CANCELLED", Message: "the run asked the attempt to stop"}
	ErrLost           = errors.New("the lease is lost: there is nobody to report to")
	ErrDraining       = errors.New("the worker is draining")
)

// run runs the action of a task, whatever it does, and says what to report; nil when there is nobody to report to.
func (w *Worker) run(ctx context.Context, task *Task) *workflowv1.TaskCompletion {
	output, err := w.call(ctx, task)
	var text string
	if err == nil {
		if text, err = toJSON(output); err != nil {
			err = &Error{Code: "payload_invalid", Message: err.Error(), NonRetryable: true}
		}
	}
	if failure := (*Error)(nil); err != nil && ctx.Err() != nil && !errors.As(err, &failure) {
		err = context.Cause(ctx) // it ended because it was told to
	}
	switch {
	case err == nil:
		return succeeded(task.Task, text)
	case errors.Is(err, ErrLost):
		return nil
	case errors.Is(err, ErrDraining):
		return released(task.Task)
	default:
		return failed(task.Task, err)
	}
}

func (w *Worker) call(ctx context.Context, task *Task) (output any, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			slog.Error("an action panicked", "action", task.Action, "fault", fault, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", fault)
		}
	}()
	action := w.Actions[task.Action]
	if action == nil {
		return nil, &Error{Code: "UNIMPLEMENTED", Message: "this worker has no action " + task.Action}
	}
	return action(ctx, task)
}

func succeeded(task *workflowv1.Task, output string) *workflowv1.TaskCompletion {
	return &workflowv1.TaskCompletion{TaskToken: task.TaskToken, Outcome: &workflowv1.TaskCompletion_Success{
		Success: &workflowv1.TaskSuccess{OutputJson: output},
	}}
}

func failed(task *workflowv1.Task, err error) *workflowv1.TaskCompletion {
	failure := &Error{Code: "UNKNOWN", Message: err.Error()} // what nobody foresaw
	errors.As(err, &failure)
	report := &workflowv1.TaskFailure{
		Code: strings.ToValidUTF8(failure.Code, "�"), Message: strings.ToValidUTF8(failure.Message, "�"), NonRetryable: failure.NonRetryable,
	}
	if failure.RetryAfter != nil {
		ms := int32(failure.RetryAfter.Milliseconds())
		report.RetryAfterMs = &ms
	}
	return &workflowv1.TaskCompletion{TaskToken: task.TaskToken, Outcome: &workflowv1.TaskCompletion_Failure{Failure: report}}
}

func released(task *workflowv1.Task) *workflowv1.TaskCompletion {
	return &workflowv1.TaskCompletion{TaskToken: task.TaskToken, Outcome: &workflowv1.TaskCompletion_Release{
		Release: &workflowv1.TaskRelease{Reason: ErrDraining.Error()},
	}}
}

// toJSON is a value as JSON text. Ductor keeps the digits of numbers: so does a json.RawMessage or a json.Number, and a float64 does not.
func toJSON(value any) (string, error) {
	if raw, ok := value.(json.RawMessage); ok {
		if !utf8.Valid(raw) {
			return "", errors.New("the JSON is no UTF-8")
		}
		return string(raw), nil
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return "", err
	}
	return strings.TrimSuffix(text.String(), "\n"), nil
}

func millis[N int32 | int64](n N) time.Duration { return time.Duration(n) * time.Millisecond }
