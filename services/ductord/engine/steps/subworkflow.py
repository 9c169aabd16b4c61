"""`subworkflow`: another definition runs as a child of this run (ruling F5).

Sync, the step waits until the child has ended, or has reached the checkpoint that is named, and has the child's output; async, it is over as soon as the child
is born. Its time-out is about the waiting alone: it never does anything to the child (spec: Sub-workflows). What all child runs have in common is
`engine.fans.runs`.
"""

from typing import Any

import msgspec
from msgspec.structs import replace

from ductord.engine import exits, faults, waiting
from ductord.engine.errors import EngineError
from ductord.engine.expressions import ExpressionError
from ductord.engine.fans import births, counting, resuming, runs
from ductord.engine.fans.expanding import fan_of
from ductord.engine.fans.inputs import Inputs, workflow
from ductord.engine.reading import bindings
from ductord.engine.steps.bearing import BEARING
from ductord.engine.tick import Tick
from ductord.model.effects import SetTimer
from ductord.model.enums import CheckpointStatus, RunStatus, TimerKind, WaitingType
from ductord.model.errors import PayloadInvalid
from ductord.model.fan import Workflow
from ductord.model.fan_events import FanExpanded
from ductord.model.fanout import OnChildTimeout, SubworkflowMode, SubworkflowSpec
from ductord.model.fault import Fault
from ductord.model.inbox import ChildFact
from ductord.model.run import Waiting


class _Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """What the child will run, and be given."""

    workflow: Workflow
    inputs: Inputs


def prepare(tick: Tick, index: int) -> _Prepared | resuming.Again | None:
    """Find the version and try the input; of a step that has a child, see how that stands. Raises `NodeFault`, and `PayloadInvalid` for more than one commit
    carries: a child that nobody waits for is born in any case."""
    if tick.work.nodes[index].fan is not None:
        return resuming.prepare(tick, index)
    found = workflow(tick, index)
    if not isinstance(found, Workflow):
        return None
    inputs = Inputs(tick, index, found.input_schema)
    text = inputs.render(None, 0)
    if _spec(tick, index).mode is SubworkflowMode.ASYNC:
        tick.weigh(text)
    return _Prepared(workflow=found, inputs=inputs)


def start(tick: Tick, index: int, prepared: _Prepared | resuming.Again) -> None:
    """Park the node; its child is born at the end of the tick (`fill`), when it is certain that the run goes on. Async it is born here, and the step is
    over."""
    spec, step, node = _spec(tick, index), tick.manifest.steps[index], tick.work.nodes[index]
    timeout = tick.after(spec.timeout_ms) if spec.timeout_ms is not None else None
    wait = Waiting(type=WaitingType.CHILD, since=tick.now, timeout_time=timeout)
    if isinstance(prepared, resuming.Again):
        resuming.start(tick, index, prepared, wait)
    else:
        tick.emit(
            FanExpanded(
                step_ref=step.ref,
                attempt=node.attempt + 1,
                expected=1,
                definition_id=prepared.workflow.definition_id,
                version_id=prepared.workflow.version_id,
                version=prepared.workflow.version,
                tier=prepared.workflow.tier,
                waiting=wait,
            )
        )
        tick.fresh[index] = prepared.inputs
    if timeout is not None:
        tick.do(SetTimer(kind=TimerKind.WAIT_TIMEOUT, step_ref=step.ref, due_time=timeout))
    if counting.over(tick, index):
        finish(tick, index)
    elif spec.mode is SubworkflowMode.ASYNC and isinstance(prepared, _Prepared):
        births.bear(tick, index, 0, [None], prepared.inputs)
        waiting.succeed(tick, index, _output(fan_of(tick, index).child_run_id, RunStatus.PENDING, None))


def on_child(tick: Tick, index: int, fact: ChildFact) -> None:
    """The child has ended, or has reached what was waited for, or never will."""
    spec, fault = _spec(tick, index), runs.fault_of(fact)
    if spec.checkpoint:
        _passed(tick, index, spec, fact)
    elif fault is not None:
        runs.count(tick, index, fact, fault)
        _fail(tick, index, fault)
    else:
        _complete(tick, index, fact)


def finish(tick: Tick, index: int) -> None:
    """The child's input did not evaluate when it was to begin anew; or it had completed before a redrive, and what came after is done again."""
    fault = fan_of(tick, index).first_fault
    if fault is not None:
        _fail(tick, index, fault)
    else:
        _complete(tick, index, None)


def on_timer(tick: Tick, index: int, kind: TimerKind) -> None:
    """The step has waited long enough. The child is let go and runs on."""
    spec, fan = _spec(tick, index), fan_of(tick, index)
    message = f"child run {fan.child_run_id} did not end within timeout_ms {spec.timeout_ms}"
    fault = Fault(code=faults.CHILD_TIMEOUT, message=message)
    runs.detach(tick, index)
    match spec.on_timeout:
        case OnChildTimeout.DETACH:
            output = {**_output(fan.child_run_id, RunStatus.RUNNING, None), "detached": True}
            waiting.succeed(tick, index, output)
        case OnChildTimeout.CONTINUE_WITH_ERROR:
            waiting.leave(tick, index)
            exits.complete_with_error(tick, index, fault)
        case OnChildTimeout.FAIL_PARENT:
            waiting.fail(tick, index, fault)


def _passed(tick: Tick, index: int, spec: SubworkflowSpec, fact: ChildFact) -> None:
    """The child is past its checkpoint, and runs on; or it cannot reach it any more."""
    if fact.checkpoint is CheckpointStatus.REACHED:
        runs.count(tick, index, fact, None)
        output = _output(fact.run_id, fact.status or RunStatus.RUNNING, None)
        _succeed(tick, index, {**output, "checkpoint": spec.checkpoint})
        return
    how = f"ended {fact.status}".replace("_", " ") if fact.status is not None else "can no longer reach it"
    message = f"checkpoint {spec.checkpoint} was not reached: child run {fact.run_id} {how}"
    fault = Fault(code=faults.CHECKPOINT_UNREACHABLE, message=message)
    runs.count(tick, index, fact, fault)
    _fail(tick, index, fault)


def _complete(tick: Tick, index: int, fact: ChildFact | None) -> None:
    """The child has completed: the step has its output, or what the definition makes of it. `fact`: what says so; None: it was known before."""
    spec = _spec(tick, index)
    if fact is not None:
        runs.count(tick, index, fact, None)
    try:
        found = runs.gathered(tick, index)
        if not found or (spec.output is not None and tick.lacks(spec.output.steps)):
            return
        child = found[0]
        output = child.output
        if spec.output is not None:
            output = tick.programs.render(spec.output, replace(bindings(tick, spec.output), output=output))
    except PayloadInvalid as error:
        _fail(tick, index, faults.of_payload(error))
    except ExpressionError as error:
        _fail(tick, index, faults.of_expression(error))
    else:
        _succeed(tick, index, _output(fact.run_id if fact is not None else child.run_id, RunStatus.COMPLETED, output))


def _succeed(tick: Tick, index: int, output: dict[str, Any]) -> None:
    try:
        waiting.succeed(tick, index, output)
    except PayloadInvalid as error:
        _fail(tick, index, faults.of_payload(error))


def _fail(tick: Tick, index: int, fault: Fault) -> None:
    """The step fails; one whose run goes on as another was only waited for (C6)."""
    if tick.work.nodes[index].cancelling:
        waiting.leave(tick, index)
        exits.cancel(tick, index, fault)
    else:
        waiting.fail(tick, index, fault)


def _output(run_id: str, status: RunStatus, output: Any) -> dict[str, Any]:
    return {"run_id": run_id, "status": status.value, "output": output}


def _spec(tick: Tick, index: int) -> SubworkflowSpec:
    step = tick.manifest.steps[index]
    if step.subworkflow is None:
        raise EngineError("MANIFEST_INVALID", f"step {step.ref} is a subworkflow without a workflow")
    return step.subworkflow


KIND = replace(
    BEARING,
    prepare=prepare,
    start=start,
    on_timer=on_timer,
    on_child=on_child,
    finish=finish,
)
