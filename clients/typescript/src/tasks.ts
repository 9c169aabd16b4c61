// A worker: polls TaskService for what it has room for, runs it, beats while it runs, reports what came of it, and gives back what it cannot finish.
// What it has to do is in ../../README.md. It never ends because a call fails.

import { randomBytes, randomUUID } from "node:crypto";
import { EventEmitter, once } from "node:events";
import { hostname } from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import type { Client, ConnectError } from "@connectrpc/connect";
import { TaskCompletionStatus as Answer, TaskHeartbeatStatus as Beat, type TaskService } from "#ductor/task_service_pb";
import { type Action, ActionError, failure, OF_STOP, type Outcome, released, type Stop, textOf } from "./actions";
import { Batches } from "./batches";
import { Held } from "./held";
import { Pause } from "./pause";

export interface Options {
  queue: string;
  actions: Record<string, Action>;
  /** How many tasks are worked on side by side. */
  slots?: number;
  /** The whole time from `stop` until `run` returns. */
  drainMs?: number;
}

const WAIT_MS = 5_000;
const CALL_MS = 5_000;
/** How long work that was told to stop may take to end before its report goes without it. */
const OBEY_MS = 300;
const GIVE_UP_MS = 60_000;
/** An action that no task can have. */
const NOBODYS = "-";

export class Worker {
  readonly id = `${hostname().slice(0, 64)}-${process.pid}-${randomBytes(4).toString("hex")}`;
  readonly #held = new Map<string, Held>();
  readonly #events = new EventEmitter();
  readonly #draining = new AbortController();
  readonly #hurried = new AbortController();
  readonly #reports = new Batches<Held>("report", {
    send: (batch) => this.#report(batch),
    refused: (held, error) => this.#refused(held, error),
    sizeOf: ({ outcome }) => (outcome?.case === "success" ? sizeOf(outcome.value.outputJson) : 1_000),
  });
  readonly #beats = new Batches<Held>("heartbeat", {
    send: (batch) => this.#beat(batch),
    refused: (held) => this.#unheard(held),
    sizeOf: ({ details }) => sizeOf(typeof details === "string" ? details : undefined),
    mostMs: () => Math.min(...[...this.#held.values()].map((held) => held.task.heartbeatIntervalMs)),
  });
  readonly #slots: number;
  readonly #drainMs: number;
  #call = new AbortController();
  #busy = 0;
  #end = 0;

  constructor(
    readonly client: Client<typeof TaskService>,
    readonly options: Options,
  ) {
    this.#slots = options.slots ?? 16;
    this.#drainMs = options.drainMs ?? 10_000;
  }

  /** Works until it was stopped and has given everything back. */
  async run(): Promise<void> {
    await this.#poll();
    const reserve = Math.min(1_000, this.#drainMs / 4);
    await this.#emptied(this.#end - reserve, this.#hurried.signal);
    for (const held of this.#held.values()) this.#stop(held, "draining");
    await this.#emptied(this.#hurried.signal.aborted ? performance.now() + 1_500 : this.#end);
    this.#reports.close();
    this.#beats.close();
    for (const held of this.#held.values()) this.#forget(held);
  }

  /** Takes nothing more and lets end what can in time. Called again: gives it back at once. */
  stop(): void {
    if (this.#draining.signal.aborted) return this.#hurried.abort();
    this.#end = performance.now() + this.#drainMs;
    this.#draining.abort();
    this.#call.abort();
  }

  /** None while reports pile up because dispatch does not take them. */
  get #room(): number {
    return this.#slots - Math.max(this.#busy, this.#held.size);
  }

  async #poll(): Promise<void> {
    const draining = this.#draining.signal;
    const pause = new Pause("poll");
    let pollId = randomUUID();
    let unanswered = false;
    while (!draining.aborted) {
      if (this.#room <= 0) {
        await once(this.#events, "room", { signal: draining }).catch(() => undefined);
        continue;
      }
      unanswered = true;
      this.#call = new AbortController(); // one for each call: Connect does not let go of a signal before it is aborted
      const asked = performance.now();
      try {
        const answer = await this.client.pollTasks(
          {
            queues: [this.options.queue],
            actions: Object.keys(this.options.actions),
            workerId: this.id,
            pollId,
            maxTasks: this.#room,
            waitMs: WAIT_MS,
          },
          { signal: this.#call.signal, timeoutMs: WAIT_MS + CALL_MS },
        );
        for (const task of answer.tasks) void this.#work(new Held(task, asked));
        pollId = randomUUID();
        unanswered = false;
        pause.over();
      } catch (error) {
        // The same id asks again: if the answer was lost, its tasks come with the next one.
        if (!draining.aborted) await pause.after(error, draining);
      }
    }
    if (unanswered) await this.#reclaim(pollId);
  }

  /** Gives back what the answer to a poll brought that was cancelled: by its id dispatch hands that out again, and nothing else. */
  async #reclaim(pollId: string): Promise<void> {
    const asked = performance.now();
    try {
      const answer = await this.client.pollTasks(
        { queues: [this.options.queue], actions: [NOBODYS], workerId: this.id, pollId, maxTasks: this.#slots },
        { timeoutMs: Math.min(1_000, this.#drainMs / 4) },
      );
      for (const task of answer.tasks) this.#ended(this.#take(new Held(task, asked)), released);
    } catch {
      // Then the leases end by themselves.
    }
  }

  #take(held: Held): Held {
    this.#held.set(held.token, held);
    this.#expectBeat(held, held.leaseEnd - held.task.leaseMs);
    return held;
  }

  async #work(held: Held): Promise<void> {
    const { task } = this.#take(held);
    this.#busy += 1;
    const timer =
      task.remainingMs === undefined ? undefined : setTimeout(() => this.#stop(held, "timed out"), task.remainingMs);
    const work = this.#outcome(held);
    const outcome = await Promise.race([work, this.#disobeyed(held)]);
    clearTimeout(timer);
    this.#ended(held, outcome);
    await work;
    this.#busy -= 1;
    this.#events.emit("room");
  }

  async #outcome(held: Held): Promise<Outcome | undefined> {
    const { task } = held;
    try {
      const action = this.options.actions[task.action];
      if (!action) throw new ActionError("UNIMPLEMENTED", `this worker has no action ${task.action}`);
      const output = await action(JSON.parse(task.inputJson), {
        task,
        signal: held.abort.signal,
        previous: task.heartbeatDetailsJson && JSON.parse(task.heartbeatDetailsJson),
        progress: (details) => {
          held.details = typeof details === "function" ? (details as () => unknown) : JSON.stringify(details);
        },
      });
      return { case: "success", value: { outputJson: textOf(output) } };
    } catch (error) {
      return held.stop ? OF_STOP[held.stop] : failure(error);
    }
  }

  /** Settles when the work should have ended and has not. */
  async #disobeyed(held: Held): Promise<Outcome | undefined> {
    await once(held.abort.signal, "abort");
    await delay(OBEY_MS);
    return OF_STOP[held.abort.signal.reason as Stop];
  }

  #stop(held: Held, why: Stop): void {
    if (why === "lost") this.#forget(held);
    if (!held.outcome) held.abort.abort(why);
  }

  #ended(held: Held, outcome: Outcome | undefined): void {
    if (!outcome || held.outcome || !this.#held.has(held.token)) return;
    held.outcome = outcome;
    this.#reports.add(held);
  }

  #forget(held: Held | undefined): void {
    if (!held) return;
    clearTimeout(held.beat);
    this.#held.delete(held.token);
    this.#events.emit("room");
    if (this.#held.size === 0) this.#events.emit("empty");
  }

  /** Returns when every report is answered, at `time` at the latest. */
  async #emptied(time: number, signal?: AbortSignal): Promise<void> {
    if (this.#held.size === 0) return;
    const late = AbortSignal.timeout(Math.max(Math.ceil(time - performance.now()), 0));
    const over = signal ? AbortSignal.any([late, signal]) : late;
    await once(this.#events, "empty", { signal: over }).catch(() => undefined);
  }

  async #report(batch: Held[]): Promise<void> {
    const due = batch.filter((held) => this.#held.has(held.token));
    const late = due.filter((held) => held.leaseEnd + GIVE_UP_MS < performance.now());
    for (const held of late) this.#forget(held);
    const completions = due
      .filter((held) => !late.includes(held))
      .map((held) => ({ taskToken: held.token, outcome: held.outcome! }));
    if (completions.length === 0) return;
    const { results } = await this.client.completeTasks({ completions }, { timeoutMs: CALL_MS });
    for (const { taskToken, status, message } of results) {
      if (status !== Answer.OK) console.error(`a report came to nothing: ${Answer[status]} ${message}`);
      this.#forget(this.#held.get(taskToken));
    }
  }

  /** An output that dispatch refuses would be made again and again: then the attempt fails for good. */
  #refused(held: Held, error: ConnectError): void {
    console.error(`a report is refused: ${error.message}`);
    if (held.outcome?.case === "success") {
      held.outcome = failure(new ActionError("payload_invalid", error.rawMessage, { nonRetryable: true }));
      this.#reports.add(held);
    } else {
      this.#forget(held);
    }
  }

  /** Progress that dispatch refuses must not cost the lease. */
  #unheard(held: Held): void {
    console.error(`the progress of ${held.task.action} is refused`);
    held.details = undefined;
    this.#expectBeat(held, performance.now());
  }

  #expectBeat(held: Held, from: number): void {
    clearTimeout(held.beat);
    const ms = Math.max(from + held.task.heartbeatIntervalMs - performance.now(), 0);
    held.beat = setTimeout(() => this.#beats.add(held), ms);
  }

  async #beat(batch: Held[]): Promise<void> {
    const due = batch.filter((held) => this.#held.has(held.token));
    if (due.length === 0) return;
    const asked = performance.now();
    const heartbeats = due.map((held) => ({ taskToken: held.token, detailsJson: held.detailsJson }));
    const timeoutMs = Math.min(CALL_MS, ...due.map((held) => held.task.heartbeatIntervalMs));
    const { results } = await this.client.heartbeatTasks({ heartbeats }, { timeoutMs });
    for (const [index, { taskToken, status }] of results.entries()) {
      const held = this.#held.get(taskToken);
      if (!held) continue;
      if (held.details === heartbeats[index]!.detailsJson) held.details = undefined;
      if (status === Beat.LEASE_LOST) {
        this.#stop(held, "lost");
        continue;
      }
      held.leaseEnd = asked + held.task.leaseMs;
      this.#expectBeat(held, asked);
      if (status === Beat.CANCEL) this.#stop(held, "cancelled");
    }
  }
}

/** Bytes of a text at most, and of a token beside it. */
const sizeOf = (text?: string): number => 300 + 3 * (text?.length ?? 0);
