package io.ductor.client.worker;

/**
 * Does the work of a task, in a thread of its own. It is interrupted when it must end: the attempt is out of time, the run asked for it, the lease is
 * lost, or the worker drains.
 */
@FunctionalInterface
public interface Action {
  /**
   * Returns the output as JSON text, which is sent as it stands; null stands for JSON's null.
   *
   * @throws ActionException to choose what the retry rules of the step see; any other exception is reported as UNKNOWN
   */
  String run(ActionContext context) throws Exception;
}
