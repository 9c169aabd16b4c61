"""A stack of real processes: `ductor serve …` each on its own port, over an embedded Postgres of its own with fsync on.

For chaos, scale-out and benchmarks. Every process is ours to kill; leaving the context ends them all and the server, whatever happened.
"""

import asyncio
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ductord.db.embedded import EmbeddedPostgres
from ductord.db.migrate import migrate
from tests.support.mother import Child, Mother, mother

TENANT = "chaos"
SERVE = ("ductord.cli", "serve")
_ROOT = Path(__file__).resolve().parents[2]
_GIVEN: set[int] = set()
"""Ports that this process has given out: whoever got one may not listen there yet, or not at the moment."""
_EAGER = [(f"grpc.{name}_reconnect_backoff_ms", 50) for name in ("initial", "min", "max")]


def free_port() -> int:
    """A loopback port that is free, and that no connection going out gets while its process is being restarted: the system gives those higher ones."""
    while True:
        port = random.randrange(12_000, 32_000)
        if port in _GIVEN:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            _GIVEN.add(port)
            return port


class Member:
    """One process of the stack: `services` on one gRPC port (and, where asked, one HTTP port), with a log file of its own.

    `program`: the module that runs, and its first arguments; it takes the services as the others and is configured as `ductor serve` is. `mother`: who bears
    it; without one it is started from nothing. `port`: where its gRPC is, a free port where none is given.
    """

    def __init__(
        self,
        name: str,
        services: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        *,
        http: bool = False,
        program: Sequence[str] = SERVE,
        mother: Mother | None = None,
        port: int = 0,
    ) -> None:
        self.name = name
        self.services = tuple(services)
        self.program = tuple(program)
        self.grpc_port = port or free_port()
        self.http_port = free_port() if http else None
        self.log = folder / f"{name}.log"
        self._environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("DUCTOR_")},
            **environment,
            "DUCTOR_GRPC_ADDRESS": f"127.0.0.1:{self.grpc_port}",
            "DUCTOR_HTTP_ADDRESS": f"127.0.0.1:{self.http_port}" if self.http_port else "off",
        }
        self._probed = self.target
        if "DUCTOR_TLS_CERT_FILE" in environment:  # probes speak no TLS
            self._probed = self._environment["DUCTOR_HEALTH_ADDRESS"] = f"127.0.0.1:{free_port()}"
        self.mother = mother
        """Who bears its next process."""
        self._process: subprocess.Popen[bytes] | Child | None = None

    @property
    def target(self) -> str:
        """Its gRPC address."""
        return f"127.0.0.1:{self.grpc_port}"

    @property
    def pid(self) -> int:
        """Process id of the process that runs, or ran last."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the process; do not wait for it."""
        arguments = [*self.program, *self.services]
        if self.mother is not None:
            self._process = self.mother.start(arguments, self._environment, self.log)
            return
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                env=self._environment,
                cwd=_ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_ready(self, seconds: float = 120) -> None:
        """Wait until its health is SERVING. Raises RuntimeError with the end of its log when it ends or stays silent."""
        deadline = time.monotonic() + seconds
        with grpc.insecure_channel(self._probed, options=_EAGER) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            while True:
                if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{self.name} did not come up:\n{self.tail()}")
                try:
                    answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=1)
                    if answer.status == health_pb2.HealthCheckResponse.SERVING:
                        return
                except grpc.RpcError:
                    pass
                time.sleep(0.05)

    def kill(self) -> None:
        """kill -9, and wait for the corpse."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def terminate(self, seconds: float = 20) -> int:
        """SIGTERM and wait; the exit code. Kills after `seconds`."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.terminate()
        return self.wait(seconds)

    def wait(self, seconds: float) -> int:
        """Wait for its end without another signal; the exit code. Kills after `seconds`."""
        assert self._process is not None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.wait(1)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def tail(self, lines: int = 30) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""


class Stack:
    """The members of a running stack and its Postgres. `edges`: definition, trigger and reads in one process.

    `forked`: members are born of a mother, which is quick; what they weigh can only be told of those that are not.
    """

    def __init__(
        self, postgres: EmbeddedPostgres, folder: Path, environment: Mapping[str, str], *, forked: bool = True
    ) -> None:
        self.postgres = postgres
        self._mother = mother() if forked else None
        self._folder = folder
        self._environment = {
            "DUCTOR_DATABASE_URL": postgres.dsn("ductor"),
            "DUCTOR_LOG_FORMAT": "text",
            "DUCTOR_ACCESS_LOG": "off",
            **environment,
        }
        self.members: dict[str, Member] = {}
        self.ports: dict[str, int] = {}
        """The gRPC ports of members that are known before they are added."""

    def add(
        self,
        name: str,
        services: Sequence[str],
        *,
        http: bool = False,
        program: Sequence[str] = SERVE,
        **environment: str,
    ) -> Member:
        """Start one more process; it is not waited for."""
        environment = {**self._environment, **environment}
        member = Member(
            name,
            services,
            environment,
            self._folder,
            http=http,
            program=program,
            mother=self._mother,
            port=self.ports.get(name, 0),
        )
        self.members[name] = member
        member.start()
        return member

    def __getitem__(self, name: str) -> Member:
        return self.members[name]

    def wait_ready(self, seconds: float = 120) -> None:
        """Wait for all members."""
        for member in self.members.values():
            member.wait_ready(seconds)

    def stop(self) -> None:
        """End all members, politely first."""
        for member in self.members.values():
            if member.alive:
                member.signal(signal.SIGTERM)
        for member in self.members.values():
            member.terminate(15)


@contextmanager
def running_stack(
    *,
    coordinators: int = 1,
    dispatchers: int = 1,
    workers: int = 1,
    gateway: bool = False,
    http: bool = False,
    durable: bool = True,
    forked: bool = True,
    postgres_settings: Mapping[str, str] | None = None,
    **environment: str,
) -> Iterator[Stack]:
    """A ready stack: edges, coordinator0…, dispatch0…, worker0… (worker i polls dispatcher i mod n), and the gateway where asked.

    `http`: every process also has an HTTP port, for its metrics. `environment`: DUCTOR_ options for every process, as `DUCTOR_LEASE_MS="3000"`.
    """
    folder = Path(tempfile.mkdtemp(prefix="ductor-stack-"))
    folder.chmod(0o711)
    settings = (
        dict(postgres_settings or {})
        if durable
        else {"fsync": "off", "synchronous_commit": "off", **(postgres_settings or {})}
    )
    postgres = EmbeddedPostgres(folder / "pg", settings=settings)
    stack = Stack(postgres, folder, environment, forked=forked)
    try:
        postgres.start()
        with ThreadPoolExecutor(1) as thread:  # the caller may be inside an event loop of its own
            thread.submit(asyncio.run, migrate(postgres.dsn("ductor"))).result()
        edges = stack.add("edges", ["definition", "trigger", "run_control", "signals", "reads", "admin"], http=http)
        for i in range(coordinators):
            stack.add(f"coordinator{i}", ["coordinator"], http=http)
        for i in range(dispatchers):
            stack.add(f"dispatch{i}", ["dispatch"], http=http)
        for i in range(workers):
            target = stack[f"dispatch{i % dispatchers}"].target
            stack.add(f"worker{i}", ["worker"], http=http, DUCTOR_DISPATCH_TARGET=target)
        if gateway:
            targets = {
                f"DUCTOR_{name.upper()}_TARGET": edges.target
                for name in ("definition", "trigger", "run_control", "signals", "reads", "admin")
            }
            stack.add("gateway", ["gateway"], http=True, DUCTOR_DISPATCH_TARGET=stack["dispatch0"].target, **targets)
        stack.wait_ready()
        yield stack
    finally:
        stack.stop()
        postgres.stop(immediate=not durable)
        shutil.rmtree(folder, ignore_errors=True)
