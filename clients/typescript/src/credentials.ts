// Who calls: headers that go with every call, in Node and in a browser alike.

import type { Interceptor } from "@connectrpc/connect";

/** The tenant, and the key if the engine asks for one (it then names the tenant too). */
export const credentials =
  (tenant?: string, key?: string): Interceptor =>
  (next) =>
  (request) => {
    if (tenant) request.header.set("x-tenant-id", tenant);
    if (key) request.header.set("authorization", `Bearer ${key}`);
    return next(request);
  };
