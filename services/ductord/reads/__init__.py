"""Reads: WorkflowService. It looks at runs and never touches one.

| module     | what is in it                                                                      |
|------------|------------------------------------------------------------------------------------|
| `service`  | the RPCs and the deployable                                                        |
| `listing`  | ListRuns: filters, and which statement serves them                                 |
| `runs`     | a run's summary, and GetRun                                                        |
| `steps`    | ListRunSteps, GetRunStep                                                           |
| `children` | the same of the children of a node that fans out                                   |
| `tree`     | the runs below a run                                                               |
| `watching` | WatchRun: streams that wait; `changes`: one message of them                        |
| `attempts` | ListRunEvents                                                                      |
| `timeline` | GetRunTimeline: the history event by event                                         |
| `unified`  | the same with the controls of the run woven in                                     |
| `audit`    | GetRunAudit, ListAudit                                                             |
| `ledger`   | ListCompensations, and a run's part of the ledger                                  |
| `export`   | ExportRun: the recording of a run, line by line                                    |
| `versions` | what of a version is shown with its runs, cached                                   |
"""
