"""What a tick asks for once it runs: outputs that expressions and inverses read. Reads only.

An output stands in the row of the attempt that produced it. Before its first tick is committed a reset run has no rows of its own: what it keeps is read
from its source.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import asyncpg
import orjson

from ductord.coordinator.facts import SQL
from ductord.coordinator.loaded import Loaded
from ductord.engine.graph import graph_of
from ductord.model.enums import TaskKind
from ductord.model.inbox import SourceKey
from ductord.model.run import Node, RunStart

_Place = tuple[str, str, int]  # run id, step ref, attempt


async def load_outputs(
    connection: asyncpg.Connection, wanted: Iterable[tuple[Loaded, str]]
) -> dict[tuple[str, str], Any]:
    """Output values by (run id, step ref) of steps that have one, or that are about to; remembered with their run."""
    asked = [(loaded, ref, place) for loaded, ref in wanted if (place := _place(loaded, ref)) is not None]
    rows = await connection.fetch(
        SQL["load_outputs"],
        [loaded.known.start.tenant_id for loaded, _, _ in asked],
        [run_id for _, _, (run_id, _, _) in asked],
        [ref for _, ref, _ in asked],
        [attempt for _, _, (_, _, attempt) in asked],
    )
    texts: dict[_Place, str | None] = {(row["run_id"], row["step_ref"], row["attempt"]): row["output"] for row in rows}
    values = {}
    for loaded, ref, place in asked:
        if place in texts:
            text = texts[place]
            value = orjson.loads(text) if text is not None else None
            values[loaded.known.start.run_id, ref] = value
            loaded.known.remember_output(ref, place[2], value, len(text or ""))
    return values


async def load_sources(
    connection: asyncpg.Connection, wanted: Sequence[tuple[Loaded, SourceKey]]
) -> dict[tuple[str, SourceKey], Any]:
    """Outputs that inverses read (C7), by (run id, key); None for a row that is gone."""
    places = [_at_source(loaded.known.start, key) if loaded.known.run is None else key for loaded, key in wanted]
    rows = await connection.fetch(
        SQL["load_sources"],
        [loaded.known.start.tenant_id for loaded, _ in wanted],
        *([place[part] for place in places] for part in range(4)),
    )
    texts = {(row["run_id"], row["step_ref"], row["item_index"], row["attempt"]): row["output"] for row in rows}
    return {
        (loaded.known.start.run_id, key): orjson.loads(text) if (text := texts.get(place)) is not None else None
        for (loaded, key), place in zip(wanted, places, strict=True)
    }


def _place(loaded: Loaded, ref: str) -> _Place | None:
    """The attempt whose row holds the output of a step: the node's, one that has just been reported, or one that a reset preserved."""
    known = loaded.known
    start = known.start
    forking = known.run is None and start.reset_from_seq > 0
    home = start.reset_from_run_id if forking else start.run_id
    node = _node(loaded, ref)
    if node is not None and node.output is not None:
        return home, ref, node.output.attempt
    for report in loaded.inbox.reports:
        if node is None or report.attempt != node.attempt or report.output is None:
            continue
        if report.kind is TaskKind.STEP and report.step_ref == ref:
            return start.run_id, ref, report.attempt
    preserved = start.preserved.get(ref)
    return (home, ref, preserved.attempt) if preserved is not None else None


def _node(loaded: Loaded, ref: str) -> Node | None:
    origin = loaded.inbox.origin
    run = loaded.known.run or (origin.run if origin is not None else None)
    index = graph_of(loaded.compiled.manifest).index.get(ref) if loaded.compiled is not None else None
    return None if run is None or index is None else run.nodes[index]


def _at_source(start: RunStart, key: SourceKey) -> SourceKey:
    """Where an output is that a reset run keeps and has not copied yet."""
    run_id, ref, item_index, attempt = key
    return (
        (start.reset_from_run_id, ref, item_index, attempt) if start.reset_from_seq and run_id == start.run_id else key
    )
