"""The runs that an external event starts (T3): which triggers its name may match, which of those it passes, what input each gives its run, and their birth.

Filter and input are evaluated outside of every transaction, as the filters of waits are. What became of them belongs to the version, the trigger and the VARS
that a row names, so a row that a publish or an override has changed in the meantime is judged anew. What cannot start a run concerns its own trigger alone.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, TypeAlias

import asyncpg
import msgspec
import orjson

from ductord.db.pool import tenant_transaction
from ductord.db.queries import Queries
from ductord.db.runs import Row
from ductord.engine.expressions import ExpressionError
from ductord.engine.starting import event_input, lets_in, resolved
from ductord.model.fault import Fault
from ductord.model.inbox import External
from ductord.model.jsonvalue import JSON, MAX_PAYLOAD_BYTES
from ductord.model.starting import EventOrigin, Origin, TriggerSpec, event_run_id
from ductord.rpc.payloads import Payload
from ductord.starting.births import Start, bear
from ductord.starting.inputs import input_of
from ductord.starting.versions import Version, Versions

_LOADED: Final = 20
"""Triggers whose versions and overlays are read by one statement, and judged before the next."""
_MADE_BYTES: Final = 64 << 20
"""What the inputs that triggers make of one event, and the overlays of VARS, may come to: they are held until it is published. An input that is the payload
itself costs nothing."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What of the configuration counts. `environment`: whose overrides of VARS a run starts with. `wildcards`: patterns with one are looked at."""

    environment: str = ""
    wildcards: bool = False
    payload_bytes: int = MAX_PAYLOAD_BYTES


class Trigger(msgspec.Struct, frozen=True, kw_only=True):
    """A live trigger that an event's name matches, as one snapshot shows it: the version that would run, and a mark of what VARS hold in the environment
    (empty: the defaults)."""

    definition_id: str
    trigger_id: str
    family_slug: str
    version_id: str
    version: int
    overlay: str

    @classmethod
    def of(cls, row: Row) -> "Trigger":
        """From its row."""
        return cls(**{name: row[name] for name in cls.__struct_fields__})


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """What a trigger gives its run for the event."""

    input_json: str
    tier: str
    variables_json: str


class _Overlay(msgspec.Struct, frozen=True, kw_only=True):
    """What VARS hold in the environment, as JSON and as its text, and its mark."""

    mark: str = ""
    text: str = "{}"
    values: dict[str, Any] = {}


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A trigger that matched and could not start a run, and why."""

    definition_id: str
    trigger_id: str
    fault: Fault


_q: Final = Queries("ductord.signals")
_DEFAULTS: Final = _Overlay()

_Verdict: TypeAlias = Ready | Fault | None
"""None: the filter does not let the event through, or does not evaluate."""


class Starting:
    """What is known of the triggers for one event."""

    def __init__(self, pool: asyncpg.Pool, tenant_id: str, versions: Versions, rules: Rules) -> None:
        self._pool = pool
        self._tenant_id = tenant_id
        self._versions = versions
        self._rules = rules
        self._known: dict[tuple[str, str, str], _Verdict] = {}
        self._room = _MADE_BYTES
        self._held: set[tuple[str, str]] = set()

    def unknown(self, triggers: Iterable[Trigger]) -> tuple[Trigger, ...]:
        """Those that have not been judged."""
        return tuple(trigger for trigger in triggers if _key(trigger) not in self._known)

    async def judge(self, triggers: Sequence[Trigger], event: External, payload: Payload) -> None:
        """Judge them, between other work. Each filter and each input has a budget of its own. Where an overlay has changed since the look, the verdict is one
        on what it is now, and the next look finds it."""
        for begin in range(0, len(triggers), _LOADED):
            some = triggers[begin : begin + _LOADED]
            wanted = {trigger.version_id for trigger in some}
            versions = await self._versions.read_all(self._pool, self._tenant_id, wanted)
            overlays = await self._overlays({trigger.definition_id for trigger in some if trigger.overlay})
            for trigger in some:
                overlay = overlays.get(trigger.definition_id, _DEFAULTS)
                key = trigger.version_id, trigger.trigger_id, overlay.mark
                self._known[key] = self._verdict(trigger, versions[trigger.version_id], overlay, event, payload)
                await asyncio.sleep(0)

    def refused(self, triggers: Iterable[Trigger]) -> tuple[Refused, ...]:
        """Those that matched and cannot start a run."""
        return tuple(
            Refused(definition_id=trigger.definition_id, trigger_id=trigger.trigger_id, fault=verdict)
            for trigger in triggers
            if isinstance(verdict := self._known[_key(trigger)], Fault)
        )

    async def bear(
        self, db: asyncpg.Connection, triggers: Iterable[Trigger], event: External, payload: Payload, traceparent: str
    ) -> tuple[str, ...]:
        """The runs that were born here, in the caller's transaction; one that the event started before is not among them (T3)."""
        starts = [
            _start(trigger, verdict, event, payload)
            for trigger in triggers
            if isinstance(verdict := self._known[_key(trigger)], Ready)
        ]
        born = await bear(
            db, self._tenant_id, starts, environment=self._rules.environment, traceparent=traceparent, actor=""
        )
        return tuple(sorted(born))

    async def _overlays(self, definition_ids: AbstractSet[str]) -> dict[str, _Overlay]:
        if not definition_ids:
            return {}
        async with tenant_transaction(self._pool, self._tenant_id) as db:
            rows = await db.fetch(_q["load_overlays"], self._tenant_id, sorted(definition_ids), self._rules.environment)
        return {
            row["definition_id"]: _Overlay(
                mark=row["overlay"], text=row["variables"], values=orjson.loads(row["variables"])
            )
            for row in rows
        }

    def _verdict(
        self, trigger: Trigger, version: Version | Fault, overlay: _Overlay, event: External, payload: Payload
    ) -> _Verdict:
        if isinstance(version, Fault):
            return version
        spec = version.triggers.get(trigger.trigger_id)
        if spec is None:
            return Fault(code="VERSION_UNREADABLE", message="the version has no such trigger")
        variables = resolved(version.variables, overlay.values)
        try:
            if not lets_in(spec, variables, event):
                return None
        except ExpressionError:
            return None
        text = input_of(version, lambda: _input(spec, variables, event), max_bytes=self._rules.payload_bytes)
        if isinstance(text, Fault):
            return text
        if text == payload.text:
            text = payload.text  # one text for all that take the payload as it is
        held = trigger.definition_id, overlay.mark
        cost = 0 if text is payload.text else len(text)
        if overlay.mark and held not in self._held:
            cost += len(overlay.text)
        if cost > self._room:
            message = f"the inputs that triggers make of this event are more than {_MADE_BYTES >> 20} MiB together"
            return Fault(code="PAYLOAD_TOO_LARGE", message=message)
        self._room -= cost
        self._held.add(held)
        return Ready(input_json=text, tier=(spec.tier or version.tier).value, variables_json=overlay.text)


def run_ids(triggers: Iterable[Trigger], event: External) -> frozenset[str]:
    """The runs that the event starts, or has started: its own waits are not for them (E4)."""
    return frozenset(_run_id(trigger, event) for trigger in triggers)


def _key(trigger: Trigger) -> tuple[str, str, str]:
    return trigger.version_id, trigger.trigger_id, trigger.overlay


def _run_id(trigger: Trigger, event: External) -> str:
    return event_run_id(trigger.definition_id, trigger.trigger_id, event.event_name, event.event_id)


def _input(spec: TriggerSpec, variables: Mapping[str, Any], event: External) -> JSON:
    """What the trigger says; else the payload, and `{}` for none, as for a start by hand without an input."""
    if spec.input is not None:
        return event_input(spec, variables, event)
    return {} if event.payload is None else event.payload


def _start(trigger: Trigger, ready: Ready, event: External, payload: Payload) -> Start:
    same = ready.input_json == payload.text
    origin = EventOrigin(
        name=event.event_name,
        id=event.event_id,
        correlation_key=event.correlation_key,
        time=event.time,
        payload=None if same else event.payload,
        payload_is_input=same,
    )
    return Start(
        run_id=_run_id(trigger, event),
        definition_id=trigger.definition_id,
        version_id=trigger.version_id,
        version=trigger.version,
        family_slug=trigger.family_slug,
        input_json=ready.input_json,
        tier=ready.tier,
        origin=Origin(trigger_id=trigger.trigger_id, event=origin),
        variables_json=ready.variables_json,
        actor=f"event:{trigger.trigger_id}",
    )
