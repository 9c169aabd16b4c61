"""What many children did in one tick, told by one event: a transition of a wide fan-out grows by a few bytes per child (field case SG-06).

Counters add up, so telling it at once, at the place of the first, folds to the same state as telling it one by one.
"""

from collections.abc import Sequence
from typing import cast

from msgspec.structs import replace

from ductord.model.enums import TaskKind
from ductord.model.events import AttemptCreated, AttemptEnded, Event, InverseRegistered
from ductord.model.fan_events import ChildFailed, ChildrenCancelled, ChildrenSucceeded

_Mergeable = ChildrenSucceeded | ChildrenCancelled


def merged(events: Sequence[Event]) -> tuple[Event, ...]:
    """The events of a tick with those about children of one node, and of one kind, as one, where nothing lies between them that is more than a child's own."""
    told: list[Event] = []
    places: dict[tuple[str, type], int] = {}
    children: dict[int, list[tuple[int, int]]] = {}
    for event in events:
        if isinstance(event, _Mergeable):
            place = places.setdefault((event.step_ref, type(event)), len(told))
            if place == len(told):
                told.append(event)
                children[place] = list(event.children)
            else:
                children[place] += event.children
            continue
        told.append(event)
        if places and not _of_one_child(event):
            ref: str | None = getattr(event, "step_ref", None)
            for kind in (ChildrenSucceeded, ChildrenCancelled):
                places.pop((ref, kind), None) if ref is not None else places.clear()
    for place, pairs in children.items():
        told[place] = replace(cast(_Mergeable, told[place]), children=tuple(pairs))
    return tuple(told)


def _of_one_child(event: Event) -> bool:
    """Whether the event is about a child alone, so that it may as well stand after what happened to other children later."""
    if isinstance(event, AttemptCreated | AttemptEnded):
        return event.kind is TaskKind.ITEM
    return isinstance(event, ChildFailed | InverseRegistered)
