"""From a checked expression to the one that runs: our additions to CEL spelled out in standard CEL, and loops made affordable (CE-05, L5).

- Arithmetic: see `arithmetic`.
- `default(value, fallback)` becomes a condition; of a path, also a missing key gives the fallback.
- `map` and `filter` collect in chunks. Standard CEL copies the whole list for every element: 9,000 take seconds and a gigabyte.
- Every loop asks `meter` whether it may go on.
- What is evaluated per element takes the element from `element`, under its own names, and is itself as good as inside a loop.
- In a loop, making bytes of a text or a text of bytes pays for the copy.
- `matches` pays for its work beforehand: text times pattern, and the pattern may be data.

All of it stays inside the evaluator. Functions in Python could do the same with less, but the evaluator's bridge to Python leaks one
reference for every argument and result, which a coordinator that runs for months cannot afford.
"""

from collections.abc import Callable
from typing import Any, Final

from ductord.engine.expressions import element, meter
from ductord.engine.expressions import tree as t
from ductord.engine.expressions.arithmetic import ADD, payment, spelled_out
from ductord.engine.expressions.environment import ARITHMETIC, DEFAULT

_CHUNK: Final = 64
_MATCHES: Final = "matches"
_CONVERSIONS: Final = {"bytes": "string", "string": "bytes"}
"""The conversions that copy, and of what: in a loop the copies add up."""
_SAMPLES: Final = {"string": t.text(""), "bytes": t.data(b"")}
_REPETITION: Final = 128
"""How much more a pattern with counted repetitions (`{`) may cost per character: `a{900}` is 900 states in six characters."""


def rewrite(checked: Any, *, per_element: bool = False) -> bool:
    """Rewrite a `CheckedExpr` in place. True when it has loops or matches, and `meter` must be opened before it runs. `per_element`: it must be opened in any
    case."""
    rewriting = _Rewriting({entry.key: entry.value for entry in checked.type_map})
    rewriting.visit(checked.expr, inside=per_element)
    if per_element:
        checked.expr.CopyFrom(_of_element(checked.expr))
    return rewriting.loops


def _of_element(expr: Any) -> Any:
    """`expr` with the names that are `OF_ELEMENT` bound to what stands for them in the element."""
    values = t.ident(element.VALUES)
    for name, place in element.PLACES.items():
        expr = t.bind(name, t.call(t.INDEX, values, t.constant(place)), expr)
    return t.bind(element.VALUES, t.call(element.ELEMENT), expr)


class _Rewriting:
    def __init__(self, types: dict[int, Any]) -> None:
        self._types = types
        self._names = 0
        self.loops = False

    def visit(self, expr: Any, *, inside: bool) -> None:
        """Rewrite a node in place, what is below it first. `inside`: it is evaluated once per element of a loop."""
        if expr.WhichOneof("kind") == "comprehension_expr":
            self._fold(expr.comprehension_expr, inside=inside)
            return
        function, arguments = expr.call_expr.function, expr.call_expr.args
        computed = None
        if function in ARITHMETIC and len(arguments) == 2:
            left, right = (t.type_name(self._types.get(argument.id)) for argument in arguments)
            computed = spelled_out(function, left, right, inside=inside, bind=self._bound)
        for operand in t.operands(expr):
            self.visit(operand, inside=inside)
        if computed is not None:
            expr.CopyFrom(computed(*arguments))
        elif function == DEFAULT:
            expr.CopyFrom(self._defaulted(*arguments))
        elif function == _MATCHES:
            self.loops = True
            expr.CopyFrom(self._matched(*t.operands(expr)))
        elif function in _CONVERSIONS and inside and len(arguments) == 1:
            kind, of = _CONVERSIONS[function], t.type_name(self._types.get(arguments[0].id))
            if of in (kind, t.UNKNOWN):
                expr.CopyFrom(self._converted(function, arguments[0], kind, known=of == kind))

    def _fold(self, fold: Any, *, inside: bool) -> None:
        self.loops = True
        appended = _appended(fold)
        self.visit(fold.iter_range, inside=inside)
        if appended is None:
            self.visit(fold.loop_step, inside=True)
            self.visit(fold.result, inside=inside)
        else:
            if fold.loop_step.call_expr.function == t.TERNARY:
                self.visit(fold.loop_step.call_expr.args[0], inside=True)
            self.visit(appended.call_expr.args[1].list_expr.elements[0], inside=True)
            self._collect_in_chunks(fold, appended)
        fold.loop_condition.CopyFrom(t.ternary(t.call(meter.TICK), fold.loop_condition, t.constant(False)))

    def _collect_in_chunks(self, fold: Any, appended: Any) -> None:
        """`@result` becomes `[full chunks, open chunk]`; the chunks are joined at the end."""
        element = appended.call_expr.args[1].list_expr.elements[0]
        full = t.call(t.INDEX, t.ident(fold.accu_var), t.constant(0))
        chunk = t.call(t.INDEX, t.ident(fold.accu_var), t.constant(1))
        has_room = t.call("_<_", t.call("size", chunk), t.constant(_CHUNK))
        filled = t.array(full, t.call(ADD, chunk, t.array(element)))
        opened = t.array(t.call(ADD, full, t.array(chunk)), t.array(element))
        fold.accu_init.CopyFrom(t.array(t.array(), t.array()))
        appended.CopyFrom(t.ternary(has_room, filled, opened))
        joined, each = self._name(), self._name()
        fold.result.CopyFrom(
            t.fold(
                iter_var=each,
                iter_range=t.call(ADD, full, t.array(chunk)),
                accu_var=joined,
                accu_init=t.array(),
                loop_condition=t.constant(True),
                loop_step=t.call(ADD, t.ident(joined), t.ident(each)),
                result=t.ident(joined),
            )
        )

    def _defaulted(self, value: Any, fallback: Any) -> Any:
        guards = _present(value)
        chosen = self._bound(value, lambda bound: t.ternary(t.call("_!=_", bound, t.null()), bound, fallback))
        return t.ternary(t.conjunction(guards), chosen, fallback) if guards else chosen

    def _matched(self, string: Any, pattern: Any) -> Any:
        """The match where its cost can be paid. RE2 takes time by the product of both: a text of 400 kB as its own pattern ran for minutes."""

        def paid(a: Any, b: Any) -> Any:
            work = t.call("_*_", t.call("size", a), _weight(b))
            return t.ternary(self._bound(work, payment), t.call(_MATCHES, a, b), t.constant(False))

        return self._bound(string, lambda a: self._bound(pattern, lambda b: paid(a, b)))

    def _converted(self, function: str, value: Any, kind: str, *, known: bool) -> Any:
        """The conversion where its copy can be paid: of a text into bytes, or of bytes into a text."""

        def paid(a: Any) -> Any:
            converted = t.call(function, a)
            copied = t.ternary(self._bound(t.call("size", a), payment), converted, t.constant(False))
            return copied if known else t.ternary(t.is_of(a, _SAMPLES[kind]), copied, converted)

        return self._bound(value, paid)

    def _bound(self, value: Any, body: Callable[[Any], Any]) -> Any:
        """`body` of a name for `value`, so that it is evaluated once; of the value itself where that is as cheap as a name."""
        if value.WhichOneof("kind") in ("const_expr", "ident_expr"):
            return body(value)
        name = self._name()
        return t.bind(name, value, body(t.ident(name)))

    def _name(self) -> str:
        self._names += 1
        return f"@ductor_{self._names}"


def _weight(pattern: Any) -> Any:
    """What a pattern costs per character of the text."""
    if pattern.WhichOneof("kind") == "const_expr":
        source = pattern.const_expr.string_value
        return t.constant(len(source) * (_REPETITION if "{" in source else 1))
    counted = t.call("contains", t.text("{"))
    counted.call_expr.target.CopyFrom(pattern)
    return t.call("_*_", t.call("size", pattern), t.ternary(counted, t.constant(_REPETITION), t.constant(1)))


def _present(path: Any) -> list[Any]:
    """For each named key of a path, outermost first: that its container is a map and has it."""
    guards: list[Any] = []
    while True:
        container, key = t.container_and_key(path)
        if container is None:
            return guards[::-1]
        if isinstance(key, str):
            guards.append(t.conjunction([t.is_of(container, t.empty_map()), t.has(container, key)]))
        else:  # an index may be out of range, and no guard above it could tell
            guards.clear()
        path = container


def _appended(fold: Any) -> Any:
    """The `@result + [element]` of a fold that builds a list: `map`, `map` with a filter, `filter`. None for every other fold."""
    if fold.accu_init.WhichOneof("kind") != "list_expr" or fold.accu_init.list_expr.elements:
        return None
    if fold.result.ident_expr.name != fold.accu_var:
        return None
    step = fold.loop_step
    if step.call_expr.function == t.TERNARY:
        step = step.call_expr.args[1]
    call = step.call_expr
    if call.function != ADD or call.args[0].ident_expr.name != fold.accu_var:
        return None
    return step if len(call.args[1].list_expr.elements) == 1 else None
