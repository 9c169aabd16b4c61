"""Graphs to run: the 31 real ones that are read in place, and a generator of like shapes.

The real graphs are others' data and stay where they are: `DUCTOR_GRAPHS` names the folder (default: `../shared/data/wfinstances` beside the
repository); tests that need them skip with a message where it is missing.
"""

import json
import os
import random
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

_REPOSITORY = Path(__file__).resolve().parent.parent
_DEFAULT = _REPOSITORY.parent / "shared" / "data" / "wfinstances"
_NOT_IN_REFS = re.compile(r"[^A-Za-z0-9_.-]")


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One task: the refs of its parents and the seconds it ran."""

    ref: str
    parents: tuple[str, ...] = ()
    runtime_s: float = 0.0


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """A graph of tasks, parents before or after their children as the source has them."""

    name: str
    tasks: tuple[Task, ...]

    def parents(self) -> dict[str, list[str]]:
        """Ref → refs of its parents."""
        return {task.ref: list(task.parents) for task in self.tasks}

    def definition(self, *, slug: str | None = None, sleep_scale: float | None = None, **fields: Any) -> dict[str, Any]:
        """The definition's tree: `noop:noop` steps, or `core:sleep` of `runtime_s * sleep_scale`. `fields` go into every step."""
        return {
            "family_slug": slug or re.sub(r"[^a-z0-9_-]", "-", self.name.lower()),
            "title": self.name,
            "steps": [
                {"ref": task.ref, "type": "action", **_action(task, sleep_scale), **fields} for task in self.tasks
            ],
            "edges": [
                {"source_ref": parent, "target_ref": task.ref, "type": "success"}
                for task in self.tasks
                for parent in task.parents
            ],
            "triggers": [{"id": "manual", "type": "manual"}],
        }


def workflow_graphs() -> Iterator[Graph]:
    """The real graphs, by name. Skips the test where they are missing."""
    folder = Path(os.environ.get("DUCTOR_GRAPHS") or _DEFAULT)
    files = sorted(folder.glob("*.json"))
    if not files:
        pytest.skip(f"no graphs in {folder}: set DUCTOR_GRAPHS to a folder of WfInstances extracts")
    for file in files:
        yield _read(file)


def layered(seed: int, *, width: int = 8, depth: int = 6, fan_in: int = 3) -> Graph:
    """A random graph of layers, each task with one to `fan_in` parents in the layer before: the shape that the real ones have."""
    chance = random.Random(seed)
    tasks: list[Task] = []
    layer: list[str] = []
    for level in range(depth):
        refs = [f"l{level}_t{number}" for number in range(chance.randint(1, width))]
        for ref in refs:
            parents = chance.sample(layer, min(len(layer), chance.randint(1, fan_in)))
            tasks.append(Task(ref=ref, parents=tuple(sorted(parents)), runtime_s=round(chance.uniform(0.1, 5), 3)))
        layer = refs
    return Graph(name=f"layered-{seed}", tasks=tuple(tasks))


def _read(file: Path) -> Graph:
    listed = json.loads(file.read_text())["tasks"]
    refs = _refs([task["id"] for task in listed])
    return Graph(
        name=file.stem,
        tasks=tuple(
            Task(
                ref=refs[task["id"]],
                parents=tuple(dict.fromkeys(refs[parent] for parent in task["parents"])),
                runtime_s=task["runtime_s"],
            )
            for task in listed
        ),
    )


def _refs(ids: list[str]) -> Mapping[str, str]:
    """A step ref per task id (ruling L2): other characters become `_`, and what then is not unique gets a number."""
    refs: dict[str, str] = {}
    taken: set[str] = set()
    for task_id in ids:
        base = _NOT_IN_REFS.sub("_", task_id)[:120]
        ref = base = base if base[:1].isalpha() or base[:1] == "_" else f"_{base}"
        number = 1
        while ref in taken:
            number += 1
            ref = f"{base}.{number}"
        taken.add(ref)
        refs[task_id] = ref
    return refs


def _action(task: Task, sleep_scale: float | None) -> dict[str, Any]:
    if sleep_scale is None:
        return {"action": "noop:noop"}
    return {"action": "core:sleep", "args": {"ms": round(task.runtime_s * sleep_scale * 1000)}}
