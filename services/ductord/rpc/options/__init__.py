"""The options by topic: models of which `rpc.config.Settings` is made, each with the rules that concern its options alone.

| module         | what is in it                                                                   |
|----------------|---------------------------------------------------------------------------------|
| `places`       | databases and logins, listen addresses, where other services are                |
| `workflows`    | definitions at boot, what is run at all                                         |
| `callers`      | who may call, what we call with (N1, N3)                                        |
| `certificates` | TLS of the ports and of calls, and the port of the probes that speak none       |
| `pace`         | time, and how much at once                                                      |
| `limits`       | sizes, lengths, widths, reach (L7, C6, F1, N4)                                  |
| `looking`      | logs and spans                                                                  |
| `kinds`        | what an option may be, how it is named when it is refused                       |
| `urls`         | connection strings: with another login, and as they may be shown                |

What is judged over several topics is in `rpc.config`. Nothing here opens a connection or reads a file.
"""
