package io.ductor.client.worker;

import java.time.Duration;
import java.util.Optional;

/** A failure with a code: a gRPC code's name, or one of the action's own. */
public final class ActionException extends Exception {
  private static final long serialVersionUID = 1;

  private final String code;
  private final boolean nonRetryable;
  private final Duration retryAfter;

  public ActionException(String code, String message) {
    this(code, message, false, null);
  }

  /**
   * @param nonRetryable whether another try is useless
   * @param retryAfter the pause before the next attempt, where the action knows better than the step; else null
   */
  public ActionException(String code, String message, boolean nonRetryable, Duration retryAfter) {
    super(message);
    this.code = code;
    this.nonRetryable = nonRetryable;
    this.retryAfter = retryAfter;
  }

  public String code() {
    return code;
  }

  public boolean nonRetryable() {
    return nonRetryable;
  }

  public Optional<Duration> retryAfter() {
    return Optional.ofNullable(retryAfter);
  }
}
