"""The stored words as the contract's enums. Made from both vocabularies at import, so that a word without its number fails there and not in a reply."""

from typing import Any, Final

from ductor.workflow.v1 import common_pb2, control_pb2, definition_pb2, run_pb2
from ductord.model.enums import (
    AttemptStatus,
    CheckpointStatus,
    CompensationBlock,
    CompensationStatus,
    EdgeState,
    InverseStatus,
    NodeStatus,
    OperationStatus,
    Outcome,
    RunStatus,
    SkipReason,
    StepType,
    TaskKind,
    Tier,
    Verb,
    WaitingType,
)


def _numbers(words: Any, enum: Any, prefix: str) -> dict[str | None, Any]:
    """Stored word → number; None, a column that holds nothing, is UNSPECIFIED."""
    return {None: enum.Value(f"{prefix}_UNSPECIFIED")} | {
        str(word.value): enum.Value(f"{prefix}_{word.name}") for word in words
    }


RUN_STATUS: Final = _numbers(RunStatus, run_pb2.RunStatus, "RUN_STATUS")
NODE_STATUS: Final = _numbers(NodeStatus, run_pb2.NodeStatus, "NODE_STATUS")
SKIP_REASON: Final = _numbers(SkipReason, run_pb2.SkipReason, "SKIP_REASON")
TASK_KIND: Final = _numbers(TaskKind, run_pb2.TaskKind, "TASK_KIND")
ATTEMPT_STATUS: Final = _numbers(AttemptStatus, run_pb2.AttemptStatus, "ATTEMPT_STATUS")
OUTCOME: Final = _numbers(Outcome, run_pb2.AttemptOutcome, "ATTEMPT_OUTCOME")
CHECKPOINT_STATUS: Final = _numbers(CheckpointStatus, run_pb2.CheckpointStatus, "CHECKPOINT_STATUS")
STEP_TYPE: Final = _numbers(StepType, definition_pb2.StepType, "STEP_TYPE")
TIER: Final = _numbers(Tier, common_pb2.Tier, "TIER")
EDGE_STATE: Final = _numbers(EdgeState, control_pb2.EdgeState, "EDGE_STATE")
VERB: Final = _numbers(Verb, control_pb2.ControlVerb, "CONTROL_VERB")
OPERATION_STATUS: Final = _numbers(OperationStatus, control_pb2.OperationStatus, "OPERATION_STATUS")
COMPENSATION_STATUS: Final = _numbers(CompensationStatus, run_pb2.CompensationStatus, "COMPENSATION_STATUS")
COMPENSATION_BLOCK: Final = _numbers(CompensationBlock, run_pb2.CompensationBlock, "COMPENSATION_BLOCK")
INVERSE_STATUS: Final = _numbers(InverseStatus, run_pb2.CompensationEntryStatus, "COMPENSATION_ENTRY_STATUS")
WAITING_TYPE: Final = _numbers(WaitingType, run_pb2.WaitingType, "WAITING_TYPE")

RUN_STATUS_WORD: Final = {number: word or "" for word, number in RUN_STATUS.items()}
"""Number → stored word; UNSPECIFIED, as a filter any status, is empty."""
NODE_STATUS_WORD: Final = {number: word or "" for word, number in NODE_STATUS.items()}
COMPENSATION_STATUS_WORD: Final = {number: word or "" for word, number in COMPENSATION_STATUS.items()}
INVERSE_STATUS_WORD: Final = {number: word or "" for word, number in INVERSE_STATUS.items()}
