// Drives the page in a real browser against a live engine: connect, start a run, see it wait, approve, see it end. Skipped where there is no Chromium.

import assert from "node:assert/strict";
import { createReadStream, existsSync } from "node:fs";
import { createServer } from "node:http";
import { createClient } from "@connectrpc/connect";
import { chromium, type Page } from "playwright-core";
import { EdgeType, StepType } from "#ductor/definition_pb";
import { WorkflowDefinitionService } from "#ductor/workflow_definition_service_pb";
import { connect } from "../src/transports";

const BROWSERS = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const executablePath = process.env.CHROMIUM ?? BROWSERS.find((path) => existsSync(path));
if (!executablePath) {
  console.log("skipped: no Chromium here to drive the page with (CHROMIUM names one; Debian's package is `chromium`)");
  process.exit(0);
}

const tenant = process.env.DUCTOR_TENANT_ID ?? "";
const definitions = createClient(WorkflowDefinitionService, connect());
const familySlug = `page-${Date.now().toString(36)}`;
const { data } = await definitions.createWorkflowDefinition({
  familySlug,
  title: `The page's ${familySlug}`,
  steps: [
    { ref: "manager", type: StepType.APPROVAL, approval: { timeoutMs: 60_000 } },
    { ref: "pay", type: StepType.ACTION, action: "core:echo", args: { said: "${{ STEPS.manager.output.comment }}" } },
  ],
  edges: [{ sourceRef: "manager", targetRef: "pay", type: EdgeType.APPROVED }],
});
await definitions.publishWorkflowDefinition({ id: data!.id });

/** The page as a static file server gives it. The engine must let its origin call: DUCTOR_CORS_ORIGINS. */
async function serve(): Promise<string> {
  const files = { "/": ["index.html", "text/html"], "/page.js": ["page.js", "text/javascript"] } as const;
  const server = createServer((request, response) => {
    const file = files[request.url as keyof typeof files];
    if (!file) return response.writeHead(404).end();
    response.writeHead(200, { "content-type": file[1] });
    return createReadStream(new URL(`web/${file[0]}`, import.meta.url)).pipe(response);
  });
  server.unref();
  const port = Number(process.env.PAGE_PORT ?? 5173);
  await new Promise<void>((resolve, reject) => server.once("error", reject).listen(port, "127.0.0.1", resolve));
  return `http://127.0.0.1:${port}/`;
}

async function fill(page: Page, key: string): Promise<void> {
  await page.getByLabel("Engine").fill(process.env.DUCTOR_HTTP!);
  await page.getByLabel("Tenant").fill(tenant);
  await page.getByLabel("Key").fill(key);
  await page.getByRole("button", { name: "Connect" }).click();
}

/** Runs in the page: ListRuns over REST and gRPC-Web, and what the page may read of the answers. */
async function askOtherDoors([url, tenant, key]: string[]) {
  const headers = { "x-tenant-id": tenant!, ...(key && { authorization: `Bearer ${key}` }) };
  const rest = await fetch(`${url}/api/workflows/runs?page_size=1`, { headers });
  const grpcWeb = await fetch(`${url}/ductor.workflow.v1.WorkflowService/ListRuns`, {
    method: "POST",
    headers: { ...headers, "content-type": "application/grpc-web+proto", "x-grpc-web": "1" },
    body: new Uint8Array(5), // an empty message
  });
  const trailers = new TextDecoder().decode(await grpcWeb.arrayBuffer());
  return {
    rest: rest.status,
    requestId: rest.headers.get("x-request-id")?.length,
    grpcWeb: grpcWeb.status,
    grpcStatus: grpcWeb.headers.get("grpc-status") ?? /grpc-status: ?(\d+)/.exec(trailers)?.[1],
  };
}

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
try {
  const page = await browser.newPage({ viewport: { width: 1100, height: 640 } });
  page.setDefaultTimeout(20_000);
  const broken: string[] = [];
  page.on("pageerror", (error) => broken.push(String(error)));
  await page.goto(await serve());

  if (process.env.DUCTOR_API_KEY) {
    await fill(page, "dk_dev.nobody.knows");
    await page.getByRole("alert").filter({ hasText: "CREDENTIAL_INVALID" }).waitFor();
    console.log("refused    a key that is none, and the page says so");
  }
  await fill(page, process.env.DUCTOR_API_KEY ?? "");
  await page.getByLabel("Definition").selectOption({ label: `The page's ${familySlug}` });
  assert.ok(await page.getByRole("alert").isHidden());
  console.log("connected");

  await page.getByLabel("Input").fill('{"amount": 480}');
  await page.getByRole("button", { name: "Start" }).click();
  const manager = page.locator('[data-step="manager"]');
  await manager.getByText("waiting").waitFor();
  console.log(`started    ${await page.locator("#id").textContent()}, which waits`);
  if (process.env.SCREENSHOT) await page.screenshot({ path: process.env.SCREENSHOT });

  await manager.getByPlaceholder("Comment").fill("<b>was cheap</b>");
  await manager.getByRole("button", { name: "Approve" }).click();
  await page.locator('[data-step="pay"]').getByText("succeeded").waitFor();
  const result = page.locator("#result");
  await result.waitFor();
  assert.deepEqual(JSON.parse((await result.textContent())!), { pay: { said: "<b>was cheap</b>" } });
  await page.locator("#runs li", { hasText: familySlug }).getByText("completed").waitFor();
  assert.equal(await page.locator("#status").textContent(), "completed");
  console.log("approved   and seen through");

  const doors = await page.evaluate(askOtherDoors, [process.env.DUCTOR_HTTP!, tenant, process.env.DUCTOR_API_KEY ?? ""]);
  assert.deepEqual(doors, { rest: 200, requestId: 32, grpcWeb: 200, grpcStatus: "0" });
  console.log("asked      REST and gRPC-Web from the page's origin");
  assert.ok(await page.getByRole("alert").isHidden());
  assert.deepEqual(broken, []);
} finally {
  await browser.close();
}
