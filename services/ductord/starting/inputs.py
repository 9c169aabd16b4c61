"""The input of a run that a trigger starts: rendered, then judged as every input is (L5, L6, L7, the definition's schema). What cannot be is a code and a text,
never an exception: it concerns its own trigger alone.

Expressions are evaluated here, so it is called outside of every transaction that others wait for, but for the one that holds a schedule's own row.
"""

from collections.abc import Callable

from ductord.engine.expressions import ExpressionError
from ductord.model.errors import PayloadInvalid
from ductord.model.fault import Fault
from ductord.model.jsonvalue import JSON, encode
from ductord.rpc.errors import of_payload
from ductord.starting.versions import Version


def input_of(version: Version, render: Callable[[], JSON], *, max_bytes: int) -> str | Fault:
    """The text of what `render` gives, or why it is no input: EXPRESSION_ERROR, EXPRESSION_BUDGET_EXCEEDED, PAYLOAD_INVALID, PAYLOAD_TOO_LARGE,
    INPUT_SCHEMA_MISMATCH."""
    try:
        value = render()
        text = encode(value, root="input", max_bytes=max_bytes)
    except ExpressionError as error:
        return Fault(code=error.code.upper(), message=error.message)
    except PayloadInvalid as error:
        return Fault(code=of_payload(error).reason, message=error.message)
    fault = version.input_fault(value)
    return text if fault is None else Fault(code=fault.reason, message=fault.message)
