"""What is put down about credentials: who tried what they may not (log, and audit trail of the tenant whose key it is), and when a key was used last.

Callers only leave a note here; one loop writes, so that nobody waits for it. Of what repeats itself one line a minute is written, with how often it was.
No token is ever among it, only the begin of one.
"""

import functools
import logging
from collections import defaultdict
from collections.abc import Callable
from typing import Final

import asyncpg
import msgspec

from ductord.db.ids import new_id
from ductord.db.pool import tenant_transaction
from ductord.db.queries import Queries

EVERY_S: Final = 60.0
"""How often the same is written, at most."""
MAX_NOTES: Final = 10_000
"""Different notes at one time; what comes beyond them is counted in the metric only. As many again about keys that exist, so that noise hides nobody."""
MAX_LINES: Final = 200
"""Of the log, in one turn."""
TURN_S: Final = 2.0
"""After so long a turn leaves what is left to the next one: its loop says between turns that it lives, however long callers wait for connections (KB-02)."""

_log = logging.getLogger("ductor.security")
_q: Final = Queries("ductord.access")


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of attempt that was refused: `reason`, from `host`, with a token that names a tenant, and the key where it exists (and its actor)."""

    reason: str
    host: str
    tenant_id: str = ""
    key_id: str = ""
    actor: str = ""


class _Note:
    __slots__ = ("logged", "prefix", "told", "unlogged", "untold")

    def __init__(self) -> None:
        self.unlogged = self.untold = 0
        self.logged = self.told = float("-inf")
        self.prefix = ""


class Trail:
    """The notes of a process. `clock`: seconds of a clock that never goes back."""

    def __init__(self, pool: asyncpg.Pool, clock: Callable[[], float]) -> None:
        self._pool = pool
        self._clock = clock
        self._notes: dict[Attempt, _Note] = {}
        self._told: dict[tuple[str, str, str], float] = {}
        self._used: dict[str, set[str]] = defaultdict(set)

    def refused(self, attempt: Attempt, prefix: str = "") -> None:
        """An attempt was refused. `prefix`: the begin of its token."""
        note = self._notes.get(attempt)
        if note is None:
            if len(self._notes) >= (2 * MAX_NOTES if attempt.key_id else MAX_NOTES):
                return
            note = self._notes[attempt] = _Note()
        note.unlogged += 1
        note.untold += 1
        note.prefix = prefix

    def used(self, tenant_id: str, key_id: str) -> None:
        """A key was used; the caller says so once a minute at most."""
        self._used[tenant_id].add(key_id)

    async def turn(self, *, last: bool = False) -> float | None:
        """Write what is due, all of it in the `last` turn. Raises what the database says; what could not be written stays noted."""
        now, every_s = self._clock(), 0.0 if last else EVERY_S
        self._write_log(now, every_s)
        due: dict[str, list[tuple[Attempt, _Note]]] = defaultdict(list)
        for attempt, note in self._notes.items():
            if attempt.key_id and note.untold and now - self._told.get(_line(attempt), float("-inf")) >= every_s:
                due[attempt.tenant_id].append((attempt, note))
        work = [functools.partial(self._tell, tenant_id, noted, now) for tenant_id, noted in due.items()]
        work += [functools.partial(self._touch, tenant_id) for tenant_id in self._used]
        for write in work:
            await write()
            if not last and self._clock() - now >= TURN_S:
                return 0.0
        self._forget(now)
        return None

    def _write_log(self, now: float, every_s: float) -> None:
        lines = 0
        for attempt, note in self._notes.items():
            if note.unlogged and now - note.logged >= every_s and lines < MAX_LINES:
                fields = {
                    "tenant_id": attempt.tenant_id,
                    "reason": attempt.reason,
                    "peer": attempt.host,
                    "count": note.unlogged,
                }
                _log.warning(
                    "refused %s", note.prefix or "a caller without a token", extra={**fields, "key_id": attempt.key_id}
                )
                note.unlogged, note.logged = 0, now
                lines += 1

    async def _tell(self, tenant_id: str, noted: list[tuple[Attempt, _Note]], now: float) -> None:
        """One line per key and reason, of all hosts together; the last one is named."""
        lines: dict[tuple[str, str, str], tuple[Attempt, int]] = {}
        taken = [(note, note.untold) for _, note in noted]
        for attempt, note in noted:
            count = lines[_line(attempt)][1] if _line(attempt) in lines else 0
            lines[_line(attempt)] = attempt, min(count + note.untold, 2**31 - 1)
            note.untold = 0
        rows = [(new_id(), a.actor, a.key_id, a.reason, count, a.host) for a, count in lines.values()]
        try:
            async with tenant_transaction(self._pool, tenant_id) as db:
                await db.execute(_q["tell_refused"], tenant_id, *(list(column) for column in zip(*rows, strict=True)))
        except asyncpg.ReadOnlySQLTransactionError:
            pass  # a service that reads from a standby can put nothing down
        except BaseException:
            for note, count in taken:
                note.untold += count
            raise
        self._told.update(dict.fromkeys(lines, now))

    async def _touch(self, tenant_id: str) -> None:
        keys = self._used.pop(tenant_id, set())
        try:
            async with tenant_transaction(self._pool, tenant_id) as db:
                await db.execute(_q["touch"], tenant_id, list(keys))
        except asyncpg.ReadOnlySQLTransactionError:
            pass
        except BaseException:
            self._used[tenant_id] |= keys
            raise

    def _forget(self, now: float) -> None:
        """What is written and has not come again for a minute."""
        old = [
            a
            for a, n in self._notes.items()
            if not n.unlogged and not (a.key_id and n.untold) and now - n.logged >= EVERY_S
        ]
        for attempt in old:
            del self._notes[attempt]
        for line in [line for line, told in self._told.items() if now - told >= EVERY_S]:
            del self._told[line]


def _line(attempt: Attempt) -> tuple[str, str, str]:
    return attempt.tenant_id, attempt.key_id, attempt.reason
