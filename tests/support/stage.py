"""The stage of a story: its verbs, over a `World`. The language is in tests/scenarios/README.md."""

import msgspec

from ductord.engine.compile import compile_definition
from ductord.model.control import Control, ControlBody
from ductord.model.enums import SignalVerb, Verb
from ductord.model.ids import derived
from ductord.model.inbox import Signal
from tests.support import transcript
from tests.support.naming import target
from tests.support.saying import Names
from tests.support.words import fields_and_payload, fields_of, milliseconds, parse_definition, payload_and_options
from tests.support.workers import Workers
from tests.support.world import World

_VERBS = frozenset(Verb)
_ABOUT_A_STEP = frozenset(
    {
        Verb.PAUSE_NODE,
        Verb.RESUME_NODE,
        Verb.RESET_NODE,
        Verb.UPDATE_NODE_RETRY_POLICY,
        Verb.UPDATE_NODE_TIMEOUT,
        Verb.RESOLVE_REPAIR,
    }
)
_SAID = {
    "approve": SignalVerb.APPROVE,
    "reject": SignalVerb.REJECT,
    "resolve": SignalVerb.RESOLVE_INTERACTION,
}


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One command: its line as written, and the indented lines below it."""

    line: str
    block: tuple[str, ...] = ()


class Stage:
    """A story being played: the verbs."""

    def __init__(self, world: World, slug: str) -> None:
        self._world = world
        self._slug = slug.replace(".", "_").lower()
        self._names = Names()
        self._workers = Workers(world, self._names)
        self._refused: dict[str, list[str]] = {}
        self._controls = 0
        self._events = 0

    async def play(self, command: Command) -> list[str]:
        """The lines that a command gives."""
        verb, _, rest = command.line.partition(" ")
        match verb:
            case "define":
                return await self._define(rest.strip() or self._slug, command.block)
            case "archive":
                family_slug, version = rest.split()
                await self._world.archive(family_slug, int(version))
                return []
            case "trigger":
                payload, options = payload_and_options(rest)
                subject = options.get("subject_type", ""), options.get("subject_id", "")
                family_slug = options.get("of", self._slug)
                assert family_slug not in self._refused, self._refused[family_slug]
                await self._world.trigger(payload, *subject, options.get("actor", "anonymous"), family_slug)
                self._names.told((), self._world.run_id)
                return []
            case "turn":
                await self._world.turn(self._names.id_of(int(rest)))
                return []
            case "child" | "parent":
                await self._turn_to_kin(rest.strip())
                return []
            case "in":
                return await self._within(rest)
            case "tick":
                return await self._tick_all() if rest.strip() == "all" else await self._tick()
            case "lease":
                return await self._workers.lease(rest.strip())
            case "advance":
                await self._world.advance(milliseconds(rest))
                return []
            case "show":
                manifest = await self._world.definition()
                lines = transcript.snapshot(await self._world.show(), manifest)
                return self._names.told(lines, self._world.run_id)
            case "limits":
                await self._world.limits(**fields_of(rest))
                return []
            case "follow":
                await self._world.follow()
                return []
            case _ if verb in _VERBS:
                await self._control(Verb(verb), rest)
                return []
            case "publish":
                return await self._publish(rest)
            case _ if verb in _SAID:
                return await self._signal(verb, rest)
            case _:
                return await self._workers.work(verb, rest)

    async def _tick(self) -> list[str]:
        """The run that the story is about: its new transitions, and what was settled."""
        transitions = await self._world.tick()
        for control in await self._world.cascaded():
            self._names.call(control.request_id, f"the {control.verb} of {control.parent_run_id}")
        manifest = await self._world.definition()
        lines = [line for t in transitions for line in transcript.transition(manifest, t)]
        lines += [transcript.settled(settled) for settled in await self._world.settled()]
        lines += [transcript.settled_signal(settled) for settled in await self._world.settled_signals()]
        return self._names.told(lines, self._world.run_id)

    async def _tick_all(self) -> list[str]:
        """The run and all that descend from it, parents before children, until nothing happens in any of them."""
        top = self._world.run_id
        told: list[str] = []
        while True:
            before = len(told)
            waiting = [(top, "")]
            while waiting:
                run_id, place = waiting.pop(0)
                await self._world.turn(run_id)
                if lines := await self._tick():
                    told += [f"run {self._names.number(run_id)}{place}:", *(f"  {line}" for line in lines)]
                kin = {child.run_id: child for child in await self._world.children()}
                waiting[:0] = [(of, f", {c.step_ref}[{c.item_index}]") for of, c in kin.items()]
            if len(told) == before:
                await self._world.turn(top)
                return told

    async def _turn_to_kin(self, path: str) -> None:
        """`child PATH`: to the child there; `parent`: to the run whose child this one is."""
        if path:
            ((_, run_id),) = await self._at(path)
        else:
            run_id = await self._world.parent()
        await self._world.turn(run_id)
        self._names.told((), run_id)

    async def _within(self, rest: str) -> list[str]:
        """`in PATH COMMAND`: a command about the children there, one after the other."""
        path, _, line = rest.strip().partition(" ")
        here = self._world.run_id
        there = await self._at(path)
        told: list[str] = []
        for place, run_id in there:
            await self._world.turn(run_id)
            lines = await self.play(Command(line=line))
            told += [f"{place}:", *(f"  {line}" for line in lines)] if lines and len(there) > 1 else lines
        await self._world.turn(here)
        return told

    async def _at(self, path: str) -> list[tuple[str, str]]:
        """The children at a path, `s[0..9]/pay`: of the latest attempt of each node, as they are now."""
        here = self._world.run_id
        found = [("", here)]
        for segment in path.split("/"):
            wanted = target(segment)
            deeper: dict[str, str] = {}
            for place, run_id in found:
                await self._world.turn(run_id)
                for child in await self._world.children():
                    name = f"{child.step_ref}[{child.item_index}]"
                    if wanted.covers(name):
                        deeper[f"{place}/{name}" if place else name] = child.run_id
            assert deeper, f"there is no child {segment}"
            found = list(deeper.items())
        await self._world.turn(here)
        return found

    async def _control(self, verb: Verb, rest: str) -> None:
        """An operator's verb: `VERB [REF] field=value…`, the fields of a control's body and `reason`, `request_id`, `actor`."""
        step_ref = ""
        if verb in _ABOUT_A_STEP:
            step_ref, _, rest = rest.strip().partition(" ")
        fields = fields_of(rest)
        self._controls += 1
        request_id = str(fields.pop("request_id", f"{verb.replace('_', '-')}-{self._controls}"))
        born = {Verb.CONTINUE_AS_NEW: "continue", Verb.RESET: "reset"}.get(verb)
        if born is not None:
            fields["new_run_id"] = derived(born, self._world.run_id, request_id)
        control = Control(
            request_id=request_id,
            verb=verb,
            create_time=await self._world.now(),
            actor=str(fields.pop("actor", "operator")),
            reason=str(fields.pop("reason", "")),
            step_ref=step_ref,
            body=msgspec.convert(fields, ControlBody),
        )
        await self._world.control(control)

    async def _signal(self, verb: str, rest: str) -> list[str]:
        """Somebody's word to a step: `VERB REF field=value… [JSON]`, the fields of a signal, and its payload."""
        step_ref, _, rest = rest.strip().partition(" ")
        fields, payload = fields_and_payload(rest)
        self._controls += 1
        signal = Signal(
            request_id=str(fields.get("request_id", f"{verb}-{self._controls}")),
            verb=_SAID[verb],
            step_ref=step_ref,
            create_time=await self._world.now(),
            actor=str(fields.get("actor", "anonymous")),
            approver_id=str(fields.get("approver_id", "")),
            groups=tuple(fields.get("groups", ())),
            comment=str(fields.get("comment", "")),
            status=str(fields.get("status", "resolved" if verb == "resolve" else "")),
        )
        answer = await self._world.signal(signal, payload)
        return [] if answer == "ok" else [answer]

    async def _publish(self, rest: str) -> list[str]:
        """An external event: `publish NAME key=K id=E ttl=60s [JSON]`."""
        name, _, rest = rest.strip().partition(" ")
        fields, payload = fields_and_payload(rest)
        self._events += 1
        ttl_ms = milliseconds(fields["ttl"]) if "ttl" in fields else 0
        event_id = str(fields.get("id", f"e{self._events}"))
        matched, duplicate = await self._world.publish(name, str(fields.get("key", "")), event_id, payload, ttl_ms)
        return [f"matched {matched}{', duplicate' if duplicate else ''}"]

    async def _define(self, family_slug: str, block: tuple[str, ...]) -> list[str]:
        definition = parse_definition(block, family_slug)
        compiled = compile_definition(definition)
        if compiled.manifest is None:
            self._refused[family_slug] = [f"{v.code} {v.path}: {v.message}" for v in compiled.errors]
            return self._refused[family_slug]
        await self._world.define(definition)
        return []
