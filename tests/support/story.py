"""Scenario files: how they are read and played. The language is in tests/scenarios/README.md.

A file is prose (`#` lines), commands, a line of dashes, and the transcript that the commands give. Playing a story knows only the `World`
protocol, so the same file tells the same story in every world.
"""

import json
import re
from pathlib import Path
from typing import Any

import msgspec

from ductord.engine.compile import compile_definition
from ductord.model.control import Control, ControlBody
from ductord.model.enums import SignalVerb, Verb
from ductord.model.ids import derived
from ductord.model.inbox import Signal
from ductord.model.manifest import Manifest
from tests.support import transcript
from tests.support.world import Failure, Success, Task, World

_DASHES = "----"
_EDGE = re.compile(r"(\S+)\s+-(\w+)->\s+(\S+)\s*(.*)")
_DURATION = re.compile(r"(\d+)(ms|s|m|h)")
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
_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One command: its line as written, and the indented lines below it."""

    line: str
    block: tuple[str, ...] = ()


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario file. `head` is everything above the dashes, as text."""

    path: Path
    head: str
    commands: tuple[Command, ...]
    expected: str

    def text(self, played: str) -> str:
        """The file with this transcript."""
        return f"{self.head}{_DASHES}\n{played}"


def read(path: Path) -> Story:
    """Read a scenario file."""
    head, _, expected = path.read_text().partition(f"\n{_DASHES}\n")
    head = head.rstrip("\n") + "\n\n"
    commands: list[Command] = []
    for line in head.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if line[0].isspace():
            last = commands.pop()
            commands.append(Command(line=last.line, block=(*last.block, line.strip())))
        else:
            commands.append(Command(line=line.strip()))
    return Story(path=path, head=head, commands=tuple(commands), expected=expected)


async def play(story: Story, world: World) -> str:
    """Play a story in a world; the transcript."""
    stage = _Stage(world, story.path.stem)
    lines: list[str] = []
    for command in story.commands:
        if command.line != "define":
            lines.append(f"> {command.line}")
        lines += [f"  {line}" for line in await stage.play(command)]
    return "".join(f"{line.rstrip()}\n" for line in lines)


class _Stage:
    """A story being played: the verbs."""

    def __init__(self, world: World, slug: str) -> None:
        self._world = world
        self._slug = slug.replace(".", "_").lower()
        self._manifest: Manifest | None = None
        self._leased: dict[str, dict[str, int]] = {}
        self._keys: dict[str, tuple[str, int]] = {}
        self._names = transcript.Names()
        self._controls = 0
        self._events = 0

    @property
    def _attempts(self) -> dict[str, int]:
        """The last leased attempt by task, of the run that the story is about."""
        return self._leased.setdefault(self._world.run_id, {})

    async def play(self, command: Command) -> list[str]:
        verb, _, rest = command.line.partition(" ")
        match verb:
            case "define":
                return await self._define(command.block)
            case "trigger":
                payload, options = _payload_and_options(rest)
                subject = options.get("subject_type", ""), options.get("subject_id", "")
                await self._world.trigger(payload, *subject, options.get("actor", "anonymous"))
                self._names.told((), self._world.run_id)
                return []
            case "turn":
                await self._world.turn(self._names.id_of(int(rest)))
                return []
            case "tick":
                assert self._manifest is not None
                transitions = await self._world.tick()
                lines = [line for t in transitions for line in transcript.transition(self._manifest, t)]
                lines += [transcript.settled(settled) for settled in await self._world.settled()]
                lines += [transcript.settled_signal(settled) for settled in await self._world.settled_signals()]
                return self._names.told(lines, self._world.run_id)
            case "lease":
                return await self._lease(rest.strip() or None)
            case "advance":
                await self._world.advance(_milliseconds(rest))
                return []
            case "show":
                assert self._manifest is not None
                lines = transcript.snapshot(await self._world.show(), self._manifest)
                return self._names.told(lines, self._world.run_id)
            case "limits":
                await self._world.limits(**_fields(rest))
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
                return await self._work(verb, rest)

    async def _control(self, verb: Verb, rest: str) -> None:
        """An operator's verb: `VERB [REF] field=value…`, the fields of a control's body and `reason`, `request_id`, `actor`."""
        step_ref = ""
        if verb in _ABOUT_A_STEP:
            step_ref, _, rest = rest.strip().partition(" ")
        fields = _fields(rest)
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
        fields, payload = _fields_and_payload(rest)
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
        fields, payload = _fields_and_payload(rest)
        self._events += 1
        ttl_ms = _milliseconds(fields["ttl"]) if "ttl" in fields else 0
        event_id = str(fields.get("id", f"e{self._events}"))
        matched, duplicate = await self._world.publish(name, str(fields.get("key", "")), event_id, payload, ttl_ms)
        return [f"matched {matched}{', duplicate' if duplicate else ''}"]

    async def _define(self, block: tuple[str, ...]) -> list[str]:
        definition = parse_definition(block, self._slug)
        compiled = compile_definition(definition)
        if compiled.manifest is None:
            return [f"{v.code} {v.path}: {v.message}" for v in compiled.errors]
        self._manifest = compiled.manifest
        await self._world.define(definition)
        return []

    async def _lease(self, ref: str | None) -> list[str]:
        lines = []
        for task in await self._world.lease(ref):
            lines.append(transcript.task(task, self._take(task)))
        return self._names.told(lines, self._world.run_id) or ["no task"]

    def _take(self, task: Task) -> str:
        """Remember a leased task; a short name of its idempotency key: its number among the step's keys."""
        self._attempts[task.step_ref] = task.attempt
        fresh = 1 + sum(1 for ref, _ in self._keys.values() if ref == task.step_ref)
        ref, number = self._keys.setdefault(task.idempotency_key, (task.step_ref, fresh))
        return f"key {number}" if ref == task.step_ref else f"key {number} of {ref}"

    async def _work(self, verb: str, rest: str) -> list[str]:
        """A worker's verb. It is about the step's last leased attempt, or the one given as `ref#n`; what is only queued is leased first."""
        target, _, rest = rest.strip().partition(" ")
        ref, _, number = target.partition("#")
        if not number and verb != "beat":
            for task in await self._world.lease(ref):
                self._take(task)
        if not number and ref not in self._attempts:
            return ["no task"]
        attempt = int(number) if number else self._attempts[ref]
        payload, options = _payload_and_options(rest)
        match verb:
            case "ok":
                output = payload if rest.strip() else {}
                answer = await self._world.complete(ref, attempt, Success(output=output))
            case "fail":
                answer = await self._world.complete(ref, attempt, _failure(options))
            case "release":
                answer = await self._world.release(ref, attempt)
            case "beat":
                answer = await self._world.beat(ref, attempt, payload)
            case "die":
                await self._world.die(ref, attempt)
                return []
            case _:
                raise ValueError(f"unknown verb: {verb}")
        if verb != "beat" and self._attempts.get(ref) == attempt:
            del self._attempts[ref]  # its worker is through with it
        return [] if answer in ("ok", "continue") else [answer]


def parse_definition(block: tuple[str, ...], slug: str) -> dict[str, Any]:
    """The definition that a `define` block spells: `step REF field=value…`, `A -type-> B field=value…`, `checkpoint NAME: a, b`, `FIELD VALUE`."""
    definition: dict[str, Any] = {"family_slug": slug, "steps": [], "edges": []}
    for line in block:
        word, _, rest = line.partition(" ")
        if edge := _EDGE.fullmatch(line):
            source, kind, target, fields = edge.groups()
            definition["edges"].append({"source_ref": source, "target_ref": target, "type": kind, **_fields(fields)})
        elif word == "step":
            ref, _, fields = rest.strip().partition(" ")
            step = {"ref": ref, "type": "action", **_fields(fields)}
            if step["type"] == "action":
                step.setdefault("action", "core:echo")
            definition["steps"].append(step)
        elif word == "checkpoint":
            name, _, refs = rest.partition(":")
            checkpoint = {"name": name.strip(), "step_refs": [ref.strip() for ref in refs.split(",")]}
            definition.setdefault("checkpoints", []).append(checkpoint)
        else:
            definition[word] = _value(rest.strip())[0]
    return definition


def _failure(options: dict[str, Any]) -> Failure:
    after = options.get("retry_after")
    return Failure(
        code=options.get("code", "UNKNOWN"),
        message=options.get("message", ""),
        non_retryable=options.get("non_retryable", False),
        retry_after_ms=None if after is None else _milliseconds(after),
    )


def _payload_and_options(text: str) -> tuple[Any, dict[str, Any]]:
    text = text.strip()
    if not text or (re.match(r"[a-z_]+(=|\s|$)", text) and not re.match(r"(null|true|false)\b", text)):
        return None, _fields(text)
    payload, rest = _value(text)
    return payload, _fields(rest)


def _fields_and_payload(text: str) -> tuple[dict[str, Any], Any]:
    """Fields, and one JSON value that stands before, between or behind them; None without one."""
    fields: dict[str, Any] = {}
    payload: Any = None
    text = text.strip()
    while text:
        match = re.match(r"([a-z_]+)=", text)
        if match is not None:
            fields[match.group(1)], text = _value(text[match.end() :])
        else:
            payload, text = _value(text)
        text = text.strip()
    return fields, payload


def _fields(text: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    text = text.strip()
    while text:
        match = re.match(r"([a-z_]+)(=?)", text)
        if match is None:
            raise ValueError(f"not field=value: {text}")
        text = text[match.end() :]
        fields[match.group(1)], text = _value(text) if match.group(2) else (True, text)
        text = text.strip()
    return fields


def _value(text: str) -> tuple[Any, str]:
    """One value at the start of the text, and what follows: JSON if it can be, else a word."""
    try:
        value, end = json.JSONDecoder().raw_decode(text)
    except json.JSONDecodeError:
        end = 0
    if end and (end == len(text) or text[end].isspace()):
        return value, text[end:]
    word, _, rest = text.partition(" ")
    return word, rest


def _milliseconds(text: str) -> int:
    parts = _DURATION.findall(text)
    if "".join(n + unit for n, unit in parts) != text.strip():
        raise ValueError(f"not a duration: {text}")
    return sum(int(n) * _UNITS[unit] for n, unit in parts)
