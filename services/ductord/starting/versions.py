"""What of a version matters to a start: may it be started by hand, which triggers it has, what input it takes, what VARS are, what can be waited for.

What a version *is* never changes, so each process decodes its manifest and compiles its schema once. Of the manifest only a few fields are decoded, so that a
version of a newer release can be started by an older service.
"""

from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any, Final

import asyncpg
import msgspec
from cachetools import LRUCache

from ductord.db.pool import tenant_transaction
from ductord.db.queries import Queries
from ductord.model.enums import Tier
from ductord.model.errors import Refusal, Violation
from ductord.model.fault import Fault
from ductord.model.jsonvalue import storable_text
from ductord.model.schemas import Schema, SchemaInvalid
from ductord.model.starting import TriggerSpec
from ductord.rpc.errors import refused

_CACHED_BYTES: Final = 32 << 20
"""How much manifest text the remembered versions may have come from; each keeps a little of its own, mostly the input schema."""
_q: Final = Queries("ductord.starting")


class _Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    name: str


class _Gist(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of `model.manifest.Manifest` that a start needs; the others are passed over undecoded."""

    family_slug: str
    checkpoints: tuple[_Checkpoint, ...] = ()
    response_checkpoint: str | None = None
    tier: Tier = Tier.STANDARD
    manual_start: bool = True
    input_schema: Any = None
    variables: dict[str, Any] = {}
    triggers: tuple[TriggerSpec, ...] = ()


_decoder: Final = msgspec.json.Decoder(_Gist)


class Version:
    """A published version, as far as starts are concerned. Immutable: whether it is archived is not part of it."""

    __slots__ = (
        "_schema",
        "checkpoints",
        "family_slug",
        "manual_start",
        "response_checkpoint",
        "tier",
        "triggers",
        "variables",
        "version_id",
    )

    def __init__(self, version_id: str, manifest: str) -> None:
        gist = _decoder.decode(manifest)
        self.version_id = version_id
        self.family_slug = gist.family_slug
        self.checkpoints = tuple(checkpoint.name for checkpoint in gist.checkpoints)
        self.response_checkpoint = gist.response_checkpoint
        self.tier = gist.tier
        self.manual_start = gist.manual_start
        self.variables = gist.variables
        self.triggers = {trigger.id: trigger for trigger in gist.triggers}
        self._schema = None if gist.input_schema is None else Schema(gist.input_schema)

    def input_fault(self, value: Any) -> Refusal | None:
        """INPUT_SCHEMA_MISMATCH if a checked input does not meet the definition's schema."""
        faults = () if self._schema is None else self._schema.faults(value, root="input")
        if not faults:
            return None
        violations = [Violation(code="INPUT_SCHEMA_MISMATCH", message=f.message, path=f.path) for f in faults]
        first = faults[0]
        return refused(
            "INPUT_SCHEMA_MISMATCH",
            f"{first.path}: {first.message}",
            violations=violations,
            field="input",
            path=first.path,
        )

    def checkpoint(self, name: str) -> str:
        """The checkpoint that a call waits for: the named one, else the response checkpoint, else the only one (G9).

        Raises CHECKPOINT_UNKNOWN, CHECKPOINT_AMBIGUOUS.
        """
        if name:
            if name in self.checkpoints:
                return name
            raise refused("CHECKPOINT_UNKNOWN", "the definition has no checkpoint of that name", checkpoint=name)
        if self.response_checkpoint is not None:
            return self.response_checkpoint
        if not self.checkpoints:
            raise refused("CHECKPOINT_UNKNOWN", "the definition has no checkpoint to wait for", checkpoint="")
        if len(self.checkpoints) > 1:
            raise refused(
                "CHECKPOINT_AMBIGUOUS", "the definition has several checkpoints and no response checkpoint; name one"
            )
        return self.checkpoints[0]


class Versions:
    """The versions that this process has met, by tenant and id."""

    def __init__(self) -> None:
        self._known: LRUCache[tuple[str, str], tuple[Version, int]] = LRUCache(
            _CACHED_BYTES, getsizeof=lambda entry: entry[1]
        )

    async def version(self, db: asyncpg.Connection, tenant_id: str, version_id: str) -> Version:
        """A version that exists, from memory or from its row."""
        key = (tenant_id, version_id)
        known = self._known.get(key)
        if known is not None:
            return known[0]
        return self._meet(tenant_id, version_id, await db.fetchval(_q["load_manifest"], tenant_id, version_id))

    async def read(self, pool: asyncpg.Pool, tenant_id: str, version_id: str) -> Version:
        """The same, outside of a transaction."""
        known = self._known.get((tenant_id, version_id))
        if known is not None:
            return known[0]
        async with tenant_transaction(pool, tenant_id) as db:
            return await self.version(db, tenant_id, version_id)

    async def read_all(
        self, pool: asyncpg.Pool, tenant_id: str, version_ids: AbstractSet[str]
    ) -> dict[str, Version | Fault]:
        """The same for several at once; for one that cannot be read why (VERSION_UNREADABLE)."""
        if version_ids <= (known := self._remembered(tenant_id, version_ids)).keys():
            return known
        async with tenant_transaction(pool, tenant_id) as db:
            return await self.versions(db, tenant_id, version_ids)

    async def versions(
        self, db: asyncpg.Connection, tenant_id: str, version_ids: AbstractSet[str]
    ) -> dict[str, Version | Fault]:
        """The same inside of a transaction."""
        found = self._remembered(tenant_id, version_ids)
        if missing := sorted(version_ids - found.keys()):
            for row in await db.fetch(_q["load_manifests"], tenant_id, missing):
                try:
                    found[row["version_id"]] = self._meet(tenant_id, row["version_id"], row["manifest"])
                except (RuntimeError, msgspec.ValidationError) as error:
                    found[row["version_id"]] = Fault(code="VERSION_UNREADABLE", message=storable_text(str(error)))
        return found

    def _remembered(self, tenant_id: str, version_ids: AbstractSet[str]) -> dict[str, Version | Fault]:
        known = {version_id: self._known.get((tenant_id, version_id)) for version_id in version_ids}
        return {version_id: entry[0] for version_id, entry in known.items() if entry is not None}

    def _meet(self, tenant_id: str, version_id: str, manifest: str) -> Version:
        try:
            version = Version(version_id, manifest)
        except SchemaInvalid as error:
            raise RuntimeError(
                f"version {version_id} was published with an input_schema that is none: {error.message}"
            ) from error
        with suppress(ValueError):  # one that is too large to be remembered
            self._known[(tenant_id, version_id)] = version, len(manifest)
        return version
