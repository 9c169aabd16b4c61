"""`for_each`: one child run per item of a list, one after the other (ruling F3).

The list and the version that the children run are frozen when the step begins. A failed item stops it, or is passed over, as `on_item_error` says; a redrive
goes on at the item that failed. What all child runs have in common is `engine.fans.runs`.
"""

from typing import Any

from msgspec.structs import replace

from ductord.engine.errors import EngineError
from ductord.engine.fans import births, counting, resuming, runs
from ductord.engine.steps.bearing import BEARING, prepare_list, start_list
from ductord.engine.tick import Tick
from ductord.model.enums import RunStatus
from ductord.model.fan import GatheredChild
from ductord.model.fanout import ForEachSpec
from ductord.model.inbox import ChildFact


def prepare(tick: Tick, index: int) -> births.Brood | resuming.Again | None:
    """Evaluate the list, find the version, and try the input of the first item; of a step that has children, see how they stand. Raises `ExpressionError`,
    `PayloadInvalid` and `NodeFault`."""
    return prepare_list(tick, index, _spec(tick, index).items)


def start(tick: Tick, index: int, prepared: births.Brood | resuming.Again) -> None:
    """Park the node; the first child is born at the end of the tick. A node that has nothing to wait for ends at once (SG-01)."""
    start_list(tick, index, prepared)
    if counting.over(tick, index):
        finish(tick, index)


def on_child(tick: Tick, index: int, fact: ChildFact) -> None:
    """An item is done, or has failed; the next one begins at the end of the tick."""
    runs.count(tick, index, fact, runs.fault_of(fact))
    if counting.over(tick, index):
        finish(tick, index)


def finish(tick: Tick, index: int) -> None:
    """End the step: with what each item came to, or by the item that stopped it."""
    counting.finish(tick, index, lambda: {"results": [_result(child) for child in runs.gathered(tick, index)]})


def _result(child: GatheredChild) -> dict[str, Any]:
    """What one item came to. One whose input did not evaluate has no run."""
    result: dict[str, Any] = {"index": child.item_index, "run_id": child.run_id or None}
    if child.fault is None:
        return {**result, "status": RunStatus.COMPLETED.value, "output": child.output}
    error = {"code": child.fault.code, "message": child.fault.message}
    return {**result, "status": child.status or RunStatus.FAILED.value, "error": error}


def _spec(tick: Tick, index: int) -> ForEachSpec:
    step = tick.manifest.steps[index]
    if step.for_each is None:
        raise EngineError("MANIFEST_INVALID", f"step {step.ref} is a for_each without items")
    return step.for_each


KIND = replace(BEARING, prepare=prepare, start=start, on_child=on_child, finish=finish)
