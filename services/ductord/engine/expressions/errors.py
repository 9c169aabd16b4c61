"""What goes wrong when an expression is evaluated."""

from typing import Final

from ductord.model.jsonvalue import storable_text

EXPRESSION_ERROR: Final = "expression_error"
BUDGET_EXCEEDED: Final = "expression_budget_exceeded"

_SHOWN_SOURCE: Final = 200


class ExpressionError(Exception):
    """An expression that has no usable value (ruling L4): the node fails with `code`, never «false».

    `code` is `expression_error` or `expression_budget_exceeded` (CE-05), `source` the CEL text or template string, `message` names the
    expression and the cause. The message is safe to store (L6) and quotes the definition, not the data.
    """

    def __init__(self, source: str, cause: str, *, code: str = EXPRESSION_ERROR) -> None:
        shown = source if len(source) <= _SHOWN_SOURCE else f"{source[:_SHOWN_SOURCE]}…"
        message = storable_text(f"expression `{shown}`: {cause}", max_chars=1_000)
        super().__init__(message)
        self.code = code
        self.source = source
        self.message = message
