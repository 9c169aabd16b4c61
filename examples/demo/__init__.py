"""`make demo`: what durable means, in half a minute.

It starts `ductor dev` on a folder of its own, publishes two workflows, triggers some dozens of runs, kills the engine with -9 while they are in the middle,
starts it again and shows that every run ends as it was meant to: nothing lost, nothing done twice. What it claims it reads from the API; any discrepancy is
printed and makes it fail. It uses the command line and the generated stubs, as anybody would.

| module     | what is in it                                                     |
|------------|-------------------------------------------------------------------|
| `__main__` | the story                                                         |
| `engine`   | `ductor dev` as a process that can be started and killed          |
| `orders`   | what is triggered, and how each run must end                      |
| `picture`  | the runs, drawn while they move                                   |
| `books`    | everything the API says about the runs, and whether it adds up    |
"""
