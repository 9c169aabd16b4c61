"""The four arithmetic operators in standard CEL, as our definitions mean them (ruling L5, CE-05).

An int and a double meet as two doubles; where a type shows only at run time, the expression looks. Inside a loop, joining texts or lists pays
for the room that it takes, since nothing else bounds it.
"""

from collections.abc import Callable
from typing import Any, Final

from ductord.engine.expressions import meter
from ductord.engine.expressions import tree as t

ADD: Final = "_+_"
_BYTES_PER_ELEMENT: Final = 16
_TEXT: Final = (t.text(""), t.data(b""))

Bind = Callable[[Any, Callable[[Any], Any]], Any]
"""`bind(value, body)`: `body` of something that stands for `value` and costs nothing to repeat."""


def spelled_out(function: str, left: str, right: str, *, inside: bool, bind: Bind) -> Callable[[Any, Any], Any] | None:
    """How to compute `left op right` of these types (`tree.type_name`); None where standard CEL does it just so.

    `inside`: it is computed once per element of a loop.
    """
    may_mix = _may_mix(left, right)
    may_grow = inside and function == ADD and _may_grow(left) and _may_grow(right)
    if not may_mix and not may_grow:
        return None

    def plain(a: Any, b: Any) -> Any:
        return _paid(a, left, b, bind) if may_grow else t.call(function, a, b)

    def computed(a: Any, b: Any) -> Any:
        if not may_mix:
            return plain(a, b)
        as_doubles = t.call(function, t.call("double", a), t.call("double", b))
        if t.UNKNOWN not in (left, right):
            return as_doubles
        return t.ternary(_mixes(a, left, b, right), as_doubles, plain(a, b))

    return lambda first, second: bind(first, lambda a: bind(second, lambda b: computed(a, b)))


def _may_mix(left: str, right: str) -> bool:
    numbers = ("int", "double", t.UNKNOWN)
    return left in numbers and right in numbers and (left != right or left == t.UNKNOWN)


def _may_grow(kind: str) -> bool:
    return kind in ("string", "bytes", "list", t.UNKNOWN)


def _mixes(a: Any, left: str, b: Any, right: str) -> Any:
    """Whether one is an int and the other a double."""
    ways = [
        t.conjunction(_tests(a, left, first) + _tests(b, right, second))
        for first, second in (("int", "double"), ("double", "int"))
        if left in (first, t.UNKNOWN) and right in (second, t.UNKNOWN)
    ]
    return t.disjunction(ways)


def _tests(value: Any, known: str, kind: str) -> list[Any]:
    """The test that `value` is of a kind; nothing where that is known."""
    return [] if known != t.UNKNOWN else [t.is_of(value, t.constant(0) if kind == "int" else t.constant(0.0))]


def _paid(a: Any, kind: str, b: Any, bind: Bind) -> Any:
    """`a + b` that pays for its size first. What has no size is added as it is."""
    added = t.call(ADD, a, b)
    sizes = t.call(ADD, t.call("size", a), t.call("size", b))
    text = t.ternary(bind(sizes, payment), added, t.constant(False))
    array = t.ternary(bind(t.call("_*_", sizes, t.constant(_BYTES_PER_ELEMENT)), payment), added, t.constant(False))
    if kind in ("string", "bytes"):
        return text
    if kind == "list":
        return array
    is_text = t.disjunction([t.is_of(a, sample) for sample in _TEXT])
    return t.ternary(is_text, text, t.ternary(t.is_of(a, t.array()), array, added))


def payment(size: Any) -> Any:
    """True, or an error once the account is empty: the price nearest above the size is paid, the highest for all beyond it."""
    free = t.call("_<=_", size, t.constant(meter.FREE))
    return t.ternary(free, t.constant(True), _price(size, meter.PRICES))


def _price(size: Any, exponents: tuple[int, ...]) -> Any:
    """Halving, since an expression may not be nested deep."""
    if len(exponents) == 1:
        return t.call(meter.pay_name(exponents[0]))
    middle = len(exponents) // 2
    fits = t.call("_<=_", size, t.constant(1 << exponents[middle - 1]))
    return t.ternary(fits, _price(size, exponents[:middle]), _price(size, exponents[middle:]))
