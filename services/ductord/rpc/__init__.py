"""What every gRPC service of the suite shares. This docstring is the table of contents; import from the modules.

| module       | what is in it                                                                                             |
|--------------|-----------------------------------------------------------------------------------------------------------|
| `config`     | `Settings`: every option, from `DUCTOR_*`; `pool("trigger")`, `target("dispatch")`, `printable()`         |
| `options`    | the options by topic, of which `Settings` is made, each with its rules                                    |
| `addresses`  | listen addresses, the rule that auth off stays on loopback (N3), callers' hosts                           |
| `host`       | `Service` (what a deployable is), `hosting`, `serve`: the process, its start and its stop                 |
| `scope`      | `Scope`: what a service's `start` registers on                                                            |
| `process`    | what the services of one process share                                                                    |
| `stopping`   | steps of a stop that may not hold up the others                                                           |
| `signals`    | SIGTERM and its like: heard from the first until the process is gone                                      |
| `server`     | the `grpc.aio` server, reflection, the wrapping of every RPC                                              |
| `tls`        | certificates from files, renewed while the process runs                                                   |
| `expiry`     | when a certificate ends                                                                                   |
| `renewal`    | a client channel that follows its certificate files                                                       |
| `credentials` | the key that this process calls with, from an option or a file that is looked at again                    |
| `files`      | small files that are replaced while the process runs                                                      |
| `pipeline`   | what happens around one RPC: caller, NUL check, span, errors, access log, metrics                         |
| `call`       | one call: who makes it, its span, its refusals, how it is counted and logged                              |
| `going_on`   | calls that go on for long, ended when who makes them may not any more (N1)                                |
| `caller`     | `caller()`: tenant, actor, scopes, request id, traceparent of the call at hand (N1)                       |
| `errors`     | `refused("RUN_NOT_FOUND", …)`, `Refusal` ↔ `google.rpc.Status`, `refusal_from(rpc_error)`                 |
| `reasons`    | the code of every `ErrorReason`                                                                           |
| `hygiene`    | NUL in request strings (L6)                                                                               |
| `payloads`   | Struct/Value ↔ JSON, a field and its `_json` twin (L5, L6, L7)                                            |
| `vocabulary` | how the contract is spelt in JSON: the dialects of the REST and Connect doors                             |
| `writing`    | messages as JSON in one of these dialects                                                                 |
| `paging`     | `page_size`, `page_token` bound to tenant and filter                                                      |
| `words`      | stored words as the contract's enums                                                                      |
| `runs`       | rows of runs and attempts as the contract's messages; `run_id_of`                                         |
| `attempts`   | a page of attempts                                                                                        |
| `room`       | pages that fit a reply                                                                                    |
| `answers`    | `ResponseMetadata`, timestamps                                                                            |
| `tracing`    | spans and traceparents; OTLP only where an endpoint is configured                                         |
| `logs`       | structured logs; `log_fields(run_id=…)`                                                                   |
| `metrics`    | Prometheus metrics with bounded labels (OB-01)                                                            |
| `channels`   | client channels and the metadata that travels with a call                                                 |
| `loops`      | `Loop`: a background loop that never dies, beats, backs off and stops in time                             |
| `health`     | pulses, readiness, `grpc.health.v1`                                                                       |
| `operations` | `/livez`, `/readyz`, `/metrics`; the HTTP server of a process                                             |

A service is a package with a `service.py` that exposes `SERVICE`. Alone (`SERVICE.serve(settings)`) or with others in one process
(`serve([DEFINITION, TRIGGER, …], settings)`) it runs the same way: one gRPC port, one HTTP port, one stop.

    # ductord/trigger/service.py
    from ductor.workflow.v1 import workflow_trigger_service_pb2_grpc as api
    from ductord.db.outage import answers, patient, refusal_of
    from ductord.db.pool import open_pool
    from ductord.rpc.host import Scope, Service

    class Servicer(api.WorkflowTriggerServiceServicer): ...

    async def start(scope: Scope) -> None:
        pool = await patient(lambda: open_pool(**scope.settings.pool("trigger")), scope.settings.database_start_wait_ms)
        scope.at_stop(pool.close)                          # after the RPCs have ended; last registered, first closed
        scope.translate(refusal_of)                        # what a database error tells a caller
        scope.ready_when("database", lambda: answers(pool))
        scope.loop("checkpoints", waiters.turn, interval_ms=scope.settings.poll_ms)      # starts when every service of the process has started
        scope.on_drain(waiters.give_up)                    # SIGTERM: end long waits, finish what is in flight
        scope.rpcs(api.add_WorkflowTriggerServiceServicer_to_server, Servicer(pool))

    SERVICE = Service(name="trigger", start=start)

`start` registers and opens; it must not wait for another service, which may start after it. A servicer method takes `(request, context)`, asks
`caller()` who calls, raises `Refusal` (or lets `PayloadInvalid` and database errors pass) and never touches `context.abort` or the metadata itself.
A process stops in this order: not ready, `on_drain` of the services in reverse order of start, loops, RPCs in flight, `at_stop` in reverse.

Nothing here may know a table or decide what a run does (`words` and `runs` only put what a service has read into the contract's shape); `rpc` never imports
`db` or `engine`.
"""
