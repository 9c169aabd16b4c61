"""`ductor dev`: embedded Postgres, migrations, every service and a worker in one process, on loopback, with state kept between starts.

One `dev` per data directory: a lock that dies with the process guards it. A Postgres that a killed `dev` left running is adopted, and ended by the next
orderly stop. It must never serve anybody but this machine.
"""

import asyncio
import contextlib
import logging
import logging.handlers
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from rich.text import Text

from ductord.cli import firsts, roster
from ductord.cli.claim import Claim, claimed
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
from ductord.rpc.signals import heard

TENANT: Final = "dev"
ENVIRONMENT: Final = "dev"
LOG_FILE: Final = "ductor.log"
LOG_BYTES: Final = 20 << 20
READY_LIMIT_S: Final = 60.0


async def dev(data_dir: Path, workflows_dir: str, logs: str) -> int:
    """Run until SIGINT, SIGTERM or SIGHUP; 0 after an orderly stop."""
    begin = time.monotonic()
    if logs not in ("file", "stderr"):
        raise CommandFailed(f"--logs is file or stderr, not {logs!r}", code=MISUSED)
    with claimed(_absolute(data_dir)) as claim, stopping() as stop:
        postgres = EmbeddedPostgres(claim.folder)
        settings = settings_of(postgres, workflows_dir)
        log = claim.folder / LOG_FILE if logs == "file" else None
        _log_to(log, settings)
        _say(Text.assemble(("ductor ", "bold"), version("ductord"), (f"  data in {claim.folder}", "dim")))
        async with _running(postgres) as services:
            if not stop.asked.is_set():
                _tell("schema", _applied(await migrate(postgres.dsn())))
            if not stop.asked.is_set():
                settings = await firsts.keyed(claim.folder, settings)
                await _serve(services, Life(settings=settings, claim=claim, stop=stop, log=log, begin=begin))
    _say("Stopped.", "dim")
    return DONE


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


def settings_of(postgres: EmbeddedPostgres, workflows_dir: str = "") -> Settings:
    """The configuration of `dev`: what the environment says, with the embedded database, everything in this process, loopback, and tenant and environment
    `dev`."""
    own: dict[str, Any] = {f"{name}_database_url": "" for name in DATABASE_SERVICES}
    own |= {name: "" for name in Settings.model_fields if name.endswith("_target")}
    own |= {"database_url": postgres.dsn(), "database_set_role": False}
    own |= {"api_key": "", "api_key_file": ""}  # those of this terminal are for its commands; the worker gets its own
    if workflows_dir:
        own["workflows_dir"] = workflows_dir
    own["environment"] = os.environ.get("DUCTOR_ENVIRONMENT") or ENVIRONMENT
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
        if not self.asked.is_set():
            self.asked.set()
            _say("")
            _say("Stopping …", "dim")
        elif self.host is not None:
            self.host.hurry.set()


@contextmanager
def stopping() -> Iterator[Stop]:
    """Turn signals into a `Stop`, from before Postgres starts until after it has ended: nothing in between may be torn apart."""
    stop = Stop()
    with heard((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), stop.ask):
        yield stop


@dataclass(frozen=True, kw_only=True)
class Life:
    """What one start consists of. `log`: the file where logs go, None for standard error. `begin`: when it began, on the monotonic clock."""

    settings: Settings
    claim: Claim
    stop: Stop
    log: Path | None
    begin: float


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
        _tell("Postgres", "adopted, it was left running" if postgres.adopted else took)
        yield services
    finally:
        await asyncio.wait([starting])
        await asyncio.to_thread(postgres.stop)


async def _serve(services: Sequence[Service], life: Life) -> None:
    """Serve until asked to stop."""
    tracing.configure(life.settings, services=[service.name for service in services])
    try:
        async with _hosted(services, life) as host:
            if await _ready(host, life.stop):
                grpc, http = _addresses(host)
                life.claim.tell(grpc=grpc, http=http, tenant=life.settings.workflows_tenant, ready=True)
                _invite(life, grpc)
                await life.stop.asked.wait()
    finally:
        tracing.shut_down()


@asynccontextmanager
async def _hosted(services: Sequence[Service], life: Life) -> AsyncIterator[Host]:
    """The services while the context is open. Raises `CommandFailed` for what keeps them from starting."""
    async with AsyncExitStack() as stack:
        try:
            host = await stack.enter_async_context(hosting(services, life.settings))
        except ConfigurationRefused as refused:
            raise misconfigured(refused) from None
        except OSError as error:
            way_out = "DUCTOR_GRPC_ADDRESS and DUCTOR_HTTP_ADDRESS choose other ports"
            raise CommandFailed(error.strerror or str(error), way_out=way_out) from None
        life.stop.host = host
        grpc, http = _addresses(host)
        life.claim.tell(grpc=grpc, http=http, tenant=life.settings.workflows_tenant)
        _tell("services", ", ".join(service.name for service in services))
        _tell("gRPC", grpc)
        scheme = "https" if life.settings.http_tls_cert_file else "http"
        _tell("HTTP", f"{scheme}://{http}" if http else "off")
        if life.settings.auth == "keys":
            _tell("keys", str(life.claim.folder / firsts.FOLDER))
        _tell("logs", str(life.log or "standard error"))
        yield host


def _addresses(host: Host) -> tuple[str, str]:
    """Where gRPC and HTTP are reached from this machine."""
    return host.grpc_address.reachable, host.http_address.reachable if host.http_address else ""


async def _ready(host: Host, stop: Stop) -> bool:
    """True once every service says that it can serve; False when asked to stop before. Tells what is missing while it waits."""
    begin = time.monotonic()
    before: list[str] = []
    while problems := await host.health.problems():
        waited = time.monotonic() - begin
        if stop.asked.is_set():
            return False
        if waited > READY_LIMIT_S:
            raise CommandFailed(
                f"not ready after {waited:.0f} s: {', '.join(problems)}", way_out="the log has the cause"
            )
        if waited > 3 and problems != before:
            _tell("waiting", ", ".join(problems))
            before = problems
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.asked.wait(), 0.1)
    return True


def _invite(life: Life, grpc: str) -> None:
    ready = f"Ready in {time.monotonic() - life.begin:.1f} s."
    _say(Text.assemble((ready, "bold green"), " Ctrl-C stops everything; runs go on at the next start."))
    _say("")
    _say("In another terminal:", "dim")
    tenant = life.settings.workflows_tenant
    if life.settings.auth == "keys":
        _say(f"  export DUCTOR_API_KEY_FILE={firsts.file_of(life.claim.folder, tenant)}")
    else:
        _say(f"  export DUCTOR_TENANT_ID={tenant}")
    if life.settings.tls_cert_file:
        _say("  export DUCTOR_TARGET_TLS=true  # and DUCTOR_TARGET_CA_FILE, if the authority is one of your own")
    if grpc != DEFAULT_TARGET:
        _say(f"  export DUCTOR_TARGET={grpc}")
    _say("  ductor workflow publish examples/hello_world.yaml")
    _say("  ductor trigger hello_world --wait")


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


def _tell(what: str, value: str) -> None:
    _say(Text.assemble((f"  {what:<9} ", "dim"), value))


def _say(text: str | Text, style: str = "") -> None:
    """A line for whoever looks on. That nobody does (the terminal was closed) must not keep us from ending in order."""
    with contextlib.suppress(OSError):
        show(text, style)
