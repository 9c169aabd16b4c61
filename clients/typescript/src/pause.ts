// What a worker does when a call fails: it says so once and tries again, after a pause that grows.

import { setTimeout as delay } from "node:timers/promises";
import { ConnectError } from "@connectrpc/connect";

const MOST_MS = 2_000;

export class Pause {
  #ms = 0;
  #said = "";

  constructor(readonly call: string) {}

  /** Rests 100 ms at first and up to 2 s, with jitter; not beyond `signal` and `mostMs`. */
  async after(failed: unknown, signal: AbortSignal, mostMs = MOST_MS): Promise<void> {
    const { message } = ConnectError.from(failed);
    if (message !== this.#said) console.error(`${this.call}: ${message}`);
    this.#said = message;
    this.#ms = Math.min(Math.max(2 * this.#ms, 150), MOST_MS, mostMs);
    await delay(this.#ms * (0.7 + 0.3 * Math.random()), undefined, { signal }).catch(() => undefined);
  }

  /** A call came through. */
  over(): void {
    this.#ms = 0;
    this.#said = "";
  }
}
