"""The definition service: edits drafts and freezes them as immutable, numbered versions (rulings D1 to D5).

| module         | what is in it                                                                                                    |
|----------------|------------------------------------------------------------------------------------------------------------------|
| `service`      | the RPCs, `SERVICE`                                                                                              |
| `drafts`       | create, reopen, copy, replace, delete                                                                            |
| `edits`        | an UpdateWorkflowDraft as a value, and what it makes of a document                                               |
| `versions`     | publish, archive                                                                                                 |
| `live`         | what starts runs by itself: the schedules and event triggers of the newest version                               |
| `lookup`       | what an id names (D1)                                                                                            |
| `listing`      | the pages of ListWorkflowDefinitions                                                                             |
| `overrides`    | what VARS hold in an environment (L8)                                                                            |
| `judging`      | what is wrong with a definition, and what of it stops a draft or a publish                                       |
| `convert`      | proto ↔ the one JSON tree (L1), whatever the door                                                                |
| `render`       | rows and verdicts → the messages of an answer                                                                    |
| `audit`        | who, what, why (C8)                                                                                              |
| `boot`         | the definitions directory at the service's start (D5), by                                                        |
| `loading`      | a directory of files → published versions, through the generated stubs, of the                                   |
| `files`        | definition files of a directory                                                                                  |
| `transactions` | one transaction of a tenant's, repeated whole when it failed for a passing reason                                |
| `store`        | typed functions over `queries.sql`                                                                               |

It never touches a run, and it never changes a version but to archive it.
"""
