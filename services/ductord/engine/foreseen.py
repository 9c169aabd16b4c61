"""Which outputs a tick will want, told beforehand: a hint that saves the coordinator a second call, never a condition for the first.

`decide` alone says what it lacks (`Missing`); what is foreseen here may turn out not to be read.
"""

from collections.abc import Iterable

from ductord.engine.graph import graph_of
from ductord.model.manifest import Manifest
from ductord.model.run import Run


def foreseen(manifest: Manifest, run: Run, ended: Iterable[str]) -> frozenset[str]:
    """The steps whose outputs a tick will probably read when the attempts of the steps `ended` have been reported.

    Only steps that have an output, or that are in `ended`, are named. Constant in the size of the graph but for the steps' own edges.
    """
    graph = graph_of(manifest)
    among = frozenset(ended)
    wanted: set[str] = set()
    for ref in among:
        index = graph.index.get(ref)
        if index is None:
            continue
        wanted.update(graph.exit_reads[index])
        for target in graph.targets[index]:
            wanted.update(graph.start_reads[target])
    if manifest.output is not None and run.open_nodes <= len(among):
        wanted.update(manifest.output.steps)
    return frozenset(ref for ref in wanted if ref in among or run.nodes[graph.index[ref]].output is not None)
