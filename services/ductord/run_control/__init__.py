"""Run control: WorkflowRunControlService. It records what operators ask of runs and shows what became of it; it never writes a run.

| module       | what is in it                                                                                              |
|--------------|------------------------------------------------------------------------------------------------------------|
| `service`    | the RPCs and the deployable                                                                                |
| `asked`      | the field rules of a control                                                                               |
| `policies`   | the field rules of a node's new retry policy and time-outs                                                 |
| `intents`    | the one transaction: known request id, admission, intent, wake-up                                          |
| `runs`       | a run as it is stored, with its manifest                                                                   |
| `operations` | what became of a control, and calls that wait for it                                                       |
| `redrives`   | what a redrive does, told in its answer                                                                    |
| `resets`     | reset targets, previews and the answer of a reset                                                          |
| `histories`  | the state of a run after each of its transitions                                                           |
| `successors` | which run goes on in the place of one that is continued                                                    |
| `snapshots`  | GetRunSnapshot                                                                                             |
| `fitted`     | a snapshot that fits a reply                                                                               |
"""
