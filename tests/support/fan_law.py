"""The law of fan-outs: what a node counts is what there is of rows (rulings F1 to F5). Asked after every tick of every story, in both worlds."""

from collections.abc import Mapping
from enum import Enum

from ductord.model.fan import Fan
from ductord.model.run import Node


class Came(Enum):
    """What the latest row of a child says that it has come to, as far as its parent has gone by it."""

    OPEN = "open"
    SUCCEEDED = "succeeded"
    ENDED = "ended otherwise"


def is_counted(step_ref: str, node: Node, latest: Mapping[int, Came]) -> None:
    """`latest`: by index, of children that have begun in the node's expansion. A node whose child runs were let go may have ended before them."""
    fan = node.fan
    assert fan is not None
    assert fan.next <= fan.expected
    anew = {index for first, count in fan.again for index in range(first, first + count)}
    begun = [index for index in range(fan.next) if index not in anew]
    assert set(begun) <= latest.keys(), f"{step_ref} has begun what there is no row of"
    counts = [sum(1 for index in begun if latest[index] is came) for came in Came]
    if node.status.terminal and are_runs(fan):
        assert counts[1] >= fan.succeeded
        return
    assert counts == [fan.open, fan.succeeded, fan.failed + fan.cancelled], f"{step_ref}: {counts} of {fan}"
    if node.status.terminal:
        assert not fan.open, f"{step_ref} has ended before its children"


def are_runs(fan: Fan) -> bool:
    """Whether the children are runs of their own."""
    return bool(fan.version_id)
