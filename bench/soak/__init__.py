"""The load test: a share of the throughput held for minutes while others read, watch and publish; what calls and steps took, and whether anything grew.

`python -m bench.soak [--minutes 10] [--rate STEPS_PER_S] [--json FILE]`. `starting` triggers runs, `callers` is the second client, `samples` looks at the stack
and at the database, `verdict` says what grew.
"""
