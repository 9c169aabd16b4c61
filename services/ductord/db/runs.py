"""Runs as they are stored, with the manifests of their versions: what an edge judges a call by before it records it.

A manifest never changes, so each process decodes it once. What a newer release wrote is not read by halves: its own services read it. The statements are
the service's own; columns are read by name.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import asyncpg
import msgspec
from cachetools import LRUCache

from ductord.model import manifest as manifests
from ductord.model import stored
from ductord.model.errors import Refusal
from ductord.model.manifest import ENGINE_LEVEL, FORMAT_VERSION, Manifest
from ductord.model.run import Run

Row = Mapping[str, Any]

_CACHED_BYTES: Final = 16 << 20
"""How much manifest text the remembered manifests may have come from."""


class Unreadable(Refusal):
    """What is stored of a run cannot be read, so nothing can be judged of it (C9)."""

    def __init__(self, service: str) -> None:
        super().__init__(
            "UNAVAILABLE",
            "SERVICE_UNAVAILABLE",
            "what is stored of the run cannot be read, and it is set aside: GetRun shows the error, ResumeRun has the tick tried again",
            metadata={"service": service},
            retry_after_ms=1_000,
        )


class Versions:
    """The manifests that this process has met, by tenant and version id. `load` selects format_version, engine_level and manifest by both; `service`
    is named where a newer release is to be asked."""

    def __init__(self, load: str, service: str) -> None:
        self._load = load
        self._service = service
        self._known: LRUCache[tuple[str, str], tuple[Manifest, int]] = LRUCache(
            _CACHED_BYTES, getsizeof=lambda entry: entry[1]
        )

    async def manifest(self, db: asyncpg.Connection, tenant_id: str, version_id: str) -> Manifest:
        """The manifest of a version that exists. Raises SERVICE_UNAVAILABLE for one of a newer release."""
        key = (tenant_id, version_id)
        known = self._known.get(key)
        if known is not None:
            return known[0]
        row = await db.fetchrow(self._load, tenant_id, version_id)
        self._refuse_newer(row)
        manifest = manifests.decode(row["manifest"])
        with suppress(ValueError):  # one that is too large to be remembered
            self._known[key] = manifest, len(row["manifest"])
        return manifest

    async def run(self, db: asyncpg.Connection, tenant_id: str, run_id: str, row: Row) -> tuple[Manifest, Run | None]:
        """The run of a row that has its start's version id and its own columns, all null while no tick has taken it up. Raises as
        `manifest`, and `Unreadable`."""
        begun = row["record_version"] is not None
        if begun:
            self._refuse_newer(row)
        manifest = await self.manifest(db, tenant_id, row["version_id"])
        try:
            return manifest, run_of(manifest, run_id, row) if begun else None
        except msgspec.ValidationError as error:
            raise Unreadable(self._service) from error

    def _refuse_newer(self, row: Row) -> None:
        if row["format_version"] > FORMAT_VERSION or row["engine_level"] > ENGINE_LEVEL:
            raise Refusal(
                "UNAVAILABLE",
                "SERVICE_UNAVAILABLE",
                "the run belongs to a newer release, whose services know what may be done to it; the call may be repeated",
                metadata={"service": self._service},
                retry_after_ms=1_000,
            )


def run_of(manifest: Manifest, run_id: str, row: Row) -> Run:
    """The run of a row. Raises `msgspec.ValidationError`."""
    return stored.decode_run(
        manifest,
        run_id=run_id,
        **{name: row[name] for name in ("status", "record_version", "node_states", "edge_states", "run_state")},
        has_errors=row["has_errors"],
        start_time=row["start_time"],
        end_time=row["end_time"],
    )
