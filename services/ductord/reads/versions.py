"""What of a version is shown with its runs: steps in graph order with type and title, edges, checkpoints.

A manifest never changes, so each process decodes it once. Only these fields are decoded, so that runs of a newer release's versions can be
looked at by an older reader.
"""

from collections import OrderedDict
from typing import Final

import asyncpg
import msgspec

from ductord.db.queries import Queries
from ductord.model.enums import EdgeType, StepType

_CACHED: Final = 1_000
_q: Final = Queries("ductord.reads")


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A step as it is shown."""

    ref: str
    type: StepType
    title: str = ""


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """An edge by step indexes."""

    source: int
    target: int
    type: EdgeType


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint over step indexes."""

    name: str
    steps: tuple[int, ...]


class Outline(msgspec.Struct, frozen=True, kw_only=True):
    """The part of `model.manifest.Manifest` that reads show."""

    steps: tuple[Step, ...]
    edges: tuple[Edge, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()

    def index(self, ref: str) -> int | None:
        """The position of a step in graph order; None if there is no such step."""
        return next((index for index, step in enumerate(self.steps) if step.ref == ref), None)


_decoder: Final = msgspec.json.Decoder(Outline)


class Outlines:
    """The outlines that this process has met, by tenant and version id."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], Outline] = OrderedDict()

    async def outline(self, db: asyncpg.Connection, tenant_id: str, version_id: str) -> Outline:
        """The outline of a version that exists, from memory or from its row."""
        key = (tenant_id, version_id)
        outline = self._known.get(key)
        if outline is None:
            outline = _decoder.decode(await db.fetchval(_q["load_manifest"], tenant_id, version_id))
            self._known[key] = outline
            if len(self._known) > _CACHED:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(key)
        return outline
