"""A client channel over TLS that follows its certificate files: when they change, new calls go over a new channel, and those under way end on the old one.

gRPC reads a client's certificates once, when a channel is made. A gateway that was started before the last renewal would be refused everywhere as soon as the
certificate that it began with is over. Stubs keep what they were made of, so the change is made beneath them. It must never cut a call short.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import grpc

from ductord.rpc.tls import CertificateFiles

LOOK_S: Final = 1.0
"""How often the files are looked at, at most: with a call, so that an idle channel does nothing."""
LAST_CALLS_S: Final = 3_600.0
"""How long calls under way may go on over a channel that was replaced; servers of ours end a connection of that age anyway."""

if TYPE_CHECKING:
    _Channel = grpc.aio.Channel
else:
    from grpc.aio import Channel as _Channel


class RenewingChannel(_Channel):
    """Opens a channel by `open_channel` now and whenever `files` were renewed. Made, used and closed in one event loop."""

    def __init__(self, open_channel: Callable[[], grpc.aio.Channel], files: CertificateFiles) -> None:
        self._open = open_channel
        self._files = files
        self._loop = asyncio.get_running_loop()
        self._material = files.material
        self._channel = open_channel()
        self._looked = self._loop.time()
        self._replaced: dict[asyncio.Task[None], grpc.aio.Channel] = {}
        self._closed = False

    def current(self) -> grpc.aio.Channel:
        """The channel that a call which begins now goes over."""
        now = self._loop.time()
        if now - self._looked >= LOOK_S and not self._closed:
            self._looked = now
            self._files.renewed()  # others may look at them too
            if self._files.material is not self._material:
                self._material = self._files.material
                old, self._channel = self._channel, self._open()
                ending = self._loop.create_task(old.close(LAST_CALLS_S))
                self._replaced[ending] = old
                ending.add_done_callback(self._gone)
        return self._channel

    def _gone(self, ended: asyncio.Task[None]) -> None:
        self._replaced.pop(ended, None)

    async def close(self, grace: float | None = None) -> None:
        """Close it and what it has replaced; as any channel."""
        self._closed = True
        old = list(self._replaced.values())
        for ending in list(self._replaced):
            ending.cancel()
        await asyncio.gather(*(channel.close(grace) for channel in (*old, self._channel)))

    async def __aenter__(self) -> "RenewingChannel":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Of the channel in use."""
        return self.current().get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Of the channel in use."""
        await self.current().wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Of the channel in use."""
        await self.current().channel_ready()

    def unary_unary(self, *what: Any, **how: Any) -> Any:
        """As any channel; so the next ones."""
        return _Method(self, "unary_unary", what, how)

    def unary_stream(self, *what: Any, **how: Any) -> Any:
        return _Method(self, "unary_stream", what, how)

    def stream_unary(self, *what: Any, **how: Any) -> Any:
        return _Method(self, "stream_unary", what, how)

    def stream_stream(self, *what: Any, **how: Any) -> Any:
        return _Method(self, "stream_stream", what, how)


class _Method:
    """One method of a stub: made anew of each channel, once."""

    __slots__ = ("_call", "_channel", "_how", "_kind", "_of", "_what")

    def __init__(self, of: RenewingChannel, kind: str, what: tuple[Any, ...], how: dict[str, Any]) -> None:
        self._of, self._kind, self._what, self._how = of, kind, what, how
        self._channel: grpc.aio.Channel | None = None
        self._call: Callable[..., Any]

    def __call__(self, *request: Any, **options: Any) -> Any:
        channel = self._of.current()
        if channel is not self._channel:
            self._channel = channel
            self._call = getattr(channel, self._kind)(*self._what, **self._how)
        return self._call(*request, **options)
