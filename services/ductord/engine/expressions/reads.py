"""What an expression reads, told from its checked form (ruling L3).

Only constant paths count as precise: `STEPS["a"].output.id` and `STEPS.a.output.id` read step `a`; a bare or computed `STEPS[x]` reads
every step that may be read at all. Reads decide which outputs are loaded and bound, so a missed one would be a wrong value: whatever the
walk does not recognise counts as reading the whole root.
"""

from typing import Any, NamedTuple

from ductord.engine.expressions.environment import MEMBERS
from ductord.engine.expressions.tree import INDEX

Key = str | int


class Read(NamedTuple):
    """One mention of a root name: `keys` is the constant path below it, `ids` the expression node of the root and of each key."""

    root: str
    keys: tuple[Key, ...]
    ids: tuple[int, ...]


class Facts(NamedTuple):
    """`reads` in source order. `path`: the read that the whole expression is, if it is nothing else. `nesting`: depth of comprehensions.
    `faults`: `(id, message)` of constructs that the language does not have."""

    reads: tuple[Read, ...]
    path: Read | None
    nesting: int
    faults: tuple[tuple[int, str], ...]


def facts(expr: Any) -> Facts:
    """What an `Expr` message reads and does."""
    walk = _Walk()
    walk.visit(expr, frozenset(), 0)
    whole = path_of(expr)
    is_path = whole is not None and whole.root in MEMBERS
    return Facts(tuple(walk.reads), whole if is_path else None, walk.nesting, tuple(walk.faults))


class _Walk:
    def __init__(self) -> None:
        self.reads: list[Read] = []
        self.faults: list[tuple[int, str]] = []
        self.nesting = 0

    def visit(self, expr: Any, shadowed: frozenset[str], nesting: int) -> None:
        """`shadowed`: names that a comprehension around this node has bound anew."""
        read = path_of(expr, through_has=True)
        if read is not None:
            if read.root in MEMBERS and read.root not in shadowed:
                self.reads.append(read)
            return
        match expr.WhichOneof("kind"):
            case "const_expr":
                self._constant(expr)
            case "select_expr":
                self.visit(expr.select_expr.operand, shadowed, nesting)
            case "call_expr":
                if expr.call_expr.HasField("target"):
                    self.visit(expr.call_expr.target, shadowed, nesting)
                for argument in expr.call_expr.args:
                    self.visit(argument, shadowed, nesting)
            case "list_expr":
                for element in expr.list_expr.elements:
                    self.visit(element, shadowed, nesting)
            case "struct_expr":
                if expr.struct_expr.message_name:
                    self.faults.append((expr.id, "messages cannot be made here; use a map"))
                for entry in expr.struct_expr.entries:
                    if entry.HasField("map_key"):
                        self.visit(entry.map_key, shadowed, nesting)
                    self.visit(entry.value, shadowed, nesting)
            case "comprehension_expr":
                self._comprehension(expr.comprehension_expr, shadowed, nesting)

    def _comprehension(self, fold: Any, shadowed: frozenset[str], nesting: int) -> None:
        self.nesting = max(self.nesting, nesting + 1)
        self.visit(fold.iter_range, shadowed, nesting)
        self.visit(fold.accu_init, shadowed, nesting)
        inner = shadowed | {fold.iter_var, fold.accu_var}
        for part in (fold.loop_condition, fold.loop_step, fold.result):
            self.visit(part, inner, nesting + 1)

    def _constant(self, expr: Any) -> None:
        # The evaluator cuts a string at a NUL without a word: none may come into being. Data has none (L6), constants must not.
        constant = expr.const_expr
        if "\0" in constant.string_value or b"\0" in constant.bytes_value:
            self.faults.append((expr.id, "a string holds a NUL character"))


def path_of(expr: Any, *, through_has: bool = False) -> Read | None:
    """The constant path that an expression is: `ROOT.a["b"][0]`. With `through_has`, `has(ROOT.a)` counts as reading it."""
    keys: list[Key] = []
    ids: list[int] = []
    while True:
        match expr.WhichOneof("kind"):
            case "ident_expr":
                ids.append(expr.id)
                return Read(expr.ident_expr.name.removeprefix("."), tuple(reversed(keys)), tuple(reversed(ids)))
            case "select_expr":
                if expr.select_expr.test_only and not through_has:
                    return None
                keys.append(expr.select_expr.field)
                ids.append(expr.id)
                expr = expr.select_expr.operand
            case "call_expr" if expr.call_expr.function == INDEX:
                operand, key = expr.call_expr.args
                match key.const_expr.WhichOneof("kind") if key.WhichOneof("kind") == "const_expr" else None:
                    case "string_value":
                        keys.append(key.const_expr.string_value)
                    case "int64_value":
                        keys.append(key.const_expr.int64_value)
                    case _:
                        return None
                ids.append(key.id)
                expr = operand
            case _:
                return None
