"""The CEL that definitions are written in: its names, its few additions, and which names each place may read (ruling L3).

There is one environment for all places, so that a program is the same wherever its text stands; a place is a set of names, and reading
another one is told by name at publish. Additions to standard CEL: mixed arithmetic of int and double gives double (L5), and
`default(value, fallback)` replaces a null.
"""

import math
from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from typing import Any, Final

from cel_expr_python import cel

from ductord.engine.expressions import meter

MEMBERS: Final[dict[str, frozenset[str] | None]] = {
    "TRIGGER": frozenset({"payload", "event", "subject"}),
    "VARS": None,
    "STEPS": None,
    "RUN": frozenset({"id", "version", "started_at", "labels"}),
    "CONTEXT": None,
    "ITEM": None,
    "INDEX": None,
    "EVENT": None,
    "OUTPUT": None,
}
"""The root names and, where it is closed, what each holds."""

STEP_MEMBERS: Final = frozenset({"output", "status", "error", "attempt"})
"""What `STEPS["ref"]` holds."""

_EVERYWHERE: Final = frozenset({"TRIGGER", "VARS", "STEPS", "RUN", "CONTEXT"})


class Site(Enum):
    """A place where expressions stand, and the root names that have a value there."""

    GRAPH = _EVERYWHERE
    """`run_if`, edge conditions, args, the run's output."""
    RESULT = _EVERYWHERE | {"OUTPUT"}
    """`result_expr` and compensation args: the step's own output is at hand."""
    ITEM = _EVERYWHERE | {"ITEM", "INDEX"}
    """What is evaluated per element of a fan-out."""
    EVENT = frozenset({"EVENT", "VARS"})
    """Event filters of triggers, evaluated before a run exists."""
    EVENT_WAIT = _EVERYWHERE | {"EVENT"}
    """Event filters of a step."""


@lru_cache(maxsize=1)
def environment() -> Any:
    """The environment of this process. Thread-safe to compile with and to evaluate in."""
    dynamic = cel.Type.DYN
    record = cel.Type.Map(cel.Type.STRING, dynamic)
    variables = dict.fromkeys(("TRIGGER", "VARS", "STEPS", "RUN", "CONTEXT"), record)
    variables |= {"ITEM": dynamic, "INDEX": cel.Type.INT, "EVENT": record, "OUTPUT": dynamic}
    return cel.NewEnv(variables=variables, extensions=[cel.CelExtension("ductor", [*_functions(), *meter.functions()])])


def _functions() -> list[Any]:
    declared = [
        cel.FunctionDecl(name, [_mixed(name, "int_double", operation), _mixed(name, "double_int", operation)])
        for name, operation in _ARITHMETIC.items()
    ]
    dynamic = cel.Type.DYN
    fallback = cel.Overload("default_dyn_dyn", dynamic, [dynamic, dynamic], False, _default)
    return [*declared, cel.FunctionDecl("default", [fallback])]


def _mixed(name: str, order: str, operation: Callable[[float, float], float]) -> Any:
    types = {"int": cel.Type.INT, "double": cel.Type.DOUBLE}
    return cel.Overload(
        f"ductor_{name.strip('_')}_{order}",
        cel.Type.DOUBLE,
        [types[part] for part in order.split("_")],
        False,
        lambda left, right: operation(float(left), float(right)),
    )


def _divided(left: float, right: float) -> float:
    """IEEE division, as CEL divides two doubles: by zero it is infinite or NaN, which no output may then hold (L6)."""
    if right:
        return left / right
    return math.nan if not left or math.isnan(left) else math.copysign(math.inf, left) * math.copysign(1.0, right)


_ARITHMETIC: Final[dict[str, Callable[[float, float], float]]] = {
    "_+_": lambda left, right: left + right,
    "_-_": lambda left, right: left - right,
    "_*_": lambda left, right: left * right,
    "_/_": _divided,
}


def _default(value: Any, fallback: Any) -> Any:
    return fallback if value is None else value
