"""Fan-outs as the contract shows them, in counters (rulings F1 to F5)."""

from collections.abc import Iterable

from ductor.workflow.v1 import run_pb2
from ductord.model.fan import Fan
from ductord.model.run import Node
from ductord.rpc.runs import fault_message


def fan_state(fan: Fan | None, *, runs: bool) -> run_pb2.FanState | None:
    """Where a fan-out stands; None leaves the field unset. `runs`: its children are runs of their own."""
    if fan is None:
        return None
    return run_pb2.FanState(
        mode=run_pb2.FAN_MODE_CHILD_WORKFLOW if runs else run_pb2.FAN_MODE_INLINE,
        expected=fan.expected,
        begun=fan.open + fan.ended,
        open=fan.open,
        succeeded=fan.succeeded,
        failed=fan.failed,
        cancelled=fan.cancelled,
        width=fan.width,
        definition_id=fan.definition_id,
        version_id=fan.version_id,
        version=fan.version,
        child_run_id=fan.child_run_id,
        first_failed_index=None if fan.first_failed < 0 else fan.first_failed,
        first_error=fault_message(fan.first_fault),
        stop_error=fault_message(fan.fault),
    )


def child_counts(nodes: Iterable[Node]) -> run_pb2.ChildCounts:
    """The child runs of a run, as its nodes count them."""
    fans = [node.fan for node in nodes if node.fan is not None and node.fan.definition_id]
    return run_pb2.ChildCounts(
        expected=sum(fan.expected for fan in fans),
        open=sum(fan.open for fan in fans),
        succeeded=sum(fan.succeeded for fan in fans),
        failed=sum(fan.failed for fan in fans),
        cancelled=sum(fan.cancelled for fan in fans),
    )
