"""KB-01: from the first signal until the process is gone, no other one kills it: an orderly stop ends with code 0, whenever a second signal comes."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ductord.rpc.signals import heard
from tests.rpc.echo import clean

ENDING = """
import asyncio, atexit, os, signal, sys, threading
import uvloop
from ductord.rpc.config import Settings
from ductord.rpc.host import serve

ALL = (signal.SIGTERM, signal.SIGINT)

def again(when, kill=os.kill, pid=os.getpid(), write=os.write, numbers=ALL):
    for number in numbers:
        kill(pid, number)
    write(1, when)

class Last:
    def __del__(self, again=again):
        again(b"last")

def first(host):
    # To a thread that is not the main one: nothing interrupts the loop's wait but what the product does about it.
    threading.Thread(target=lambda: signal.pthread_kill(threading.get_ident(), signal.SIGTERM)).start()

async def main():
    settings = Settings(grpc_address="127.0.0.1:0", http_address="off")
    await serve([], settings, started=first)
    again(b"served ")

# Modules go last, when the interpreter has put the default action back for every function that hears a signal.
sys.modules["last"] = Last()
atexit.register(again, b"atexit ")
(uvloop.run if sys.argv[1] == "uvloop" else asyncio.run)(main())
again(b"closed ")
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_kb_01_a_signal_after_the_loop_has_closed_does_not_kill(loop: str) -> None:
    """The signals come when the server has ended, when the loop has closed, when the interpreter ends, and when it has taken its functions back."""
    done = subprocess.run(
        [sys.executable, "-c", ENDING, loop],
        check=False,
        cwd=Path(__file__).parents[2],
        env=clean(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "served closed atexit last"
    assert "Traceback" not in done.stderr


async def test_every_signal_is_told_and_then_ignored() -> None:
    told: asyncio.Queue[None] = asyncio.Queue()
    before = signal.getsignal(signal.SIGUSR1)
    try:
        with heard([signal.SIGUSR1], lambda: told.put_nowait(None)):
            for _ in range(2):
                signal.raise_signal(signal.SIGUSR1)
                await told.get()
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
        signal.raise_signal(signal.SIGUSR1)
        assert told.empty()
    finally:
        signal.signal(signal.SIGUSR1, before)


async def test_without_a_signal_the_process_gets_back_what_it_had() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    with heard([signal.SIGUSR1], lambda: None):
        assert signal.getsignal(signal.SIGUSR1) is not before
    assert signal.getsignal(signal.SIGUSR1) is before
    assert signal.set_wakeup_fd(-1) == -1
