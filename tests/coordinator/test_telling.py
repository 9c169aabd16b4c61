"""What is told of controls and compensation: lines with ids and codes and no payload, and metrics with few series (OB-01)."""

import asyncio
import logging

import pytest

from ductord.coordinator.service import SERVICE
from ductord.engine import limits
from ductord.model.enums import Verb
from ductord.rpc.config import Settings
from ductord.rpc.host import hosting
from tests.conftest import Database
from tests.coordinator.conftest import Ticker
from tests.coordinator.test_lates import undoable
from tests.coordinator.workers import Workers
from tests.support.books import Books, chain


async def test_controls_and_compensation_are_told(
    books: Books, ticker: Ticker, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    """A line per settled control with who asked and what came of it, and a warning for a run that is not undone; no message, which may quote a payload."""
    run_id = await books.start(await books.publish(undoable(2)))
    await ticker.drain()
    await workers.succeed(*await workers.lease(), output='{"n": "secret"}')
    await ticker.drain()
    with caplog.at_level(logging.INFO, "ductor.coordinator"):
        await books.control(run_id, Verb.CANCEL)
        total = await ticker.drain()
        for _ in range(3):
            await workers.fail(*await workers.lease(), code="secret?")
            total.add(await ticker.drain())
            await books.owner.execute("update eec_workflow_step_attempt set due_time = eec_now() where status = 'open'")
        await books.control(run_id, Verb.PAUSE)
        total.add(await ticker.drain())
    told = [(r.levelname, r.message, r.__dict__.get("request_id"), r.__dict__.get("reason")) for r in caplog.records]
    assert ("INFO", "control cancel applied", "cancel", "") in told
    assert ("INFO", "control pause rejected", "pause", "RUN_TERMINAL") in told
    assert ("WARNING", "a run is not undone: compensation manual_repair", None, "secret?") in told
    assert all(r.__dict__["run_id"] == run_id for r in caplog.records)
    assert total.told.controls == {("cancel", "applied"): 1, ("pause", "rejected"): 1}
    assert total.told.inverses == {"manual_repair": 1}
    assert await books.trail(run_id) == [
        ("somebody", "cancel", "applied"), ("system", "compensation_manual_repair", ""), ("somebody", "pause", "rejected"),
    ]  # fmt: skip


async def test_c6_a_long_history_is_warned_of_once(
    books: Books, ticker: Ticker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """C6, C8: at the soft tier one line in the log and one in the trail."""
    run_id = await books.start(await books.publish(chain(6)))
    ticker.limits = limits.Limits(history_soft=4)
    with caplog.at_level(logging.WARNING, "ductor.coordinator"):
        for _ in range(7):
            await ticker.drain()
            await books.report()
    assert [r.message.partition(":")[0] for r in caplog.records] == ["a run's history is long"]
    assert [actor for actor, _, _ in await books.trail(run_id)] == ["system"]
    assert (await books.settled(run_id)).status == "completed"


async def test_controls_are_counted(database: Database, books: Books) -> None:
    """Settled controls by verb and outcome, and settled entries of ledgers by status, at the coordinator's metrics."""
    settings = Settings(
        coordinator_database_url=database.dsn("coordinator"), grpc_address="127.0.0.1:0", http_address="off", poll_ms=20
    )
    line = 'ductor_settled_controls_total{outcome="applied",verb="cancel"} 1.0'
    async with hosting([SERVICE], settings) as host:
        run_id = await books.start(await books.publish(chain(1)))
        await books.control(run_id, Verb.CANCEL)
        async with asyncio.timeout(60):
            while line not in host.metrics.exposition().decode():  # noqa: ASYNC110  # metrics have no event
                await asyncio.sleep(0.01)
        assert run_id not in host.metrics.exposition().decode()
    assert await books.status(run_id) == "cancelled"
