// What an action is given and how it says that it failed; what is reported of it.

import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Task, TaskCompletionSchema } from "#ductor/task_service_pb";

/** Does the work of one attempt. What it returns is the output; what it throws fails the attempt, `ActionError` with a code of its own. */
export type Action = (args: any, context: Context) => unknown;

export interface Context {
  /** The attempt; `inputJson` has every digit of numbers that `args` cannot hold, `idempotencyKey` goes along with every effect. */
  readonly task: Task;
  /** Aborted when the work is to stop: a time-out, a cancelled run, a lost lease, a drain. */
  readonly signal: AbortSignal;
  /** The progress that an attempt before this one told last. */
  readonly previous: any;
  /** Tells how far the work is, for the attempt after this one: goes with the next heartbeat; a function is asked for it at each. */
  progress(details: unknown): void;
}

export class ActionError extends Error {
  /** `code`: a gRPC code's name or one of the action's own. The step's retry rules judge it. */
  constructor(
    readonly code: string,
    message: string,
    readonly hints: { nonRetryable?: boolean; retryAfterMs?: number } = {},
  ) {
    super(message);
  }
}

/** An output that is JSON text already. */
export class JsonText {
  constructor(readonly text: string) {}
}

export type Outcome = NonNullable<MessageInitShape<typeof TaskCompletionSchema>["outcome"]>;
/** Why work was told to stop. */
export type Stop = "timed out" | "cancelled" | "lost" | "draining";

export const released: Outcome = { case: "release", value: { reason: "draining" } };

/** What is reported of work that was told to stop; nothing where the lease is lost. */
export const OF_STOP: Record<Stop, Outcome | undefined> = {
  "timed out": failure(new ActionError("DEADLINE_EXCEEDED", "the attempt's time is over")),
  cancelled: failure(new ActionError("CANCELLED", "the run asked the attempt to stop")),
  lost: undefined,
  draining: released,
};

export function failure(error: unknown): Outcome {
  if (error instanceof ActionError) {
    return { case: "failure", value: { code: error.code, message: error.message, ...error.hints } };
  }
  return { case: "failure", value: { code: "UNKNOWN", message: String(error) } };
}

export function textOf(output: unknown): string {
  if (output instanceof JsonText) return output.text;
  try {
    return JSON.stringify(output) ?? "";
  } catch (error) {
    throw new ActionError("payload_invalid", String(error), { nonRetryable: true });
  }
}
