package io.ductor.client.worker;

import io.ductor.workflow.v1.Task;
import java.util.concurrent.atomic.AtomicReference;

/** The attempt that an action works for. The task's idempotency key goes along with every effect. */
public final class ActionContext {
  private final Task task;
  final AtomicReference<String> details = new AtomicReference<>();

  ActionContext(Task task) {
    this.task = task;
  }

  public Task task() {
    return task;
  }

  /**
   * Tells how far the action is, as JSON text. It goes with the next heartbeat, feeds the step's heartbeat time-out, and the next attempt finds it in its
   * heartbeat_details_json if this one is lost.
   */
  public void progress(String detailsJson) {
    details.set(detailsJson);
  }
}
