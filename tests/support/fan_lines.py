"""Fan-outs as lines: how events about children, counters and the children themselves read in a transcript. What is alike is told at once."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, TypeVar, assert_never

from ductord.model.fan import Fan
from ductord.model.fan_events import (
    ChildFailed,
    ChildrenBegun,
    ChildrenCancelled,
    ChildrenDropped,
    ChildrenSucceeded,
    FanEvent,
    FanExpanded,
    FanResumed,
    FanStopped,
)
from ductord.model.fanout import ClosePolicy
from ductord.model.run import Waiting
from tests.support.naming import target
from tests.support.saying import because, since_start, waits, word
from tests.support.world import Child, OpenTask

T = TypeVar("T")


def fan_event(event: FanEvent) -> str:
    """The line of an event."""
    ref = event.step_ref
    match event:
        case FanExpanded():
            version = f" of version {event.version}" if event.version else ""
            return f"{ref} has {_many(event.expected)}{version}{_waits(event.waiting)}"
        case FanResumed():
            again = ", ".join(_span(first, count) for first, count in event.again) or "nothing"
            return f"{ref} goes on, {again} anew{_waits(event.waiting)}"
        case ChildrenBegun():
            attempt = f"#{event.attempt}" if event.attempt else ""
            as_run = f" as {event.run_id}" if event.run_id else ""
            held = f", held until {since_start(event.due_time)}" if event.due_time else ""
            return f"{ref}{_indexes(event.first, event.count)}{attempt} begun{as_run}{held}"
        case ChildrenSucceeded():
            return f"{_those(ref, event.children)} succeeded"
        case ChildrenCancelled():
            return f"{_those(ref, event.children)} cancelled"
        case ChildFailed():
            attempt = f"#{event.attempt}" if event.attempt else ""
            run = f" ({event.run_id}{f' is {word(event.status)}' if event.status else ''})" if event.run_id else ""
            return f"{ref}[{event.item_index}]{attempt} failed for good{run}{because(event.fault)}"
        case ChildrenDropped():
            return f"what is open of {ref} is given up"
        case FanStopped():
            return f"{ref} begins no more{because(event.fault)}"
        case _:
            assert_never(event)


def fan(of: Fan) -> str:
    """The counters of a node, behind its status: `, 3/5 (1 failed), 2 open`."""
    ends = {"failed": of.failed, "cancelled": of.cancelled}
    told = ", ".join(f"{many} {what}" for what, many in ends.items() if many)
    words = [f", {of.ended}/{of.expected}{f' ({told})' if told else ''}"]
    if of.open:
        words.append(f", {of.open} open")
    if of.again:
        words.append(f", {', '.join(_span(first, count) for first, count in of.again)} to begin anew")
    if of.fault is not None:
        words.append(f", stopped{because(of.fault)}")
    return "".join(words)


def child_lines(children: Iterable[Child]) -> Iterable[str]:
    """Children by step and index; those that are alike in one line."""
    for step_ref, of_step in groupby(children, key=lambda child: child.step_ref):
        for like in _runs(list(of_step), lambda child: child.item_index, _child):
            yield f"child {step_ref}{_indexes(like[0].item_index, len(like))}: {_child(like[0])}"


def _child(of: Child) -> str:
    words = [word(of.status)]
    if of.attempt > 1:
        words.append(f"of attempt {of.attempt}")
    if of.checkpoint:
        words.append(f"waited for until {of.checkpoint}")
    if not of.sync:
        words.append("not waited for")
    if of.close_policy is not ClosePolicy.REQUEST_CANCEL:
        words.append(f"on close {word(of.close_policy)}")
    if of.detached:
        words.append("detached")
    if of.told and not of.applied and of.sync and not of.detached:
        words.append("told and not applied")
    return ", ".join(words)


def task_lines(tasks: Sequence[OpenTask], line: Callable[[OpenTask], str]) -> Iterable[str]:
    """Open tasks; those of inline children that are alike in one line, as of `line`."""
    for (step_ref, suffix), of_step in groupby(tasks, key=lambda task: _family(task.step_ref)):
        several = list(of_step)
        for like in _runs(several, lambda task: target(task.step_ref).first, lambda task: _but_name(task, line)):
            index = target(like[0].step_ref).first
            name = like[0].step_ref if index < 0 else f"{step_ref}{_indexes(index, len(like))}{suffix}"
            yield f"task {name}{_but_name(like[0], line)}"


def _family(name: str) -> tuple[str, str]:
    one = target(name)
    return one.step_ref, one.suffix


def _but_name(task: OpenTask, line: Callable[[OpenTask], str]) -> str:
    return line(task).removeprefix(task.step_ref)


def _runs(several: list[T], index: Callable[[T], int], like: Callable[[T], Any]) -> list[list[T]]:
    """The values in order, those put together whose indexes follow each other and that are alike."""
    together: list[list[T]] = []
    for one in several:
        last = together[-1][-1] if together else None
        follows = last is not None and index(one) >= 0 and index(one) == index(last) + 1 and like(one) == like(last)
        if follows:
            together[-1].append(one)
        else:
            together.append([one])
    return together


def _those(ref: str, children: Sequence[tuple[int, int]]) -> str:
    together = _runs(sorted(children), lambda pair: pair[0], lambda pair: pair[1])
    names = (_indexes(like[0][0], len(like)) + (f"#{like[0][1]}" if like[0][1] else "") for like in together)
    return ", ".join(f"{ref}{name}" for name in names)


def _indexes(first: int, count: int) -> str:
    return f"[{_span(first, count)}]"


def _span(first: int, count: int) -> str:
    return str(first) if count == 1 else f"{first}..{first + count - 1}"


def _many(count: int) -> str:
    return "1 child" if count == 1 else f"{count} children"


def _waits(waiting: Waiting | None) -> str:
    return f" and waits ({waits(waiting)})" if waiting is not None else ""
