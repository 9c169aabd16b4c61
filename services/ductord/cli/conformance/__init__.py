"""`ductor worker conformance`: any worker, in any language, put through what clients/README.md asks of one.

| module      | what is in it                                                                                     |
|-------------|---------------------------------------------------------------------------------------------------|
| `proxy`     | `TaskService` between worker and dispatch: passes on, remembers, makes go wrong                     |
| `process`   | the worker under test as a process                                                                |
| `document`  | the definition that the checks run                                                                |
| `stage`     | a check's queue, worker and runs, and the faults that it finds                                    |
| `holding`   | checks: lease, heartbeat, cancel, lease-loss                                                      |
| `reporting` | checks: retry, transport, bad-output                                                              |
| `draining`  | check: drain                                                                                      |
| `manners`   | what holds for every call, judged after each check                                                |
| `trying`    | the command: runs the checks one after the other and tells                                        |

It tests a worker from outside, by its calls and its process alone, against a real dispatch. It must never need to know what a worker is made of.
"""
