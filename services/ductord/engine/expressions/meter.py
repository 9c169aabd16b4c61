"""What one evaluation may spend, and the functions through which a rewritten expression pays (CE-05).

The evaluator stops by itself after 10,000 iterations, but one iteration may copy or compare a megabyte. `rewrite` puts these functions where
that can happen inside a comprehension. Units are elements, or 64 bytes of text: half a million of them take a fraction of a second. The
count belongs to the thread, since evaluation neither awaits nor calls back into itself.
"""

import threading
from typing import Any, Final

from cel_expr_python import cel

BUDGET: Final = 500_000
_BYTES_PER_UNIT: Final = 64

NEW: Final = "@ductor_new"
PUSH: Final = "@ductor_push"
TAKE: Final = "@ductor_take"
WEIGH: Final = "@ductor_weigh"
CHARGE: Final = "@ductor_charge"
SIZED: Final = "@ductor_sized"


class Spent(Exception):
    """The budget is gone. Its text shows up in no message: `exceeded()` is asked instead."""


class _Account(threading.local):
    def __init__(self) -> None:
        self.left = BUDGET
        self.lists: dict[int, list[Any]] = {}
        self.handles = 0


_account: Final = _Account()


def open_account() -> None:
    """Begin one evaluation: the whole budget is there, no list is being built."""
    _account.left = BUDGET
    _account.lists.clear()
    _account.handles = 0


def exceeded() -> bool:
    """Whether the evaluation since `open_account` ran out; also when the expression went on without the refused value."""
    return _account.left < 0


def functions() -> list[Any]:
    """The declarations for the environment. Authors cannot write these names: `@` is no CEL letter."""
    dynamic, integer = cel.Type.DYN, cel.Type.INT
    signatures: list[tuple[str, Any, list[Any], Any]] = [
        (NEW, integer, [], _new),
        (PUSH, integer, [integer, dynamic], _push),
        (TAKE, cel.Type.List(dynamic), [integer], _take),
        (WEIGH, dynamic, [dynamic], _weigh),
        (CHARGE, cel.Type.BOOL, [integer], _charge),
        (SIZED, integer, [integer], _sized),
    ]
    return [
        cel.FunctionDecl(name, [cel.Overload(f"{name}_1", returns, takes, False, call)])
        for name, returns, takes, call in signatures
    ]


def _pay(units: int) -> None:
    _account.left -= units
    if _account.left < 0:
        raise Spent


def _weight(value: Any) -> int:
    if isinstance(value, str | bytes | bytearray):
        return 1 + len(value) // _BYTES_PER_UNIT
    if isinstance(value, dict):
        return 1 + sum(1 + _weight(item) for item in value.values())
    if isinstance(value, list):
        return 1 + sum(_weight(item) for item in value)
    return 1


def _new() -> int:
    _pay(1)
    _account.handles += 1
    _account.lists[_account.handles] = []
    return _account.handles


def _push(handle: int, value: Any) -> int:
    _pay(_weight(value))
    _account.lists[handle].append(value)
    return handle


def _take(handle: int) -> list[Any]:
    return _account.lists.pop(handle)


def _weigh(value: Any) -> Any:
    _pay(_weight(value))
    return value


def _charge(units: int) -> bool:
    _pay(units)
    return True


def _sized(size: int) -> int:
    """The size of something that was counted: a text's code points are, at half a millisecond a megabyte."""
    _pay(size >> 10)
    return size
