"""What of a version is shown with its runs: steps in graph order with type and title, edges, checkpoints.

A manifest never changes, so each process decodes it once. Only these fields are decoded, so that runs of a newer release's versions can be
looked at by an older reader.
"""

from contextlib import suppress
from typing import Final

import asyncpg
import msgspec
from cachetools import LRUCache

from ductord.db.queries import Queries
from ductord.model.enums import EdgeType, StepType
from ductord.model.fanout import ScatterMode

_CACHED_BYTES: Final = 16 << 20
"""How much manifest text the remembered outlines may have come from."""
_q: Final = Queries("ductord.reads")


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """A condition that a step waits for, as it was written."""

    source: str


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """What of a wait is shown that the run does not hold itself."""

    until: Condition | None = None


class Scatter(msgspec.Struct, frozen=True, kw_only=True):
    """What of a scatter is shown that the run does not hold itself."""

    mode: ScatterMode = ScatterMode.INLINE


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A step as it is shown."""

    ref: str
    type: StepType
    title: str = ""
    wait: Wait | None = None
    scatter: Scatter | None = None

    @property
    def fans_out(self) -> bool:
        """Whether the step has children."""
        return self.type in (StepType.SCATTER, StepType.FOR_EACH, StepType.SUBWORKFLOW)

    @property
    def has_child_runs(self) -> bool:
        """Whether its children are runs of their own, and not tasks of the run."""
        inline = self.scatter is not None and self.scatter.mode is ScatterMode.INLINE
        return self.fans_out and not inline

    @property
    def condition(self) -> str:
        """The condition that the step waits for; empty for none."""
        return self.wait.until.source if self.wait is not None and self.wait.until is not None else ""


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
        self._known: LRUCache[tuple[str, str], tuple[Outline, int]] = LRUCache(
            _CACHED_BYTES, getsizeof=lambda entry: entry[1]
        )

    async def outline(self, db: asyncpg.Connection, tenant_id: str, version_id: str) -> Outline:
        """The outline of a version that exists, from memory or from its row."""
        key = (tenant_id, version_id)
        known = self._known.get(key)
        if known is not None:
            return known[0]
        text = await db.fetchval(_q["load_manifest"], tenant_id, version_id)
        outline = _decoder.decode(text)
        with suppress(ValueError):  # one that is too large to be remembered
            self._known[key] = outline, len(text)
        return outline
