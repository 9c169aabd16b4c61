"""What expressions see: bindings over a tick (ruling L3), built only from what an expression reads.

The step that is ending is shown as it will be if the expression lets it end so; nothing else in the tick has to change for that.
"""

from typing import Any

import msgspec

from ductord.engine import moments, starting
from ductord.engine.expressions import Bindings
from ductord.engine.tick import Tick
from ductord.model.enums import NodeStatus
from ductord.model.fault import Fault, OutputRef
from ductord.model.specs import Expression, Template


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """A step that is about to end, as its conditions see it."""

    index: int
    status: NodeStatus
    output: OutputRef | None = None
    fault: Fault | None = None


def bindings(
    tick: Tick, reads: Expression | Template, ending: Ending | None = None, *, own_output: bool = False
) -> Bindings:
    """Bindings for one expression or template. `own_output` binds OUTPUT to the output of the step that is ending."""
    start = tick.inbox.start
    names = reads.names
    own: Any = msgspec.UNSET
    if own_output and ending is not None:
        own = tick.outputs.get(tick.manifest.steps[ending.index].ref) if ending.output is not None else None
    return Bindings(
        trigger=_trigger(tick) if "TRIGGER" in names else msgspec.UNSET,
        variables=starting.resolved(tick.manifest.variables, start.variables) if "VARS" in names else msgspec.UNSET,
        steps={ref: _step(tick, ref, ending) for ref in reads.steps},
        run=_run(tick) if "RUN" in names else msgspec.UNSET,
        context=start.context,
        output=own,
    )


def _step(tick: Tick, ref: str, ending: Ending | None) -> dict[str, Any]:
    index = tick.graph.index[ref]
    node = tick.work.nodes[index]
    status, output, fault = node.status, node.output, node.fault
    if ending is not None and ending.index == index:
        status, output, fault = ending.status, ending.output, ending.fault
    return {
        "output": tick.outputs.get(ref) if output is not None else None,
        "status": status.value,
        "error": {"code": fault.code, "message": fault.message} if fault is not None else None,
        "attempt": node.attempt,
    }


def _trigger(tick: Tick) -> dict[str, Any]:
    start = tick.inbox.start
    origin = start.origin
    event = origin.event
    payload = {} if start.payload is None else start.payload
    return {
        "payload": payload,
        "event": None
        if event is None
        else {
            "name": event.name,
            "id": event.id,
            "correlation_key": event.correlation_key,
            "payload": start.payload if event.payload_is_input else event.payload,
            "time": moments.written(event.time),
        },
        "subject": {"type": start.subject_type, "id": start.subject_id},
        **starting.told(origin),
    }


def _run(tick: Tick) -> dict[str, Any]:
    start = tick.inbox.start
    started = tick.work.run.start_time or tick.now
    return {
        "id": start.run_id,
        "version": start.version,
        "started_at": started.isoformat().replace("+00:00", "Z"),
        "labels": start.labels,
    }
