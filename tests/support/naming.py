"""How stories call tasks and children: `a`, `a~undo`, `s[2]`, `s[0..9]`."""

import re

import msgspec

from ductord.model.enums import TaskKind

_SUFFIXES = {
    TaskKind.STEP: "",
    TaskKind.ITEM: "",
    TaskKind.COMPENSATION: "~undo",
    TaskKind.FINALLY: "~finally",
}
_NAME = re.compile(r"([^\[~]+)(?:\[(\d+)(?:\.\.(\d+))?\])?(~\w+)?")


def task_name(step_ref: str, kind: TaskKind, item_index: int = -1) -> str:
    """How a story calls the tasks of a step: `a`, `a~undo`, `a~finally`, and those of its inline children: `s[2]`, `s[2]~undo`."""
    return f"{step_ref}{f'[{item_index}]' if item_index >= 0 else ''}{_SUFFIXES[kind]}"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks, or which children, a story means: those of a step, of one child (`s[2]`), of a range (`s[0..9]`, both ends included), or of all children
    of a step (`s`)."""

    step_ref: str
    first: int = -1
    last: int = -1
    suffix: str = ""

    @property
    def many(self) -> bool:
        """Whether it is a range."""
        return self.last > self.first

    def covers(self, name: str) -> bool:
        """Whether it means the task of this name."""
        other = target(name)
        if (other.step_ref, other.suffix) != (self.step_ref, self.suffix):
            return False
        return self.first < 0 or self.first <= other.first <= self.last

    @property
    def names(self) -> list[str]:
        """The names of all that it means, as far as it tells them."""
        if self.first < 0:
            return [f"{self.step_ref}{self.suffix}"]
        return [f"{self.step_ref}[{index}]{self.suffix}" for index in range(self.first, self.last + 1)]


def target(text: str) -> Target:
    """Read the name of a task, or of several."""
    match = _NAME.fullmatch(text)
    if match is None:
        raise ValueError(f"not the name of a task: {text}")
    step_ref, first, last, suffix = match.groups()
    start = -1 if first is None else int(first)
    return Target(step_ref=step_ref, first=start, last=start if last is None else int(last), suffix=suffix or "")


def in_story_order(name: str) -> tuple[str, int, str]:
    """By step, child and kind: what tasks are sorted by."""
    one = target(name)
    return one.step_ref, one.first, one.suffix
