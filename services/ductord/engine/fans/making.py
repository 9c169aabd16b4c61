"""Making the attempts of inline children: the first ones, with their args rendered over ITEM and INDEX, and those after a failure (rulings F1, A1, A6, L4).

A child whose args do not evaluate has begun and failed, alone: the others go on, and what the step tolerates judges it.
"""

from datetime import datetime

import msgspec

from ductord.engine import faults
from ductord.engine.errors import EngineError
from ductord.engine.expressions import ExpressionError, PerElement
from ductord.engine.fans import beginning, counting, expanding
from ductord.engine.reading import bindings
from ductord.engine.tick import Repeat, Tick
from ductord.model import jsonvalue
from ductord.model.effects import QueueTask
from ductord.model.enums import TaskKind
from ductord.model.errors import PayloadInvalid
from ductord.model.events import AttemptCreated
from ductord.model.fan import Item
from ductord.model.fan_effects import RecordItemFault
from ductord.model.fan_events import ChildFailed, ChildrenBegun
from ductord.model.fault import Fault
from ductord.model.ids import idempotency_key
from ductord.model.specs import ActionSpec


def fill(tick: Tick, index: int) -> None:
    """Begin as many children as may begin now."""
    spec = spec_of(tick, index)
    if tick.lacks(spec.args.steps):
        return
    render = rendering(tick, index)
    while beginning.may_begin(tick, index) and counting.too_many(tick, index) is None:
        before = tick.begun
        for first, count in beginning.ranges(expanding.fan_of(tick, index), beginning.room(tick, index)):
            items = expanding.items(tick, index, first, count)
            if items is not None:
                _begin(tick, index, first, items, render)
        if tick.begun == before:
            return  # another round only because children failed where they began, and left room for others


def rendering(tick: Tick, index: int) -> "Rendering":
    """What the children of the step are given, one by one."""
    args = spec_of(tick, index).args
    return Rendering(tick, tick.programs.per_element(args, bindings(tick, args)))


class Rendering(msgspec.Struct, frozen=True):
    """The args of one child as JSON text. Called, it raises `ExpressionError` (L4), and `PayloadInvalid` for more than a payload may hold (L7), for this child
    alone."""

    tick: Tick
    element: PerElement

    def __call__(self, item: object, number: int) -> str:
        return jsonvalue.encode(self.element(item, number), root="args", max_bytes=self.tick.limits.payload_max_bytes)


def again(tick: Tick, index: int, one: Repeat) -> None:
    """Make a further attempt of a child with the input of the one before (A1)."""
    ref, report = tick.manifest.steps[index].ref, one.report
    attempt = report.attempt + 1
    due_time = tick.after(one.delay_ms) if one.delay_ms else tick.now
    tick.emit(
        AttemptCreated(
            step_ref=ref,
            attempt=attempt,
            logical=one.item.logical,
            due_time=due_time if one.delay_ms else None,
            kind=TaskKind.ITEM,
            item_index=report.item_index,
        )
    )
    _queue(tick, index, report.item_index, attempt, due_time, one.item.logical, item=one.item, retry_of=report.attempt)


def spec_of(tick: Tick, index: int) -> ActionSpec:
    """What every inline child of the step does."""
    step = tick.manifest.steps[index]
    if step.scatter is None or step.scatter.action is None:
        raise EngineError("MANIFEST_INVALID", f"step {step.ref} is an inline scatter without an action")
    return step.scatter.action


def _begin(tick: Tick, index: int, first: int, items: list[object], render: Rendering) -> None:
    ref, attempt = tick.manifest.steps[index].ref, tick.work.nodes[index].top + 1
    inputs: list[str | Fault] = []
    for number, item in enumerate(items, first):
        if tick.begun_bytes >= tick.limits.children_max_bytes:
            break
        inputs.append(_input(render, item, number))
        tick.begun_bytes += len(inputs[-1]) if isinstance(inputs[-1], str) else 0
    if not inputs:
        return
    tick.begun += len(inputs)
    due_times = beginning.due_times(tick, index, len(inputs))
    scatter = tick.manifest.steps[index].scatter
    staggered = scatter is not None and scatter.interval_ms > 0
    tick.emit(
        ChildrenBegun(
            step_ref=ref,
            first=first,
            count=len(inputs),
            attempt=attempt,
            due_time=due_times[-1] if staggered else None,
        )
    )
    for number, given, due_time in zip(range(first, first + len(inputs)), inputs, due_times, strict=True):
        if isinstance(given, str):
            _queue(tick, index, number, attempt, due_time, attempt, input_json=given)
        else:
            tick.emit(ChildFailed(step_ref=ref, item_index=number, fault=given, attempt=attempt))
            tick.do(RecordItemFault(step_ref=ref, item_index=number, attempt=attempt, fault=given))


def _input(render: Rendering, item: object, number: int) -> str | Fault:
    try:
        return render(item, number)
    except ExpressionError as error:
        fault = faults.of_expression(error)
    except PayloadInvalid as error:
        fault = faults.of_payload(error)
    return Fault(code=fault.code, message=jsonvalue.storable_text(f"child {number}: {fault.message}"))


def _queue(
    tick: Tick,
    index: int,
    item_index: int,
    attempt: int,
    due_time: datetime,
    logical: int,
    *,
    input_json: str = "",
    item: Item | None = None,
    retry_of: int | None = None,
) -> None:
    step, node = tick.manifest.steps[index], tick.work.nodes[index]
    limits = node.timeouts or step
    tick.do(
        QueueTask(
            step_ref=step.ref,
            attempt=attempt,
            kind=TaskKind.ITEM,
            item_index=item_index,
            idempotency_key=idempotency_key(tick.run_id, step.ref, item_index, logical, TaskKind.ITEM),
            action=spec_of(tick, index).action,
            queue=step.queue,
            due_time=due_time,
            input_json=input_json,
            retry_of=retry_of,
            timeout_ms=limits.timeout_ms,
            heartbeat_timeout_ms=limits.heartbeat_timeout_ms,
            queue_timeout_ms=limits.queue_timeout_ms,
            held=tick.paused or node.paused,
            item=item,
        )
    )
