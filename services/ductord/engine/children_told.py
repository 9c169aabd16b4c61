"""Which children of a node have begun, and what became of each, followed event by event. For replay: a run keeps counters alone."""

from collections.abc import Iterator, Sequence

from ductord.model.enums import TaskKind
from ductord.model.events import AttemptCreated, Event
from ductord.model.fan_events import (
    ChildFailed,
    ChildrenBegun,
    ChildrenCancelled,
    ChildrenDropped,
    ChildrenSucceeded,
    FanExpanded,
    FanResumed,
)


class Children:
    """The children of one node. `begun`: the number under which each has begun last, of a task its attempt, of a run the node's. `ended`: what became of
    those that have ended: the attempt with the output (0: a run), a failure, or None: cancelled."""

    def __init__(self) -> None:
        self.attempt = 0
        self.begun: dict[int, int] = {}
        self.ended: dict[int, ChildFailed | int | None] = {}

    def copy(self) -> "Children":
        """Another one to follow events with."""
        made = Children()
        made.attempt, made.begun, made.ended = self.attempt, dict(self.begun), dict(self.ended)
        return made

    def follow(self, event: Event) -> None:
        """Take over what an event of the node says of them."""
        match event:
            case FanExpanded(attempt=attempt):
                self.attempt, self.begun, self.ended = attempt, {}, {}
            case FanResumed(attempt=attempt, again=again):
                self.attempt = attempt
                for index in indexes(again):
                    self.ended.pop(index, None)
            case ChildrenBegun(first=first, count=count, attempt=attempt):
                for index in range(first, first + count):
                    self.begun[index] = attempt or self.attempt
                    self.ended.pop(index, None)
            case AttemptCreated(kind=TaskKind.ITEM, item_index=index, attempt=attempt):
                self.begun[index] = attempt
            case ChildrenSucceeded(children=children):
                self.ended.update(children)
            case ChildrenCancelled(children=children):
                self.ended.update((index, None) for index, _ in children)
            case ChildFailed(item_index=index):
                self.ended[index] = event
            case ChildrenDropped():
                self.ended.update((index, None) for index in self.begun.keys() - self.ended.keys())
            case _:
                pass


def indexes(ranges: Sequence[tuple[int, int]]) -> Iterator[int]:
    """The numbers of ranges (first, count)."""
    for first, count in ranges:
        yield from range(first, first + count)
