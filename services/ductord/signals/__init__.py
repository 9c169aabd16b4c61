"""Signals: WorkflowSignalService. It brings word from outside to steps that wait: what people decide, and what external events tell. An event
also starts the runs of the triggers that it matches. It never writes what a run becomes.

| module       | what is in it                                                                                              |
|--------------|------------------------------------------------------------------------------------------------------------|
| `service`    | the RPCs and the deployable                                                                                |
| `asked`      | the field rules of signals and external events                                                             |
| `telling`    | the one transaction of a signal: known request id, the step as it stands, signal, wake-up                  |
| `publishing` | the one transaction of an external event: published before, waits held open, triggers, what it writes    |
| `filters`    | which filters an event passes, each judged once and outside of every transaction                           |
| `starting`   | which triggers an event passes, what input each gives its run, the birth of these runs                     |
| `explaining` | what an event would do to open event sets, in counts and codes                                             |
| `receipts`   | the external events that a step has received                                                               |
"""
