"""LISTEN on a connection of its own: hints that something was written, nothing more.

Everything completes by polling alone; a hint only shortens a rest. The listener notices a connection that died silently because it notifies
itself and waits to hear it (PG-02); it reconnects for ever, and calls every callback when it does, since hints may have been missed. It must
never carry data.
"""

import asyncio
import contextlib
import logging
import random
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

import asyncpg

from ductord.db.outage import is_outage

PING_S: Final = 15.0
ANSWER_S: Final = 5.0
FIRST_BACK_OFF_S: Final = 0.1
LAST_BACK_OFF_S: Final = 5.0

_log = logging.getLogger("ductor.listen")


class Listener:
    """`Listener(dsn, {"ductor_wakeup": loop.wake})`. `start` returns at once, also while the database is away; `stop` takes no longer than a moment.

    Callbacks run in the event loop, take nothing, and must not block. `ping_s`: how long a silent death can go unnoticed.
    """

    def __init__(
        self,
        dsn: str,
        callbacks: Mapping[str, Callable[[], None]],
        *,
        ping_s: float = PING_S,
        answer_s: float = ANSWER_S,
    ) -> None:
        self._dsn = dsn
        self._callbacks = dict(callbacks)
        self._ping_s = ping_s
        self._answer_s = answer_s
        self._ping_channel = f"ductor_ping_{secrets.token_hex(8)}"
        self._heard = asyncio.Event()
        self._lost = asyncio.Event()
        self._connection: asyncpg.Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        self.listening = asyncio.Event()
        """Set while a connection listens."""

    def start(self) -> None:
        """Begin to listen, inside the running event loop."""
        self._task = asyncio.create_task(self._run(), name="listener")

    async def stop(self) -> None:
        """Listen no more. Never raises; waits for no server."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task], timeout=1)
        self._drop()

    async def _run(self) -> None:
        while True:
            try:
                await self._listen()
                await self._stay()
            except Exception as error:  # whatever it is: a listener that died would only be missed as slowness
                self._failures += 1
                if self._failures == 1:
                    _log.warning(
                        "the listener lost its connection (%s); polling goes on, and it tries again until it listens",
                        type(error).__name__,
                        exc_info=None if is_outage(error) else error,
                    )
            self._drop()
            delay = min(FIRST_BACK_OFF_S * 2 ** min(self._failures, 10), LAST_BACK_OFF_S)
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))

    async def _listen(self) -> None:
        self._lost = lost = asyncio.Event()  # its own: the connection before may still be telling that it ended
        self._connection = connection = await asyncpg.connect(
            self._dsn,
            timeout=self._answer_s,
            command_timeout=self._answer_s,
            server_settings={"application_name": "ductor-listen"},
        )
        connection.add_termination_listener(lambda _: lost.set())
        await connection.add_listener(self._ping_channel, lambda *_: self._heard.set())
        for channel in self._callbacks:
            await connection.add_listener(channel, self._hint)
        self.listening.set()
        for callback in self._callbacks.values():
            callback()

    async def _stay(self) -> None:
        """Until the connection is lost or does not hear itself."""
        assert self._connection is not None
        while True:
            self._heard.clear()
            await self._connection.execute("select pg_notify($1, '')", self._ping_channel)
            async with asyncio.timeout(self._answer_s):
                await self._heard.wait()
            if self._failures:
                _log.info("the listener listens again")
                self._failures = 0
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._ping_s):
                    await self._lost.wait()
                raise ConnectionError("the server closed the listener's connection")

    def _hint(self, connection: Any, pid: int, channel: str, payload: Any) -> None:
        self._callbacks[channel]()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self.listening.clear()
        if connection is not None:
            connection.terminate()  # says nothing to the server and waits for nothing: the socket may be a black hole
