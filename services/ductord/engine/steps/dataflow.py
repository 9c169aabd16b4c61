"""`dataflow`: one expression per element of a list, and what they give put together (ruling F6).

It has no work of its own, so it ends where other steps begin. Every element is evaluated by itself, once and in order: the work is linear, and what goes
wrong names its element. A long list is left to a place where the work keeps nobody waiting (`APART`); it comes to the same there.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import orjson
from msgspec.structs import replace

from ductord.engine import faults, waiting
from ductord.engine.errors import EngineError
from ductord.engine.expressions import ExpressionError, PerElement, described
from ductord.engine.faults import NodeFault
from ductord.engine.reading import bindings
from ductord.engine.steps.parked import PARKED
from ductord.engine.tick import Tick
from ductord.model.errors import PayloadInvalid
from ductord.model.fanout import MAX_CHILDREN, DataflowSpec, Operation
from ductord.model.needs import APART
from ductord.model.specs import Expression

MAX_ELEMENTS: Final = MAX_CHILDREN
FEW: Final = 200
"""Elements that are evaluated where the decision is made anyway: a few milliseconds."""


def start(tick: Tick, index: int, prepared: None) -> None:
    """A dataflow is never begun: it ends at once."""
    waiting.never(tick, index)


def decide(tick: Tick, index: int) -> bool:
    """End the step with what its elements come to. Raises `ExpressionError`, `NodeFault` and `PayloadInvalid` for what fails it instead."""
    spec = tick.manifest.steps[index].dataflow
    if spec is None:
        raise EngineError("MANIFEST_INVALID", f"step {tick.manifest.steps[index].ref} is a dataflow without one")
    items = _items(tick, spec)
    if len(items) > FEW:
        tick.foresee(index, None)  # what has been evaluated is lost with a tick that has to be asked again
        if tick.given(APART) is msgspec.UNSET or tick.lacking:
            return False
    waiting.succeed_at_once(tick, index, _OUTPUTS[spec.operation](_Elements(tick, index, spec, items)))
    return False


def _items(tick: Tick, spec: DataflowSpec) -> list[Any]:
    items = tick.programs.value(spec.items, bindings(tick, spec.items))
    if isinstance(items, dict):
        items = [{"key": key, "value": items[key]} for key in sorted(items)]
    if not isinstance(items, list):
        raise ExpressionError(spec.items.source, f"must be a list or a map, this is {described(items)}")
    if len(items) > MAX_ELEMENTS:
        raise NodeFault(faults.COLLECTION_TOO_LARGE, f"{len(items):,} elements, the limit is {MAX_ELEMENTS:,}")
    return items


class _Elements:
    """The elements of one step, and its expressions over them."""

    def __init__(self, tick: Tick, index: int, spec: DataflowSpec, items: list[Any]) -> None:
        self.spec = spec
        self.items = items
        self._tick = tick
        self._ref = tick.manifest.steps[index].ref
        self._room = tick.limits.aggregate_max_bytes

    def values(self, expr: Expression) -> Iterator[Any]:
        """What `expr` gives for each element, in order."""
        evaluate = self._evaluate(expr)
        for index, item in enumerate(self.items):
            yield self._of(evaluate, index, item)

    def conditions(self) -> Iterator[tuple[Any, bool]]:
        """Each element, and whether the step's condition holds for it."""
        expr = self._expr()
        for index, holds in enumerate(self.values(expr)):
            if holds is not True and holds is not False:
                raise self._fault(
                    index, ExpressionError(expr.source, f"a condition must be a bool, this is {described(holds)}")
                )
            yield self.items[index], holds

    def folded(self) -> Any:
        """What `expr` gives for the last element, where each sees what it gave for the one before."""
        initial, tick = self.spec.initial, self._tick
        evaluate = self._evaluate(self._expr())
        accumulated = None if initial is None else tick.programs.render(initial, bindings(tick, initial))
        for index, item in enumerate(self.items):
            accumulated = self._of(evaluate, index, item, accumulated)
        return accumulated

    def projected(self) -> Iterator[dict[str, Any]]:
        """Of each element a map: of the step's fields, or what its expression gives."""
        if self.spec.fields:
            fields = {name: self._evaluate(expr) for name, expr in self.spec.fields.items()}
            for index, item in enumerate(self.items):
                yield {name: self._of(evaluate, index, item) for name, evaluate in fields.items()}
            return
        expr = self._expr()
        for index, value in enumerate(self.values(expr)):
            if not isinstance(value, dict):
                raise self._fault(index, ExpressionError(expr.source, f"must be a map, this is {described(value)}"))
            yield value

    def mapped(self) -> Iterator[Any]:
        """What the step's expression gives for each element."""
        return self.values(self._expr())

    def collected(self, values: Iterator[Any]) -> list[Any]:
        """The values as long as they can be carried. Raises `PayloadInvalid`: they may have parts in common, and be endless once they are written out."""
        collected: list[Any] = []
        for value in values:
            self._room -= len(orjson.dumps(value)) + 1
            if self._room < 0:
                limit = self._tick.limits.aggregate_max_bytes
                message = f"output is larger than {limit:,} bytes with element {len(collected)} of {len(self.items):,}"
                raise PayloadInvalid("too_large", "output", message, limit_bytes=limit)
            collected.append(value)
        return collected

    def _expr(self) -> Expression:
        if self.spec.expr is None:
            raise EngineError("MANIFEST_INVALID", f"dataflow {self._ref} has no expression")
        return self.spec.expr

    def _evaluate(self, expr: Expression) -> PerElement:
        return self._tick.programs.per_element(expr, bindings(self._tick, expr))

    def _of(self, evaluate: PerElement, index: int, item: Any, accumulated: Any = None) -> Any:
        try:
            return evaluate(item, index, accumulated)
        except ExpressionError as error:
            raise self._fault(index, error) from None

    def _fault(self, index: int, error: ExpressionError) -> NodeFault:
        return NodeFault(error.code, f"step {self._ref}, element {index}: {error.message}")


def _filter(elements: _Elements) -> dict[str, Any]:
    return {"result": [item for item, holds in elements.conditions() if holds]}


def _partition(elements: _Elements) -> dict[str, Any]:
    result: list[Any] = []
    rest: list[Any] = []
    for item, holds in elements.conditions():
        (result if holds else rest).append(item)
    return {"result": result, "rest": rest}


_OUTPUTS: Final[dict[Operation, Callable[[_Elements], dict[str, Any]]]] = {
    Operation.MAP: lambda elements: {"result": elements.collected(elements.mapped())},
    Operation.FILTER: _filter,
    Operation.PARTITION: _partition,
    Operation.REDUCE: lambda elements: {"result": elements.folded()},
    Operation.PROJECT: lambda elements: {"result": elements.collected(elements.projected())},
}

KIND = replace(PARKED, start=start, drop=waiting.never, reset=waiting.nothing, at_once=decide)
