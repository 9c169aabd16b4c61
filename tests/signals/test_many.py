"""Acceptance: 5,000 events against 5,000 triggers and 5,000 waits through two replicas, duplicates included: starts and matches exactly as computed by hand."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from typing import Any

import asyncpg
import msgspec
import pytest

from ductor.workflow.v1 import workflow_signal_service_pb2 as api
from ductord.db.ids import new_id
from ductord.model.starting import TriggerSpec, event_run_id
from ductord.signals.service import SERVICE
from tests.conftest import Database
from tests.signals.live import Live, on
from tests.signals.sender import Sender
from tests.support.books import TENANT
from tests.support.edges import serving

pytestmark = pytest.mark.timeout(400)

EVENTS = TRIGGERS = WAITS = 5_000
PER_DEFINITION = 10
SHOPS, KINDS = 800, ("created", "paid", "sent")
SINGLES = 4_000
IN_FLIGHT = 16


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """An event. `n` is its payload's only field."""

    name: str
    key: str
    id: str
    n: int


class Listener(msgspec.Struct, frozen=True, kw_only=True):
    """A pattern of a wait; `key` None: any. `parity` None: no filter, else what `n` is modulo two."""

    run_id: str
    step_ref: str
    requirement: str
    name: str
    key: str | None
    parity: int | None

    def hears(self, event: Told) -> bool:
        """Whether the event is for it."""
        return self.name == event.name and self.key in (None, event.key) and self.parity in (None, event.n % 2)


class Starter(msgspec.Struct, frozen=True, kw_only=True):
    """A trigger of the definition that refuses what its schema does: `n` above `most`. `mapped`: it gives its run `{m: n}`."""

    definition_id: str
    trigger_id: str
    patterns: tuple[str, ...]
    parity: int | None
    most: int
    mapped: bool

    def matches(self, event: Told) -> bool:
        """Whether the event is for it."""
        named = any(
            event.name == pattern or (pattern.endswith(".*") and event.name.startswith(pattern[:-1]))
            for pattern in self.patterns
        )
        return named and self.parity in (None, event.n % 2)


@pytest.fixture
async def senders(database: Database) -> AsyncIterator[tuple[Sender, Sender]]:
    """Two replicas, wildcards on."""
    options: dict[str, Any] = {"pool_max_size": 4, "events_wildcards_enabled": True}
    async with serving(database, [SERVICE], **options) as one, serving(database, [SERVICE], **options) as other:
        yield Sender(one), Sender(other)


async def test_five_thousand_of_each(senders: tuple[Sender, Sender], owner: asyncpg.Connection) -> None:
    """Every distinct event is told by exactly one answer what it did, whichever of its repetitions came first: the runs, the refusals and the number of waits
    are those of the plan; the books hold these runs with their inputs, and these receipts, and nothing else."""
    chance = random.Random(7)
    events = _events(chance)
    starters = await _starters(chance, Live(owner))
    listeners = _listeners(chance, events)
    await _seed(owner, listeners)
    calls = [*events, *chance.choices(events, k=EVENTS // 4)]
    chance.shuffle(calls)
    answers: dict[tuple[str, str], list[api.PublishEventResponse]] = {}
    pending = iter(calls)

    async def publish() -> None:
        for event in pending:
            sender = chance.choice(senders)
            answer = await sender.publish(event.name, event.key, event_id=event.id, payload={"n": event.n})
            answers.setdefault((event.name, event.id), []).append(answer)

    await asyncio.gather(*(publish() for _ in range(IN_FLIGHT)))

    runs: dict[str, tuple[str, dict[str, int]]] = {}
    receipts: set[tuple[str, ...]] = set()
    by_name, wild = _indexed(starters)
    hearing: dict[str, list[Listener]] = {}
    for listener in listeners:
        hearing.setdefault(listener.name, []).append(listener)
    for event in events:
        matching = [
            s for s in (*by_name.get(event.name, ()), *wild.get(event.name.split(".")[0], ())) if s.matches(event)
        ]
        starting = {s for s in matching if event.n <= s.most}
        heard = [listener for listener in hearing.get(event.name, ()) if listener.hears(event)]
        started = {event_run_id(s.definition_id, s.trigger_id, event.name, event.id) for s in starting}
        matched = len({(listener.run_id, listener.step_ref) for listener in heard})
        told = answers[event.name, event.id]
        first = [answer for answer in told if not answer.duplicate]
        did = started or matched
        assert len(first) == (1 if did else len(told)), event
        assert (first[0].matched, set(first[0].started_run_ids)) == (matched, started), event
        assert len(first[0].started_run_ids) == len(started)
        refused = sorted((t.definition_id, t.trigger_id) for t in first[0].refused_triggers)
        assert refused == sorted((s.definition_id, s.trigger_id) for s in set(matching) - starting)
        for answer in told:
            if answer.duplicate:
                assert (answer.matched, list(answer.started_run_ids), list(answer.refused_triggers)) == (0, [], [])
        for s in starting:
            run_id = event_run_id(s.definition_id, s.trigger_id, event.name, event.id)
            runs[run_id] = s.trigger_id, {"m" if s.mapped else "n": event.n}
        receipts |= {(h.run_id, h.step_ref, h.requirement, event.name, event.id) for h in heard}
    assert len(runs) > EVENTS
    assert len(receipts) > SINGLES
    rows = await owner.fetch(
        "select run_id::text, origin ->> 'trigger_id' as trigger_id, input::text from eec_workflow_run_start"
    )
    assert {row["run_id"]: (row["trigger_id"], msgspec.json.decode(row["input"])) for row in rows} == runs
    rows = await owner.fetch(
        "select run_id::text, step_ref, requirement, event_name, event_id from eec_workflow_receipt"
    )
    assert Counter(tuple(row) for row in rows) == Counter(receipts)
    begun = await owner.fetch("select run_id::text from eec_workflow_wakeup where begins")
    assert Counter(row["run_id"] for row in begun) == Counter(runs.keys())


def _events(chance: random.Random) -> list[Told]:
    """Their ids are unique within a name only."""
    events: dict[tuple[str, str], Told] = {}
    while len(events) < EVENTS:
        name, id_ = _name(chance), f"e{chance.randrange(EVENTS // 2)}"
        events.setdefault((name, id_), Told(name=name, id=id_, key=f"k{len(events)}", n=chance.randrange(100)))
    return list(events.values())


def _name(chance: random.Random) -> str:
    return f"shop{chance.randrange(SHOPS)}.{chance.choice(KINDS)}.eu"


async def _starters(chance: random.Random, live: Live) -> list[Starter]:
    """Published by ten: literal and wild patterns, some triggers with several that meet, filters, mapped inputs, and schemas that refuse some of what comes."""
    starters: list[Starter] = []
    async with live.owner.transaction():
        for number in range(TRIGGERS // PER_DEFINITION):
            most = chance.choice((49, 99, 99, 99))
            made = [_trigger(chance, f"t{i}") for i in range(PER_DEFINITION)]
            schema = {"properties": {"n": {"maximum": most}, "m": {"maximum": most}}}
            specs = [spec for spec, _ in made]
            definition_id = await live.define(*specs, slug=f"d{number}", input_schema=schema)
            for spec, parity in made:
                starter = Starter(
                    definition_id=definition_id,
                    trigger_id=spec.id,
                    patterns=spec.patterns,
                    parity=parity,
                    most=most,
                    mapped=spec.input is not None,
                )
                starters.append(starter)
    return starters


def _trigger(chance: random.Random, id_: str) -> tuple[TriggerSpec, int | None]:
    name = _name(chance)
    shop, kind, _ = name.split(".")
    patterns = chance.choice(((name,), (name,), (name, _name(chance)), (f"{shop}.{kind}.*",), (name, f"{shop}.*")))
    parity = chance.choice((None, 0, 1))
    filter_ = "" if parity is None else f"EVENT.payload.n % 2 == {parity}"
    mapping = chance.choice((None, {"m": "${{ EVENT.payload.n }}"}))
    return on(*dict.fromkeys(patterns), id_=id_, filter_=filter_, input_=mapping), parity


def _indexed(starters: Iterable[Starter]) -> tuple[dict[str, set[Starter]], dict[str, set[Starter]]]:
    """By literal name, and by the shop of a pattern that is wild."""
    by_name: dict[str, set[Starter]] = {}
    wild: dict[str, set[Starter]] = {}
    for starter in starters:
        for pattern in starter.patterns:
            if pattern.endswith(".*"):
                wild.setdefault(pattern.split(".")[0], set()).add(starter)
            else:
                by_name.setdefault(pattern, set()).add(starter)
    return by_name, wild


def _listeners(chance: random.Random, events: list[Told]) -> list[Listener]:
    """Waits for one event that only one has the key of, and sets that take all that come; some sets have two requirements of one name."""
    singles = [
        Listener(run_id=new_id(), step_ref="ev", requirement="", name=event.name, key=event.key, parity=chance.choice((None, event.n % 2, 0)))
        for event in chance.sample(events, SINGLES)
    ]  # fmt: skip
    sets = []
    for _ in range(WAITS - SINGLES):
        event = chance.choice(events)
        key = chance.choice((None, event.key))
        wanted = [("a", chance.choice((None, 0))), ("b", chance.choice((0, 1)))][: chance.choice((1, 2))]
        run_id = new_id()
        sets += [
            Listener(run_id=run_id, step_ref="set", requirement=requirement, name=event.name, key=key, parity=parity)
            for requirement, parity in wanted
        ]
    return [*singles, *sets]


async def _seed(owner: asyncpg.Connection, listeners: list[Listener]) -> None:
    """As a coordinator opens them."""
    await owner.execute(
        "insert into eec_workflow_wait (tenant_id, run_id, step_ref, attempt, requirement, event_name, correlation_key, any_key, filter, event_set, open_time)"
        " select $1, x.run_id, x.step_ref, 1, x.requirement, x.name, coalesce(x.key, ''), x.key is null, x.filter, x.step_ref = 'set', now()"
        " from unnest($2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[]) as x(run_id, step_ref, requirement, name, key, filter)",
        TENANT,
        [one.run_id for one in listeners],
        [one.step_ref for one in listeners],
        [one.requirement for one in listeners],
        [one.name for one in listeners],
        [one.key for one in listeners],
        ["" if one.parity is None else f"EVENT.payload.n % 2 == {one.parity}" for one in listeners],
    )  # fmt: skip
    await owner.execute("analyze eec_workflow_wait, eec_workflow_event_trigger")
