"""What all tests share: one Postgres per test process and, per test, a database that is as new: cloned from a migrated template, or emptied after another
test."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from ductord.db.ids import new_id
from ductord.db.migrate import migrate
from ductord.rpc import server as rpc_server
from tests.support.emptying import Print, emptied, fingerprint
from tests.support.servers import Server, test_server

rpc_server.QUIET_S = 0.005  # type: ignore[misc]  # hundreds of servers are stopped here, with no calls on their way

T = TypeVar("T")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--rewrite`: files that tests compare with are written anew from what the tests see."""
    parser.addoption("--rewrite", action="store_true", help="write scenario transcripts and generated documents anew")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Captured output is made fit to travel between test processes: hostile texts are logged by many tests, and a lone surrogate ends a process."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests counted with `record_property`, summed by name: how much a generated test has tried is seen in every run."""
    counts: Counter[str] = Counter()
    for report in terminalreporter.stats.get("passed", ()):
        counts.update({name: value for name, value in report.user_properties if isinstance(value, int)})
    for name, count in sorted(counts.items()):
        terminalreporter.write_line(f"{name}: {count:,}")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of one `xdist_group` stay together. pytest-xdist (3.8) writes a group into a field that pytest has no more since 9.2, and spreads them."""
    if not getattr(config.option, "loadgroup", False):
        return
    for item in items:
        groups = sorted({str(mark.args[0]) for mark in item.iter_markers("xdist_group")})
        suffix = f"@{'_'.join(groups)}"
        if groups and not item.nodeid.endswith(suffix):
            item._id = type(item.id).parse(item.nodeid + suffix)


@dataclass(frozen=True, kw_only=True)
class Database:
    """A migrated database of one test. `dsn(role)` logs in as a service's role; `owner` owns the schema and bypasses nothing by accident."""

    server: Server
    name: str

    @property
    def owner(self) -> str:
        """Connection string of the superuser."""
        return self.server.dsn(self.name)

    def dsn(self, role: str) -> str:
        """Connection string of the service role `ductor_<role>`."""
        return self.server.dsn(self.name, f"ductor_{role}")


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The server of this test process and its migrated template."""

    server: Server
    template: str
    new: Print
    idle: list[str] = field(default_factory=list)
    """Databases that are as good as new."""

    @contextmanager
    def database(self, *, pages: bool = False) -> Iterator[Database]:
        """A migrated database without a row. Afterwards it is emptied for somebody else, or dropped where it is no more what it was.

        `pages`: also without a row that was. For tests that count what is read.
        """
        name = self.idle.pop() if self.idle and not pages else self._made()
        database = Database(server=self.server, name=name)
        try:
            yield database
        finally:
            if _apart(emptied(database.owner, self.new)):
                self.idle.append(name)
            else:
                self.drop(name)

    def _made(self) -> str:
        name = f"t_{new_id().replace('-', '')}"
        self.server.sql(f'create database "{name}" template "{self.template}" strategy file_copy')
        return name

    def drop(self, name: str) -> None:
        """Drop a database, whoever is connected to it."""
        self.server.sql(f'drop database if exists "{name}" with (force)')


def _apart(work: Coroutine[Any, Any, T]) -> T:
    """Run it in a loop of its own: fixtures may be inside one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """A server for this test process (`tests.support.servers`)."""
    with test_server() as server:
        template = f"template_{new_id().replace('-', '')}"
        server.sql(f'create database "{template}"')
        try:
            asyncio.run(migrate(server.dsn(template)))
            cluster = Cluster(server=server, template=template, new=asyncio.run(fingerprint(server.dsn(template))))
            yield cluster
            for name in cluster.idle:
                cluster.drop(name)
        finally:
            server.sql(f'drop database if exists "{template}" with (force)')


@pytest.fixture
def database(postgres: Cluster, request: pytest.FixtureRequest) -> Iterator[Database]:
    """A database of this test alone."""
    with postgres.database(pages=request.node.get_closest_marker("pages") is not None) as fresh:
        yield fresh
