"""Saying what became of a control: the one way in which a tick settles it (ruling C1)."""

from collections.abc import Mapping

from ductord.engine.tick import Tick
from ductord.model.control import Control, Rejection
from ductord.model.effects import SettleControl
from ductord.model.enums import OperationStatus

_NOTHING: Mapping[str, str] = {}


def settle(tick: Tick, control: Control, message: str = "", result: Mapping[str, str] = _NOTHING) -> None:
    """The control was applied. `message`: what its caller should know, where that is not plain. `result`: facts such as `new_run_id`."""
    tick.do(
        SettleControl(
            request_id=control.request_id, status=OperationStatus.APPLIED, message=message, result=dict(result)
        )
    )


def reject(tick: Tick, control: Control, rejection: Rejection) -> None:
    """The control cannot be applied, or not any more."""
    tick.do(
        SettleControl(
            request_id=control.request_id,
            status=OperationStatus.REJECTED,
            code=rejection.reason,
            message=rejection.message,
            result=rejection.metadata,
        )
    )
