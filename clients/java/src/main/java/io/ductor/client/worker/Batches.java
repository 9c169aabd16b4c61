package io.ductor.client.worker;

import com.google.common.util.concurrent.Futures;
import com.google.common.util.concurrent.ListenableFuture;
import com.google.protobuf.MessageLite;
import com.google.rpc.RetryInfo;
import io.grpc.Status;
import io.grpc.protobuf.StatusProto;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import java.util.function.Supplier;

/**
 * Sends messages many at a time: what piles up while one call is under way goes with the next. A call that fails is made again until it is answered. Lives
 * on the worker's loop.
 */
final class Batches<M extends MessageLite, S> {
  private static final int MAX_BATCH = 500;
  private static final int MAX_BYTES = 2_500_000; // of one call, well under the 3 MiB of the contract; a single message is always allowed

  /** A call with messages, answered by one status for each, in order. */
  @FunctionalInterface
  interface Call<M, S> {
    ListenableFuture<List<S>> send(List<M> messages, long timeoutMs);
  }

  /**
   * What became of a message.
   *
   * @param sent just before the call that was answered
   * @param refused why the message will never be taken; else null
   */
  record Answer<S>(S status, long sent, Status refused) {}

  private record Entry<M, S>(Supplier<M> message, long everyMs, BooleanSupplier wanted, Consumer<Answer<S>> answer) {}

  private final Loop loop;
  private final Call<M, S> call;
  private final Runnable reconnect;
  private final ArrayDeque<Entry<M, S>> waiting = new ArrayDeque<>();
  private final Pause pause = new Pause();
  private boolean busy;
  private boolean alone; // after a refusal, to find out whose it is

  Batches(Loop loop, Call<M, S> call, Runnable reconnect) {
    this.loop = loop;
    this.call = call;
    this.reconnect = reconnect;
  }

  /**
   * Puts a message in the queue. A call with it that fails is made again after everyMs at the latest, with what the message then is, as long as the answer
   * is wanted.
   */
  void send(Supplier<M> message, long everyMs, BooleanSupplier wanted, Consumer<Answer<S>> answer) {
    waiting.add(new Entry<>(message, everyMs, wanted, answer));
    if (!busy) {
      busy = true;
      loop.execute(this::next); // and not at once: others may have something to send too
    }
  }

  private void next() {
    var batch = new ArrayList<Entry<M, S>>();
    var messages = new ArrayList<M>();
    var size = 0;
    while (!waiting.isEmpty() && batch.size() < (alone ? 1 : MAX_BATCH)) {
      var entry = waiting.peek();
      if (entry.wanted.getAsBoolean()) {
        var message = entry.message.get();
        size += message.getSerializedSize() + 8;
        if (size > MAX_BYTES && !batch.isEmpty()) {
          break;
        }
        batch.add(entry);
        messages.add(message);
      }
      waiting.remove();
    }
    if (batch.isEmpty()) {
      busy = alone = false;
      return;
    }
    var everyMs = batch.stream().mapToLong(Entry::everyMs).min().getAsLong();
    var sent = System.nanoTime();
    var reply = call.send(messages, Math.min(5_000, Math.max(1_000, everyMs)));
    reply.addListener(() -> answered(batch, sent, everyMs, reply), loop);
  }

  private void answered(List<Entry<M, S>> batch, long sent, long everyMs, ListenableFuture<List<S>> reply) {
    try {
      var statuses = Futures.getDone(reply); // one for each message
      pause.reset();
      for (var i = 0; i < batch.size(); i++) {
        batch.get(i).answer.accept(new Answer<>(statuses.get(i), sent, null));
      }
    } catch (ExecutionException failure) {
      var error = failure.getCause();
      if (!refused(error)) {
        Worker.log.log(System.Logger.Level.WARNING, "a call failed and is made again: {0}", error.getMessage());
        putBack(batch);
        loop.later(Math.min(pause.nextMs(), everyMs), () -> {
          reconnect.run();
          next();
        });
        return;
      }
      if (batch.size() > 1) {
        alone = true;
        putBack(batch);
      } else {
        batch.get(0).answer.accept(new Answer<>(null, sent, Status.fromThrowable(error)));
      }
    }
    next();
  }

  private void putBack(List<Entry<M, S>> batch) {
    for (var i = batch.size() - 1; i >= 0; i--) {
      waiting.addFirst(batch.get(i));
    }
  }

  /** Whether a call would fail like this for ever. */
  private static boolean refused(Throwable error) {
    return switch (Status.fromThrowable(error).getCode()) {
      case INVALID_ARGUMENT, OUT_OF_RANGE -> true;
      // A message over a limit, unless it is a server that wants a rest.
      case RESOURCE_EXHAUSTED -> {
        var status = StatusProto.fromThrowable(error);
        yield status == null || status.getDetailsList().stream().noneMatch(detail -> detail.is(RetryInfo.class));
      }
      default -> false;
    };
  }
}
