"""What a coordinator remembers between ticks, so that no tick reads again what cannot have changed.

Manifests and starts are immutable; a run's state is kept with its `record_version`, and the version check of the commit is the guard: a stale entry
costs one lost tick, never a wrong one. Dropping everything is always safe.
"""

from collections import OrderedDict
from typing import Any, Generic, TypeVar

import msgspec

from ductord.engine.expressions import Programs, programs_for
from ductord.model import manifest as manifests
from ductord.model.manifest import Expression, Manifest, Template
from ductord.model.run import Run, RunStart

V = TypeVar("V")

_LARGE_BYTES = 16 * 1024
"""Inputs and outputs above this size are read again when needed rather than kept."""


class Recent(Generic[V]):
    """A map that forgets what was not used for longest."""

    def __init__(self, size: int) -> None:
        self._entries: OrderedDict[str, V] = OrderedDict()
        self._size = size

    def get(self, key: str) -> V | None:
        """The value of `key`, which becomes the most recently used."""
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    def put(self, key: str, value: V) -> None:
        """Remember `value`."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)

    def drop(self, key: str) -> None:
        """Forget `key`."""
        self._entries.pop(key, None)

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """A manifest with its compiled programs. `reads_trigger`: some expression reads TRIGGER, so a tick needs the run's input."""

    manifest: Manifest
    programs: Programs
    reads_trigger: bool


class Known(msgspec.Struct, kw_only=True):
    """A run in memory: its start, its state as of `run.seq` (None: no run row yet) and small outputs by step ref with their attempt."""

    start: RunStart
    run: Run | None
    outputs: dict[str, tuple[int, Any]] = {}

    def remember_output(self, step_ref: str, attempt: int, value: Any, size: int) -> None:
        """Keep a small output for the steps that will read it."""
        if size <= _LARGE_BYTES:
            self.outputs[step_ref] = (attempt, value)


class Cache:
    """The memory of one coordinator process."""

    def __init__(self, *, runs: int = 4000, manifests: int = 500) -> None:
        self.runs: Recent[Known] = Recent(runs)
        self.compiled: Recent[Compiled] = Recent(manifests)

    def keep(self, known: Known, input_size: int) -> None:
        """Remember an open run; an ended one, or one with a large input, is forgotten."""
        ended = known.run is not None and known.run.status.terminal
        if ended or input_size > _LARGE_BYTES:
            self.runs.drop(known.start.run_id)
        else:
            self.runs.put(known.start.run_id, known)


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
