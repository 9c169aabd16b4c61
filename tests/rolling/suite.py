"""The whole suite as a cluster runs it: every service a process of its own, twice, behind one name that callers balance over."""

import asyncio
import signal
from collections.abc import Mapping
from pathlib import Path

from ductord.cli.roster import NAMES
from ductord.db.embedded import EmbeddedPostgres
from tests.rolling.releases import older_tree
from tests.support.mother import mother
from tests.support.stack import Stack, free_port

CALLED = tuple(name for name in NAMES if name not in ("coordinator", "gateway", "worker"))
"""The services that others call."""
SINCE_THEN = frozenset({"admin"})
"""Services that the older release does not have."""
REPLICAS = (0, 1)
STOP_LIMIT_S = 20.0
_MARKS = (" error ", " critical ", "Fatal", "cut short")


class Suite:
    """Two replicas of every service, all of this release when it starts. `stack`: its members, `trigger0`, `trigger1` and so on."""

    def __init__(self, postgres: EmbeddedPostgres, folder: Path, environment: Mapping[str, str]) -> None:
        self._ports = {f"{service}{n}": free_port() for service in NAMES for n in REPLICAS}
        targets = {f"DUCTOR_{service.upper()}_TARGET": self.target(service) for service in CALLED}
        self.stack = Stack(postgres, folder, {**environment, **targets})
        self.stack.ports = self._ports
        self.old: set[str] = set()
        """Members that run the older release."""

    def target(self, service: str) -> str:
        """What callers of a service are told: the addresses of both replicas, as a headless name would resolve to."""
        return "ipv4:" + ",".join(f"127.0.0.1:{self._ports[f'{service}{n}']}" for n in REPLICAS)

    def gateways(self) -> list[str]:
        """The base URLs of the gateways."""
        return [f"http://127.0.0.1:{self.stack[f'gateway{n}'].http_port}" for n in REPLICAS]

    def start(self) -> None:
        """Start everything and wait until it is ready."""
        for service in NAMES:
            for n in REPLICAS:
                name = f"{service}{n}"
                self.stack.add(name, [service], http=service == "gateway")
        self.stack.wait_ready()

    async def stop(self, name: str) -> None:
        """SIGTERM, as a roll-out sends it: the process ends by itself, in time, with code 0."""
        member = self.stack[name]
        clock = asyncio.get_running_loop().time
        begin = clock()
        member.signal(signal.SIGTERM)
        code = await asyncio.to_thread(member.wait, 60)
        assert code == 0, f"{name}: {code}\n{member.tail()}"
        assert clock() - begin < STOP_LIMIT_S, f"{name} took {clock() - begin:.1f} s\n{member.tail()}"

    async def start_again(self, name: str, *, old: bool = False) -> None:
        """Start a replica that was stopped, of this release or the older one, and wait until it is ready."""
        member = self.stack[name]
        member.mother = mother(older_tree()) if old else mother()
        member.log = member.log.with_name(f"{name}.older.log" if old else f"{name}.log")
        (self.old.add if old else self.old.discard)(name)
        member.start()
        await asyncio.to_thread(member.wait_ready)

    async def replace(self, name: str, *, old: bool = False) -> None:
        """Replace a replica."""
        await self.stop(name)
        await self.start_again(name, old=old)

    async def roll(self, *replicas: int, old: bool = False) -> None:
        """Replace these replicas of every service in turn (`old`: of every service that the older release has)."""
        for service in NAMES:
            if not (old and service in SINCE_THEN):
                for n in replicas:
                    await self.replace(f"{service}{n}", old=old)

    async def renew(self) -> None:
        """Bring every replica to this release, whatever a test left: those that are gone, and those of the older one."""
        for name, member in self.stack.members.items():
            if not member.alive:
                await self.start_again(name)
            elif name in self.old:
                await self.replace(name)

    def complaints(self) -> list[str]:
        """What no process of this release may have logged: errors of its own, and stops that had to be cut short; each with what follows it."""
        found = []
        for name, member in self.stack.members.items():
            lines = member.log.with_name(f"{name}.log").read_text(errors="replace").splitlines()
            found += [
                "\n".join([name, *lines[at : at + 40]])
                for at, line in enumerate(lines)
                if any(mark in line for mark in _MARKS)
            ]
        return found
