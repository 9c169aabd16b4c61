// A worker with the four actions that the conformance asks for: on DUCTOR_QUEUE of DUCTOR_TARGET, until SIGTERM or SIGINT.

import { setTimeout as delay } from "node:timers/promises";
import { createClient } from "@connectrpc/connect";
import { TaskService } from "#ductor/task_service_pb";
import { ActionError, type Context, JsonText } from "./actions";
import { Worker } from "./tasks";
import { grpc } from "./transports";

/** Its output is its args, digit by digit: `args` has its numbers as JavaScript does. */
const echo = (_args: unknown, { task }: Context) => new JsonText(task.inputJson);

async function sleep({ ms }: { ms: number }, { task, signal, previous, progress }: Context) {
  const resumedAt: number = previous?.slept_ms ?? 0;
  const began = performance.now() - resumedAt;
  const slept = () => Math.floor(performance.now() - began);
  progress(() => ({ slept_ms: slept() }));
  while (slept() < ms) await delay(ms - slept(), undefined, { signal }); // timers may be a moment early
  return {
    slept_ms: slept(),
    resumed_at_ms: resumedAt,
    tenant_id: task.tenantId,
    run_id: task.runId,
    step_ref: task.stepRef,
    item_index: task.itemIndex ?? null,
    attempt: task.attempt,
    idempotency_key: task.idempotencyKey,
  };
}

interface FailArgs {
  code?: string;
  message?: string;
  times?: number;
  non_retryable?: boolean;
  retry_after_ms?: number;
}

function fail(args: FailArgs, { task: { attempt } }: Context) {
  if (attempt > (args.times ?? Infinity)) return { attempt };
  throw new ActionError(args.code ?? "UNKNOWN", args.message ?? "", {
    nonRetryable: args.non_retryable,
    retryAfterMs: args.retry_after_ms,
  });
}

const badOutput = () => new JsonText('{"open":');

const worker = new Worker(createClient(TaskService, grpc()), {
  queue: process.env.DUCTOR_QUEUE ?? "default",
  drainMs: Number(process.env.DUCTOR_DRAIN_MS ?? 10_000),
  actions: {
    "conformance:echo": echo,
    "conformance:sleep": sleep,
    "conformance:fail": fail,
    "conformance:bad_output": badOutput,
  },
});
for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => worker.stop());
await worker.run();
process.exit(); // an action that does not obey would keep the process
