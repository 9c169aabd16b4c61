package worker

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

const (
	maxBatch = 500
	maxBytes = 2_500_000 // of one call, well under the 3 MiB of the contract; a single message is always allowed
	maxCall  = 5 * time.Second
	maxPause = 2 * time.Second
)

// batches sends messages many at a time: what piles up while one call is under way goes with the next. A call that fails is made again until it is answered.
type batches[M proto.Message, S any] struct {
	call    func(context.Context, []M) ([]S, error) // one status for each message, in order
	mu      sync.Mutex
	waiting []entry[M, S]
	wake    chan struct{}
}

type entry[M proto.Message, S any] struct {
	ctx     context.Context // ends when nobody waits for the answer any more
	message func() M        // made for each call anew
	every   time.Duration
	answer  chan answer[S]
}

// answer is what became of a message. sent: just before the call that was answered; refused: the message will never be taken.
type answer[S any] struct {
	status  S
	sent    time.Time
	refused error
}

func newBatches[M proto.Message, S any](call func(context.Context, []M) ([]S, error)) *batches[M, S] {
	return &batches[M, S]{call: call, wake: make(chan struct{}, 1)}
}

// send puts a message in the queue. A call with it that fails is made again after `every` at the latest, with what message then returns.
func (b *batches[M, S]) send(ctx context.Context, message func() M, every time.Duration) <-chan answer[S] {
	e := entry[M, S]{ctx, message, every, make(chan answer[S], 1)}
	b.mu.Lock()
	b.waiting = append(b.waiting, e)
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
	return e.answer
}

// run sends until ctx ends.
func (b *batches[M, S]) run(ctx context.Context) {
	var pause pause
	alone := false // after a refusal, to find out whose it is
	for {
		batch, messages, every := b.take(alone)
		if len(batch) == 0 {
			alone = false
			select {
			case <-b.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		sent := time.Now()
		calling, cancel := context.WithTimeout(ctx, min(maxCall, max(every, time.Second)))
		statuses, err := b.call(calling, messages)
		cancel()
		switch {
		case err == nil && len(statuses) == len(batch):
			pause = 0
			for i, e := range batch {
				e.answer <- answer[S]{status: statuses[i], sent: sent}
			}
		case !refused(err):
			b.putBack(batch)
			slog.Warn("a call failed and is made again", "error", err)
			sleep(ctx, min(pause.next(), every))
		case len(batch) > 1:
			alone = true
			b.putBack(batch)
		default:
			batch[0].answer <- answer[S]{sent: sent, refused: err}
		}
	}
}

// take takes the next batch, without what nobody waits for, and the longest pause after a failure that all of it can bear.
func (b *batches[M, S]) take(alone bool) (batch []entry[M, S], messages []M, every time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	size := 0
	every = maxPause
	for len(b.waiting) > 0 && len(batch) < maxBatch && !(alone && len(batch) == 1) {
		e := b.waiting[0]
		if e.ctx.Err() == nil {
			message := e.message()
			if size += proto.Size(message) + 8; size > maxBytes && len(batch) > 0 {
				break
			}
			batch, messages = append(batch, e), append(messages, message)
			every = min(every, e.every)
		}
		b.waiting = b.waiting[1:]
	}
	return batch, messages, every
}

func (b *batches[M, S]) putBack(batch []entry[M, S]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(batch, b.waiting...)
}

// refused says whether a call would fail like this for ever.
func refused(err error) bool {
	s := status.Convert(err)
	switch s.Code() {
	case codes.InvalidArgument, codes.OutOfRange:
		return true
	case codes.ResourceExhausted: // a message over a limit, unless it is a server that wants a rest
		for _, detail := range s.Details() {
			if _, passes := detail.(*errdetails.RetryInfo); passes {
				return false
			}
		}
		return true
	default:
		return false
	}
}

// pause grows with each failure in a row, from 100 ms to 2 s.
type pause time.Duration

func (p *pause) next() time.Duration {
	*p = min(max(2**p, pause(100*time.Millisecond)), pause(maxPause*4/5))
	return time.Duration(*p + rand.N(*p/4))
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
