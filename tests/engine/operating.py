"""A run operated at random, with what must hold at its end: one end, nothing left behind, the same decisions once more, every effect undone once at most.

The base of the laws of controls; what the run is, they say.
"""

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

from msgspec.structs import replace

from ductord.engine import forks
from ductord.engine.evolve import fold
from ductord.engine.replay import replay
from ductord.model.enums import (
    InverseStatus,
    NodeStatus,
    Outcome,
    Resolution,
    TaskKind,
    Verb,
)
from ductord.model.manifest import Manifest
from ductord.model.recording import decode, encode
from ductord.model.specs import RetryPolicy, Timeouts
from tests.engine.families import Family
from tests.engine.graphs import Fate
from tests.support.recording import recording_of
from tests.support.rows import Rows

_MAX_RUNS = 4
_LATER = (Verb.REDRIVE, Verb.REDRIVE, Verb.RESET, Verb.RESOLVE_REPAIR)
"""What an ended run may still be asked."""
_SILENT = (
    Outcome.LOST,
    Outcome.RELEASED,
    Outcome.TIMED_OUT,
    Outcome.HEARTBEAT_TIMED_OUT,
    Outcome.QUEUE_TIMED_OUT,
    Outcome.REVOKED,
)


def operated(manifest: Manifest, seed: int, **limits: int) -> None:
    """Let a run of this manifest live under random words of workers and random controls, and see it to its end. `limits`: other settings of the engine."""
    random = Random(seed)
    family = Family(replace(manifest, auto_continue=random.random() < 0.3))
    tiers = {
        "history_soft": random.choice((6, 50)),
        "history_hard": random.choice((12, 100)),
        "history_terminate": 300,
        **limits,
    }
    family.first.limits = replace(family.first.limits, **tiers)
    family.settle(family.first)
    for _ in range(random.randint(5, 60)):
        rows = random.choice(family.runs)
        if rows.run is None:
            family.settle(rows)
        move = random.choices((_work, _wait, _control, _late), (6, 2, 3, 1))[0]
        move(family, rows, random)
        family.settle(rows)
    for rows in _all(family):
        family.finish(rows)
        family.check_end(rows)
        recording = recording_of(rows)
        assert decode(encode(recording)) == recording
        difference = replay(recording)
        assert difference is None, f"a recorded run is decided again as it was: {difference}"
        _targets_are_points(rows)
    _undone_once(family)


def _undone_once(family: Family) -> None:
    """An effect is undone by one block of one run, each action of it once, whoever kept or took it over (C5, C6, C7)."""
    calls = {
        (row.task.idempotency_key, row.input["effect"], row.input["block"], row.input["number"])
        for rows in family.runs
        for row in rows.attempts.values()
        if row.task.kind is TaskKind.COMPENSATION and (row.outcome is Outcome.SUCCEEDED or row.late is not None)
    }
    by_action = Counter((effect, number) for _, effect, _, number in calls)
    assert max(by_action.values(), default=0) <= 1, calls
    blocks = Counter(effect for effect, _ in {(effect, block) for _, effect, block, _ in calls})
    assert max(blocks.values(), default=0) <= 1, calls


def _work(family: Family, rows: Rows, random: Random) -> None:
    """A worker takes a task, or some word comes about one."""
    ready = [row for row in rows.attempts.values() if row.waiting and not row.held and row.due_time <= family.now]
    if not ready:
        return
    row = random.choice(ready)
    if not row.lease and random.random() < 0.3:
        rows.lease(row, family.now)
        return
    outcome = random.choices((Outcome.SUCCEEDED, Outcome.FAILED, random.choice(_SILENT)), (6, 2, 2))[0]
    if outcome is Outcome.QUEUE_TIMED_OUT and row.lease:
        return
    family.play(
        rows,
        row,
        Fate(
            outcome=outcome,
            output={"x": random.randint(0, 9), "effect": row.task.idempotency_key},
            code=random.choice(("UNAVAILABLE", "INVALID_ARGUMENT")),
            non_retryable=random.random() < 0.1,
            retry_after_ms=random.choice((None, None, 2_000)),
        ),
    )


def _wait(family: Family, _rows: Rows, _random: Random) -> None:
    family.wait()


def _late(family: Family, rows: Rows, random: Random) -> None:
    """A worker that was given up comes back with a success."""
    given_up = [
        row
        for row in rows.attempts.values()
        if row.start_time is not None and not row.waiting and row.outcome is not Outcome.FAILED
    ]
    if given_up:
        row = random.choice(given_up)
        rows.too_late(row, {"x": 5, "effect": row.task.idempotency_key}, family.now)


def _control(family: Family, rows: Rows, random: Random) -> None:
    ended = rows.run is not None and rows.run.status.terminal
    verb = random.choice(_LATER if ended and random.random() < 0.8 else tuple(Verb))
    refs = [step.ref for step in family.manifest.steps]
    ref = random.choice(refs)
    some = random.random() < 0.5
    body = dict[str, Any]()
    match verb:
        case Verb.PAUSE | Verb.RESUME | Verb.CANCEL:
            ref = ""
        case Verb.TERMINATE:
            ref, body = "", {"skip_finally": some}
        case Verb.REDRIVE:
            ref, body = "", {"force": some}
        case Verb.CONTINUE_AS_NEW:
            ref, body = "", {"seed": {"n": len(family.runs)}}
        case Verb.RESET:
            ref = ""
            body = {
                "seq": random.randint(0, len(rows.history) + 1),
                "preserve": tuple(sorted(random.sample(refs, min(len(refs), random.choice((0, 0, 1, 2)))))),
                "overrides": {r: {"by": "hand"} for r in random.sample(refs, random.choice((0, 0, 1)))},
                "force": some,
            }
        case Verb.PAUSE_NODE | Verb.RESUME_NODE | Verb.RESET_NODE:
            pass
        case Verb.UPDATE_NODE_RETRY_POLICY:
            body = {"retry": RetryPolicy(max_attempts=random.randint(1, 4)), "fields": ("max_attempts",)}
        case Verb.UPDATE_NODE_TIMEOUT:
            timeouts = Timeouts(total_timeout_ms=random.choice((None, 1, 5_000)))
            body = {"timeouts": timeouts, "fields": ("total_timeout_ms",)}
        case Verb.RESOLVE_REPAIR:
            plan = rows.run.saga.plan if rows.run is not None else ()
            ref = random.choice([e.step_ref for e in plan if e.status is InverseStatus.MANUAL_REPAIR] or refs)
            body = {"resolution": random.choice(tuple(Resolution))}
    if verb in (Verb.CONTINUE_AS_NEW, Verb.RESET) and len(family.runs) >= _MAX_RUNS:
        return
    family.ask(rows, verb, ref, **body)


def _all(family: Family) -> Iterator[Rows]:
    """The runs of a family, those too that are born while one looks."""
    seen = 0
    while seen < len(family.runs):
        yield family.runs[seen]
        seen += 1


def _targets_are_points(rows: Rows) -> None:
    """Listing the points of a history in one pass finds what folding every prefix finds."""
    transitions = [(t.at, t.events) for t in rows.history]
    found = list(forks.targets(rows.manifest, rows.start.run_id, transitions))
    runs = [fold(rows.manifest, rows.start.run_id, transitions[: seq + 1]) for seq in range(len(transitions))]
    last = runs[-1]
    fit = [
        run
        for run in runs
        if isinstance(
            forks.preview(rows.manifest, run, last, seq=run.seq, overrides={}, preserve=(), force=True), forks.Preview
        )
    ]
    assert [target.seq for target in found] == [run.seq for run in fit]
    refs = [step.ref for step in rows.manifest.steps]
    for target, run in zip(found, fit, strict=True):
        at_work = tuple(ref for ref, node in zip(refs, run.nodes, strict=True) if node.status is NodeStatus.RUNNING)
        assert target.at_work == at_work
