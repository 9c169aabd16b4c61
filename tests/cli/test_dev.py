"""`ductor dev` as people use it: real processes, killed and stopped (acceptance 8)."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ductor.workflow.v1 import workflow_trigger_service_pb2 as api
from ductord.cli.client import Connection, connected
from examples.demo.engine import TENANT, Engine
from tests.support.dev import EXAMPLE_NAMES, EXAMPLES, dev_folder, ductor, invoke, processes_in, running_dev

pytestmark = [pytest.mark.xdist_group("dev"), pytest.mark.timeout(240)]

RUNS = 12


@pytest.fixture
def folder() -> Iterator[Path]:
    """A data directory."""
    with dev_folder() as path:
        yield path


def _until(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)


def _json(engine: Engine, *arguments: str) -> Any:
    key = engine.folder / "keys" / f"tenant-{TENANT}"
    caller = {"DUCTOR_API_KEY_FILE": str(key)} if key.exists() else {"DUCTOR_TENANT_ID": TENANT}
    code, output, errors = invoke(*arguments, "--json", DUCTOR_TARGET=engine.grpc, **caller)
    assert code == 0, errors
    return json.loads(output)


def _statuses(engine: Engine) -> dict[str, str]:
    found = _json(engine, "run", "list", "--limit", "1000")
    return {run["run_id"]: run["status"] for run in found["data"]}


async def _trigger(engine: Engine) -> set[str]:
    async with connected(Connection(target=engine.grpc, tenant=TENANT)) as client:
        definition_id = await client.definition_id("order")
        items = [api.BatchTriggerItem(input_json='{"order_id": "o", "amount": 4900}') for _ in range(RUNS)]
        request = api.BatchTriggerWorkflowRequest(definition_id=definition_id, items=items)
        answer = await client.call(client.triggers.BatchTriggerWorkflow, request)
        return {result.run_id for result in answer.results}


def test_start_kill_start_stop_loses_nothing_and_leaves_no_postgres(folder: Path) -> None:
    """Acceptance 8: kill -9 with runs in the middle; the next start adopts Postgres and ends every run; Ctrl-C ends all."""
    with running_dev(folder) as engine:
        engine.command("workflow", "publish", str(EXAMPLES / "order.yaml"))
        started = asyncio.run(_trigger(engine))
        assert len(started) == RUNS
        engine.kill()
        assert any("postgres" in line for line in processes_in(folder)), "Postgres is a process of its own"

        engine.start()
        assert "adopted" in engine.log.read_text()
        _until(lambda: set(_statuses(engine).values()) == {"completed"})
        assert set(_statuses(engine)) == started, "no run was lost, none was added"

        assert engine.stop() == 0
        assert processes_in(folder) == []

        engine.start()
        assert set(_statuses(engine)) == started, "state is kept between starts"
        assert engine.stop() == 0
    assert processes_in(folder) == []


def test_ctrl_c_in_the_middle_of_the_first_start_leaves_nothing_running(folder: Path) -> None:
    """A signal during initdb waits for its end, then everything is undone; the folder is usable afterwards."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ductord.cli", "dev", "--data-dir", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    _until(lambda: any(folder.glob("postgres.new.*/PG_VERSION")) or (folder / "postgres/PG_VERSION").exists())
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output.decode()
    assert b"Stopped." in output
    assert b"Ready" not in output
    assert processes_in(folder) == []
    with running_dev(folder):
        pass


def test_a_taken_port_is_told_and_nothing_is_left(folder: Path) -> None:
    """The address is named with the way to another; Postgres is not left behind."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for name, other in (("GRPC", "HTTP"), ("HTTP", "GRPC")):
            addresses = {f"DUCTOR_{name}_ADDRESS": f":{port}", f"DUCTOR_{other}_ADDRESS": ":0"}
            done = ductor("dev", "--data-dir", str(folder), **addresses)
            assert done.returncode == 1, done.stdout + done.stderr
            assert str(port) in done.stderr
            assert "DUCTOR_GRPC_ADDRESS" in done.stderr
            assert processes_in(folder) == []


@pytest.mark.parametrize(
    ("arguments", "environment", "text"),
    [
        (["--logs", "syslog"], {}, "--logs"),
        ([], {"DUCTOR_GRPC_ADDRESS": "0.0.0.0:0"}, "DUCTOR_GRPC_ADDRESS"),
        ([], {"DUCTOR_LEASE_MS": "soon"}, "DUCTOR_LEASE_MS"),
        ([], {"DUCTOR_TLS_CERT_FILE": "dev.pem"}, "DUCTOR_TLS_KEY_FILE"),
    ],
)
def test_what_cannot_be_is_refused_with_2(
    folder: Path, arguments: list[str], environment: dict[str, str], text: str
) -> None:
    """N3 and misspelt options: exit code 2, the option is named, no Postgres is left."""
    done = ductor("dev", "--data-dir", str(folder), *arguments, **environment)
    assert done.returncode == 2
    assert text in done.stderr
    assert processes_in(folder) == []


def test_definitions_of_a_folder_are_published_at_start_with_keys_as_well(folder: Path) -> None:
    """D5: into the tenant that `dev` uses, each once; a second start, with keys asked for (N1), publishes nothing again and makes two keys."""
    engine = Engine(folder)
    engine.environment |= {"DUCTOR_WORKFLOWS_DIR": str(EXAMPLES)}
    try:
        for auth in ("off", "keys"):
            engine.environment["DUCTOR_AUTH"] = auth
            engine.start()
            _until(lambda: _published(engine) == [f"{name} v1" for name in EXAMPLE_NAMES])
            if auth == "off":
                assert engine.stop() == 0
        code, _, errors = invoke("workflow", "list", DUCTOR_TARGET=engine.grpc, DUCTOR_TENANT_ID=TENANT)
        assert (code, "CREDENTIAL_REQUIRED" in errors) == (1, True)
        assert {f.name: f.stat().st_mode & 0o777 for f in (folder / "keys").iterdir()} == {
            "platform": 0o600,
            f"tenant-{TENANT}": 0o600,
        }
        run = _json(engine, "trigger", "hello_world", "--wait")["data"]
        assert run["summary"]["status"] == "completed", "our worker has its key"
        assert engine.stop() == 0
    finally:
        engine.stop()


def _published(engine: Engine) -> list[str]:
    found = _json(engine, "workflow", "list", "--status", "published")
    return sorted(f"{entry['family_slug']} v{entry['version']}" for entry in found["data"])
