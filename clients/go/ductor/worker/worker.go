// Package worker works for Ductor: it leases tasks, runs the actions that they ask for, keeps their leases, reports what became of them, and drains.
// It needs nothing but the stubs of TaskService.
package worker

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	workflowv1 "ductor.io/gen/go/ductor/workflow/v1"
)

const (
	pollWait   = 10 * time.Second // how long a poll waits for a first task
	callMargin = 10 * time.Second // how much longer it may take before it counts as lost
	nobodys    = "-"              // an action that no task can have
)

// Worker polls queues for tasks of its actions. Its fields are set before Run.
type Worker struct {
	Client  workflowv1.TaskServiceClient
	Queues  []string
	Actions map[string]Action
	Slots   int           // how many tasks it works on side by side; 16 by default
	Drain   time.Duration // how long it may take from being told to stop until it has ended; 10 s by default

	id       string
	free     chan struct{} // one for each free slot
	working  sync.WaitGroup
	giveBack chan struct{} // closed: what still runs goes back
	obey     time.Duration // how long an action may take to end then
	beats    *batches[*workflowv1.TaskHeartbeat, workflowv1.TaskHeartbeatStatus]
	reports  *batches[*workflowv1.TaskCompletion, workflowv1.TaskCompletionStatus]
}

// Run works until drain is closed: then it takes nothing more, lets finish what can in time, gives the rest back and returns. When ctx ends it gives
// everything back at once.
func (w *Worker) Run(ctx context.Context, drain <-chan struct{}) {
	w.Slots, w.Drain = cmp.Or(w.Slots, 16), cmp.Or(w.Drain, 10*time.Second)
	w.obey = min(300*time.Millisecond, w.Drain/10)
	host, _ := os.Hostname()
	w.id = fmt.Sprintf("%.64s-%d-%s", host, os.Getpid(), rand.Text()) // new at every start: it never speaks for its predecessor
	w.giveBack = make(chan struct{})
	w.free = make(chan struct{}, w.Slots)
	w.release(w.Slots)
	w.beats, w.reports = newBatches(w.heartbeat), newBatches(w.complete)

	calling, hangUp := context.WithCancel(context.WithoutCancel(ctx)) // reports still go out when ctx has ended
	defer hangUp()
	go w.beats.run(calling)
	go w.reports.run(calling)

	polling, stop := context.WithCancel(ctx)
	stopped := make(chan time.Time, 1)
	go func() {
		defer stop()
		select {
		case <-drain:
		case <-ctx.Done():
		}
		stopped <- time.Now()
	}()
	unanswered := w.poll(polling)

	end := (<-stopped).Add(w.Drain)
	if unanswered != "" {
		w.reclaim(calling, unanswered)
	}
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		w.working.Wait()
	}()
	select {
	case <-idle:
	case <-ctx.Done():
		end = time.Now().Add(min(w.Drain, 1500*time.Millisecond))
	case <-time.After(time.Until(end) - min(time.Second, w.Drain/4)):
	}
	close(w.giveBack)
	select {
	case <-idle:
	case <-time.After(time.Until(end)):
		slog.Error("the drain's time is over: the leases of unanswered reports end by themselves")
	}
}

// poll takes tasks for free slots until polling ends. It returns the id of a poll that may have been answered unheard.
func (w *Worker) poll(polling context.Context) string {
	actions := slices.Sorted(maps.Keys(w.Actions))
	var pause pause
	for id, sent := rand.Text(), false; ; {
		free := w.take(polling)
		if polling.Err() != nil {
			if sent {
				return id
			}
			return ""
		}
		asked := time.Now()
		ctx, cancel := context.WithTimeout(polling, pollWait+callMargin)
		reply, err := w.Client.PollTasks(ctx, &workflowv1.PollTasksRequest{
			Queues: w.Queues, Actions: actions, WorkerId: w.id, PollId: id, MaxTasks: int32(free), WaitMs: int32(pollWait.Milliseconds()),
		})
		cancel()
		if err != nil {
			sent = true // if only its answer was lost, the same id brings its tasks again
			w.release(free)
			if polling.Err() == nil {
				slog.Warn("a poll failed", "error", err)
				sleep(polling, pause.next())
			}
			continue
		}
		id, sent, pause = rand.Text(), false, 0
		w.release(free - len(reply.Tasks))
		for _, task := range reply.Tasks {
			if polling.Err() != nil { // the answer was faster than the end of its call
				w.decline(task)
			} else {
				w.working.Go(func() {
					defer w.release(1)
					w.work(task, asked)
				})
			}
		}
	}
}

// take waits for a free slot and takes all there are.
func (w *Worker) take(polling context.Context) (n int) {
	select {
	case <-w.free:
		n = 1
	case <-polling.Done():
		return 0
	}
	for {
		select {
		case <-w.free:
			n++
		default:
			return n
		}
	}
}

func (w *Worker) release(n int) {
	for range n {
		w.free <- struct{}{}
	}
}

// reclaim gives back what a poll brought whose answer nobody heard: its id hands that out again and, as the action is nobody's, nothing else.
func (w *Worker) reclaim(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, min(time.Second, w.Drain/4))
	defer cancel()
	reply, err := w.Client.PollTasks(ctx, &workflowv1.PollTasksRequest{
		Queues: w.Queues, Actions: []string{nobodys}, WorkerId: w.id, PollId: id, MaxTasks: int32(w.Slots),
	})
	if err != nil {
		return // then their leases end by themselves
	}
	for _, task := range reply.Tasks {
		w.decline(task)
	}
}

// decline gives back what came too late to be begun.
func (w *Worker) decline(task *workflowv1.Task) {
	w.working.Go(func() {
		<-w.reports.send(context.Background(), func() *workflowv1.TaskCompletion { return released(task) }, maxPause)
	})
}

func (w *Worker) complete(ctx context.Context, completions []*workflowv1.TaskCompletion) ([]workflowv1.TaskCompletionStatus, error) {
	reply, err := w.Client.CompleteTasks(ctx, &workflowv1.CompleteTasksRequest{Completions: completions})
	var statuses []workflowv1.TaskCompletionStatus
	for _, result := range reply.GetResults() {
		statuses = append(statuses, result.Status)
	}
	return statuses, err
}

func (w *Worker) heartbeat(ctx context.Context, heartbeats []*workflowv1.TaskHeartbeat) ([]workflowv1.TaskHeartbeatStatus, error) {
	reply, err := w.Client.HeartbeatTasks(ctx, &workflowv1.HeartbeatTasksRequest{Heartbeats: heartbeats})
	var statuses []workflowv1.TaskHeartbeatStatus
	for _, result := range reply.GetResults() {
		statuses = append(statuses, result.Status)
	}
	return statuses, err
}
