"""Trigger: WorkflowTriggerService and ScheduleService. It gives birth to runs and lets callers wait for their checkpoints; it never writes what a run becomes.

| module           | what is in it                                                                |
|------------------|------------------------------------------------------------------------------|
| `service`        | the RPCs of starts and the deployable                                        |
| `asked`          | the field rules of a start                                                   |
| `resolving`      | what a definition id stands for, and which releases may start it             |
| `birth`          | the one transaction: keys, version, start rows, labels, wake-ups             |
| `waits`          | what calls that wait for a checkpoint wait for                               |
| `outputs`        | what such a call is told                                                     |
| `schedules`      | the RPCs of schedules that change them or fire                               |
| `schedule_looks` | those that only look                                                         |
| `acts`           | what is done to a schedule: the row, who and why                             |
| `spans`          | the times that such a call is about                                          |
| `event_triggers` | the list of live patterns                                                    |
| `shown`          | rows of schedules, fires and patterns as messages                            |
"""
