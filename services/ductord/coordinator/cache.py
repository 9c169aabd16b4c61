"""What a coordinator remembers between ticks, so that no tick reads again what cannot have changed.

Manifests and starts are immutable; a run's state is kept with its `record_version`, and the version check of the commit is the guard: a stale entry
costs one lost tick, never a wrong one. Dropping everything is always safe.
"""

from typing import Any

import msgspec
from cachetools import LRUCache

from ductord.coordinator.turns import Turns
from ductord.engine.expressions import Programs, programs_for
from ductord.model import manifest as manifests
from ductord.model.enums import CompensationStatus
from ductord.model.manifest import Manifest
from ductord.model.run import Run, RunStart
from ductord.model.specs import Expression, Template

LARGE_BYTES = 16 * 1024
"""Inputs and outputs above this size are read when needed rather than sent along and kept."""
_RUNS_BYTES = 48 << 20
"""What the remembered runs may weigh altogether, whatever they hold: 8,000 runs of ten steps that move at once; if more do, each tick reads them again."""
_MANIFESTS_BYTES = 16 << 20
"""How much manifest text the remembered versions may have come from."""
_RUN_BYTES = 2_000
_NODE_BYTES = 400
_PARSED = 4
"""Roughly what a run and a node take in memory, and how much larger than its text a parsed payload is."""


_NO_OUTPUT = (0, None, 0)


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """A manifest with its compiled programs. `reads_trigger`, `reads_context`, `reads_variables`: some expression reads TRIGGER, CONTEXT or VARS, so a
    tick needs the run's input and what its event carried, its context, or what VARS hold in its environment. `size`: of its text."""

    manifest: Manifest
    programs: Programs
    reads_trigger: bool
    reads_context: bool
    reads_variables: bool
    size: int


class Known(msgspec.Struct, kw_only=True):
    """A run in memory: its start, its state as of `run.seq` (None: no run row yet) and small outputs by step ref with their attempt and size.

    `input_bytes`: the size of the payloads that the start holds. `left`: sizes of those that it lacks because they are large (`input`, `context`,
    `overrides`, `event`, `variables`). `passing`: it was given one of those for the tick at hand. `output_bytes`: the size of the outputs.
    """

    start: RunStart
    run: Run | None
    outputs: dict[str, tuple[int, Any, int]] = {}
    input_bytes: int = 0
    left: dict[str, int] = {}
    passing: bool = False
    output_bytes: int = 0

    def remember_output(self, step_ref: str, attempt: int, value: Any, size: int) -> None:
        """Keep a small output for the steps that will read it."""
        if size <= LARGE_BYTES:
            self.output_bytes += size - self.outputs.get(step_ref, _NO_OUTPUT)[2]
            self.outputs[step_ref] = attempt, value, size

    def forget_outputs(self) -> None:
        """Read them again where they are read."""
        self.outputs.clear()
        self.output_bytes = 0

    @property
    def weight(self) -> int:
        """About how many bytes of memory it takes."""
        nodes = len(self.run.nodes) if self.run is not None else 0
        return _RUN_BYTES + _NODE_BYTES * nodes + _PARSED * (self.input_bytes + self.output_bytes)


class Cache:
    """The memory of one coordinator process."""

    def __init__(self) -> None:
        self.runs: LRUCache[str, Known] = LRUCache(_RUNS_BYTES, getsizeof=lambda known: known.weight)
        self.compiled: LRUCache[str, Compiled] = LRUCache(_MANIFESTS_BYTES, getsizeof=lambda compiled: compiled.size)
        self.turns = Turns()

    def keep(self, known: Known) -> None:
        """Remember a run that goes on; one that has ended and owes nothing, or one with a large payload, is forgotten."""
        run = known.run
        over = run is not None and run.status.terminal and run.saga.status is not CompensationStatus.RUNNING
        if over or known.passing or known.weight > _RUNS_BYTES:
            self.forget(known.start.run_id)
        else:
            self.runs[known.start.run_id] = known

    def forget(self, run_id: str) -> None:
        """Read this run again next time."""
        self.runs.pop(run_id, None)


def compile_manifest(text: str) -> Compiled:
    """Decode and compile a stored manifest. Raises what the decoder or the compiler raises: the run is then quarantined."""
    manifest = manifests.decode(text)
    return Compiled(
        manifest=manifest,
        programs=programs_for(manifest),
        reads_trigger=_reads(manifest, "TRIGGER"),
        reads_context=_reads(manifest, "CONTEXT"),
        reads_variables=_reads(manifest, "VARS"),
        size=len(text),
    )


def _reads(manifest: Manifest, name: str) -> bool:
    readers: list[Expression | Template | None] = [manifest.output]
    for step in manifest.steps:
        readers += [*step.texts(), step.result_expr]
        readers += [inverse.args for inverse in step.compensation.actions] if step.compensation else []
    readers += [edge.condition for edge in manifest.edges]
    return any(reader is not None and name in reader.names for reader in readers)
