package io.ductor.client.worker;

import java.util.concurrent.ThreadLocalRandom;

/** The pause before a failed call is made again: it grows with each failure in a row, from 100 ms to 2 s. */
final class Pause {
  static final long MAX_MS = 2_000;
  private long ms;

  long nextMs() {
    ms = Math.min(Math.max(2 * ms, 100), MAX_MS * 4 / 5);
    return ms + ThreadLocalRandom.current().nextLong(ms / 4);
  }

  void reset() {
    ms = 0;
  }
}
