"""The policies in force for a node: the definition's, or what an operator put in their place. Nothing else in the engine reads a step's own."""

from ductord.model.manifest import Step
from ductord.model.run import Node
from ductord.model.specs import RetryPolicy, Timeouts


def retry_of(step: Step, node: Node) -> RetryPolicy:
    """The retry policy in force (A1)."""
    return node.retry or step.retry


def timeouts_of(step: Step, node: Node) -> Timeouts:
    """The time-outs in force (A3)."""
    return node.timeouts or own_timeouts(step)


def total_timeout_ms(step: Step, node: Node) -> int | None:
    """The time across attempts that is in force (A3); None: no limit."""
    return (node.timeouts or step).total_timeout_ms


def own_timeouts(step: Step) -> Timeouts:
    """The definition's time-outs of a step."""
    return Timeouts(
        timeout_ms=step.timeout_ms,
        total_timeout_ms=step.total_timeout_ms,
        queue_timeout_ms=step.queue_timeout_ms,
        heartbeat_timeout_ms=step.heartbeat_timeout_ms,
    )
