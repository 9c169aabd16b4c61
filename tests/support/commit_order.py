"""The order in which a commit in memory writes, as the real one does."""

from typing import TYPE_CHECKING

from ductord.model.effects import (
    AdoptHistory,
    ClearCheckpoint,
    ClearTimers,
    CloseAttempt,
    CloseDigest,
    CloseLate,
    CloseWait,
    Effect,
    FlushDigest,
    ForwardControl,
    HoldTasks,
    JoinDigest,
    LeaveDigest,
    MoveSignals,
    OpenWait,
    QueueTask,
    RecordAudit,
    RecordCheckpoint,
    RecordInverse,
    RecordOutput,
    RecordResult,
    ReleaseTasks,
    RequestCancel,
    SetTimer,
    SettleControl,
    SettleSignal,
    StartRun,
    TakeDigest,
    TakeReceipts,
)
from ductord.model.fan_effects import (
    AttachChildren,
    CancelItems,
    CloseChildren,
    CloseItems,
    ControlChildren,
    DetachChildren,
    PassChildOn,
    RecordItemFault,
    RecordItems,
    StartChildren,
    TakeChildren,
    TellCheckpoint,
    TellParent,
    TickAgain,
)

if TYPE_CHECKING:
    pass


_KIN = (StartChildren, AttachChildren, ControlChildren, DetachChildren)


def commit_order(effect: Effect) -> int:
    """The order in which the commit's statements run: adopting, listening, closing, asking, releasing, holding, queueing, clearing, setting, telling."""
    order = (
        AdoptHistory,
        TakeReceipts,
        CloseWait,
        OpenWait,
        TakeDigest,
        LeaveDigest,
        CloseDigest,
        FlushDigest,
        JoinDigest,
        CloseAttempt,
        CloseLate,
        CloseItems,
        RequestCancel,
        CancelItems,
        ReleaseTasks,
        HoldTasks,
        QueueTask,
        RecordItems,
        RecordItemFault,
        RecordOutput,
        ClearTimers,
        SetTimer,
        ClearCheckpoint,
        RecordCheckpoint,
        RecordResult,
        RecordInverse,
        StartRun,
        _KIN,
        CloseChildren,
        TellCheckpoint,
        TellParent,
        PassChildOn,
        TakeChildren,
        TickAgain,
        SettleControl,
        ForwardControl,
        SettleSignal,
        MoveSignals,
        RecordAudit,
    )
    # Which children a control means is told by where it stands among the births.
    return order.index(_KIN if isinstance(effect, _KIN) else type(effect))
