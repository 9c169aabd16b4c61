package io.ductor.client.worker;

import java.util.concurrent.Executor;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/** The one thread that everything but the actions happens on, so that nothing needs a lock. */
final class Loop implements Executor {
  private final ScheduledThreadPoolExecutor thread = new ScheduledThreadPoolExecutor(1, work -> new Thread(work, "ductor-worker"));

  Loop() {
    thread.setRemoveOnCancelPolicy(true);
    thread.setExecuteExistingDelayedTasksAfterShutdownPolicy(false);
    thread.setRejectedExecutionHandler((work, executor) -> {}); // it has ended: nobody waits for this any more
  }

  @Override
  public void execute(Runnable work) {
    thread.execute(guarded(work));
  }

  Future<?> later(long ms, Runnable work) {
    return thread.schedule(guarded(work), Math.max(ms, 0), TimeUnit.MILLISECONDS);
  }

  void end() {
    thread.shutdownNow();
  }

  private static Runnable guarded(Runnable work) {
    return () -> {
      try {
        work.run();
      } catch (Throwable fault) {
        Worker.log.log(System.Logger.Level.ERROR, "a turn of the worker failed", fault);
      }
    };
  }
}
