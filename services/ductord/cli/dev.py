"""`ductor dev`: embedded Postgres, migrations, every service and a worker in one process, on loopback, with state kept between starts.

One `dev` per data directory: a lock that dies with the process guards it. A Postgres that a killed `dev` left running is adopted, and ended by the next
orderly stop. It must never serve anybody but this machine.
"""

import asyncio
import contextlib
import fcntl
import json
import logging
import logging.handlers
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from rich.text import Text

from ductord.cli import roster
from ductord.cli.client import DEFAULT_TARGET
from ductord.cli.configured import misconfigured
from ductord.cli.ending import DONE, MISUSED, CommandFailed
from ductord.cli.output import counted, show
from ductord.db.embedded import EmbeddedPostgres
from ductord.db.migrate import migrate
from ductord.rpc import logs as log_lines
from ductord.rpc import tracing
from ductord.rpc.config import DATABASE_SERVICES, ConfigurationRefused, Settings
from ductord.rpc.host import Host, Service, hosting

TENANT: Final = "dev"
STATE_FILE: Final = "dev.json"
LOG_FILE: Final = "ductor.log"
LOG_BYTES: Final = 20 << 20
READY_LIMIT_S: Final = 60.0


async def dev(data_dir: Path, workflows_dir: str, logs: str) -> int:
    """Run until SIGINT, SIGTERM or SIGHUP; 0 after an orderly stop."""
    begin = time.monotonic()
    if logs not in ("file", "stderr"):
        raise CommandFailed(f"--logs is file or stderr, not {logs!r}", code=MISUSED)
    data_dir = _absolute(data_dir)
    with claimed(data_dir) as state, stopping() as stop:
        postgres = EmbeddedPostgres(data_dir)
        settings = settings_of(postgres, workflows_dir)
        _log_to(data_dir / LOG_FILE if logs == "file" else None, settings)
        show(Text.assemble(("ductor ", "bold"), version("ductord"), (f"  data in {data_dir}", "dim")))
        async with _running(postgres) as services:
            if not stop.asked.is_set():
                _told("schema", _applied(await migrate(postgres.dsn())))
            if not stop.asked.is_set():
                await _serve(services, settings, stop, state, begin, data_dir, logs)
    show("Stopped.", "dim")
    return DONE


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


def settings_of(postgres: EmbeddedPostgres, workflows_dir: str = "") -> Settings:
    """The configuration of `dev`: what the environment says, with the embedded database, everything in this process, loopback and the tenant `dev`."""
    own: dict[str, Any] = {f"{name}_database_url": "" for name in DATABASE_SERVICES}
    own |= {name: "" for name in Settings.model_fields if name.endswith("_target")}
    own |= {"database_url": postgres.dsn(), "database_set_role": False}
    if workflows_dir:
        own["workflows_dir"] = workflows_dir
    own["workflows_tenant"] = os.environ.get("DUCTOR_WORKFLOWS_TENANT") or os.environ.get("DUCTOR_TENANT_ID") or TENANT
    try:
        settings = Settings.for_dev(**own)
        settings.refuse_insecure()
        return settings
    except ConfigurationRefused as refused:
        raise misconfigured(refused) from None


class Stop:
    """Whether the process was asked to stop, and how often."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.host: Host | None = None

    def ask(self) -> None:
        """Once: an orderly stop. Again: do not wait for what is in flight."""
        if self.asked.is_set() and self.host is not None:
            self.host.hurry.set()
        elif not self.asked.is_set():
            show("")
            show("Stopping …", "dim")
        self.asked.set()


@contextmanager
def stopping() -> Iterator[Stop]:
    """Turn signals into a `Stop`, from before Postgres starts until after it has ended: nothing in between may be torn apart."""
    stop = Stop()
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, stop.ask)
    try:
        yield stop
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


class State:
    """`dev.json` of a data directory: who runs on it and where it listens. Locked as long as its process lives."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, **facts: Any) -> None:
        """Replace what it says."""
        text = json.dumps({"pid": os.getpid(), **facts}).encode() + b"\n"
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, text, 0)


@contextmanager
def claimed(data_dir: Path) -> Iterator[State]:
    """The data directory as ours alone. Raises `CommandFailed` naming the process that has it."""
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(data_dir / STATE_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise CommandFailed(
            f"{data_dir} cannot be used: {error.strerror}", way_out="choose another --data-dir"
        ) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CommandFailed(
                _taken(data_dir, os.read(descriptor, 4096)), way_out="use that one, or another --data-dir"
            ) from None
        state = State(descriptor)
        state.write()
        yield state
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _taken(data_dir: Path, text: bytes) -> str:
    facts: dict[str, Any] = {}
    with contextlib.suppress(ValueError):
        facts = json.loads(text)
    who = f" (process {facts['pid']})" if "pid" in facts else ""
    where = f"; it listens on gRPC {facts['grpc']}" if facts.get("grpc") else ""
    return f"another `ductor dev`{who} runs on {data_dir}{where}"


@asynccontextmanager
async def _running(postgres: EmbeddedPostgres) -> AsyncIterator[Sequence[Service]]:
    """The server while the context is open, and the services, whose imports use the time. It is ended whoever started it, also when its start
    was cut short."""
    begin = time.monotonic()
    # In a thread, so that signals are heard and not acted on in the middle of initdb.
    starting = asyncio.ensure_future(asyncio.to_thread(postgres.start))
    try:
        await asyncio.sleep(0)  # the thread begins
        services = roster.services(())
        try:
            await starting
        except (RuntimeError, OSError) as error:
            raise CommandFailed(f"the embedded Postgres did not start: {error}") from None
        took = f"started in {time.monotonic() - begin:.1f} s"
        _told("Postgres", "adopted, it was left running" if postgres.adopted else took)
        yield services
    finally:
        await asyncio.wait([starting])
        await asyncio.to_thread(postgres.stop)


async def _serve(
    services: Sequence[Service], settings: Settings, stop: Stop, state: State, begin: float, data_dir: Path, logs: str
) -> None:
    tracing.configure(settings)
    try:
        async with hosting(services, settings) as host:
            stop.host = host
            grpc, http = host.grpc_address.reachable, host.http_address.reachable if host.http_address else ""
            state.write(grpc=grpc, http=http, tenant=settings.workflows_tenant)
            _told("services", ", ".join(service.name for service in services))
            _told("gRPC", grpc)
            _told("HTTP", f"http://{http}" if http else "off")
            if logs == "file":
                _told("logs", str(data_dir / LOG_FILE))
            if await _ready(host, stop):
                state.write(grpc=grpc, http=http, tenant=settings.workflows_tenant, ready=True)
                _invite(settings, grpc, time.monotonic() - begin)
                await stop.asked.wait()
    except ConfigurationRefused as refused:
        raise misconfigured(refused) from None
    except OSError as error:
        raise CommandFailed(
            error.strerror or str(error), way_out="DUCTOR_GRPC_ADDRESS and DUCTOR_HTTP_ADDRESS choose other ports"
        ) from None
    finally:
        tracing.shut_down()


async def _ready(host: Host, stop: Stop) -> bool:
    """True once every service says that it can serve; False when asked to stop before. Tells what is missing while it waits."""
    begin = time.monotonic()
    told: list[str] = []
    while problems := await host.health.problems():
        waited = time.monotonic() - begin
        if stop.asked.is_set():
            return False
        if waited > READY_LIMIT_S:
            raise CommandFailed(
                f"not ready after {waited:.0f} s: {', '.join(problems)}", way_out="the log has the cause"
            )
        if waited > 3 and problems != told:
            _told("waiting", ", ".join(problems))
            told = problems
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.asked.wait(), 0.1)
    return True


def _invite(settings: Settings, grpc: str, seconds: float) -> None:
    show(
        Text.assemble(
            (f"Ready in {seconds:.1f} s.", "bold green"), " Ctrl-C stops everything; runs go on at the next start."
        )
    )
    show("")
    show("In another terminal:", "dim")
    show(f"  export DUCTOR_TENANT_ID={settings.workflows_tenant}")
    if grpc != DEFAULT_TARGET:
        show(f"  export DUCTOR_TARGET={grpc}")
    show("  ductor workflow publish examples/hello_world.yaml")
    show("  ductor trigger hello_world --wait")


def _log_to(path: Path | None, settings: Settings) -> None:
    """Logs of this process: to a file that is rotated, so that it stays bounded, or to standard error."""
    log_lines.configure(settings)
    if path is None:
        return
    output = logging.handlers.RotatingFileHandler(path, maxBytes=LOG_BYTES, backupCount=2, encoding="utf-8")
    output.setFormatter(log_lines.JsonLines() if settings.log_format == "json" else log_lines.Text())
    logging.getLogger().handlers[:] = [output]


def _applied(names: list[str]) -> str:
    return f"{counted(len(names), 'migration')} applied" if names else "up to date"


def _told(what: str, value: str) -> None:
    show(Text.assemble((f"  {what:<9} ", "dim"), value))
