package worker

import (
	"context"
	"log/slog"
	"time"

	workflowv1 "ductor.io/gen/go/ductor/workflow/v1"
)

// giveUp is how long after the end of its lease a report is still tried: dispatch may be away.
const giveUp = time.Minute

// lease is one task from the poll's answer until its report is answered and its action has ended.
type lease struct {
	*Task
	worker *Worker
	log    *slog.Logger
	until  time.Time // it lasts at least until then: counted from before the call that took or renewed it
	every  time.Duration

	stop   context.CancelCauseFunc // ends the action
	ctx    context.Context         // until there is nothing more to tell dispatch
	settle context.CancelFunc

	report   *workflowv1.TaskCompletion
	answered <-chan answer[workflowv1.TaskCompletionStatus]
	tooLate  <-chan time.Time
}

// work sees a task through: it runs the action, beats for it until its report is answered, and stops it when it must end.
func (w *Worker) work(task *workflowv1.Task, asked time.Time) {
	l := &lease{Task: &Task{Task: task}, worker: w, every: millis(task.HeartbeatIntervalMs), until: asked.Add(millis(task.LeaseMs))}
	l.log = slog.With("run_id", task.RunId, "step_ref", task.StepRef, "attempt", task.Attempt, "action", task.Action)
	l.ctx, l.settle = context.WithCancel(context.Background())
	defer l.settle()
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	l.stop = stop

	ended := make(chan *workflowv1.TaskCompletion, 1)
	go func() { ended <- w.run(ctx, l.Task) }()
	// A poll may have waited for long; the action all the same gets the time to tell how far it is.
	beat := time.NewTimer(max(time.Until(asked.Add(l.every)), l.every/3))
	defer beat.Stop()
	var timeout, disobeyed <-chan time.Time
	if task.RemainingMs != nil {
		timeout = time.After(millis(*task.RemainingMs))
	}
	var details *string // of the last call
	heartbeat := func() *workflowv1.TaskHeartbeat {
		details = l.details.Load()
		return &workflowv1.TaskHeartbeat{TaskToken: task.TaskToken, DetailsJson: details}
	}
	var beaten <-chan answer[workflowv1.TaskHeartbeatStatus]
	giveBack := w.giveBack

	for running := true; running || l.ctx.Err() == nil; {
		select {
		case <-beat.C:
			if l.ctx.Err() == nil {
				beaten = w.beats.send(l.ctx, heartbeat, l.every)
			}
		case result := <-beaten:
			beat.Reset(time.Until(result.sent.Add(l.every)))
			l.details.CompareAndSwap(details, nil)
			l.beaten(result)
		case completion := <-ended:
			running = false
			l.tell(completion)
		case <-timeout: // told at once, however long the action takes to end
			stop(ErrTimedOut)
			l.tell(failed(task, ErrTimedOut))
		case <-giveBack:
			giveBack = nil
			stop(ErrDraining)
			disobeyed = time.After(w.obey)
		case <-disobeyed: // the action ends with the process
			running = false
			l.tell(released(task))
		case result := <-l.answered:
			l.told(result)
		case <-l.tooLate:
			l.log.Error("gave up reporting: the lease is long lost")
			l.settle()
		}
	}
}

// beaten does what the answer to a heartbeat asks for.
func (l *lease) beaten(result answer[workflowv1.TaskHeartbeatStatus]) {
	switch {
	case result.refused != nil:
		l.log.Error("a heartbeat was refused", "error", result.refused)
	case result.status == workflowv1.TaskHeartbeatStatus_TASK_HEARTBEAT_STATUS_LEASE_LOST:
		l.log.Warn("the lease is lost")
		l.stop(ErrLost)
		l.settle()
	default:
		l.until = result.sent.Add(millis(l.LeaseMs))
		if result.status == workflowv1.TaskHeartbeatStatus_TASK_HEARTBEAT_STATUS_CANCEL {
			l.stop(ErrAsked)
		}
	}
}

// tell reports what became of the task, once; nil settles it without a word.
func (l *lease) tell(completion *workflowv1.TaskCompletion) {
	if completion == nil {
		l.settle()
	}
	if l.report == nil && l.ctx.Err() == nil {
		l.send(completion)
	}
}

func (l *lease) send(completion *workflowv1.TaskCompletion) {
	l.report = completion
	l.answered = l.worker.reports.send(l.ctx, func() *workflowv1.TaskCompletion { return completion }, maxPause)
	l.tooLate = time.After(time.Until(l.until) + giveUp)
}

// told does what the answer to the report asks for: nothing, but where an output is refused. Lost with its lease it would be made again and again, so its
// attempt fails for good.
func (l *lease) told(result answer[workflowv1.TaskCompletionStatus]) {
	if result.refused != nil && l.report.GetSuccess() != nil {
		l.log.Error("the output is refused", "error", result.refused)
		l.send(failed(l.Task.Task, &Error{Code: "payload_invalid", Message: "the output is refused: " + result.refused.Error(), NonRetryable: true}))
		return
	}
	if result.refused != nil || result.status != workflowv1.TaskCompletionStatus_TASK_COMPLETION_STATUS_OK {
		l.log.Warn("the report was not taken", "status", result.status, "error", result.refused)
	}
	l.settle()
}
