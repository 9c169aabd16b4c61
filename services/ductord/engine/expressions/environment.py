"""The CEL that definitions are written in: its names, its few additions, and which names each place may read (ruling L3).

There is one environment for all places, so that a program is the same wherever its text stands; a place is a set of names, and reading
another one is told by name at publish. Additions to standard CEL: mixed arithmetic of int and double gives double (L5), and
`default(value, fallback)` stands in for a null, and for a key that is missing on a path.
"""

from enum import Enum
from functools import lru_cache
from typing import Any, Final

from cel_expr_python import cel

from ductord.engine.expressions import element, meter

ORIGIN_MEMBERS: Final = frozenset({"type", "id", "scheduled_time"})
"""What `TRIGGER` holds of the trigger that started the run, from the fifth level of behaviour on."""

MEMBERS: Final[dict[str, frozenset[str] | None]] = {
    "TRIGGER": frozenset({"payload", "event", "subject"}) | ORIGIN_MEMBERS,
    "VARS": None,
    "STEPS": None,
    "RUN": frozenset({"id", "version", "started_at", "labels"}),
    "CONTEXT": None,
    "ITEM": None,
    "INDEX": None,
    "ACC": None,
    "EVENT": frozenset({"name", "id", "correlation_key", "payload", "time"}),
    "OUTPUT": None,
}
"""The root names and, where it is closed, what each holds."""

STEP_MEMBERS: Final = frozenset({"output", "status", "error", "attempt"})
"""What `STEPS["ref"]` holds."""

ARITHMETIC: Final = ("_+_", "_-_", "_*_", "_/_")
"""The operators in which an int and a double may meet (L5)."""
DEFAULT: Final = "default"
OF_ELEMENT: Final = ("ITEM", "INDEX", "ACC")
"""The names that have another value for every element; the others have one for all (`elements`)."""

_EVERYWHERE: Final = frozenset({"TRIGGER", "VARS", "STEPS", "RUN", "CONTEXT"})


class Site(Enum):
    """A place where expressions stand, and the root names that have a value there."""

    GRAPH = _EVERYWHERE
    """`run_if`, edge conditions, args, the run's output."""
    RESULT = _EVERYWHERE | {"OUTPUT"}
    """`result_expr` and compensation args: the step's own output is at hand."""
    ITEM = _EVERYWHERE | {"ITEM", "INDEX"}
    """What is evaluated per element: the args and inputs of children, the expressions of a dataflow."""
    REDUCE = _EVERYWHERE | {"ITEM", "INDEX", "ACC"}
    """Per element of a `reduce`: also what the elements before it came to (F6)."""
    EVENT = frozenset({"EVENT", "VARS"})
    """Filter and input of event triggers, evaluated before a run exists."""
    SCHEDULE = frozenset({"TRIGGER", "VARS"})
    """The input of schedule triggers, evaluated before a run exists: of TRIGGER there are the members of `ORIGIN_MEMBERS`."""
    EVENT_WAIT = frozenset({"EVENT"})
    """Event filters of a step, evaluated where an event is published and no run is at hand."""

    def members(self, root: str) -> frozenset[str] | None:
        """What a root name holds here, where that is closed."""
        return ORIGIN_MEMBERS if self is Site.SCHEDULE and root == "TRIGGER" else MEMBERS[root]


@lru_cache(maxsize=1)
def environment() -> Any:
    """The environment of this process. Thread-safe to compile with and to evaluate in."""
    dynamic = cel.Type.DYN
    record = cel.Type.Map(cel.Type.STRING, dynamic)
    variables = dict.fromkeys(("TRIGGER", "VARS", "STEPS", "RUN", "CONTEXT"), record)
    variables |= {"ITEM": dynamic, "INDEX": cel.Type.INT, "EVENT": record, "OUTPUT": dynamic, "ACC": dynamic}
    functions = [*_functions(), *meter.functions(), *element.functions()]
    return cel.NewEnv(variables=variables, extensions=[cel.CelExtension("ductor", functions)])


def _functions() -> list[Any]:
    """Declared for the checker only: `rewrite` spells every call of them out before it runs."""
    types = {"int": cel.Type.INT, "double": cel.Type.DOUBLE}
    arithmetic = [
        cel.FunctionDecl(
            name,
            [
                cel.Overload(
                    f"ductor_{name.strip('_')}_{first}_{second}",
                    types["double"],
                    [types[first], types[second]],
                    False,
                    _never,
                )
                for first, second in (("int", "double"), ("double", "int"))
            ],
        )
        for name in ARITHMETIC
    ]
    dynamic = cel.Type.DYN
    fallback = cel.Overload("ductor_default", dynamic, [dynamic, dynamic], False, _never)
    return [*arithmetic, cel.FunctionDecl(DEFAULT, [fallback])]


def _never(*_: Any) -> Any:
    raise AssertionError("an expression ran that was not rewritten")
