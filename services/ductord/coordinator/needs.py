"""What a decision turns out to need beside its inbox (`model.needs`): versions, pages of items, children as they stand, what they came to. Reads only.

One statement per kind for the whole batch. How large outputs are is known before any of them travels: what is beyond a need's own limit is told by its size
alone, and runs whose gathers are beyond what one tick carries wait for the next.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

import asyncpg
import msgspec
import orjson

from ductord.coordinator.facts import SQL as FACTS
from ductord.coordinator.loaded import Loaded
from ductord.db.queries import Queries
from ductord.engine import faults
from ductord.engine.graph import graph_of
from ductord.model.enums import Outcome, RunStatus
from ductord.model.fan import Gathered, GatheredChild, Item, ItemRow, Kin, Workflow
from ductord.model.fault import Fault
from ductord.model.needs import GatheredNeed, ItemsNeed, KinNeed, Need, PageNeed, WorkflowNeed

SQL = Queries("ductord.coordinator", "needs.sql")

_GATHERED_BYTES: Final = 16 << 20
"""Outputs that one tick gathers; what is more waits for the next."""
_EVERY_ATTEMPT: Final = 2**31 - 1

_item = msgspec.json.Decoder(Item)

Wanted = tuple[Loaded, Need]
Given = dict[str, dict[Need, Any]]
"""Values by run id and need."""


async def load_needs(connection: asyncpg.Connection, wanted: Iterable[Wanted]) -> tuple[Given, set[str]]:
    """What runs need, and the ids of the runs for which there is no room in this tick."""
    of: dict[type[Need], list[tuple[Loaded, Any]]] = defaultdict(list)
    for loaded, need in wanted:
        of[type(need)].append((loaded, need))
    given: Given = defaultdict(dict)
    if asked := of.get(WorkflowNeed):
        await _workflows(connection, asked, given)
    if asked := of.get(PageNeed):
        await _pages(connection, asked, given)
    if asked := of.get(ItemsNeed):
        await _items(connection, asked, given)
    if asked := of.get(KinNeed):
        await _kin(connection, asked, given)
    beyond: set[str] = set()
    if asked := of.get(GatheredNeed):
        beyond = await _gathered(connection, asked, given)
    return given, beyond


async def _workflows(connection: asyncpg.Connection, asked: list[tuple[Loaded, WorkflowNeed]], given: Given) -> None:
    rows = await connection.fetch(
        SQL["load_workflows"],
        [loaded.known.start.tenant_id for loaded, _ in asked],
        [need.family_slug for _, need in asked],
        [need.version for _, need in asked],
    )
    for row in rows:
        loaded, need = asked[row["number"] - 1]
        given[loaded.known.start.run_id][need] = _workflow(row, need)


def _workflow(row: asyncpg.Record, need: WorkflowNeed) -> Workflow:
    if row["version_id"] is None:
        known = row["definition_id"] is not None and need.version
        return Workflow(problem="unknown_version" if known else "unknown_family")
    schema = orjson.loads(row["input_schema"]) if row["input_schema"] is not None else None
    return Workflow(
        definition_id=row["definition_id"],
        version_id=row["version_id"],
        version=row["version"],
        tier=row["tier"] or "standard",
        input_schema=schema,
        problem="archived" if row["status"] == "archived" else "",
    )


async def _pages(connection: asyncpg.Connection, asked: list[tuple[Loaded, PageNeed]], given: Given) -> None:
    rows = await connection.fetch(
        SQL["load_pages"],
        *_homes(asked),
        [need.step_ref for _, need in asked],
        [need.attempt for _, need in asked],
        [need.number for _, need in asked],
    )
    if len(rows) < len(asked):
        raise ValueError("a page of a frozen collection is gone")
    for row in rows:
        loaded, need = asked[row["number"] - 1]
        given[loaded.known.start.run_id][need] = orjson.loads(row["items"])


async def _items(connection: asyncpg.Connection, asked: list[tuple[Loaded, ItemsNeed]], given: Given) -> None:
    found: list[list[ItemRow]] = [[] for _ in asked]
    for row in await connection.fetch(SQL["load_items"], *_places(asked)):
        state = row["item_state"]
        found[row["number"] - 1].append(
            ItemRow(
                item_index=row["item_index"],
                attempt=row["attempt"],
                item=_item.decode(state) if state is not None else Item(logical=row["attempt"]),
                open=row["status"] == "open",
                started=row["started"],
            )
        )
    for (loaded, need), rows in zip(asked, found, strict=True):
        given[loaded.known.start.run_id][need] = tuple(rows)


async def _kin(connection: asyncpg.Connection, asked: list[tuple[Loaded, KinNeed]], given: Given) -> None:
    found: list[list[Kin]] = [[] for _ in asked]
    rows = await connection.fetch(
        SQL["load_kin"],
        [loaded.known.start.tenant_id for loaded, _ in asked],
        [need.run_id or loaded.known.start.run_id for loaded, need in asked],
        [need.step_ref for _, need in asked],
        [need.since for _, need in asked],
        [bool(need.run_id) and need.run_id != loaded.known.start.run_id for loaded, need in asked],
    )
    for row in rows:
        found[row["number"] - 1].append(
            Kin(
                item_index=row["item_index"],
                run_id=row["child_run_id"],
                status=RunStatus(row["status"]),
                redrivable=row["redrivable"],
                first_run_id=row["first_run_id"],
                told=row["told"],
            )
        )
    for (loaded, need), kin in zip(asked, found, strict=True):
        given[loaded.known.start.run_id][need] = tuple(kin)


async def _gathered(connection: asyncpg.Connection, asked: list[tuple[Loaded, GatheredNeed]], given: Given) -> set[str]:
    sized = [
        *await _sized(connection, "size_items", [pair for pair in asked if not pair[1].runs]),
        *await _sized(connection, "size_runs", [pair for pair in asked if pair[1].runs]),
    ]
    beyond: set[str] = set()
    fitting: list[tuple[Loaded, GatheredNeed, int]] = []
    room = _GATHERED_BYTES
    for loaded, need, size in sized:
        run_id = loaded.known.start.run_id
        if size > need.max_bytes:
            given[run_id][need] = Gathered(size=size)
        elif size <= room or not fitting:
            room -= size
            fitting.append((loaded, need, size))
        else:
            beyond.add(run_id)
    if fitting:
        pairs = [(loaded, need) for loaded, need, _ in fitting]
        children = await _children(connection, pairs)
        for (loaded, need, size), told in zip(fitting, children, strict=True):
            given[loaded.known.start.run_id][need] = Gathered(size=size, children=told)
    return beyond


async def _sized(
    connection: asyncpg.Connection, statement: str, asked: list[tuple[Loaded, GatheredNeed]]
) -> list[tuple[Loaded, GatheredNeed, int]]:
    if not asked:
        return []
    rows = await connection.fetch(SQL[statement], *_places(asked))
    sizes = {row["number"]: row["size"] for row in rows}
    return [(loaded, need, sizes[number]) for number, (loaded, need) in enumerate(asked, 1)]


async def _children(
    connection: asyncpg.Connection, asked: Sequence[tuple[Loaded, GatheredNeed]]
) -> list[tuple[GatheredChild, ...]]:
    """What the children of each came to. One that was to be a run and never was one has a row of an attempt that says why."""
    found: list[dict[int, tuple[int, GatheredChild]]] = [{} for _ in asked]
    for row in await connection.fetch(SQL["gather_items"], *_places(asked)):
        found[row["number"] - 1][row["item_index"]] = row["attempt"], _gathered_item(row)
    numbers = [number for number, (_, need) in enumerate(asked) if need.runs]
    if numbers:
        runs = [asked[number] for number in numbers]
        rows = await connection.fetch(SQL["gather_runs"], *_places(runs))
        tenants = [loaded.known.start.tenant_id for loaded, _ in runs]
        values = await _results(connection, [(tenants[row["number"] - 1], row) for row in rows])
        for row in rows:
            children = found[numbers[row["number"] - 1]]
            failed = children.get(row["item_index"])
            if failed is None or failed[0] < row["attempt"]:
                children[row["item_index"]] = row["attempt"], _gathered_run(row, values)
    return [tuple(child for _, (_, child) in sorted(children.items())) for children in found]


def _gathered_item(row: asyncpg.Record) -> GatheredChild:
    if row["status"] in ("succeeded", "open"):
        output = orjson.loads(row["output"]) if row["output"] is not None else None
        return GatheredChild(item_index=row["item_index"], output=output, open=row["status"] == "open")
    fault: Fault | None
    if row["error_code"]:
        fault = Fault(code=row["error_code"], message=row["error_message"] or "")
    else:
        fault = faults.of_outcome(Outcome(row["outcome"])) if row["outcome"] else None
    return GatheredChild(item_index=row["item_index"], fault=fault or Fault(code=row["status"]))


def _gathered_run(row: asyncpg.Record, values: dict[str, Any]) -> GatheredChild:
    status = RunStatus(row["status"])
    fault = None
    if status is not RunStatus.COMPLETED:
        told = Fault(code=row["error_code"], message=row["error_message"]) if row["error_code"] else None
        fault = faults.of_child(status, told, row["run_id"])
    return GatheredChild(
        item_index=row["item_index"],
        output=values.get(row["run_id"]),
        fault=fault,
        run_id=row["run_id"],
        status=status.value,
    )


async def _results(connection: asyncpg.Connection, rows: list[tuple[str, asyncpg.Record]]) -> dict[str, Any]:
    """Outputs of completed runs by run id: the value of their output expression, or their leaf outputs by ref."""
    values: dict[str, Any] = {}
    leaves: list[tuple[str, str, str, int]] = []
    for tenant_id, row in rows:
        if row["result_refs"] is not None:
            values[row["run_id"]] = {}
            refs = orjson.loads(row["result_refs"])
            leaves += [(tenant_id, row["run_id"], ref, attempt) for ref, attempt in sorted(refs.items())]
        elif row["result"] is not None:
            values[row["run_id"]] = orjson.loads(row["result"])
    if leaves:
        outputs = {}
        for leaf in await connection.fetch(FACTS["load_outputs"], *map(list, zip(*leaves, strict=True))):
            outputs[leaf["run_id"], leaf["step_ref"]] = leaf["output"]
        for _, run_id, ref, _ in leaves:
            text = outputs.get((run_id, ref))
            if text is not None:
                values[run_id][ref] = orjson.loads(text)
    return values


def _homes(asked: Sequence[tuple[Loaded, Any]]) -> tuple[list[str], list[str]]:
    """(tenant, run) columns: before its first tick is committed, a reset run has no rows of its own."""
    starts = [loaded.known.start for loaded, _ in asked]
    forking = [loaded.known.run is None and loaded.known.start.reset_from_seq > 0 for loaded, _ in asked]
    homes = [s.reset_from_run_id if fork else s.run_id for s, fork in zip(starts, forking, strict=True)]
    return [s.tenant_id for s in starts], homes


def _places(asked: Sequence[tuple[Loaded, Any]]) -> tuple[list[Any], ...]:
    """(tenant, run, step_ref, expected, highest attempt) columns."""
    refs = [need.step_ref for _, need in asked]
    return *_homes(asked), refs, [need.expected for _, need in asked], [_top(x, need) for x, need in asked]


def _top(loaded: Loaded, need: ItemsNeed | GatheredNeed) -> int:
    """What a source's node had by the point at which its history is cut; later attempts are none of the reset run's."""
    origin, compiled = loaded.inbox.origin, loaded.compiled
    if loaded.known.run is not None or origin is None or compiled is None:
        return _EVERY_ATTEMPT
    node = origin.run.nodes[graph_of(compiled.manifest).index[need.step_ref]]
    return node.attempt if isinstance(need, GatheredNeed) and need.runs else max(node.top, node.attempt)
