"""A group tick: claim → load → decide → commit, for many runs in one transaction.

`decide` is pure, so a tick may be repeated; what makes it happen once is the versioned update of the run. A run whose `decide` raises, or whose data aborts the
commit (found by bisecting the batch), is quarantined alone (ruling C9): the others go on.
"""

import logging
from collections.abc import Callable, Sequence

import asyncpg
import msgspec
import orjson

from ductord.coordinator.attempts import lock_all
from ductord.coordinator.cache import LARGE_BYTES, Cache
from ductord.coordinator.commit import commit
from ductord.coordinator.decided import Decided
from ductord.coordinator.deciding import Answers, decide_all
from ductord.coordinator.load import load
from ductord.coordinator.loaded import Batch, Loaded
from ductord.coordinator.starts import SQL
from ductord.coordinator.telling import Told, tell
from ductord.db.outage import passes
from ductord.db.pool import literal, transaction
from ductord.engine.limits import Limits
from ductord.model.effects import RecordOutput
from ductord.model.jsonvalue import storable_text

log = logging.getLogger("ductor.coordinator")

_POSTPONE_MS = 1000
"""How long a run of a newer format is left to a coordinator that understands it before it is offered again."""
_ALONE_MS = 10_000
"""When a run that is to have a tick to itself is offered again, should nobody have come to it."""

FEW = 16
"""Runs of a tick that counts as small."""
_ONE_PLAN = "set local plan_cache_mode = force_generic_plan"
"""For ticks of few runs. Left to itself the server plans most statements anew for each of them, since a plan for an array of one looks cheaper than one for
any array: half of what a tick of one run cost it. Large ticks gain by plans of their size."""

_DATA_ERRORS = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, asyncpg.ProgramLimitExceededError)
"""Words of the database that one run's data causes, however often it is tried again."""

Runs = Sequence[tuple[str, str]]


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """How a run is ticked that needs more than a place in a batch: in a thread, since its decision evaluates much, so that neither the loop nor other runs wait
    for it. `firm`: its attempts are locked first and all their reports shown, since a decision about thousands of attempts at once would else be overtaken
    by one report for ever."""

    firm: bool = False


class Ticked:
    """What a tick did, for metrics and the loop's pace. `told`: what it decided about controls and compensation. `alone`: runs that need a tick to
    themselves, and how."""

    __slots__ = (
        "alone",
        "children",
        "claimed",
        "conflicts",
        "ended",
        "foreign",
        "quarantined",
        "tasks",
        "told",
        "transitions",
    )

    def __init__(self) -> None:
        self.claimed = self.transitions = self.tasks = self.ended = self.conflicts = self.quarantined = self.foreign = 0
        self.children = 0
        self.told = Told()
        self.alone: list[tuple[tuple[str, str], Way]] = []

    def add(self, other: "Ticked") -> None:
        """Sum up the halves of a bisected batch."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


async def tick_alone(
    connection: asyncpg.Connection, cache: Cache, limits: Limits, run: tuple[str, str], way: Way
) -> Ticked:
    """A tick of one run that an earlier one has named in `Ticked.alone`. Raises as `tick`."""
    return await tick(connection, cache, limits, 1, [run], way)


async def tick(
    connection: asyncpg.Connection,
    cache: Cache,
    limits: Limits,
    batch_size: int,
    given: Runs | None = None,
    way: Way | None = None,
    *,
    few: bool = False,
    decided: Callable[[int], None] = lambda runs: None,
) -> Ticked:
    """One group tick over at most `batch_size` due runs, or over the `given` ones. `few`: no more than `FEW` are expected. `decided` is told how many runs were
    claimed when all is decided and nothing written yet. Raises database errors that concern everybody."""
    ticked = Ticked()
    claimed: list[asyncpg.Record] = []
    committed: list[Decided] = []
    try:
        async with transaction(connection, *([_ONE_PLAN] if few else [])) as last:
            claimed = await _claim(connection, batch_size, given, way)
            if claimed:
                ticked.claimed = len(claimed)
                firm = way is not None and way.firm
                if firm:
                    await lock_all(connection, claimed)
                batch = await load(connection, cache, claimed, whole=firm)
                channels: list[str] = []
                found = await decide_all(connection, cache.turns, limits, batch, alone=way is not None)
                decided(len(claimed))
                committed = await _commit(connection, cache, batch, found, ticked, channels)
                last += [f"select eec_notify({literal(channel)})" for channel in channels]
    except Exception as error:
        _forget(cache, claimed)
        if _everybodys(error):
            raise
        return await _bisect(connection, cache, limits, claimed, error)
    except BaseException:
        _forget(cache, claimed)
        raise
    ticked.told = tell(committed)
    return ticked


def _everybodys(error: Exception) -> bool:
    """Whether an error of load or commit concerns every run: an outage, a conflict, a refusal by the database. Anything else comes from one run's
    data or state, whatever it is called, and must not keep the batch from its tick for ever: the batch is bisected (C9)."""
    return passes(error) or (isinstance(error, asyncpg.PostgresError) and not isinstance(error, _DATA_ERRORS))


async def _claim(
    connection: asyncpg.Connection, batch_size: int, given: Runs | None, way: Way | None
) -> list[asyncpg.Record]:
    rows: list[asyncpg.Record]
    if given is None:
        rows = await connection.fetch(SQL["claim_runs"], batch_size)
    else:
        statement = SQL["claim_given" if way is None else "claim_alone"]
        rows = await connection.fetch(statement, [tenant for tenant, _ in given], [run for _, run in given])
    return rows


async def _commit(
    connection: asyncpg.Connection, cache: Cache, batch: Batch, found: Answers, ticked: Ticked, channels: list[str]
) -> list[Decided]:
    """Write what was decided; the decisions that were written, once the caller's transaction commits. `channels`: as `commit`."""
    lost = await commit(connection, found.decided, batch.now, channels)
    _remember(cache, found.decided, lost, ticked)
    ticked.conflicts += len(lost)
    ticked.foreign += len(batch.foreign)
    again = [(tenant, run, _POSTPONE_MS) for tenant, run in batch.foreign]
    again += [(tenant, run, 0) for tenant, run in batch.left]
    for loaded in found.left:
        start = loaded.known.start
        cache.forget(start.run_id)
        again.append((start.tenant_id, start.run_id, 0))
    overtaken = {entry.key for entry in found.decided if entry.key[1] in lost and entry.sweeping}
    for loaded in found.dear:
        cache.forget(loaded.known.start.run_id)
        key = loaded.known.start.tenant_id, loaded.known.start.run_id
        ticked.alone.append((key, Way()))
    ticked.alone += [(key, Way(firm=True)) for key in overtaken]
    again += [(*key, _ALONE_MS) for key, _ in ticked.alone]
    again += [
        (*entry.key, 0)
        for entry in found.decided
        if (entry.key[1] in lost or entry.unfinished) and entry.key not in overtaken
    ]
    await _wake(connection, again)
    if found.failed:
        ticked.quarantined += len(found.failed)
        await _quarantine(connection, cache, found.failed)
    return [entry for entry in found.decided if entry.loaded.known.start.run_id not in lost]


def _remember(cache: Cache, decided: list[Decided], lost: set[str], ticked: Ticked) -> None:
    """Keep what the commit made of the runs, and count it; forget those that it dropped."""
    for entry in decided:
        known = entry.loaded.known
        if known.start.run_id in lost:
            cache.forget(known.start.run_id)
            continue
        if entry.decision.run is not None:
            known.run = entry.decision.run
        for effect in entry.decision.effects if RecordOutput in entry.kinds else ():
            if isinstance(effect, RecordOutput) and len(effect.output_json) <= LARGE_BYTES:
                text = effect.output_json
                known.remember_output(effect.step_ref, effect.attempt, orjson.loads(text), len(text.encode()))
        cache.keep(known)
        ticked.transitions += bool(entry.decision.events)
        ticked.tasks += entry.tasks
        ticked.children += entry.born
        ticked.ended += entry.ended


async def _wake(connection: asyncpg.Connection, again: list[tuple[str, str, int]]) -> None:
    if again:
        await connection.execute(
            SQL["insert_wakeups"], [t for t, _, _ in again], [r for _, r, _ in again], [ms for _, _, ms in again]
        )


async def _bisect(
    connection: asyncpg.Connection, cache: Cache, limits: Limits, claimed: list[asyncpg.Record], error: Exception
) -> Ticked:
    """The batch's data aborted the commit: halve it until the run at fault stands alone, and set that one aside."""
    runs = [(row["tenant_id"], row["run_id"]) for row in claimed]
    if not runs:
        raise error
    ticked = Ticked()
    if len(runs) == 1:
        async with transaction(connection):
            held = await connection.fetch(SQL["claim_given"], [runs[0][0]], [runs[0][1]])
            if held:
                await _set_aside(connection, [(*runs[0], error)])
                ticked.quarantined += 1
        return ticked
    middle = len(runs) // 2
    for half in (runs[:middle], runs[middle:]):
        ticked.add(await tick(connection, cache, limits, len(half), half))
    return ticked


async def _quarantine(connection: asyncpg.Connection, cache: Cache, failed: list[tuple[Loaded, Exception]]) -> None:
    for loaded, _ in failed:
        cache.forget(loaded.known.start.run_id)
    await _set_aside(connection, [(x.known.start.tenant_id, x.known.start.run_id, error) for x, error in failed])


async def _set_aside(connection: asyncpg.Connection, failed: list[tuple[str, str, Exception]]) -> None:
    for tenant_id, run_id, error in failed:
        log.error("tick failed, run set aside", extra={"tenant_id": tenant_id, "run_id": run_id}, exc_info=error)
    rows = await connection.fetch(
        SQL["set_quarantine"],
        [tenant for tenant, _, _ in failed],
        [run for _, run, _ in failed],
        [storable_text(f"{type(error).__name__}: {error}", max_chars=2000) for _, _, error in failed],
    )
    await _wake(connection, [(row["tenant_id"], row["run_id"], row["delay_ms"]) for row in rows])


def _forget(cache: Cache, claimed: list[asyncpg.Record]) -> None:
    # The transaction rolled back, or nobody knows whether it committed: what memory holds may be neither. Reading again settles it.
    for row in claimed:
        cache.forget(row["run_id"])
