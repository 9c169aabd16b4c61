"""What the engine raises when it is fed something that cannot be: a bug or a corrupted row, never a user's mistake.

The coordinator sets the run aside with this error visible (ruling C9). Everything that a user can cause becomes a fault of a node instead.
"""


class EngineError(Exception):
    """A broken invariant. `code` is stable: `ILLEGAL_TRANSITION`, `ATTEMPT_OUT_OF_ORDER`, `EDGE_RESOLVED_TWICE`, `FOREIGN_EDGE`,
    `UNKNOWN_STEP`, `UNKNOWN_INVERSE`, `UNKNOWN_CHECKPOINT`, `CHECKPOINT_DECIDED_TWICE`, `RUN_NOT_OPEN`, `NODES_STILL_OPEN`, `KIND_NOT_SUPPORTED`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
