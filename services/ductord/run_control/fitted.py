"""A snapshot that fits a reply (L7, PL-06): a snapshot has no pages, so of what would be too much the end is left out, which is said.

What is added first is kept first. A node's error text is cut before a node is left out.
"""

from collections.abc import Sequence
from typing import Any, Final

from google.protobuf.message import Message

from ductor.workflow.v1 import control_pb2
from ductord.model.jsonvalue import storable_text
from ductord.rpc.payloads import fill_payload
from ductord.rpc.room import fitting

_SHORT: Final = 200
"""Characters of an error text that was cut."""


class Fitted:
    """A snapshot under construction, at most `max_bytes` large."""

    def __init__(self, snapshot: control_pb2.RunSnapshot, max_bytes: int) -> None:
        self._snapshot = snapshot
        self._left = max_bytes - snapshot.ByteSize()

    def add_nodes(self, nodes: Sequence[control_pb2.NodeSnapshot]) -> None:
        """The nodes; all error texts are cut when they would take more than half of the room together."""
        if sum(node.ByteSize() for node in nodes) > self._left // 2:
            for node in nodes:
                if len(node.error.message) > _SHORT:
                    node.error.message = storable_text(node.error.message, max_chars=_SHORT)
                    self._snapshot.truncated = True
        self.add("nodes", nodes)

    def add(self, field: str, entries: Sequence[Message], limit: int | None = None) -> None:
        """The entries of one list: the first ones, at most `limit`, that there is room for."""
        size = len(entries) if limit is None else limit
        shown, last = fitting(enumerate(entries), size, max(self._left, 0)) if self._left > 0 else ([], 0)
        if last is not None and entries:
            self._snapshot.truncated = True
        target: Any = getattr(self._snapshot, field)
        target.extend(shown)
        self._left -= sum(entry.ByteSize() + 8 for entry in shown)

    def with_context(self, context: str, payload_format: int) -> control_pb2.RunSnapshot:
        """The snapshot with the run context (JSON text), if there is room for it."""
        if len(context.encode()) > self._left:
            self._snapshot.run_context_truncated = True
        else:
            fill_payload(self._snapshot, "run_context", context, payload_format, max_bytes=self._left)
        return self._snapshot
