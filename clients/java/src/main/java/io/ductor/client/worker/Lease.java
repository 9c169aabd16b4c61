package io.ductor.client.worker;

import io.ductor.workflow.v1.*;
import java.lang.System.Logger.Level;
import java.nio.charset.StandardCharsets;
import java.util.Objects;
import java.util.concurrent.Future;

/**
 * One task from the poll's answer until its report is answered and its action has ended. Lives on the worker's loop; the action has a thread of its own.
 */
final class Lease {
  private static final long GIVE_UP_MS = 60_000; // how long after the end of its lease a report is still tried: dispatch may be away

  /** Why an action was told to end. */
  private enum Stop {
    TIMED_OUT,
    ASKED,
    LOST,
    DRAINING
  }

  private final Worker worker;
  private final Task task;
  private final ActionContext context;
  private final long everyMs;
  private long until; // the lease lasts at least until then: counted from before the call that took or renewed it
  private Thread action;
  private Stop stop;
  private String details; // of the last heartbeat
  private boolean running;
  private TaskCompletion report;
  private boolean settled; // there is nothing more to tell dispatch
  private Future<?> beat;
  private Future<?> timeout;

  Lease(Worker worker, Task task, long asked) {
    this.worker = worker;
    this.task = task;
    this.context = new ActionContext(task);
    this.everyMs = task.getHeartbeatIntervalMs();
    this.until = asked + task.getLeaseMs() * 1_000_000L;
    // A poll may have waited for long; the action all the same gets the time to tell how far it is.
    this.beat = worker.loop.later(Math.max(everyMs - (System.nanoTime() - asked) / 1_000_000, everyMs / 3), this::beat);
  }

  /** Gives back what came too late to be begun. */
  void decline() {
    tell(released());
  }

  void begin() {
    running = true;
    if (task.hasRemainingMs()) {
      timeout = worker.loop.later(task.getRemainingMs(), () -> {
        stop(Stop.TIMED_OUT);
        tell(failed("DEADLINE_EXCEEDED", "the attempt's time-out passed")); // at once, however long the action takes to end
      });
    }
    action = new Thread(() -> {
      String output = null;
      Throwable error = null;
      try {
        output = perform();
      } catch (Throwable thrown) { // whatever an action does, it is its attempt that fails
        error = thrown;
      }
      var result = output;
      var failure = error;
      worker.loop.execute(() -> ended(result, failure));
    }, task.getAction() + " " + task.getStepRef());
    action.setDaemon(true); // one that ignores that it must end does not hold up the end of the process
    action.start();
  }

  /** The drain's time is over. */
  void giveBack() {
    if (running && stop != Stop.DRAINING) {
      stop(Stop.DRAINING);
      worker.loop.later(worker.obeyMs(), () -> { // the action ignores that it must end
        if (running) {
          running = false;
          tell(released());
          endIfThrough();
        }
      });
    }
  }

  private String perform() throws Exception {
    var chosen = worker.action(task.getAction());
    if (chosen == null) {
      throw new ActionException("UNIMPLEMENTED", "this worker has no action " + task.getAction());
    }
    var output = Objects.requireNonNullElse(chosen.run(context), "null");
    if (!StandardCharsets.UTF_8.newEncoder().canEncode(output)) {
      throw new ActionException("payload_invalid", "the output is no Unicode", true, null);
    }
    return output;
  }

  private void ended(String output, Throwable error) {
    if (!running) {
      return;
    }
    running = false;
    if (error == null) {
      tell(completion().setSuccess(TaskSuccess.newBuilder().setOutputJson(output)).build());
    } else if (error instanceof ActionException failure) {
      tell(failed(failure));
    } else if (stop == Stop.ASKED) {
      tell(failed("CANCELLED", "the run asked the attempt to stop"));
    } else if (stop == Stop.DRAINING) {
      tell(released());
    } else if (stop == null) {
      Worker.log.log(Level.WARNING, "action " + task.getAction() + " threw", error);
      tell(failed("UNKNOWN", error.toString()));
    }
    endIfThrough();
  }

  private void beat() {
    worker.beats.send(this::heartbeat, everyMs, () -> !settled, this::beaten);
  }

  private TaskHeartbeat heartbeat() {
    details = context.details.get();
    var heartbeat = TaskHeartbeat.newBuilder().setTaskToken(task.getTaskToken());
    return details == null ? heartbeat.build() : heartbeat.setDetailsJson(details).build();
  }

  private void beaten(Batches.Answer<TaskHeartbeatStatus> answer) {
    if (settled) {
      return;
    }
    context.details.compareAndSet(details, null);
    beat = worker.loop.later(everyMs - (System.nanoTime() - answer.sent()) / 1_000_000, this::beat);
    if (answer.refused() != null) {
      log(Level.ERROR, "a heartbeat was refused: " + answer.refused());
      return;
    }
    if (answer.status() == TaskHeartbeatStatus.TASK_HEARTBEAT_STATUS_LEASE_LOST) {
      log(Level.WARNING, "the lease is lost");
      stop(Stop.LOST);
      settle();
      return;
    }
    until = answer.sent() + task.getLeaseMs() * 1_000_000L;
    if (answer.status() == TaskHeartbeatStatus.TASK_HEARTBEAT_STATUS_CANCEL) {
      stop(Stop.ASKED);
    }
  }

  /** Tells the action to end; of several reasons the first counts. */
  private void stop(Stop why) {
    if (running && stop == null) {
      stop = why;
      action.interrupt();
    }
  }

  /** Reports what became of the task, once. */
  private void tell(TaskCompletion completion) {
    if (report == null && !settled) {
      send(completion);
    }
  }

  private void send(TaskCompletion completion) {
    report = completion;
    worker.reports.send(() -> completion, Pause.MAX_MS, this::reporting, this::told);
  }

  private boolean reporting() {
    if (!settled && System.nanoTime() - until > GIVE_UP_MS * 1_000_000) {
      log(Level.ERROR, "gave up reporting: the lease is long lost");
      settle();
    }
    return !settled;
  }

  /**
   * The report is answered. Where an output is refused its attempt fails for good: lost with its lease it would be made again and again.
   */
  private void told(Batches.Answer<TaskCompletionStatus> answer) {
    if (answer.refused() != null && report.hasSuccess()) {
      log(Level.ERROR, "the output is refused: " + answer.refused());
      send(failed(new ActionException("payload_invalid", "the output is refused: " + answer.refused().getDescription(), true, null)));
      return;
    }
    if (answer.status() != TaskCompletionStatus.TASK_COMPLETION_STATUS_OK) {
      log(Level.WARNING, "the report was not taken: " + (answer.refused() != null ? answer.refused() : answer.status()));
    }
    settle();
  }

  private void settle() {
    settled = true;
    beat.cancel(false);
    endIfThrough();
  }

  private void endIfThrough() {
    if (running || !settled) {
      return;
    }
    if (timeout != null) {
      timeout.cancel(false);
    }
    worker.through(this);
  }

  private TaskCompletion.Builder completion() {
    return TaskCompletion.newBuilder().setTaskToken(task.getTaskToken());
  }

  private TaskCompletion released() {
    return completion().setRelease(TaskRelease.newBuilder().setReason("the worker is draining")).build();
  }

  private TaskCompletion failed(String code, String message) {
    return failed(new ActionException(code, message));
  }

  private TaskCompletion failed(ActionException error) {
    var failure = TaskFailure.newBuilder().setCode(error.code()).setNonRetryable(error.nonRetryable());
    if (error.getMessage() != null) {
      failure.setMessage(error.getMessage());
    }
    error.retryAfter().ifPresent(pause -> failure.setRetryAfterMs((int) pause.toMillis()));
    return completion().setFailure(failure).build();
  }

  private void log(Level level, String text) {
    Worker.log.log(level, "{0} [run {1}, step {2}, attempt {3}]", text, task.getRunId(), task.getStepRef(), task.getAttempt());
  }
}
