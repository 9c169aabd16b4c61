"""What follows from a manifest alone, worked out once: look-ups by ref, leaves, who reads what.

Nothing here depends on a run. The memo is keyed by identity and forgets a manifest when it dies, before its identity can be another's; so a
graph must never refer to its manifest.
"""

import weakref
from collections.abc import Iterable, Iterator

from ductord.model.enums import StepType
from ductord.model.manifest import Manifest, Step
from ductord.model.specs import Expression


class Graph:
    """Derived, immutable facts of one manifest. Step indexes are the manifest's (Kahn order).

    `index`: ref → step index, `checkpoint_index`: name → number. `leaves`: steps without outgoing edges. `checkpoints`: per step, the checkpoints
    that name it. `start_reads` and `exit_reads`: per step, the refs whose outputs are read by its run_if, args and the like, and by its result_expr
    and outgoing conditions. `targets`: per step, the target of every outgoing edge. `fans`: the steps that have children, `parents`: those whose children are
    runs. `compensated`: the steps that have inverse or final actions, the last first. `gathers`: per scatter, the steps that gather it. `looks`: the steps that
    look at the run while they wait. `racers`: the steps that are in a race. `only_for`: race → the steps all whose ways lead to it, nearest first (G7). `read`:
    the refs whose outputs something reads, be it an expression or a race; nobody has to have the others at hand.
    """

    __slots__ = (
        "checkpoint_index",
        "checkpoints",
        "compensated",
        "exit_reads",
        "fans",
        "gathers",
        "index",
        "leaves",
        "looks",
        "only_for",
        "parents",
        "racers",
        "read",
        "start_reads",
        "targets",
    )

    def __init__(self, manifest: Manifest) -> None:
        self.index = {step.ref: i for i, step in enumerate(manifest.steps)}
        self.leaves = tuple(i for i, step in enumerate(manifest.steps) if not step.outgoing)
        self.checkpoint_index = {checkpoint.name: number for number, checkpoint in enumerate(manifest.checkpoints)}
        naming: list[list[int]] = [[] for _ in manifest.steps]
        for number, checkpoint in enumerate(manifest.checkpoints):
            for i in checkpoint.steps:
                naming[i].append(number)
        self.checkpoints = tuple(tuple(numbers) for numbers in naming)
        self.start_reads = tuple(_start_reads(step) for step in manifest.steps)
        self.exit_reads = tuple(_exit_reads(manifest, step) for step in manifest.steps)
        self.fans = tuple(i for i, step in enumerate(manifest.steps) if step.type in _WITH_CHILDREN)
        self.parents = tuple(i for i in self.fans if _bears_runs(manifest.steps[i]))
        compensated = [i for i, step in enumerate(manifest.steps) if step.compensation is not None]
        self.compensated = tuple(reversed(compensated))
        self.gathers = self._gathers(manifest)
        self.looks = tuple(i for i, step in enumerate(manifest.steps) if step.wait is not None)
        self.targets = tuple(tuple(manifest.edges[e].target for e in step.outgoing) for step in manifest.steps)
        races = [i for i, step in enumerate(manifest.steps) if step.type is StepType.RACE]
        self.racers = frozenset(manifest.edges[e].source for i in races for e in manifest.steps[i].incoming)
        self.only_for = {race: self._only_for(race) for race in races}
        self.read = frozenset(self._read(manifest))

    def _gathers(self, manifest: Manifest) -> dict[int, tuple[int, ...]]:
        of: dict[int, tuple[int, ...]] = {}
        for i, step in enumerate(manifest.steps):
            if step.gather is not None:
                source = self.index[step.gather.scatter_ref]
                of[source] = (*of.get(source, ()), i)
        return of

    def _read(self, manifest: Manifest) -> Iterator[str]:
        for refs in (*self.start_reads, *self.exit_reads):
            yield from refs
        if manifest.output is not None:
            yield from manifest.output.steps
        for i in self.compensated:
            blocks = manifest.steps[i].compensation
            for action in blocks.actions if blocks is not None else ():
                yield from action.args.steps
        for i in self.racers:
            yield manifest.steps[i].ref

    def downstream(self, roots: Iterable[int]) -> set[int]:
        """`roots` and every step that any path of edges leads to from them."""
        seen = set(roots)
        todo = list(seen)
        while todo:
            for target in self.targets[todo.pop()]:
                if target not in seen:
                    seen.add(target)
                    todo.append(target)
        return seen

    def _only_for(self, race: int) -> tuple[int, ...]:
        only = {race}
        for index in reversed(range(race)):
            if self.targets[index] and all(target in only for target in self.targets[index]):
                only.add(index)
        return tuple(sorted(only - {race}, reverse=True))


def graph_of(manifest: Manifest) -> Graph:
    """The graph of a manifest, worked out at the first call and kept as long as the manifest lives."""
    key = id(manifest)
    graph = _memo.get(key)
    if graph is None:
        graph = _memo[key] = Graph(manifest)
        weakref.finalize(manifest, _memo.pop, key, None).atexit = False
    return graph


_memo: dict[int, Graph] = {}

_WITH_CHILDREN = frozenset({StepType.SCATTER, StepType.FOR_EACH, StepType.SUBWORKFLOW})


def _bears_runs(step: Step) -> bool:
    return step.scatter is None or step.scatter.workflow is not None


def _start_reads(step: Step) -> tuple[str, ...]:
    return _union(*(text.steps for text in step.texts()))


def _exit_reads(manifest: Manifest, step: Step) -> tuple[str, ...]:
    conditions: list[Expression] = [c for e in step.outgoing if (c := manifest.edges[e].condition) is not None]
    own: tuple[str, ...] = ()
    if step.result_expr is not None:
        conditions.append(step.result_expr)
        own = (step.ref,) if "OUTPUT" in step.result_expr.names else ()
    return _union(own, *(c.steps for c in conditions))


def _union(*many: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(ref for refs in many for ref in refs))
