"""What a coordinator remembers between ticks, so that no tick reads again what cannot have changed.

Manifests and starts are immutable; a run's state is kept with its `record_version`, and the version check of the commit is the guard: a stale entry
costs one lost tick, never a wrong one. Dropping everything is always safe.
"""

from collections import OrderedDict
from typing import Any, Generic, TypeVar

import msgspec

from ductord.coordinator.turns import Turns
from ductord.engine.expressions import Programs, programs_for
from ductord.model import manifest as manifests
from ductord.model.manifest import Expression, Manifest, Template
from ductord.model.run import Run, RunStart

V = TypeVar("V")

LARGE_BYTES = 16 * 1024
"""Inputs and outputs above this size are read when needed rather than sent along and kept."""
_RUNS_BYTES = 64 << 20
"""What the remembered runs may weigh altogether, whatever they hold."""
_RUN_BYTES = 2_000
_NODE_BYTES = 400
_PARSED = 4
"""Roughly what a run and a node take in memory, and how much larger than its text a parsed payload is."""


class Recent(Generic[V]):
    """A map that forgets what was not used for longest: at most `size` entries, which weigh at most `weight` altogether."""

    def __init__(self, size: int, weight: int = 0) -> None:
        self._entries: OrderedDict[str, tuple[V, int]] = OrderedDict()
        self._size = size
        self._limit = weight
        self._weight = 0

    def get(self, key: str) -> V | None:
        """The value of `key`, which becomes the most recently used."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, key: str, value: V, weight: int = 0) -> None:
        """Remember `value`; one that weighs too much by itself is not."""
        self.drop(key)
        if weight > self._limit:
            return
        self._entries[key] = value, weight
        self._weight += weight
        while len(self._entries) > self._size or self._weight > self._limit:
            self.drop(next(iter(self._entries)))

    def drop(self, key: str) -> None:
        """Forget `key`."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._weight -= entry[1]

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self._weight = 0

    def __len__(self) -> int:
        return len(self._entries)


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """A manifest with its compiled programs. `reads_trigger`: some expression reads TRIGGER, so a tick needs the run's input."""

    manifest: Manifest
    programs: Programs
    reads_trigger: bool


class Known(msgspec.Struct, kw_only=True):
    """A run in memory: its start, its state as of `run.seq` (None: no run row yet) and small outputs by step ref with their attempt and size.

    `input_bytes`: the size of the input that the start holds.
    """

    start: RunStart
    run: Run | None
    outputs: dict[str, tuple[int, Any, int]] = {}
    input_bytes: int = 0

    def remember_output(self, step_ref: str, attempt: int, value: Any, size: int) -> None:
        """Keep a small output for the steps that will read it."""
        if size <= LARGE_BYTES:
            self.outputs[step_ref] = attempt, value, size

    @property
    def weight(self) -> int:
        """About how many bytes of memory it takes."""
        payloads = self.input_bytes + sum(size for _, _, size in self.outputs.values())
        nodes = len(self.run.nodes) if self.run is not None else 0
        return _RUN_BYTES + _NODE_BYTES * nodes + _PARSED * payloads


class Cache:
    """The memory of one coordinator process."""

    def __init__(self, *, runs: int = 4000, manifests: int = 500) -> None:
        self.runs: Recent[Known] = Recent(runs, _RUNS_BYTES)
        self.compiled: Recent[Compiled] = Recent(manifests)
        self.turns = Turns()

    def keep(self, known: Known, input_size: int) -> None:
        """Remember an open run; an ended one, or one with a large input, is forgotten."""
        ended = known.run is not None and known.run.status.terminal
        if ended or input_size > LARGE_BYTES:
            self.runs.drop(known.start.run_id)
        else:
            self.runs.put(known.start.run_id, known, known.weight)


def compile_manifest(text: str) -> Compiled:
    """Decode and compile a stored manifest. Raises what the decoder or the compiler raises: the run is then quarantined."""
    manifest = manifests.decode(text)
    return Compiled(manifest=manifest, programs=programs_for(manifest), reads_trigger=_reads(manifest, "TRIGGER"))


def _reads(manifest: Manifest, name: str) -> bool:
    readers: list[Expression | Template | None] = [manifest.output]
    for step in manifest.steps:
        readers += [step.run_if, step.result_expr, step.action.args if step.action else None]
    readers += [edge.condition for edge in manifest.edges]
    return any(reader is not None and name in reader.names for reader in readers)
