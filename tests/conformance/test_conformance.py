"""`ductor worker conformance`: our own worker passes every check, and there is none that a worker could not fail (acceptance: any worker, in any language)."""

import asyncio
import functools
import json
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ductord.cli import roster
from ductord.cli.client import Client, Connection, connected
from ductord.cli.conformance.stage import Trial
from ductord.cli.conformance.trying import CHECKS, Result, conformance, tried
from ductord.cli.ending import DONE, FAILED, MISUSED, CommandFailed
from tests.conftest import Database
from tests.support.dev import invoke
from tests.support.edges import serving
from tests.support.keys import minted

TENANT = "acme"
ENGINE = [name for name in roster.NAMES if name not in ("worker", "gateway")]
AT_ONCE = 8
"""Checks that run beside each other: they mostly wait."""
OWN = Path(__file__).resolve().parents[2] / "clients" / "python" / "worker.py"
SCOPES = ("workflow_definition:write", "workflow:read", "workflow:write", "workflow_run:write", "worker:tasks")
FAST: dict[str, Any] = {"lease_ms": 2_500, "heartbeat_ms": 400, "sweep_ms": 200, "poll_ms": 200}

FAULTS = {
    "doubles": ("lease", "conformance:echo failed: payload_invalid"),
    "mangles": ("lease", "the output is not the args, exactly"),
    "no-item-zero": ("lease", "answers item_index None, the task has 0"),
    "one-at-a-time": ("lease", "side by side"),
    "same-poll-id": ("lease", "has the poll_id of one that was answered"),
    "no-details": ("heartbeat", "carries None, not its slept_ms"),
    "slow-heart": ("heartbeat", "late where one is due every"),
    "heart-stops": ("heartbeat", "did not live through one heartbeat that failed"),
    "quiet-before-report": ("heartbeat", "heartbeats end before the report is answered"),
    "goes-on": ("cancel", "was not reported within"),
    "no-cancelled": ("cancel", "was reported as failure UNKNOWN"),
    "keeps-lost": ("lease-loss", "heartbeats go on after the worker was told"),
    "begins-anew": ("lease-loss", "did not go on at"),
    "never-final": ("retry", "a failure with non_retryable took 3 attempts"),
    "retries-at-once": ("retry", "the failure has retry_after_ms 0, the args have None"),
    "new-poll-id": ("transport", "did not ask again with the same poll_id"),
    "reports-once": ("transport", "was not made again until it was answered"),
    "hammers": ("transport", "pauses must grow"),
    "dies-when-away": ("transport", "did not ask again with the same poll_id"),
    "repeats-output": ("bad-output", "is reported again"),
    "dies-of-output": ("bad-output", "had not ended"),
    "drops-refused": ("bad-output", "is not reported as a failure"),
    "insists": ("bad-output", "is not reported as a failure"),
    "polls-on": ("drain", "polls for more after SIGTERM"),
    "walks-out": ("drain", "a short task in flight at SIGTERM was not succeeded but lost"),
    "fails-in-drain": ("drain", "not released but failed"),
    "forgets-its-poll": ("drain", "a task on its way at SIGTERM was not released but lost"),
    "exits-with-3": ("drain", "ended with exit code 3, not 0"),
    "stays": ("drain", "had not ended"),
    "deaf": ("drain", "a worker that was told twice had not ended"),
    "one-name": ("drain", "worker_id is not new at each start"),
}
"""What a worker can do wrong: the check that finds it, and in which words."""


@asynccontextmanager
async def engine(database: Database, key_file: Path | None = None, **options: Any) -> AsyncIterator[Client]:
    """All services but worker and gateway in this process, and a client, which calls with a key where one is given."""
    async with serving(database, roster.services(ENGINE), **{**FAST, **options}) as edges:
        target = edges.host.grpc_address.reachable
        named = Connection(target=target, tenant=TENANT)
        keyed = Connection(target=target, tenant="", key_file=str(key_file))
        async with connected(keyed if key_file else named) as client:
            yield client


async def results(client: Client, trials: Iterable[tuple[str, Trial]]) -> list[Result]:
    """Checks, several beside each other."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(check: str, trial: Trial) -> Result:
        async with room:
            return await tried(check, trial, client)

    return await asyncio.gather(*(one(check, trial) for check, trial in trials))


@pytest.mark.xdist_group("conformance")
async def test_our_own_worker_does_what_a_worker_must(database: Database, tmp_path: Path) -> None:
    """KB-01, A4, A5, A6, L5, with keys (N1): the reference for the others, with no more than the scopes that it takes."""
    key = (await minted(database, TENANT, *SCOPES, name="conformance")).token
    key_file = tmp_path / "key"
    key_file.write_text(key)
    trial = Trial(command=[sys.executable, str(OWN)], tenant=TENANT, api_key=key, patience_s=20)
    async with engine(database, key_file, auth="keys", lease_ms=4_000) as client:
        found = await results(client, [(check, trial) for check in CHECKS])
    assert {result.check: (result.faults, result.output) for result in found if not result.passed} == {}


@pytest.mark.xdist_group("conformance")
async def test_every_check_finds_the_worker_that_does_not(database: Database) -> None:
    """A check that nobody can fail says nothing: for each thing that can be wrong a worker that does it wrong, and nothing else."""
    command = [sys.executable, "-m", "tests.conformance.faulty"]
    trials = [
        (check, Trial(command=["env", f"FAULT={fault}", *command], tenant=TENANT, patience_s=4))
        for fault, (check, _) in FAULTS.items()
    ]
    async with engine(database) as client:
        found = await results(client, trials)
    missed = {
        fault: (result.check, result.faults)
        for (fault, (_, words)), result in zip(FAULTS.items(), found, strict=True)
        if not any(words in each for each in result.faults)
    }
    assert missed == {}
    assert {check for check, _ in FAULTS.values()} == set(CHECKS)


@pytest.mark.xdist_group("conformance")
async def test_the_command_tells_people_and_machines(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    """A table with what was wrong and what the worker printed, or one JSON document; exit code 1 where a check failed."""
    command = f"env FAULT=mangles {sys.executable} -m tests.conformance.faulty"
    async with serving(database, roster.services(ENGINE), **FAST) as edges:
        connection = Connection(target=edges.host.grpc_address.reachable, tenant=TENANT)
        ask = functools.partial(conformance, connection, only=["lease"], patience_s=10)
        assert await ask(command, as_json=False) == FAILED
        told = capsys.readouterr()
        assert await ask(command.replace("mangles", ""), as_json=True) == DONE
        document = json.loads(capsys.readouterr().out)
        with pytest.raises(CommandFailed, match="not-there: No such file") as failure:
            await ask("not-there", as_json=True)
    lines = told.out.splitlines()
    assert lines[0].split() == ["CHECK", "RESULT", "TIME", "WHAT", "WAS", "WRONG"]
    assert [line.split()[:2] for line in lines[1:]] == [["lease", "failed"]]
    assert lines[1].endswith("the output is not the args, exactly")
    assert told.err.splitlines()[-1] == "0 of 1 check passed"
    assert [(each["check"], each["passed"], each["faults"]) for each in document["data"]] == [("lease", True, [])]
    assert (document["passed"], document["outputs"]) == (True, {})
    assert failure.value.code == MISUSED


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--command", "x", "--only", "leases"], "there is no check 'leases'"),
        (["--command", " "], "--command is empty"),
        (["--command", "'x"], "--command is no command line: No closing quotation"),
    ],
)
def test_what_is_typed_wrongly_is_said_before_anything_begins(arguments: list[str], words: str) -> None:
    """Exit code 2, and no engine is asked."""
    code, _, err = invoke("worker", "conformance", "--tenant", TENANT, "--target", "127.0.0.1:1", *arguments)
    assert code == MISUSED
    assert words in err
