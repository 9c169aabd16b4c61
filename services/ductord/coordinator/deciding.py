"""Deciding for the runs of a batch: what a decision turns out to lack is loaded, and it is made again.

Reads and never writes. What a decision does to its run is the tick's to commit; one that raises is an answer like any other (C9).
"""

import asyncio
import time

import asyncpg
import msgspec
from msgspec.structs import replace

from ductord.coordinator.decided import Decided
from ductord.coordinator.load import look
from ductord.coordinator.loaded import Batch, Loaded
from ductord.coordinator.needs import load_needs
from ductord.coordinator.outputs import load_outputs, load_sources
from ductord.coordinator.outside import load_payloads
from ductord.coordinator.turns import Cost, Turns
from ductord.engine.decide import decide
from ductord.engine.expressions import programs_for
from ductord.engine.limits import Limits
from ductord.model.decision import Decision, Missing
from ductord.model.inbox import SourceKey
from ductord.model.needs import APART
from ductord.rpc import tracing


class Answers(msgspec.Struct, kw_only=True):
    """What came of the runs of a batch. `failed`: those whose decision raised. `left`: those that the next tick decides for, this one has cost enough. `dear`:
    those that are to have a tick to themselves."""

    decided: list[Decided] = []
    failed: list[tuple[Loaded, Exception]] = []
    left: list[Loaded] = []
    dear: list[Loaded] = []


async def decide_all(
    connection: asyncpg.Connection, turns: Turns, limits: Limits, batch: Batch, *, alone: bool
) -> Answers:
    """Decide for every run of the batch, tenants in turn. `alone`: the batch is one run that has its tick to itself; it is decided in a thread, whatever it
    costs. Raises database errors."""
    begin_ns, traced = time.time_ns(), tracing.recording()
    found = Answers()
    cost = Cost()
    waiting = [batch.runs[place] for place in turns.begin([loaded.known.start.tenant_id for loaded in batch.runs])]
    while waiting:
        missing: list[tuple[Loaded, Missing]] = []
        blind: list[Loaded] = []
        for loaded in waiting:
            if cost.enough and not alone:
                found.left.append(loaded)
                continue
            begin = time.perf_counter()
            answer = await _decide_apart(loaded, limits, batch) if alone else _decide(loaded, limits, batch)
            cost.add(time.perf_counter() - begin, answer)
            turns.served(loaded.known.start.tenant_id)
            if type(answer) is Decision:
                entry = Decided(loaded=loaded, decision=answer)
                if entry.unheard and not loaded.looked:
                    blind.append(loaded)  # it ends attempts of which it does not know whether a worker took them
                    continue
                entry.traceparent = _traced(loaded, answer, begin_ns) if traced else loaded.known.start.traceparent
                found.decided.append(entry)
            elif isinstance(answer, Exception):
                found.failed.append((loaded, answer))
            elif isinstance(answer, Missing):
                if APART in answer.needs and not alone:
                    found.dear.append(loaded)
                else:
                    missing.append((loaded, answer))
        beyond = await load_missing(connection, missing) if missing else set()
        found.left += [loaded for loaded, _ in missing if loaded.known.start.run_id in beyond]
        await look(connection, blind)
        waiting = [loaded for loaded, _ in missing if loaded.known.start.run_id not in beyond] + blind
    return found


def _decide(loaded: Loaded, limits: Limits, batch: Batch) -> Decision | Missing | Exception:
    if loaded.error is not None or loaded.compiled is None:
        return loaded.error or ValueError("the run's version is gone")
    try:
        return decide(
            loaded.compiled.manifest, loaded.compiled.programs, loaded.known.run, loaded.inbox, batch.now, limits
        )
    except Exception as error:  # whatever goes wrong in one run's decision concerns that run alone (C9)
        return error


async def _decide_apart(loaded: Loaded, limits: Limits, batch: Batch) -> Decision | Missing | Exception:
    """The same in a thread, with programs of its own."""
    loaded.inbox = replace(loaded.inbox, given={**loaded.inbox.given, APART: True})
    if loaded.compiled is not None:
        programs = programs_for(loaded.compiled.manifest)
        loaded.compiled = replace(loaded.compiled, programs=programs)
    return await asyncio.to_thread(_decide, loaded, limits, batch)


def _traced(loaded: Loaded, decision: Decision, begin_ns: int) -> str:
    """The run's share of the group tick as a span under its trigger's; the context for the tasks that it queues."""
    start = loaded.known.start
    if not decision.events:
        return start.traceparent
    attributes: dict[str, str | int] = {
        "ductor.tenant_id": start.tenant_id,
        "ductor.run_id": start.run_id,
        "ductor.workflow_type": start.family_slug,
        "ductor.events": len(decision.events),
    }
    return tracing.record_span("tick", traceparent=start.traceparent, start_ns=begin_ns, attributes={**attributes})


async def load_missing(connection: asyncpg.Connection, missing: list[tuple[Loaded, Missing]]) -> set[str]:
    """Give runs what their decisions turned out to need; the ids of those for which there is no room in this tick."""
    outputs = [(x, ref) for x, needs in missing for ref in needs.steps if ref not in x.inbox.outputs]
    sources = [(x, key) for x, needs in missing for key in needs.sources if key not in x.inbox.source_outputs]
    letters = [(x, names) for x, needs in missing if (names := needs.payloads - x.inbox.payloads.keys())]
    wanted = [(x, need) for x, needs in missing for need in needs.needs if need not in x.inbox.given]
    if not outputs and not sources and not letters and not wanted:
        raise ValueError("decide asks for what it was given")
    values = await load_outputs(connection, outputs) if outputs else {}
    undone = await load_sources(connection, sources) if sources else {}
    payloads = await load_payloads(connection, letters) if letters else {}
    given, beyond = await load_needs(connection, wanted) if wanted else ({}, set())
    added: dict[str, dict[str, object]] = {}
    for loaded, ref in outputs:
        run_id = loaded.known.start.run_id
        added.setdefault(run_id, {})[ref] = values.get((run_id, ref))
    added_sources: dict[str, dict[SourceKey, object]] = {}
    for (run_id, key), value in undone.items():
        added_sources.setdefault(run_id, {})[key] = value
    for loaded, _ in missing:
        run_id, inbox = loaded.known.start.run_id, loaded.inbox
        loaded.inbox = replace(
            inbox,
            outputs={**inbox.outputs, **added.get(run_id, {})},
            source_outputs={**inbox.source_outputs, **added_sources.get(run_id, {})},
            payloads={**inbox.payloads, **payloads.get(run_id, {})},
            given={**inbox.given, **given.get(run_id, {})},
        )
    return beyond
