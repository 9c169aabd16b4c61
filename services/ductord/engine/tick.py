"""One tick in progress: what `decide` was given, the working copy of the run, and what has been decided so far.

State changes only through `emit`, which applies the event by `evolve`'s own rules. Expressions are evaluated only after `lacks` has said that
their outputs are at hand; what is not is noted, and the whole tick is then thrown away and asked again (`Missing`).
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from heapq import heappush
from typing import Any, Final

import msgspec

from ductord.engine.evolve import FOLDS, Working
from ductord.engine.expressions import Programs
from ductord.engine.graph import Graph
from ductord.engine.limits import Limits
from ductord.model.decision import Missing
from ductord.model.effects import ClearTimers, Effect, SetTimer
from ductord.model.enums import NodeStatus, RunStatus, TimerKind
from ductord.model.errors import PayloadInvalid
from ductord.model.events import Event
from ductord.model.fan import Item
from ductord.model.fault import Fault, OutputRef
from ductord.model.inbox import AttemptReport, Inbox, SourceKey, TimerDue
from ductord.model.manifest import Manifest
from ductord.model.needs import Need
from ductord.model.run import Run

_OPEN: Final = frozenset(status for status in RunStatus if not status.terminal)
_PAUSED: Final = RunStatus.PAUSED
_PENDING: Final = NodeStatus.PENDING


class First(msgspec.Struct, frozen=True):
    """A pending node that is to begin: what its step type prepared."""

    prepared: Any


class Again(msgspec.Struct, frozen=True):
    """A running node whose attempt has ended and that gets another: after a failure (`retry`) or because the attempt came to nothing."""

    retry: bool
    logical: int
    delay_ms: int


class Repeat(msgspec.Struct, frozen=True):
    """An inline child whose attempt has ended and that gets another. `item`: what it has behind it then. `fault`: the failure that is tried again; None: the
    attempt came to nothing."""

    report: AttemptReport
    item: Item
    delay_ms: int
    fault: Fault | None


class Tick:
    """`frontier`: pending steps an edge of which was resolved, a heap in Kahn order. `ready`: nodes that will get an attempt at the end of the
    tick, unless a failure stops the run first. `failing`: nodes of on_error `fail` that failed and whose stop is still to be carried out.
    `touched`: checkpoints one of whose steps ended. `input_bytes`: of the inputs that were rendered so far. `held`: timers that came due and that a
    pause holds. `moves`: length of the history before this tick. `outputs`: those of the inbox and those
    made in this tick. `parked`: nodes that were parked in this tick. `fresh`: what nodes that began in this tick had prepared for their children. `made`: needs
    that this tick has met itself. `begun`: how many children begin in this tick, `begun_bytes`: of their inputs. `repeats`: inline children that will get
    another attempt at the end of the tick, unless their node is called off first. `registered`: the logical attempts that are known to have succeeded.
    `missing_payloads`: of signals and events. `missing_needs`: whatever else was not given.
    `missing_sources`: outputs that inverses read and that were not given."""

    __slots__ = (
        "begun",
        "begun_bytes",
        "effects",
        "events",
        "failing",
        "fresh",
        "frontier",
        "graph",
        "held",
        "inbox",
        "input_bytes",
        "limits",
        "made",
        "manifest",
        "missing",
        "missing_needs",
        "missing_payloads",
        "missing_sources",
        "moves",
        "now",
        "outputs",
        "parked",
        "programs",
        "ready",
        "registered",
        "repeats",
        "touched",
        "work",
    )

    def __init__(
        self, manifest: Manifest, programs: Programs, run: Run, inbox: Inbox, now: datetime, limits: Limits
    ) -> None:
        self.manifest = manifest
        self.programs = programs
        self.inbox = inbox
        self.now = now
        self.limits = limits
        self.work = Working(manifest, run)
        self.graph: Graph = self.work.graph
        self.events: list[Event] = []
        self.effects: list[Effect] = []
        self.missing: set[str] = set()
        self.missing_payloads: set[str] = set()
        self.missing_needs: set[Need] = set()
        self.missing_sources: set[SourceKey] = set()
        self.outputs: Mapping[str, Any] = inbox.outputs
        self.parked: list[int] = []
        self.fresh: dict[int, Any] = {}
        self.made: dict[Need, Any] = {}
        self.begun = 0
        self.begun_bytes = 0
        self.registered: set[tuple[str, int, int]] | None = None
        self.repeats: dict[int, list[Repeat]] = {}
        self.held: list[TimerDue] = []
        self.moves = run.moves
        self.frontier: list[int] = []
        self.ready: dict[int, First | Again] = {}
        self.input_bytes = 0
        self.failing: list[int] = []
        self.touched: set[int] = set()

    @property
    def run_id(self) -> str:
        return self.work.run.run_id

    @property
    def open(self) -> bool:
        """Whether the run has not ended."""
        return self.work.run.status in _OPEN

    @property
    def paused(self) -> bool:
        """Whether nothing may begin (C2)."""
        return self.work.run.status is _PAUSED

    @property
    def lacking(self) -> Missing | None:
        """What the tick has to be asked again with; None when it had everything."""
        if not (self.missing or self.missing_sources or self.missing_payloads or self.missing_needs):
            return None
        return Missing(
            steps=frozenset(self.missing),
            sources=frozenset(self.missing_sources),
            payloads=frozenset(self.missing_payloads),
            needs=frozenset(self.missing_needs),
        )

    def make_output(self, ref: str, value: Any) -> None:
        """A step that no worker works for has this output from now on; the rest of the tick reads it like any other."""
        self.outputs = {**self.outputs, ref: value}

    def weigh(self, text: str) -> None:
        """Count what a step that begins in this tick is given. Raises `PayloadInvalid` for more than one commit carries (L7)."""
        self.input_bytes += len(text)
        limit = self.limits.inputs_max_bytes
        if self.input_bytes > limit:
            message = f"the args of steps that begin together are over {limit:,} bytes: pass references to large data"
            raise PayloadInvalid("too_large", "args", message, limit_bytes=limit)

    def payload(self, key: str) -> Any:
        """The payload of a signal or event; UNSET, and noted as missing, where it was not given."""
        if key not in self.inbox.payloads:
            self.missing_payloads.add(key)
            return msgspec.UNSET
        return self.inbox.payloads[key]

    def given(self, need: Need) -> Any:
        """The value of a need (`model.needs`); UNSET, and noted as missing, where it was not given."""
        if need in self.made:
            return self.made[need]
        if need not in self.inbox.given:
            self.missing_needs.add(need)
            return msgspec.UNSET
        return self.inbox.given[need]

    def holds(self, step_ref: str) -> bool:
        """Whether what comes due for this step (empty: for the run) waits for a resume (C2)."""
        if self.paused:
            return True
        index = self.graph.index.get(step_ref)
        return index is not None and self.work.nodes[index].paused

    def unset(self, kind: TimerKind, step_ref: str) -> None:
        """Have a timer of a step deleted, be it one that this very tick sets: a commit clears timers before it sets any."""
        self.effects = [
            e for e in self.effects if not (type(e) is SetTimer and e.kind is kind and e.step_ref == step_ref)
        ]
        self.do(ClearTimers(kind=kind, step_ref=step_ref))

    def clear_timers(self) -> None:
        """Have all timers of the run deleted, once."""
        if ClearTimers() not in self.effects:
            self.do(ClearTimers())

    def emit(self, event: Event) -> None:
        """Record what happened and change the working copy by it."""
        FOLDS[type(event)](self.work, event, self.now)
        self.events.append(event)

    def do(self, effect: Effect) -> None:
        """Record what the commit shall do."""
        self.effects.append(effect)

    def after(self, milliseconds: int) -> datetime:
        """The instant so many milliseconds from now."""
        return self.now + timedelta(milliseconds=milliseconds)

    def reach(self, targets: Iterable[int]) -> None:
        """Look at these steps again: an edge into them was resolved."""
        nodes = self.work.nodes
        for target in targets:
            if nodes[target].status is _PENDING and target not in self.ready:
                heappush(self.frontier, target)

    def lacks(self, refs: tuple[str, ...], ending: str | None = None, output: OutputRef | None = None) -> bool:
        """Whether an output among those of `refs` exists and was not given; it is then noted as missing. `ending` is a step that is about to end
        with `output`."""
        lacking = False
        outputs = self.outputs
        for ref in refs:
            if ref in outputs:
                continue
            known = output if ref == ending else self.work.nodes[self.graph.index[ref]].output
            if known is not None:
                self.missing.add(ref)
                lacking = True
        return lacking

    def foresee(self, index: int, output: OutputRef | None) -> None:
        """Note what the steps after `index` would read to begin: this tick is asked again anyway, and shall not be asked a third time."""
        ref = self.manifest.steps[index].ref
        for target in self.graph.targets[index]:
            self.lacks(self.graph.start_reads[target], ref, output)
