"""Which fields a step of a type has: the objects of other types, what is about attempts, and the object it cannot be without.

A field that would have no effect on a step is refused, not ignored (ruling L1).
"""

from collections.abc import Mapping
from typing import Any, Final

from ductord.engine.compile.findings import Findings
from ductord.engine.compile.network import Network
from ductord.engine.positions import Path
from ductord.engine.steps import SUPPORTED
from ductord.model.definition import TYPE_OBJECTS, StepDefinition
from ductord.model.enums import StepType
from ductord.model.fanout import ScatterMode

_OF_ATTEMPTS: Final = (
    "retry_max_attempts",
    "retry_backoff_ms",
    "retry_backoff_coefficient",
    "retry_max_backoff_ms",
    "retry_jitter",
    "retry_on",
    "non_retryable",
    "timeout_ms",
    "total_timeout_ms",
    "queue_timeout_ms",
    "heartbeat_timeout_ms",
    "max_lost",
    "queue",
    "compensation",
)
"""What is about the attempts of workers, of which other steps than actions and inline scatters have none."""

_AS_A_WHOLE: Final = frozenset({StepType.SCATTER, StepType.FOR_EACH})
"""The types of whose children together `total_timeout_ms` is, whoever works for them."""

MUST_SAY: Final = {
    StepType.WAIT: "what it waits for",
    StepType.HUMAN_LOOP: "its `case_type`",
    StepType.EVENT_SET: "its `correlation_key` and `requirements`",
    StepType.DIGEST: "its `digest_key`",
    StepType.SCATTER: "its `items_expr`, and the `action` or `workflow` of its children",
    StepType.GATHER: "its `scatter_ref`",
    StepType.FOR_EACH: "its `items_expr` and `workflow`",
    StepType.DATAFLOW: "its `operation` and `items_expr`",
    StepType.SUBWORKFLOW: "its `workflow`",
}
"""The types whose object cannot be left out, and what it says at least."""


def judge_fields(tree: Mapping[str, Any], network: Network, findings: Findings) -> None:
    """Report every field that a step of a type that this release can run has for nothing, and every object that is missing. `tree`: the definition as
    written, which still holds what had a fault."""
    for step, number in zip(network.steps, network.numbers, strict=True):
        if step.type in SUPPORTED:
            _judge(step, tree["steps"][number], ("steps", number), findings)


def _judge(step: StepDefinition, written: Mapping[str, Any], path: Path, findings: Findings) -> None:
    for name in TYPE_OBJECTS:
        if getattr(step, name) is not None and name != step.type:
            message = f"`{name}` belongs to steps of type `{name}`; step `{step.ref}` is of type `{step.type}`"
            findings.add("FIELD_NOT_APPLICABLE", message, (*path, name), on_key=True)
    for name in _OF_ATTEMPTS:
        if getattr(step, name) is not None and not _has_attempts(step, name):
            findings.add("FIELD_NOT_APPLICABLE", _without_attempts(step, name), (*path, name), on_key=True)
    if step.type in MUST_SAY and written.get(step.type) is None:
        message = f"`{step.type}` is missing: a step of this type says {MUST_SAY[StepType(step.type)]}"
        findings.add("MISSING_FIELD", message, (*path, step.type))


def _has_attempts(step: StepDefinition, name: str) -> bool:
    """Whether the field is about something that the step has; of a scatter whose object has a fault everything may be meant."""
    if step.type == StepType.ACTION or (name == "total_timeout_ms" and step.type in _AS_A_WHOLE):
        return True
    inline = step.scatter is None or step.scatter.mode is not ScatterMode.CHILD_WORKFLOW
    return step.type == StepType.SCATTER and inline


def _without_attempts(step: StepDefinition, name: str) -> str:
    if step.type in (StepType.SCATTER, StepType.FOR_EACH):
        return f"`{name}` says nothing here: the children of step `{step.ref}` are runs, whose steps have their own"
    message = f"`{name}` belongs to steps of type `action` and to inline scatters"
    owner = name == "timeout_ms" and step.type not in (StepType.GATHER, StepType.DATAFLOW, StepType.RACE)
    return f"{message}; its own time-out stands under `{step.type}`" if owner else message
