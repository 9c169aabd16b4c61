"""`ductor`, the command line: it composes services into processes and talks to them like any other client.

| module        | what is in it                                                                                         |
|---------------|-------------------------------------------------------------------------------------------------------|
| `commands`    | names, options and help of every command; imports nothing heavy, so that `ductor --help` is immediate  |
| `ending`      | exit codes, and how a failure is told                                                                  |
| `output`      | tables and lines for people, JSON for machines                                                         |
| `words`       | answers as JSON in the spelling of the REST door                                                       |
| `configured`  | the options, or a failure that names those at fault                                                    |
| `client`      | the generated stubs, tenant, time limits, names → ids                                                  |
| `checking`    | `workflow validate`, `schema`, `graph`: offline                                                        |
| `authoring`   | `workflow load`, `publish`, `archive`                                                                  |
| `overriding`  | `env set`, `list`, `delete`                                                                            |
| `browsing`    | `workflow list`, `show`, `export`, `diff`                                                              |
| `texts`       | definition files as texts; their faults as `file:line:column: message`                                 |
| `triggering`  | `trigger`                                                                                              |
| `runs`        | `run list`, and what every view of a run calls things by                                               |
| `showing`     | `run show`                                                                                             |
| `ledger`      | `compensation list`, and a run's part of the ledger                                                    |
| `trail`       | `audit list`, and a run's audit trail                                                                  |
| `replaying`   | `run export`, `run replay`                                                                             |
| `history`     | a run's events as lines                                                                                |
| `operating`   | `run pause`, `resume`, `cancel`, `terminate`, `redrive`, `continue-as-new`, `repair`, `operation`      |
| `resetting`   | `run reset`                                                                                            |
| `levers`      | `step …`                                                                                               |
| `snapshot`    | `run snapshot`                                                                                         |
| `watching`    | `run watch`: polling a run and telling what is new                                                     |
| `drawing`     | a run's graph as a live table                                                                          |
| `keys`        | `key create`, `list`, `show`, `rotate`, `revoke`, `bootstrap`                                         |
| `keepers`     | AdminService, or the code behind it over a database login, as what keeps keys                          |
| `roster`      | the services by name                                                                                   |
| `serving`     | `serve`, `worker`, `migrate`, `config`                                                                 |
| `claim`       | a data directory as one process's own                                                                  |
| `firsts`      | the keys that `dev` makes at its first start                                                           |
| `dev`         | `dev`: embedded Postgres and everything else in one process                                            |

Nothing imports `cli`. Commands that talk to a server use the generated stubs and nothing else.
"""

import os


def main() -> None:
    """The console script."""
    # gRPC writes lines of its own to standard error, one for every handshake that fails: whoever knocks at a port would write the log.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    from ductord.cli.commands import app

    app(prog_name="ductor")
