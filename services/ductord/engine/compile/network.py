"""The graph of a definition: refs resolved, Kahn order, cycles, who runs before whom.

Order is stable: among steps that are ready, the one written first comes first. Works on any graph, also a broken one, so that the other
rules can still be judged.
"""

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from ductord.engine.compile.findings import Findings
from ductord.engine.compile.shape import Shaped
from ductord.engine.suggest import suggestion
from ductord.model.definition import Definition, EdgeDefinition, StepDefinition


class Link(NamedTuple):
    """An edge whose ends exist: `number` in the text, `source` and `target` as positions in `Network.steps`."""

    number: int
    edge: EdgeDefinition
    source: int
    target: int


class Network:
    """`steps`: each ref once, as written; `numbers`: their numbers in the text. `order`: their positions in Kahn order, those on a cycle missing."""

    def __init__(self, steps: Sequence[StepDefinition], numbers: Sequence[int], links: Sequence[Link]) -> None:
        self.steps = steps
        self.numbers = numbers
        self.links = links
        self.index = {step.ref: position for position, step in enumerate(steps)}
        self.incoming: list[list[Link]] = [[] for _ in steps]
        self.outgoing: list[list[Link]] = [[] for _ in steps]
        for link in links:
            self.outgoing[link.source].append(link)
            self.incoming[link.target].append(link)
        self.order = self._kahn()
        self._before = self._ancestors()

    @property
    def cyclic(self) -> bool:
        return len(self.order) < len(self.steps)

    def ancestors(self, position: int) -> frozenset[str]:
        """Refs of the steps that a path of edges leads from; of all steps when the graph has a cycle, which is reported anyway."""
        if self.cyclic:
            return frozenset(self.index)
        bits = self._before[position]
        return frozenset(step.ref for number, step in enumerate(self.steps) if bits >> number & 1)

    def cycle(self) -> list[str]:
        """The refs of one cycle, its first again at the end; empty without one."""
        if not self.cyclic:
            return []
        done = set(self.order)
        position = next(number for number in range(len(self.steps)) if number not in done)
        trail: dict[int, None] = {}
        while position not in trail:  # every step left over has a predecessor that is left over too
            trail[position] = None
            position = next(link.source for link in self.incoming[position] if link.source not in done)
        path = list(trail)
        backwards = [*path[path.index(position) :], position]
        return [self.steps[number].ref for number in reversed(backwards)]

    def _kahn(self) -> list[int]:
        open_edges = [len(links) for links in self.incoming]
        ready = [position for position, count in enumerate(open_edges) if count == 0]
        order: list[int] = []
        while ready:
            position = heappop(ready)
            order.append(position)
            for link in self.outgoing[position]:
                open_edges[link.target] -= 1
                if open_edges[link.target] == 0:
                    heappush(ready, link.target)
        return order

    def _ancestors(self) -> list[int]:
        """Bit sets: one integer per step, a bit per ancestor."""
        before = [0] * len(self.steps)
        for position in self.order:
            for link in self.outgoing[position]:
                before[link.target] |= before[position] | 1 << position
        return before


def resolve(definition: Definition, shaped: Shaped, findings: Findings) -> Network:
    """The network of a definition; duplicate refs, dangling edges and cycles are reported and left out of it."""
    steps: list[StepDefinition] = []
    numbers: list[int] = []
    first: dict[str, int] = {}
    for number, step in zip(shaped.numbers["steps"], definition.steps, strict=True):
        if step.ref in first:
            message = f"step ref `{step.ref}` is given twice, first by steps[{first[step.ref]}]"
            findings.add("DUPLICATE_STEP_REF", message, ("steps", number, "ref"))
            continue
        first[step.ref] = number
        steps.append(step)
        numbers.append(number)
    index = {step.ref: position for position, step in enumerate(steps)}
    network = Network(steps, numbers, _links(definition, shaped, index, findings))
    cycle = network.cycle()
    if cycle:
        shown = " → ".join(cycle if len(cycle) <= 12 else [*cycle[:6], "…", *cycle[-5:]])
        findings.add("CYCLE", f"steps wait for each other: {shown}", ("steps", numbers[index[cycle[0]]], "ref"))
    return network


def _links(definition: Definition, shaped: Shaped, index: dict[str, int], findings: Findings) -> list[Link]:
    links: list[Link] = []
    seen: dict[EdgeDefinition, int] = {}
    for number, edge in zip(shaped.numbers["edges"], definition.edges or (), strict=True):
        ends = (index.get(edge.source_ref), index.get(edge.target_ref))
        for name, ref, end in (("source_ref", edge.source_ref, ends[0]), ("target_ref", edge.target_ref, ends[1])):
            if end is None and ref not in shaped.lost_refs:
                message = f"no step is named `{ref}`{suggestion(ref, index)}"
                findings.add("DANGLING_EDGE", message, ("edges", number, name))
        if ends[0] is None or ends[1] is None:
            continue
        if edge in seen:
            message = f"this edge is given twice, first by edges[{seen[edge]}]"
            findings.add("DUPLICATE_EDGE", message, ("edges", number))
            continue
        seen[edge] = number
        links.append(Link(number, edge, ends[0], ends[1]))
    return links
