"""The HTTP face of the suite: REST, Connect and gRPC-Web on one port, in front of the gRPC services, which it calls through their generated stubs.

| module       | what is in it                                                                                     |
|--------------|---------------------------------------------------------------------------------------------------|
| `service`    | `SERVICE`: how it starts                                                                          |
| `backends`   | the table of services behind it; one call                                                         |
| `rest`       | the REST door                                                                                     |
| `connect`    | the Connect and gRPC-Web door; `codecs` is its JSON                                               |
| `routing`    | paths of the `google.api.http` annotations                                                        |
| `reading`    | JSON and query parameters (`query`) to messages; `scalars`: the single values                     |
| `faults`     | what is wrong with a request                                                                      |
| `events`     | a server stream as server-sent events                                                             |
| `statuses`   | `google.rpc.Status` as each door shows it                                                         |
| `exchange`   | one request: ids, headers that travel, deadline                                                   |
| `bodies`     | request bodies in, answers out                                                                    |
| `traffic`    | metrics and access log                                                                            |
| `openapi`    | the document of the REST side, and how it is made                                                 |
| `cors`       | pages of other origins                                                                            |

A new RPC needs nothing here; a new service one line in `backends`. It holds no state, has no database, and must never decide what a service decides:
whether a tenant, an id or a payload is good.
"""
