"""The signals that ask a process to stop: each one is heard, from the first until the process is gone.

Not the event loop's own: a loop puts the default action back when it is closed, and the interpreter does so for every function when it ends. A
signal in that time would kill a process that is ending in order, and make its end look like a crash (KB-01).
"""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType


@contextmanager
def heard(numbers: Sequence[signal.Signals], ask: Callable[[], None]) -> Iterator[None]:
    """Call `ask` in the running loop for each of these signals while the context is open.

    Whoever was asked to stop is ending when the context is left: the signals are ignored from then on, for good. Without a signal, the process gets
    back what it had. Only in the main thread: raises ValueError elsewhere.
    """
    loop = asyncio.get_running_loop()
    asked = False

    def hear(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        loop.call_soon_threadsafe(ask)

    with _woken(loop):
        before = {number: signal.signal(number, hear) for number in numbers}
        try:
            yield
        finally:
            # From a function to ignoring there is no moment with the default action; the interpreter leaves what is ignored alone when it ends.
            for number, action in before.items():
                signal.signal(number, signal.SIG_IGN if asked else action or signal.SIG_DFL)
            if asked:  # perhaps only while the loop above was at it
                for number in numbers:
                    signal.signal(number, signal.SIG_IGN)


@contextmanager
def _woken(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """A signal interrupts the loop's wait: which of the process's threads the system gives it to is chance, and only the main one calls functions."""
    reader, writer = socket.socketpair()
    with reader, writer:
        reader.setblocking(False)
        writer.setblocking(False)
        others = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        loop.add_reader(reader, _emptied, reader)
        try:
            if others != -1:  # a loop that listens itself, as uvloop does, wakes itself
                signal.set_wakeup_fd(others, warn_on_full_buffer=False)
            yield
        finally:
            current = signal.set_wakeup_fd(-1)
            if current not in (-1, writer.fileno()):
                signal.set_wakeup_fd(current, warn_on_full_buffer=False)
            loop.remove_reader(reader)


def _emptied(reader: socket.socket) -> None:
    """Read what woke the loop: which signals they were, their functions know."""
    with contextlib.suppress(BlockingIOError):
        while reader.recv(4096):
            pass
