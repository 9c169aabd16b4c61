"""The birth of runs that no caller names: of an event and a trigger, of a schedule and a time. Their ids are derived from what starts them, so each is born
once."""

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Final

import asyncpg
import msgspec
from msgspec.structs import replace

from ductord.db.queries import Queries
from ductord.model.jsonvalue import dumps
from ductord.model.starting import Origin

_q: Final = Queries("ductord.starting")
_encoder: Final = msgspec.json.Encoder()
_BORN: Final = 500
BORN_BYTES: Final = 8 << 20
"""How many runs one statement gives birth to, and with how much payload: at least one. A message of a gigabyte would end the connection."""


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """A run to be born. `input_json`, `variables_json`: checked JSON texts; the second is what VARS hold instead of the defaults, `{}` for nothing. `actor`:
    who starts it; empty: the one of the call."""

    run_id: str
    definition_id: str
    version_id: str
    version: int
    family_slug: str
    input_json: str
    tier: str
    origin: Origin
    variables_json: str = "{}"
    actor: str = ""


async def bear(
    db: asyncpg.Connection, tenant_id: str, starts: Sequence[Start], *, environment: str, traceparent: str, actor: str
) -> frozenset[str]:
    """Those that were born here, in the caller's transaction; the others were there before. With wake-ups and a hint."""
    born: set[str] = set()
    for batch in _batches(sorted(starts, key=attrgetter("run_id"))):
        row = await db.fetchrow(
            _q["insert_starts"],
            tenant_id,
            [start.run_id for start, _ in batch],
            [start.definition_id for start, _ in batch],
            [start.version_id for start, _ in batch],
            [start.version for start, _ in batch],
            [start.family_slug for start, _ in batch],
            [start.input_json for start, _ in batch],
            [start.tier for start, _ in batch],
            [_stored(start.origin) for start, _ in batch],
            [start.variables_json for start, _ in batch],
            environment,
            traceparent,
            [start.actor or actor for start, _ in batch],
            [payload for _, payload in batch],
        )
        born.update(row["born"])
    return frozenset(born)


def _batches(starts: Iterable[Start]) -> Iterator[list[tuple[Start, str | None]]]:
    """Each start with the text of what its event carried, made only as the batches are."""
    batch: list[tuple[Start, str | None]] = []
    size = 0
    for start in starts:
        payload = _payload(start.origin)
        own = len(start.input_json) + len(start.variables_json) + len(payload or "")
        if batch and (len(batch) == _BORN or size + own > BORN_BYTES):
            yield batch
            batch, size = [], 0
        batch.append((start, payload))
        size += own
    if batch:
        yield batch


def _stored(origin: Origin) -> str:
    """As it stands in its column: the payload of an event has one of its own."""
    event = origin.event
    if event is not None and event.payload is not None:
        origin = replace(origin, event=replace(event, payload=None))
    return _encoder.encode(origin).decode()


def _payload(origin: Origin) -> str | None:
    return None if origin.event is None or origin.event.payload is None else dumps(origin.event.payload)


async def variables_of(db: asyncpg.Connection, tenant_id: str, definition_id: str, environment: str) -> str:
    """What VARS hold in this environment instead of the defaults, as JSON text (L8); `{}` where nothing was set."""
    text: str | None = await db.fetchval(_q["override"], tenant_id, definition_id, environment)
    return text or "{}"
