"""Ductor: a durable DAG workflow engine over one Postgres, spoken to in gRPC."""

import os

# gRPC reads this when it is first imported, hence here. Its fork handlers run in the child of every `subprocess` call that cannot use vfork,
# and crashed every third child while calls were in flight; no process of ours forks without an exec, so nothing needs them.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
