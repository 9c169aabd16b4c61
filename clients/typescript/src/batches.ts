// Messages on their way in batches: what piled up while one call was in flight goes with the next.

import { setImmediate } from "node:timers/promises";
import { Code, ConnectError } from "@connectrpc/connect";
import { Pause } from "./pause";

const MAX_COUNT = 500;
/** Under the 3 MiB that one call may have; a single message goes whatever its size. */
const MAX_BYTES = 2_500_000;

export interface How<T> {
  /** Called with a batch until it does not throw; it has to bear repetition. */
  send: (batch: T[]) => Promise<void>;
  /** Called with a message that would be refused for ever. */
  refused: (item: T, error: ConnectError) => void;
  sizeOf: (item: T) => number;
  /** How long to rest at most before the next try. */
  mostMs?: () => number;
}

export class Batches<T> {
  readonly #queue: T[] = [];
  readonly #closed = new AbortController();
  #sending = false;

  constructor(
    readonly name: string,
    readonly how: How<T>,
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
        await this.#send(batch);
        pause.over();
      } catch (error) {
        this.#queue.unshift(...batch);
        await pause.after(error, this.#closed.signal, this.how.mostMs?.());
      }
    }
    this.#sending = false;
  }

  /** One message that is refused must not keep the others. */
  async #send(batch: T[]): Promise<void> {
    try {
      await this.how.send(batch);
    } catch (error) {
      if (!isRefusal(error)) throw error;
      if (batch.length === 1) return this.how.refused(batch[0]!, error);
      for (const item of batch) await this.#send([item]);
    }
  }

  #take(): T[] {
    let size = 0;
    const over = this.#queue.findIndex((item, index) => (size += this.how.sizeOf(item)) > MAX_BYTES && index > 0);
    return this.#queue.splice(0, Math.min(over < 0 ? MAX_COUNT : over, MAX_COUNT));
  }
}

function isRefusal(error: unknown): error is ConnectError {
  if (!(error instanceof ConnectError)) return false;
  const passes = error.details.some((detail) => "type" in detail && detail.type === "google.rpc.RetryInfo");
  return (
    error.code === Code.InvalidArgument ||
    error.code === Code.OutOfRange ||
    (error.code === Code.ResourceExhausted && !passes)
  );
}
