// What a worker knows of a task that it holds.

import type { Task } from "#ductor/task_service_pb";
import type { Outcome, Stop } from "./actions";

/** One leased task, from the poll's answer until its report is answered. Times are `performance.now()`. */
export class Held {
  readonly abort = new AbortController();
  readonly token: string;
  leaseEnd: number;
  details: string | (() => unknown) | undefined;
  outcome: Outcome | undefined;
  beat: NodeJS.Timeout | undefined;

  constructor(
    readonly task: Task,
    asked: number,
  ) {
    this.token = task.taskToken;
    this.leaseEnd = asked + task.leaseMs;
  }

  get stop(): Stop | undefined {
    return this.abort.signal.aborted ? this.abort.signal.reason : undefined;
  }

  /** The progress as a heartbeat carries it. */
  get detailsJson(): string | undefined {
    if (typeof this.details !== "function") return this.details;
    try {
      return JSON.stringify(this.details());
    } catch (error) {
      console.error(`no progress of ${this.task.action}: ${error}`);
      return undefined;
    }
  }
}
