"""What one evaluation may spend (CE-05, F6).

The evaluator stops by itself after 10,000 iterations, but one iteration may copy, search or compare a megabyte. So every loop of a rewritten
expression asks here whether it may go on, and what makes larger values inside a loop pays for their size. Time is the processor time of the
evaluating thread: a busy machine or a stopped process takes nothing from it. Both budgets are far more than an honest expression needs; no
decision depends on how fast a machine is, except that work without end is given up.

The functions take no argument and give a constant on purpose: the evaluator's bridge to Python never releases what passes through it. (`element` says
how what is no constant gets in.)
"""

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

from cel_expr_python import cel

BUDGET_S: Final = 0.25
DECISION_BUDGET_S: Final = 2.0
"""Of all expressions of one decision together: a run of 500 steps must not keep the others waiting 500 times as long."""
BUDGET_BYTES: Final = 64 << 20
FREE: Final = 1 << 10
"""Bytes that cost nothing beside the iteration itself."""
PRICES: Final = tuple(range(11, 28))
"""Exponents of two: what can be paid at once. The highest is more than anybody has."""
TICK: Final = "@ductor_tick"
_TICKS_PER_LOOK: Final = 16
_BYTES_PER_TICK: Final = 2 << 10
"""What an iteration leaves in the evaluator's memory, measured: a list that is being built is copied in part for every element."""


class _Account(threading.local):
    """`decision_deadline`: None while a decision has evaluated nothing: its time begins with the first evaluation, for asking for the time costs more than
    most of what a decision does."""

    decision_deadline: float | None = float("inf")
    deadline = 0.0
    ticks = 0
    bytes_left = 0
    exceeded = False


_account: Final = _Account()


def open_account(*, timed: bool = True) -> None:
    """Begin one evaluation with the whole budget. `timed`: it has loops, which ask for the time."""
    if timed:
        now = time.thread_time()
        _account.deadline = min(now + BUDGET_S, _decision_deadline(now))
    _account.ticks = 0
    _account.bytes_left = BUDGET_BYTES
    _account.exceeded = False


class _Decision:
    __slots__ = ()

    def __enter__(self) -> None:
        _account.decision_deadline = None

    def __exit__(self, *_: object) -> None:
        _account.decision_deadline = float("inf")


_DECISION: Final = _Decision()


def one_decision() -> AbstractContextManager[None]:
    """Evaluations inside share a budget of processor time; what comes after it is over fails at once."""
    return _DECISION


def _decision_deadline(now: float) -> float:
    deadline = _account.decision_deadline
    if deadline is None:
        deadline = _account.decision_deadline = now + DECISION_BUDGET_S
    return deadline


def decision_over() -> bool:
    """Whether the decision that this evaluation belongs to has spent its budget."""
    now = time.thread_time()
    return now > _decision_deadline(now)


def exceeded() -> bool:
    """Whether the evaluation since `open_account` was given up, also when the expression went on without the refused value."""
    return _account.exceeded


def spent() -> int:
    """About how many bytes the evaluation since `open_account` has made: what was paid for, and what its iterations leave behind."""
    return BUDGET_BYTES - _account.bytes_left + _account.ticks * _BYTES_PER_TICK


def pay_name(exponent: int) -> str:
    """The function that pays for two to the `exponent` bytes."""
    return f"@ductor_pay_{exponent}"


def functions() -> list[Any]:
    """The declarations for the environment. Authors cannot write the names: `@` is no letter of CEL."""
    calls: dict[str, Callable[[], bool]] = {TICK: _tick} | {pay_name(n): _payment(1 << n) for n in PRICES}
    return [
        cel.FunctionDecl(name, [cel.Overload(f"{name}_0", cel.Type.BOOL, [], False, call)])
        for name, call in calls.items()
    ]


def _tick() -> bool:
    """True; raises once the time is up, and from then on."""
    _account.ticks += 1
    if _account.exceeded or (_account.ticks % _TICKS_PER_LOOK == 0 and time.thread_time() > _account.deadline):
        _give_up()
    return True


def _payment(price: int) -> Callable[[], bool]:
    def pay() -> bool:
        _account.bytes_left -= price
        if _account.bytes_left < 0:
            _give_up()
        return True

    return pay


def _give_up() -> None:
    _account.exceeded = True
    raise TimeoutError
