"""Makes a checked expression affordable before it runs, without changing what it means (CE-05).

Standard CEL builds the list of `map` and `filter` by copying it for every element: 9,000 elements take seconds and a gigabyte. Here such
a fold appends to a list kept aside (`meter`), which is linear. And what can cost more than a step inside a comprehension (joining texts
and lists, searching, comparing whole values) pays for the size of what it touches.

Values that pass through `meter` become Python values and back. JSON survives that; times, durations, unsigned ints and types do not, so
lists that may hold one («foreign» below) keep the copying fold, and pay for the copies.
"""

from typing import Any, Final

from ductord.engine.expressions import meter
from ductord.engine.expressions.wire import Expr

_ADD: Final = "_+_"
_IN: Final = "@in"
_TERNARY: Final = "_?_:_"
_SIZE: Final = "size"
_SEARCHES: Final = frozenset({"matches", "contains", "startsWith", "endsWith"})
_EQUALITIES: Final = frozenset({"_==_", "_!=_"})
_FOREIGN_CALLS: Final = frozenset({"timestamp", "duration", "uint", "type"})
_NUMBERS: Final = frozenset({1, 2, 3, 4})
"""`Type.PrimitiveType`: bool, int64, uint64, double. 5 is string, 6 bytes."""


def rewrite(checked: Any) -> bool:
    """Rewrite a `CheckedExpr` in place; False when it has no comprehension and stays as it is."""
    if not _has_comprehension(checked.expr):
        return False
    _Rewriting({entry.key: entry.value for entry in checked.type_map}).visit(checked.expr, frozenset(), inside=False)
    return True


class _Rewriting:
    """`inside`: the node runs once per element. `foreign`: names whose value may be no JSON."""

    def __init__(self, types: dict[int, Any]) -> None:
        self._types = types
        self._paying = 0

    def visit(self, expr: Any, foreign: frozenset[str], *, inside: bool) -> None:
        match expr.WhichOneof("kind"):
            case "comprehension_expr":
                self._fold(expr.comprehension_expr, foreign, inside=inside)
            case "call_expr":
                for operand in _operands(expr):
                    self.visit(operand, foreign, inside=inside)
                if inside:
                    self._call(expr, foreign)
            case _:
                for operand in _operands(expr):
                    self.visit(operand, foreign, inside=inside)

    def _fold(self, fold: Any, foreign: frozenset[str], *, inside: bool) -> None:
        range_is_foreign = _is_foreign(fold.iter_range, foreign)
        self.visit(fold.iter_range, foreign, inside=inside)
        within = foreign - {fold.iter_var, fold.accu_var} | ({fold.iter_var} if range_is_foreign else set())
        append = _append(fold)
        element_is_foreign = append is not None and _is_foreign(append.call_expr.args[1], within)
        paying_before = self._paying
        self._step(fold.loop_step, append, within)
        self.visit(fold.result, within, inside=True)
        if self._paying > paying_before:
            # An empty account must end the loop: what it still evaluated would be converted for the meter before the meter refuses it.
            fold.loop_condition.CopyFrom(_guarded(_call(meter.CHARGE, _integer(1)), fold.loop_condition))
        if append is None:
            return
        if element_is_foreign:
            paid = _call(meter.CHARGE, _call(_SIZE, _ident(fold.accu_var)))
            fold.loop_condition.CopyFrom(_guarded(paid, fold.loop_condition))
            return
        fold.accu_init.CopyFrom(_call(meter.NEW))
        element = append.call_expr.args[1].list_expr.elements[0]
        append.CopyFrom(_call(meter.PUSH, _ident(fold.accu_var), element))
        fold.result.CopyFrom(_call(meter.TAKE, _ident(fold.accu_var)))

    def _step(self, step: Any, append: Any, within: frozenset[str]) -> None:
        """Visit a fold's step, but leave the appending `+` itself alone."""
        if append is None:
            self.visit(step, within, inside=True)
            return
        if step.call_expr.function == _TERNARY:
            self.visit(step.call_expr.args[0], within, inside=True)
        self.visit(append.call_expr.args[1], within, inside=True)

    def _call(self, expr: Any, foreign: frozenset[str]) -> None:
        call = expr.call_expr
        if call.function == _ADD:
            if not self._is_small(expr):
                self._wrap(expr)
        elif call.function == _SIZE:
            self._paying += 1
            expr.CopyFrom(_call(meter.SIZED, expr))
        elif call.function in _SEARCHES:
            if call.target.WhichOneof("kind") != "const_expr":
                self._wrap(call.target)
        elif call.function == _IN:
            container = call.args[1]
            if container.WhichOneof("kind") != "list_expr":
                self._paying += 1
                expr.CopyFrom(_guarded(_call(meter.CHARGE, _call(_SIZE, container)), expr))
        elif call.function in _EQUALITIES:
            left, right = call.args
            if not (self._is_scalar(left) or self._is_scalar(right) or _is_foreign(left, foreign)):
                self._wrap(left)

    def _wrap(self, expr: Any) -> None:
        """Let the value of a node pass the meter."""
        self._paying += 1
        expr.CopyFrom(_call(meter.WEIGH, expr))

    def _is_small(self, expr: Any) -> bool:
        """Whether the value is of a type that takes no space: numbers, times, durations."""
        kind = self._types.get(expr.id)
        return kind is not None and (kind.primitive in _NUMBERS or bool(kind.well_known))

    def _is_scalar(self, expr: Any) -> bool:
        """Whether comparing with the value ends within its first bytes, or at its own short length."""
        kind = self._types.get(expr.id)
        return expr.WhichOneof("kind") == "const_expr" or (
            kind is not None and (bool(kind.primitive) or bool(kind.well_known))
        )


def _append(fold: Any) -> Any:
    """The `@result + [element]` of a fold that builds a list: `map`, `map` with a filter, `filter`. None for every other fold."""
    if fold.accu_init.WhichOneof("kind") != "list_expr" or fold.accu_init.list_expr.elements:
        return None
    if fold.result.ident_expr.name != fold.accu_var:
        return None
    step = fold.loop_step
    if step.call_expr.function == _TERNARY:
        step = step.call_expr.args[1]
    call = step.call_expr
    if call.function != _ADD or call.args[0].ident_expr.name != fold.accu_var:
        return None
    return step if len(call.args[1].list_expr.elements) == 1 else None


def _is_foreign(expr: Any, foreign: frozenset[str]) -> bool:
    """Whether a value that is no JSON may come out of this node, as far as its text can tell. Errs towards yes."""
    match expr.WhichOneof("kind"):
        case "ident_expr":
            return str(expr.ident_expr.name) in foreign
        case "const_expr":
            return bool(expr.const_expr.HasField("uint64_value"))
        case "call_expr" if expr.call_expr.function in _FOREIGN_CALLS:
            return True
        case "comprehension_expr":
            fold = expr.comprehension_expr
            if _is_foreign(fold.iter_range, foreign):
                foreign = foreign | {fold.iter_var}
    return any(_is_foreign(operand, foreign) for operand in _operands(expr))


def _has_comprehension(expr: Any) -> bool:
    return bool(expr.WhichOneof("kind") == "comprehension_expr") or any(map(_has_comprehension, _operands(expr)))


def _operands(expr: Any) -> list[Any]:
    match expr.WhichOneof("kind"):
        case "select_expr":
            return [expr.select_expr.operand]
        case "call_expr":
            target = [expr.call_expr.target] if expr.call_expr.HasField("target") else []
            return [*target, *expr.call_expr.args]
        case "list_expr":
            return list(expr.list_expr.elements)
        case "struct_expr":
            return [part for entry in expr.struct_expr.entries for part in (entry.map_key, entry.value)]
        case "comprehension_expr":
            fold = expr.comprehension_expr
            return [fold.iter_range, fold.accu_init, fold.loop_condition, fold.loop_step, fold.result]
    return []


def _ident(name: str) -> Any:
    expr = Expr()
    expr.ident_expr.name = name
    return expr


def _call(function: str, *args: Any) -> Any:
    expr = Expr()
    expr.call_expr.function = function
    for argument in args:
        expr.call_expr.args.add().CopyFrom(argument)
    return expr


def _integer(value: int) -> Any:
    expr = Expr()
    expr.const_expr.int64_value = value
    return expr


def _guarded(paid: Any, expr: Any) -> Any:
    """`paid ? expr : false`: an error in paying is the result, where `&&` might lose it."""
    never = Expr()
    never.const_expr.bool_value = False
    return _call(_TERNARY, paid, expr, never)
