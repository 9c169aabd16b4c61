"""One expression for many elements: linear in their number, whatever else the expression reads (rulings F1, F6).

What all elements have in common is bound once, and the evaluator keeps it in its own form for the next; what a path says is followed in Python;
what reads nothing of the element is evaluated once. Every element has a budget of its own, and all share that of their decision (CE-05).
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

from ductord.engine.expressions import meter
from ductord.engine.expressions.bindings import Bindings, bound, branches, followed_in, pruned
from ductord.engine.expressions.element import current
from ductord.engine.expressions.environment import OF_ELEMENT, environment
from ductord.engine.expressions.errors import ExpressionError
from ductord.engine.expressions.outcome import given_up, outcome
from ductord.engine.expressions.program import Compiled
from ductord.model.jsonvalue import JSON

_KEPT_FOR: Final = 250
"""Evaluations on one binding. What they make is released with it and not before."""
_KEPT_BYTES: Final = 16 << 20
_EVALUATIONS_PER_LOOK: Final = 16


class PerElement(Protocol):
    """From an element to the value for it. Raises `ExpressionError` for this element alone. Good for the thread and the decision that asked for it."""

    def __call__(self, item: JSON, index: int, accumulated: JSON = None, /) -> JSON: ...


def per_element(source: str, compiled: Compiled, bindings: Bindings, steps: tuple[str, ...]) -> PerElement:
    """A way to evaluate `compiled` (made `per_element`), which reads something of the element, with the rest of its reads from `bindings`."""
    path = compiled.facts.path
    evaluate = _Evaluating(source, compiled, bindings, steps)
    if path is None:
        return evaluate
    place, keys = OF_ELEMENT.index(path.root), path.keys

    def follow(item: JSON, index: int, accumulated: JSON = None, /) -> JSON:
        found, value = followed_in((item, index, accumulated)[place], keys)
        return value if found else evaluate(item, index, accumulated)

    return follow


def once(evaluate: Callable[[], JSON]) -> PerElement:
    """What has the same value for all elements, evaluated when the first of them asks."""
    known: list[JSON | ExpressionError] = []

    def remembered(item: JSON, index: int, accumulated: JSON = None, /) -> JSON:
        if not known:
            try:
                known.append(evaluate())
            except ExpressionError as error:
                known.append(error)
        if isinstance(known[0], ExpressionError):
            raise known[0]
        return known[0]

    return remembered


class _Evaluating:
    """`_activation`: what is bound, in the evaluator's form once something has read it; good for `_left` evaluations and `_room` bytes."""

    __slots__ = (
        "_activation",
        "_below",
        "_bindings",
        "_left",
        "_loops",
        "_may_share",
        "_room",
        "_roots",
        "_runnable",
        "_source",
        "_steps",
    )

    def __init__(self, source: str, compiled: Compiled, bindings: Bindings, steps: tuple[str, ...]) -> None:
        roots = branches(compiled.facts.reads)
        self._below = tuple(roots.pop(name, None) for name in OF_ELEMENT)
        self._roots = roots
        self._source = source
        self._runnable = compiled.runnable
        self._loops = compiled.loops
        self._may_share = compiled.may_share
        self._bindings = bindings
        self._steps = steps
        self._activation: Any = None
        self._left = self._room = 0

    def __call__(self, item: JSON, index: int, accumulated: JSON = None, /) -> JSON:
        due = self._left <= 0 or self._room < 0
        if (due or self._left % _EVALUATIONS_PER_LOOK == 0) and meter.decision_over():
            raise given_up(self._source)
        if due:
            self._bind()
        self._left -= 1
        meter.open_account(timed=self._loops)
        element = current()
        element[:] = [
            None if below is None else pruned(value, below)
            for value, below in zip((item, index, accumulated), self._below, strict=True)
        ]
        try:
            return outcome(self._source, self._evaluate, may_share=self._may_share, metered=True)
        finally:
            element[:] = (None, 0, None)
            self._room -= meter.spent()

    def _evaluate(self) -> Any:
        return self._runnable.eval(self._activation)

    def _bind(self) -> None:
        self._activation = None  # what it holds is let go before there is more
        self._activation = environment().Activation(bound(self._roots, self._bindings, self._steps))
        self._left, self._room = _KEPT_FOR, _KEPT_BYTES
