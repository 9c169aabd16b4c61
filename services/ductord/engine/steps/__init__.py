"""The table of contents of step types: one file per type, one line here.

A type that is not in SUPPORTED is refused at publish with `STEP_TYPE_NOT_SUPPORTED`, so the engine never meets one.
"""

from collections.abc import Mapping

from ductord.engine.steps import (
    action,
    approval,
    dataflow,
    digest,
    event_set,
    for_each,
    gather,
    human_loop,
    race,
    scatter,
    subworkflow,
    wait,
)
from ductord.engine.steps.kind import StepKind
from ductord.engine.tick import Tick
from ductord.model.enums import StepType

SUPPORTED: Mapping[StepType, StepKind] = {
    StepType.ACTION: action.KIND,
    StepType.WAIT: wait.KIND,
    StepType.APPROVAL: approval.KIND,
    StepType.HUMAN_LOOP: human_loop.KIND,
    StepType.RACE: race.KIND,
    StepType.EVENT_SET: event_set.KIND,
    StepType.DIGEST: digest.KIND,
    StepType.DATAFLOW: dataflow.KIND,
    StepType.SCATTER: scatter.KIND,
    StepType.GATHER: gather.KIND,
    StepType.FOR_EACH: for_each.KIND,
    StepType.SUBWORKFLOW: subworkflow.KIND,
}


def kind_of(tick: Tick, index: int) -> StepKind:
    """The kind of the step at `index`. A scatter is of one of two, by its mode."""
    step = tick.manifest.steps[index]
    if step.scatter is not None and step.scatter.workflow is not None:
        return scatter.RUNS
    return SUPPORTED[step.type]
