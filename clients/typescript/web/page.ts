// A page for people: the latest runs, start one, watch it live, and decide where it waits for a person. It speaks Connect to the gateway, which has to know
// the page's origin (DUCTOR_CORS_ORIGINS), and calls with its user's key.

import { timestampDate } from "@bufbuild/protobuf/wkt";
import { type Client, Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { PayloadFormat } from "#ductor/common_pb";
import { DefinitionStatus } from "#ductor/definition_pb";
import { NodeStatus, RunStatus, type StepState, WaitingType } from "#ductor/run_pb";
import { WorkflowDefinitionService } from "#ductor/workflow_definition_service_pb";
import { WatchKind, type WatchRunResponse, WorkflowService } from "#ductor/workflow_service_pb";
import { WorkflowSignalService } from "#ductor/workflow_signal_service_pb";
import { WorkflowTriggerService } from "#ductor/workflow_trigger_service_pb";
import { ErrorInfoSchema } from "#google/rpc/error_details_pb";
import { credentials } from "../src/credentials";

interface Engine {
  definitions: Client<typeof WorkflowDefinitionService>;
  triggers: Client<typeof WorkflowTriggerService>;
  runs: Client<typeof WorkflowService>;
  signals: Client<typeof WorkflowSignalService>;
}

const REFRESH_MS = 5_000;
const AGAIN_MS = 1_000;
/** Codes after which a stream is asked for again, from where it was. `Canceled` that nobody here asked for is a server that stops. */
const PASSING = new Set([
  Code.Unavailable,
  Code.Canceled,
  Code.Unknown,
  Code.Internal,
  Code.DeadlineExceeded,
  Code.ResourceExhausted,
]);

let engine: Engine | undefined;
let watching = new AbortController();

function open(baseUrl: string, tenant: string, key: string): Engine {
  const transport = createConnectTransport({ baseUrl, interceptors: [credentials(tenant, key)] });
  return {
    definitions: createClient(WorkflowDefinitionService, transport),
    triggers: createClient(WorkflowTriggerService, transport),
    runs: createClient(WorkflowService, transport),
    signals: createClient(WorkflowSignalService, transport),
  };
}

async function connect(form: FormData): Promise<void> {
  watching.abort();
  byId("run").hidden = true;
  engine = undefined;
  const opened = open(text(form, "url"), text(form, "tenant"), text(form, "key"));
  await Promise.all([showDefinitions(opened), showRuns(opened)]);
  engine = opened;
  for (const name of ["url", "tenant", "key"]) sessionStorage.setItem(name, text(form, name));
}

async function showDefinitions({ definitions }: Engine): Promise<void> {
  const { data } = await definitions.listWorkflowDefinitions({ status: DefinitionStatus.PUBLISHED, pageSize: 200 });
  const newest = new Map(data.toReversed().map((version) => [version.definitionId, version]));
  const options = [...newest.values()].reverse().map((version) => {
    const option = element("option", version.title || version.familySlug);
    option.value = version.definitionId;
    return option;
  });
  startForm.querySelector("select")!.replaceChildren(...options);
}

async function showRuns({ runs }: Engine): Promise<void> {
  const { data } = await runs.listRuns({ pageSize: 20 });
  const items = data.map(({ runId, workflowType, status, createTime }) => {
    const button = element("button", element("span", workflowType), badge(RunStatus, status));
    button.firstElementChild!.className = "name";
    button.title = `${runId}, ${createTime ? timestampDate(createTime).toLocaleString() : ""}`;
    button.setAttribute("aria-current", String(runId === byId("id").textContent));
    button.onclick = () => void watch(runId);
    return element("li", button);
  });
  byId("runs").replaceChildren(...items);
}

async function start(form: FormData): Promise<void> {
  if (!engine) throw new Error("connect to an engine first");
  const inputJson = JSON.stringify(JSON.parse(text(form, "input") || "null"));
  const { runId } = await engine.triggers.triggerWorkflow({ definitionId: text(form, "definition"), inputJson });
  void watch(runId);
  await showRuns(engine);
}

/** Follows a run to its end, also over broken connections and into the run that continues it. */
async function watch(runId: string): Promise<void> {
  watching.abort();
  const { signal } = (watching = new AbortController());
  const { runs } = engine!;
  const view = new RunView(runId);
  let afterSeq: number | undefined;
  for (;;) {
    try {
      for await (const message of runs.watchRun({ runId, afterSeq, follow: true }, { signal })) {
        ({ runId, seq: afterSeq } = message);
        view.live("live");
        view.show(message);
      }
      break;
    } catch (error) {
      if (signal.aborted) return;
      view.live("connection lost");
      if (!PASSING.has(ConnectError.from(error).code)) return tell(error);
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
      if (signal.aborted) return;
    }
  }
  view.live("ended");
  await attempt(async () => {
    const { data } = await runs.getRun({ runId, payloadFormat: PayloadFormat.JSON });
    if (!signal.aborted) view.end(data?.resultJson, data?.error && `${data.error.code}: ${data.error.message}`);
    if (engine) await showRuns(engine);
  });
}

/** What the page shows of one run. */
class RunView {
  readonly #steps = new Map<string, StepView>();

  constructor(runId: string) {
    byId("run").hidden = false;
    byId("result").hidden = true;
    byId("steps").replaceChildren();
    byId("type").textContent = "";
    this.#of(runId);
  }

  live(how: string): void {
    byId("live").textContent = how;
  }

  show({ kind, runId, summary, nodes }: WatchRunResponse): void {
    if (kind === WatchKind.STATE) {
      this.#steps.clear();
      byId("steps").replaceChildren();
    }
    this.#of(runId);
    if (summary) {
      byId("type").textContent = `${summary.workflowType} v${summary.version}`;
      byId("status").replaceWith(Object.assign(badge(RunStatus, summary.status), { id: "status" }));
    }
    for (const node of nodes) {
      let step = this.#steps.get(node.stepRef);
      if (!step) {
        this.#steps.set(node.stepRef, (step = new StepView()));
        byId("steps").append(step.item);
      }
      step.show(runId, node);
    }
  }

  end(resultJson?: string, error?: string): void {
    byId("result").textContent = error ?? JSON.stringify(JSON.parse(resultJson || "null"), undefined, 2);
    byId("result").hidden = false;
  }

  #of(runId: string): void {
    byId("id").textContent = runId;
  }
}

class StepView {
  readonly item = element("li");
  readonly #head = element("div");
  #decision: HTMLFormElement | undefined;

  constructor() {
    this.#head.className = "head";
    this.item.append(this.#head);
  }

  show(runId: string, { stepRef, title, status, attempt, error, waiting, fan }: StepState): void {
    const name = element("span", title || stepRef);
    name.className = "name";
    const notes = [
      attempt > 1 && `attempt ${attempt}`,
      fan && `${fan.succeeded + fan.failed + fan.cancelled} of ${fan.expected}`,
      error && `${error.code}: ${error.message}`,
      waiting?.timeoutTime && `until ${timestampDate(waiting.timeoutTime).toLocaleTimeString()}`,
    ];
    const note = element("span", notes.filter(Boolean).join(" · "));
    note.className = "dim";
    this.#head.replaceChildren(name, note, badge(NodeStatus, status));
    this.item.dataset.step = stepRef;
    if (waiting?.type !== WaitingType.APPROVAL) {
      this.#decision?.remove();
      this.#decision = undefined;
    } else if (!this.#decision) {
      this.#decision = decision(runId, stepRef);
      this.item.append(this.#decision);
    }
  }
}

function decision(runId: string, stepRef: string): HTMLFormElement {
  const comment = element("input");
  comment.placeholder = "Comment";
  const button = (label: string, verb: "approveStep" | "rejectStep") => {
    const it = element("button", label);
    it.type = "button";
    it.className = label.toLowerCase();
    it.onclick = () => attempt(() => engine!.signals[verb]({ runId, stepRef, comment: comment.value }));
    return it;
  };
  const form = element("form", comment, button("Approve", "approveStep"), button("Reject", "rejectStep"));
  form.onsubmit = (event) => event.preventDefault();
  return form;
}

const TONES: Record<string, string> = {
  completed: "good", succeeded: "good",
  failed: "bad", timed_out: "bad", terminated: "bad", completed_with_error: "bad",
  running: "busy",
  waiting: "wait", paused: "wait",
};

function badge(names: Record<number, string>, status: number): HTMLElement {
  const word = (names[status] ?? "").toLowerCase();
  const it = element("span", word.replaceAll("_", " "));
  it.className = "status";
  it.dataset.tone = TONES[word] ?? "";
  return it;
}

/** Elements are made with texts, never with markup: what a run brings is shown as it is. */
function element<K extends keyof HTMLElementTagNameMap>(name: K, ...children: (Node | string)[]): HTMLElementTagNameMap[K] {
  const it = document.createElement(name);
  it.append(...children);
  return it;
}

function byId(id: string): HTMLElement {
  return document.getElementById(id)!;
}

function text(form: FormData, name: string): string {
  return String(form.get(name) ?? "").trim();
}

function tell(error: unknown): void {
  const failed = ConnectError.from(error);
  const [info] = failed.findDetails(ErrorInfoSchema);
  byId("trouble").textContent = failed.rawMessage + (info ? ` (${info.reason})` : "");
  byId("trouble").hidden = false;
}

async function attempt(what: () => Promise<unknown>): Promise<void> {
  byId("trouble").hidden = true;
  await what().catch(tell);
}

function onSubmit(id: string, what: (form: FormData) => Promise<void>): HTMLFormElement {
  const form = byId(id) as HTMLFormElement;
  form.onsubmit = (event) => {
    event.preventDefault();
    void attempt(() => what(new FormData(form)));
  };
  return form;
}

const engineForm = onSubmit("engine", connect);
const startForm = onSubmit("start", start);
for (const input of engineForm.querySelectorAll("input")) {
  input.value = sessionStorage.getItem(input.name) ?? (input.name === "url" ? "http://localhost:8080" : "");
}
if (sessionStorage.getItem("url")) engineForm.requestSubmit();
setInterval(() => {
  if (engine && !document.hidden) showRuns(engine).catch(lost);
}, REFRESH_MS);

/** A key that is not good any more is not tried again and again; anything else may pass. */
function lost(error: unknown): void {
  if (ConnectError.from(error).code !== Code.Unauthenticated) return;
  engine = undefined;
  tell(error);
}
