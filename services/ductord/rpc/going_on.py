"""Calls that go on for long, and whether who makes them may still (ruling N1): their credentials are looked at again and again, and one whose credential has
come to its end is ended, wherever it waits.

It never cancels a task in gRPC's own hands: the status would be lost with it.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from ductord.model.errors import Refusal
from ductord.rpc import caller as who

UNVERIFIED_S: Final = 30.0
"""How long a call goes on while the database cannot say whether its key is still good."""


class LongCall:
    """A call of the task at hand. `verified`: when its caller was last known to be good. `ended`: why it was told to end."""

    __slots__ = ("_handing_over", "_task", "ended", "identity", "verified")

    def __init__(self, identity: who.Identity) -> None:
        self.identity = identity
        self.verified = asyncio.get_running_loop().time()
        self.ended: Refusal | None = None
        self._task: asyncio.Task[Any] | None = asyncio.current_task()
        self._handing_over = False

    @contextmanager
    def handing_over(self) -> Iterator[None]:
        """While an answer of a stream is sent. Raises when the call was ended meanwhile."""
        self._handing_over = True
        yield
        self._handing_over = False
        if self.ended is not None:
            raise self.ended

    def end(self, refusal: Refusal) -> None:
        """Have the call end with `refusal`, wherever it waits."""
        if self.ended is None and self._task is not None:
            self.ended = refusal
            if not self._handing_over:
                self._task.cancel()

    def raise_if_ended(self) -> None:
        """After a cancellation: raise the refusal if it was ours and no other's as well."""
        if self.ended is not None and self._task is not None and self._task.uncancel() == 0:
            raise self.ended


class LongCalls:
    """Those of a process."""

    def __init__(self) -> None:
        self._calls: set[LongCall] = set()

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[LongCall]:
        return iter(self._calls)

    @contextmanager
    def begun(self, identity: who.Identity) -> Iterator[LongCall]:
        """While a call goes on. Raises CREDENTIAL_INVALID when its key is not good any more, DATABASE_UNAVAILABLE when nobody could say so for too long."""
        call = LongCall(identity)
        self._calls.add(call)
        try:
            yield call
        except asyncio.CancelledError:
            call.raise_if_ended()
            raise
        finally:
            self._calls.discard(call)

    async def recheck(self, authenticator: who.Authenticator) -> None:
        """Look once at every key, and end the calls whose key is not good any more."""
        calls: dict[who.Identity, list[LongCall]] = {}
        for call in self._calls:
            if call.identity.key_id != who.INSIDE:
                calls.setdefault(call.identity, []).append(call)
        await asyncio.gather(*(self._recheck(authenticator, identity, its) for identity, its in calls.items()))

    async def _recheck(self, authenticator: who.Authenticator, identity: who.Identity, calls: list[LongCall]) -> None:
        now = asyncio.get_running_loop().time()
        try:
            await authenticator.recheck(identity)
        except Refusal as refusal:
            judged = refusal.code == "UNAUTHENTICATED"
            for call in calls:
                # One that has ended meanwhile is in gRPC's hands: its answer is on its way.
                if call in self._calls and (judged or now - call.verified > UNVERIFIED_S):
                    call.end(refusal)
        else:
            for call in calls:
                call.verified = now
