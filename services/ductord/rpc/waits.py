"""Why a node is parked and what wakes it, as the contract's message: for reads and snapshots alike. Payloads stay where they are."""

from collections.abc import Iterable, Mapping

from ductor.workflow.v1 import run_pb2
from ductord.model.run import Node, Waiting
from ductord.rpc.answers import timestamp, timestamp_or_none
from ductord.rpc.words import WAITING_TYPE


def windows_of(nodes: Iterable[Node]) -> list[str]:
    """The digest windows that the nodes wait in: whose leaders `wait_state` shows."""
    return [node.waiting.window_id for node in nodes if node.waiting is not None and node.waiting.window_id]


def wait_state(waiting: Waiting | None, leaders: Mapping[str, str], condition: str = "") -> run_pb2.WaitState | None:
    """What a node waits for; None leaves the field unset. `leaders`: run ids by digest window (E5). `condition`: that the step waits for."""
    if waiting is None:
        return None
    return run_pb2.WaitState(
        type=WAITING_TYPE[waiting.type],
        since_time=timestamp(waiting.since),
        due_time=timestamp_or_none(waiting.due_time),
        timeout_time=timestamp_or_none(waiting.timeout_time),
        event_name=waiting.event_name,
        correlation_key=waiting.correlation_key,
        signal=waiting.signal,
        case_id=waiting.case_id,
        case_status=waiting.case_status,
        approvers=[vote.approver_id for vote in waiting.votes],
        receipts=[
            run_pb2.WaitReceipt(
                event_id=receipt.event_id,
                event_name=receipt.event_name,
                requirement=receipt.requirement,
                receive_time=timestamp(receipt.time),
            )
            for receipt in waiting.received
        ],
        condition=condition,
        digest_leader_run_id=leaders.get(waiting.window_id, ""),
    )
