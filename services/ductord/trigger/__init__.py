"""Trigger: WorkflowTriggerService. It gives birth to runs and lets callers wait for their checkpoints; it never writes what a run becomes.

| module     | what is in it                                                                      |
|------------|------------------------------------------------------------------------------------|
| `service`  | the RPCs and the deployable                                                        |
| `asked`    | the field rules of a start                                                         |
| `versions` | what a definition id stands for, and what of a version matters to a start          |
| `birth`    | the one transaction: keys, version, start rows, labels, wake-ups                   |
| `waits`    | what calls that wait for a checkpoint wait for                                     |
| `outputs`  | what such a call is told                                                           |
"""
