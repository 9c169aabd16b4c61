"""A failure and an output, as they stand in the state of a run and in its history: a code and a text, a place and a size."""

import msgspec


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Base of what a run's state is made of. Frozen values have no cycles: the collector of garbage need not look for any in them, and there are very many."""


class Fault(Value, frozen=True, kw_only=True):
    """An error as stored: a stable `code` (gRPC code name or our own, e.g. `expression_error`) and a text safe to store (ruling L6)."""

    code: str
    message: str = ""


class OutputRef(Value, frozen=True, kw_only=True):
    """Where an output lives: the attempt that produced it, its size in bytes and a short hash."""

    attempt: int
    size: int
    hash: str
