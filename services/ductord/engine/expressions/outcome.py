"""From one evaluation to a JSON value or an `ExpressionError`: nothing else leaves an expression (rulings L3, L4; CE-02, CE-05, CE-07)."""

from collections.abc import Callable
from typing import Any, Final

from cel_expr_python import cel

from ductord.engine.expressions import meter
from ductord.engine.expressions.errors import BUDGET_EXCEEDED, ExpressionError
from ductord.engine.expressions.results import ResultTooLarge, json_of
from ductord.model.errors import PayloadInvalid
from ductord.model.jsonvalue import JSON

MAX_CAUSE: Final = 300
_GIVEN_UP: Final = "Iteration budget exceeded"


def outcome(source: str, evaluate: Callable[[], Any], *, may_share: bool, metered: bool) -> JSON:
    """The JSON of what `evaluate` gives. `may_share`: as in `json_of`; `metered`: an account was opened for it."""
    try:
        result = evaluate()
        kind = result.type()
        if metered and meter.exceeded():
            raise given_up(source)
        if kind != cel.Type.ERROR and kind != cel.Type.UNKNOWN:
            return json_of(result, may_share=may_share)
        cause = str(result.plain_value())  # errors come back as values, with a truthy text (CE-02)
    except ResultTooLarge as error:
        raise ExpressionError(source, str(error), code=BUDGET_EXCEEDED) from None
    except PayloadInvalid as refused:
        raise ExpressionError(source, f"its value cannot be carried: {refused.message}") from None
    except ExpressionError:
        raise
    except Exception as error:  # whatever binding raises is this expression's error, not the tick's (CE-07)
        cause = str(error)
    raise _failed(source, cause)


def given_up(source: str) -> ExpressionError:
    """The failure of an expression that takes too much work, or whose decision has done too much already."""
    return ExpressionError(source, "it takes too much work", code=BUDGET_EXCEEDED)


def _failed(source: str, cause: str) -> ExpressionError:
    if _GIVEN_UP in cause:
        return given_up(source)
    status, separator, text = cause.partition(": ")
    shown = text if separator and status.isupper() else cause
    if "regular expression" in shown:  # the pattern may be data
        shown = "invalid regular expression"
    return ExpressionError(source, shown[:MAX_CAUSE])
