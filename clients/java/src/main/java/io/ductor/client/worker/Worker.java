package io.ductor.client.worker;

import com.google.common.util.concurrent.Futures;
import com.google.common.util.concurrent.ListenableFuture;
import com.google.common.util.concurrent.MoreExecutors;
import io.ductor.workflow.v1.*;
import io.ductor.workflow.v1.TaskServiceGrpc.TaskServiceFutureStub;
import io.grpc.ManagedChannel;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;

/**
 * Works for Ductor: leases tasks, runs the actions that they ask for, keeps their leases, reports what became of them, and drains. It needs nothing but the
 * stubs of TaskService.
 */
public final class Worker {
  static final System.Logger log = System.getLogger(Worker.class.getName());

  private static final int POLL_WAIT_MS = 10_000; // how long a poll waits for a first task
  private static final int CALL_MARGIN_MS = 10_000; // how much longer it may take before it counts as lost
  private static final String NOBODYS = "-"; // an action that no task can have

  private final String id = "java-" + ProcessHandle.current().pid() + "-" + UUID.randomUUID(); // new at every start: it never speaks for its predecessor
  private final ManagedChannel channel;
  private final List<String> queues;
  private final Map<String, Action> actions;
  private final int slots;
  private final long drainMs;
  private final CountDownLatch ended = new CountDownLatch(1);

  final Loop loop = new Loop();
  final Batches<TaskHeartbeat, TaskHeartbeatStatus> beats = new Batches<>(loop, this::heartbeat, this::reconnect);
  final Batches<TaskCompletion, TaskCompletionStatus> reports = new Batches<>(loop, this::complete, this::reconnect);
  private final Set<Lease> leases = new HashSet<>();
  private final Pause pause = new Pause();
  private ListenableFuture<PollTasksResponse> polling;
  private String pollId = UUID.randomUUID().toString();
  private boolean unanswered; // a poll with that id was made, and its answer may be lost
  private boolean pausing;
  private boolean draining;
  private boolean reclaiming;

  /**
   * @param slots how many tasks it works on side by side
   * @param drain how long it may take from the stop until it has ended
   */
  public Worker(ManagedChannel channel, List<String> queues, Map<String, Action> actions, int slots, Duration drain) {
    this.channel = channel;
    this.queues = List.copyOf(queues);
    this.actions = Map.copyOf(actions);
    this.slots = slots;
    this.drainMs = drain.toMillis();
  }

  /** Works until it was stopped and has drained. */
  public void run() throws InterruptedException {
    loop.execute(this::poll);
    ended.await();
    loop.end();
  }

  /** Takes nothing more, lets finish what can in time, and gives the rest back. A second call gives everything back at once. */
  public void stop() {
    loop.execute(() -> {
      if (draining) {
        giveBack();
        loop.later(1_500, ended::countDown);
        return;
      }
      draining = true;
      loop.later(drainMs - Math.min(1_000, drainMs / 4), this::giveBack);
      loop.later(drainMs, ended::countDown);
      if (polling != null) {
        polling.cancel(true);
      } else if (unanswered) {
        reclaim();
      }
      endIfIdle();
    });
  }

  /** How long an action may take to end when its task is given back. */
  long obeyMs() {
    return Math.min(300, drainMs / 10);
  }

  Action action(String name) {
    return actions.get(name);
  }

  private void giveBack() {
    List.copyOf(leases).forEach(Lease::giveBack);
  }

  /** A task is done with: there is room for another. */
  void through(Lease lease) {
    leases.remove(lease);
    poll();
    endIfIdle();
  }

  private void endIfIdle() {
    if (draining && polling == null && !reclaiming && leases.isEmpty()) {
      ended.countDown();
    }
  }

  private void poll() {
    if (polling != null || pausing || draining || leases.size() >= slots) {
      return;
    }
    var asked = System.nanoTime();
    polling = stub(POLL_WAIT_MS + CALL_MARGIN_MS).pollTasks(PollTasksRequest.newBuilder()
        .addAllQueues(queues)
        .addAllActions(actions.keySet())
        .setWorkerId(id)
        .setPollId(pollId)
        .setMaxTasks(slots - leases.size())
        .setWaitMs(POLL_WAIT_MS)
        .build());
    polling.addListener(() -> polled(asked), loop);
  }

  private void polled(long asked) {
    var call = polling;
    polling = null;
    try {
      begin(Futures.getDone(call), asked);
      pollId = UUID.randomUUID().toString();
      unanswered = false;
      pause.reset();
      poll();
    } catch (CancellationException | ExecutionException error) {
      unanswered = true; // if only its answer was lost, the same id brings its tasks again
      if (draining) {
        reclaim();
        return;
      }
      log.log(System.Logger.Level.WARNING, "a poll failed: {0}", error.getMessage());
      pausing = true;
      loop.later(pause.nextMs(), () -> {
        pausing = false;
        reconnect();
        poll();
      });
    }
    endIfIdle();
  }

  /** Gives back what a poll brought whose answer nobody heard: its id hands that out again and, as the action is nobody's, nothing else. */
  private void reclaim() {
    reclaiming = true;
    var asked = System.nanoTime();
    var call = stub(Math.min(1_000, drainMs / 4)).pollTasks(PollTasksRequest.newBuilder()
        .addAllQueues(queues)
        .addActions(NOBODYS)
        .setWorkerId(id)
        .setPollId(pollId)
        .setMaxTasks(slots)
        .build());
    call.addListener(() -> {
      reclaiming = false;
      try {
        begin(Futures.getDone(call), asked);
      } catch (ExecutionException error) {
        log.log(System.Logger.Level.DEBUG, "what the last poll brought is not known: its leases end by themselves");
      }
      endIfIdle();
    }, loop);
  }

  private void begin(PollTasksResponse polled, long asked) {
    for (var task : polled.getTasksList()) {
      var lease = new Lease(this, task, asked);
      leases.add(lease);
      if (draining) {
        lease.decline();
      } else {
        lease.begin();
      }
    }
  }

  private ListenableFuture<List<TaskHeartbeatStatus>> heartbeat(List<TaskHeartbeat> heartbeats, long timeoutMs) {
    var reply = stub(timeoutMs).heartbeatTasks(HeartbeatTasksRequest.newBuilder().addAllHeartbeats(heartbeats).build());
    return Futures.transform(
        reply, answer -> answer.getResultsList().stream().map(TaskHeartbeatResult::getStatus).toList(), MoreExecutors.directExecutor());
  }

  private ListenableFuture<List<TaskCompletionStatus>> complete(List<TaskCompletion> completions, long timeoutMs) {
    var reply = stub(timeoutMs).completeTasks(CompleteTasksRequest.newBuilder().addAllCompletions(completions).build());
    return Futures.transform(
        reply, answer -> answer.getResultsList().stream().map(TaskCompletionResult::getStatus).toList(), MoreExecutors.directExecutor());
  }

  /** By itself the channel would wait up to two minutes before it connects again. */
  private void reconnect() {
    channel.resetConnectBackoff();
  }

  private TaskServiceFutureStub stub(long timeoutMs) {
    return TaskServiceGrpc.newFutureStub(channel).withDeadlineAfter(timeoutMs, TimeUnit.MILLISECONDS);
  }
}
