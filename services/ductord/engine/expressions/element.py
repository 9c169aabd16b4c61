"""The element that an expression is evaluated for, as the evaluator sees it: the one list that `current` fills and `@ductor_element()` gives (F6).

Everything else that an expression reads is bound once for many elements, and the evaluator keeps it in its own form only as long as nothing of
its data is replaced. So an element comes in by a function. The function gives the same list every time: the evaluator's bridge to Python never lets go of
what a function gave, but takes a fresh look at what is in it, and keeps nothing of that.
"""

import threading
from typing import Any, Final

from cel_expr_python import cel

ELEMENT: Final = "@ductor_element"
VALUES: Final = "@ductor_values"
"""What an expression calls the list."""
PLACES: Final = {"ITEM": 0, "INDEX": 1, "ACC": 2}
"""Where each name stands in the list."""


class _Current(threading.local):
    def __init__(self) -> None:
        self.values: list[Any] = [None, 0, None]


_current: Final = _Current()


def current() -> list[Any]:
    """The list of this thread: item, index and accumulator. Whoever fills it empties it."""
    return _current.values


def functions() -> list[Any]:
    """The declaration for the environment. Authors cannot write the name: `@` is no letter of CEL."""
    values = cel.Type.List(cel.Type.DYN)
    return [cel.FunctionDecl(ELEMENT, [cel.Overload(f"{ELEMENT}_0", values, [], False, current)])]
