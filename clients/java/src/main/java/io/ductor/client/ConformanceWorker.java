package io.ductor.client;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import io.ductor.client.worker.Action;
import io.ductor.client.worker.ActionContext;
import io.ductor.client.worker.ActionException;
import io.ductor.client.worker.Worker;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import sun.misc.Signal;

/** A worker with the four actions of the conformance (clients/README.md): put yours in their place. */
public final class ConformanceWorker {
  private static final Map<String, Action> ACTIONS = Map.of(
      "conformance:echo", context -> context.task().getInputJson(),
      "conformance:sleep", ConformanceWorker::sleep,
      "conformance:fail", ConformanceWorker::fail,
      "conformance:bad_output", context -> "{\"open\":");

  public static void main(String[] arguments) throws Exception {
    var queue = Objects.requireNonNull(System.getenv("DUCTOR_QUEUE"), "DUCTOR_QUEUE is not set: the queue to poll");
    var drain = Duration.ofMillis(Long.parseLong(Optional.ofNullable(System.getenv("DUCTOR_DRAIN_MS")).orElse("10000")));
    var channel = Ductor.connect();
    var worker = new Worker(channel, List.of(queue), ACTIONS, 16, drain);
    // Not a shutdown hook: after a signal that the JVM takes itself the exit code would not be 0. The first drains, a second gives everything back at once.
    for (var name : List.of("TERM", "INT")) {
      Signal.handle(new Signal(name), signal -> worker.stop());
    }
    worker.run();
    channel.shutdownNow();
    System.exit(0);
  }

  /** Goes on where an attempt before this one was lost. */
  private static String sleep(ActionContext context) throws InterruptedException {
    var task = context.task();
    var ms = arguments(context).get("ms").getAsLong();
    var before = task.hasHeartbeatDetailsJson()
        ? JsonParser.parseString(task.getHeartbeatDetailsJson()).getAsJsonObject().get("slept_ms").getAsLong()
        : 0;
    var began = System.nanoTime();
    var slept = before;
    while (slept < ms) {
      context.progress("{\"slept_ms\": " + slept + "}");
      Thread.sleep(Math.min(20, ms - slept));
      slept = before + (System.nanoTime() - began) / 1_000_000;
    }
    var output = new JsonObject();
    output.addProperty("slept_ms", slept);
    output.addProperty("resumed_at_ms", before);
    output.addProperty("tenant_id", task.getTenantId());
    output.addProperty("run_id", task.getRunId());
    output.addProperty("step_ref", task.getStepRef());
    output.addProperty("item_index", task.hasItemIndex() ? task.getItemIndex() : null);
    output.addProperty("attempt", task.getAttempt());
    output.addProperty("idempotency_key", task.getIdempotencyKey());
    return new GsonBuilder().serializeNulls().create().toJson(output);
  }

  private static String fail(ActionContext context) throws ActionException {
    var args = new Gson().fromJson(context.task().getInputJson(), Failure.class);
    var attempt = context.task().getAttempt();
    if (args.times != null && attempt > args.times) {
      return "{\"attempt\": " + attempt + "}";
    }
    throw new ActionException(
        args.code == null ? "UNKNOWN" : args.code,
        args.message,
        args.non_retryable,
        args.retry_after_ms == null ? null : Duration.ofMillis(args.retry_after_ms));
  }

  private record Failure(String code, String message, Integer times, boolean non_retryable, Long retry_after_ms) {}

  private static JsonObject arguments(ActionContext context) {
    return JsonParser.parseString(context.task().getInputJson()).getAsJsonObject();
  }
}
