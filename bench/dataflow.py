"""What a dataflow's elements cost: processor time per element at 1,000 and at 10,000, which must not differ (F6). No stack: the decision alone.

`python -m bench.dataflow` prints it.
"""

import gc
import statistics
import time
from collections.abc import Mapping
from typing import Any

from ductord.engine.decide import decide
from ductord.engine.expressions import Programs, programs_for
from ductord.model.decision import Decision
from ductord.model.enums import StepType
from ductord.model.fanout import DataflowSpec, Operation
from ductord.model.inbox import Inbox
from ductord.model.manifest import Manifest, Step
from ductord.model.needs import APART
from ductord.model.specs import Expression, Template
from tests.support.starts import start_of
from tests.support.world import START

FEW, MANY = 1_000, 10_000
RATIO = 1.3
"""How much more an element may cost among ten thousand than among one."""

_SHAPES: dict[str, tuple[Operation, str, Any]] = {
    "path": (Operation.MAP, "ITEM.sku", None),
    "map": (Operation.MAP, "ITEM.price * ITEM.count", None),
    "filter": (Operation.FILTER, 'ITEM.price > 100 && ITEM.sku != "s3"', None),
    "loop": (Operation.MAP, "ITEM.tags.exists(tag, tag == 'b')", None),
    "look-up": (Operation.MAP, "TRIGGER.payload.prices[ITEM.sku] * ITEM.count", None),
    "reduce": (Operation.REDUCE, "ACC + ITEM.price * ITEM.count", 0),
}


def per_element(times: int = 5) -> dict[str, dict[str, float]]:
    """Per shape of expression: µs per element among few and among many, and the ratio."""
    figures = {}
    for name, (operation, source, initial) in _SHAPES.items():
        manifest = _manifest(operation, source, initial)
        programs = programs_for(manifest)
        few, many = (_cost(manifest, programs, count, times) for count in (FEW, MANY))
        figures[name] = {"us_of_1000": round(few, 2), "us_of_10000": round(many, 2), "ratio": round(many / few, 2)}
    return figures


def row(figures: Mapping[str, Mapping[str, float]]) -> tuple[str, str]:
    """What the benchmark prints of it."""
    costs = ", ".join(f"{shape} {cost['us_of_10000']}" for shape, cost in figures.items())
    growth = max(cost["ratio"] for cost in figures.values())
    return (
        f"dataflow, CPU of one of {MANY:,} elements, µs",
        f"{costs}; {growth} × that of one of {FEW:,} (promised {RATIO})",
    )


def _cost(manifest: Manifest, programs: Programs, count: int, times: int) -> float:
    inbox = _inbox(count)
    costs: list[float] = []
    for _ in range(times * (MANY // count)):
        gc.collect()
        begin = time.thread_time()
        decided = decide(manifest, programs, None, inbox, START)
        costs.append((time.thread_time() - begin) / count * 1e6)
        assert isinstance(decided, Decision)
        assert decided.run is not None
        assert decided.run.nodes[0].fault is None, decided.run.nodes[0].fault
    return statistics.median(costs)


def _manifest(operation: Operation, source: str, initial: Any) -> Manifest:
    names = ("TRIGGER",) if "TRIGGER" in source else ()
    spec = DataflowSpec(
        operation=operation,
        items=Expression(source="TRIGGER.payload.orders", names=("TRIGGER",)),
        expr=Expression(source=source, names=names),
        initial=Template(tree=initial),
    )
    step = Step(ref="d", type=StepType.DATAFLOW, dataflow=spec)
    return Manifest(format_version=1, engine_level=4, family_slug="f", steps=(step,), entrypoints=(0,))


def _inbox(count: int) -> Inbox:
    orders = [{"sku": f"s{n % 1_000}", "price": n, "count": 3, "tags": ["a", "b"]} for n in range(count)]
    start = start_of(payload={"orders": orders, "prices": {f"s{n}": n for n in range(1_000)}})
    return Inbox(start=start, given={APART: True})


if __name__ == "__main__":
    for shape, figures in per_element().items():
        print(f"{shape:8} {figures}")
