"""What every step type tells the engine about itself. Controls, stops and time-outs meet a type here and nowhere else.

A node is *begun* while it is running or waiting. All hooks but the first two are asked for begun nodes only; they emit and do what concerns the type's
own work (attempts, waits, children), never the end of the node, which is the caller's business.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ductord.engine.routing import Arrival
from ductord.engine.tick import Again, Tick
from ductord.model.enums import Outcome, TimerKind
from ductord.model.inbox import ChildFact, DigestFact, Receipt, Signal
from ductord.model.specs import Timeouts


class StepKind(msgspec.Struct, frozen=True, kw_only=True):
    """The hooks of one step type.

    `prepare(tick, index)` evaluates what the step needs to begin and changes nothing; it may raise `ExpressionError`. `start(tick, index,
    prepared)` begins it, at the end of the tick, when it is certain that the run goes on; it only emits. `again(tick, index, again)` makes the further
    attempt that was decided on, likewise.

    `may_report(tick, index)`: whether somebody may be at work for the node, who can still say how it went if asked to stop. If not, a stop drops it at
    once: so ends a wait (C3), and an attempt that a back-off holds. `ask(tick, index)`: ask those at work to stop, and mark the node as asked.
    `drop(tick, index, outcome)`: close what the node has open, at once: its grace or its time is over, or the run is terminated.

    `hold(tick, index)` and `release(tick, index)`: an operator holds the node, or lets it go (C2); what is at work goes on. What arrives for a held node,
    and what comes due, waits by itself (`Tick.holds`). `retime(tick, index, before)`: the node's time-outs were other ones before.
    `reset(tick, index)`: put away what the node has open and its timers; it is about to begin anew (C10).

    Of types that wait, for waiting nodes that nobody holds: `on_timer(tick, index, kind)`: its timer `wait` or `wait_timeout` is due.
    `on_signal(tick, index, signal)`: somebody told the step something; it settles the signal. `on_receipts(tick, index, receipts)`: external events matched
    its wait. `on_digest(tick, index, fact)`: what the commit made of its joining a digest.
    `look(tick, index)`: the run has changed (an `until` looks again). None: there is nothing of the kind.

    Of types without work: `at_once(tick, index)` ends the node instead of beginning it; True if what led to nothing but it is to be called off.
    `arrival(tick, index)`: what the incoming edges tell it, where that is not what a join tells (G7).

    Of types with children, for begun nodes: `on_child(tick, index, fact)`: a child run of the node's present attempt has ended, or reached what was waited
    for; also while the run is paused, as reports are. `fill(tick, index)`: begin as many as may begin now, at the end of a tick in which the run goes on and
    nobody holds the node. `finish(tick, index)`: none is open and none is to begin (`fans.counting.over`): end the node. `call_off(tick, index)`: have the
    open ones cancelled, and no more.

    `parks`: its `start` has nothing that a worker could be told to do, and may end the node: it comes before all that has.
    """

    prepare: Callable[[Tick, int], Any]
    start: Callable[[Tick, int, Any], None]
    again: Callable[[Tick, int, Again], None]
    may_report: Callable[[Tick, int], bool]
    ask: Callable[[Tick, int], None]
    drop: Callable[[Tick, int, Outcome], None]
    hold: Callable[[Tick, int], None]
    release: Callable[[Tick, int], None]
    retime: Callable[[Tick, int, Timeouts], None]
    reset: Callable[[Tick, int], None]
    on_timer: Callable[[Tick, int, TimerKind], None] | None = None
    on_signal: Callable[[Tick, int, Signal], None] | None = None
    on_receipts: Callable[[Tick, int, Sequence[Receipt]], None] | None = None
    on_digest: Callable[[Tick, int, DigestFact], None] | None = None
    look: Callable[[Tick, int], None] | None = None
    at_once: Callable[[Tick, int], bool] | None = None
    arrival: Callable[[Tick, int], Arrival] | None = None
    on_child: Callable[[Tick, int, ChildFact], None] | None = None
    fill: Callable[[Tick, int], None] | None = None
    finish: Callable[[Tick, int], None] | None = None
    call_off: Callable[[Tick, int], None] | None = None
    parks: bool = False
