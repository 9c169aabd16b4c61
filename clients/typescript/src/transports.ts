// The two ways to an engine, as the environment describes it, and who calls.

import type { Interceptor, Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import { credentials } from "./credentials";

function given(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set`);
  return value;
}

const interceptors = (): Interceptor[] => [credentials(process.env.DUCTOR_TENANT_ID, process.env.DUCTOR_API_KEY)];

/** Connect over HTTP/1.1 to the gateway (DUCTOR_HTTP): every service, through proxies and load balancers. */
export const connect = (): Transport =>
  createConnectTransport({ baseUrl: given("DUCTOR_HTTP"), httpVersion: "1.1", interceptors: interceptors() });

/** gRPC straight to the services (DUCTOR_TARGET). Pings tell a dead connection from a long poll; no server takes them more often than every 10 s. */
export const grpc = (): Transport =>
  createGrpcTransport({
    baseUrl: `http://${given("DUCTOR_TARGET")}`,
    interceptors: interceptors(),
    pingIntervalMs: 30_000,
    pingTimeoutMs: 10_000,
  });
