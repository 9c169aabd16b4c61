// Messages on their way in batches: what piled up while one call was in flight goes with the next.

import { setImmediate } from "node:timers/promises";
import { Pause } from "./pause";

const MAX_COUNT = 500;
/** Under the 3 MiB that one call may have; a single message goes whatever its size. */
const MAX_BYTES = 2_500_000;

export class Batches<T> {
  readonly #queue: T[] = [];
  readonly #closed = new AbortController();
  #sending = false;

  /** `send` is called with a batch until it does not throw. `mostMs`: how long it may rest between two tries. */
  constructor(
    readonly name: string,
    readonly how: {
      send: (batch: T[]) => Promise<void>;
      sizeOf: (item: T) => number;
      mostMs?: () => number;
    },
  ) {}

  add(item: T): void {
    this.#queue.push(item);
    if (!this.#sending) void this.#work();
  }

  close(): void {
    this.#closed.abort();
  }

  async #work(): Promise<void> {
    this.#sending = true;
    const pause = new Pause(this.name);
    await setImmediate(); // what ends in the same turn goes together
    while (this.#queue.length > 0 && !this.#closed.signal.aborted) {
      const batch = this.#take();
      try {
        await this.how.send(batch);
        pause.over();
      } catch (error) {
        this.#queue.unshift(...batch);
        await pause.after(error, this.#closed.signal, this.how.mostMs?.());
      }
    }
    this.#sending = false;
  }

  #take(): T[] {
    let size = 0;
    const over = this.#queue.findIndex((item, index) => (size += this.how.sizeOf(item)) > MAX_BYTES && index > 0);
    return this.#queue.splice(0, Math.min(over < 0 ? MAX_COUNT : over, MAX_COUNT));
  }
}
