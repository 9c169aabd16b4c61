"""Real processes that are told to stop, and a database that goes away under them (KB-01, KB-02)."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ductord.db.embedded import EmbeddedPostgres
from examples.demo.engine import TENANT, Engine
from tests.support.dev import dev_folder, invoke, running_dev
from tests.support.stack import free_port

pytestmark = [pytest.mark.xdist_group("dev"), pytest.mark.timeout(240)]

DRAIN_MS = 4_000
SHORT, LONG = 5, 5


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """Everything in one process, with a worker that polls the queue `default`."""
    with dev_folder() as folder, running_dev(folder) as running:
        yield running


def _until(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)


def _ductor(engine: Engine, *arguments: str) -> str:
    code, output, errors = invoke(*arguments, DUCTOR_TARGET=engine.grpc, DUCTOR_TENANT_ID=TENANT)
    assert code == 0, errors
    return output.strip()


def _json(engine: Engine, *arguments: str) -> Any:
    return json.loads(_ductor(engine, *arguments, "--json"))


def _probe(address: str, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=15) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def _taken(http: str) -> float:
    """How many tasks a worker has been given, by what it says itself: leases are in the database before their answer is with the worker."""
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=15) as answer:
        lines = answer.read().decode().splitlines()
    taken = [line for line in lines if line.startswith(("ductor_worker_busy ", "ductor_actions_total{"))]
    return sum(float(line.rsplit(" ", 1)[1]) for line in taken)


def _worker(engine: Engine, http: str) -> "subprocess.Popen[bytes]":
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DUCTOR_")}
    options = {"DUCTOR_DISPATCH_TARGET": engine.grpc, "DUCTOR_DRAIN_MS": str(DRAIN_MS), "DUCTOR_HTTP_ADDRESS": http}
    return subprocess.Popen(
        [sys.executable, "-m", "ductord.cli", "worker", "--queue", "slow", "--slots", "20"],
        env={**environment, **options},
        stderr=subprocess.DEVNULL,
    )


def _publish_sleepers(engine: Engine, folder: Path) -> None:
    steps = [
        {
            "ref": f"s{i}",
            "type": "action",
            "action": "core:sleep",
            "queue": "slow",
            "args": {"ms": 1_500 if i < SHORT else 15_000},
        }
        for i in range(SHORT + LONG)
    ]
    document = {"type": "workflow_definition", "definition": {"family_slug": "sleepers", "steps": steps}}
    file = folder / "sleepers.json"
    file.write_text(json.dumps(document))
    _ductor(engine, "workflow", "publish", str(file))


def test_kb_01_a_worker_that_is_told_to_stop(engine: Engine, tmp_path: Path) -> None:
    """KB-01: ten at work and SIGTERM: not ready at once, five finish, five are given back without a retry spent; a successor takes them at once."""
    _publish_sleepers(engine, tmp_path)
    http = f"127.0.0.1:{free_port()}"
    worker = _worker(engine, http)
    try:
        _until(lambda: _probe(http, "/readyz") == 200)
        run_id = _ductor(engine, "trigger", "sleepers")
        _until(lambda: _taken(http) == SHORT + LONG)
        worker.send_signal(signal.SIGTERM)
        begin = time.monotonic()
        _until(lambda: _probe(http, "/readyz") in (503, 0))
        assert worker.wait(timeout=60) == 0
        assert time.monotonic() - begin < DRAIN_MS / 1000 + 30
        _until(lambda: _verdicts(engine, run_id) >= Counter(succeeded=SHORT, lost=LONG))
        lost = [a for a in _attempts(engine, run_id) if a["status"] == "lost"]
        assert {a["outcome"] for a in lost} == {"released"}
    finally:
        worker.kill()
        worker.wait()
    successor = _worker(engine, "off")
    try:
        _until(lambda: _json(engine, "run", "show", run_id)["data"]["summary"]["status"] == "completed")
    finally:
        successor.send_signal(signal.SIGTERM)
        successor.send_signal(signal.SIGTERM)
        assert successor.wait(timeout=60) == 0
    assert _verdicts(engine, run_id) == Counter(succeeded=SHORT + LONG, lost=LONG)


def test_kb_02_a_database_that_goes_away_restarts_nothing(engine: Engine) -> None:
    """KB-02: without Postgres /livez stays 200 and /readyz is 503; when it is back the process serves again and the run goes on."""
    file = Path(__file__).resolve().parents[2] / "examples" / "order.yaml"
    _ductor(engine, "workflow", "publish", str(file))
    run_id = _ductor(engine, "trigger", "order", "--input", '{"order_id": "o", "amount": 1}')
    postgres = EmbeddedPostgres(engine.folder)
    pid = engine.pid
    assert (_probe(engine.http, "/livez"), _probe(engine.http, "/readyz")) == (200, 200)
    postgres.stop(immediate=True)
    try:
        _until(lambda: _probe(engine.http, "/readyz") == 503)
        code, _, errors = invoke("run", "list", DUCTOR_TARGET=engine.grpc, DUCTOR_TENANT_ID=TENANT)
        assert (code, "DATABASE_UNAVAILABLE" in errors) == (1, True), errors
        assert _probe(engine.http, "/livez") == 200
    finally:
        postgres.start()
    _until(lambda: _probe(engine.http, "/readyz") == 200)
    _until(lambda: _json(engine, "run", "show", run_id)["data"]["summary"]["status"] == "completed")
    assert engine.running
    assert engine.pid == pid
    assert _probe(engine.http, "/livez") == 200


def _verdicts(engine: Engine, run_id: str) -> Counter[str]:
    return Counter(attempt["status"] for attempt in _attempts(engine, run_id))


def _attempts(engine: Engine, run_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = _json(engine, "run", "show", run_id, "--attempts")["data"]
    return found
