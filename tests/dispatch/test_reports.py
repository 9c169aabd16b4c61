"""Reports: first writer wins, stale ones are kept and change nothing, bad output fails its attempt and nothing else."""

import asyncio

import asyncpg
import grpc
import pytest

from ductor.workflow.v1 import task_service_pb2 as api
from ductord.db.pool import PROBES, open_pool
from ductord.dispatch.outcomes import Outcomes, Verdict
from ductord.dispatch.reports import KeyedReport, Report
from ductord.dispatch.reports import success as success_report
from ductord.dispatch.token import read, written
from ductord.model.enums import Outcome
from ductord.rpc.channels import outgoing
from ductord.rpc.errors import refusal_from
from tests.conftest import Database
from tests.dispatch.client import INVALID, LOST, OK, Client, failure, release, success
from tests.dispatch.conftest import Dispatching
from tests.support.queue import Queue


async def test_a_success_is_stored_once_and_wakes_its_run(client: Client, queue: Queue) -> None:
    """The text as the worker wrote it, its size and hash, one wake-up; repeating it is OK and does nothing more."""
    [run] = await queue.put(1)
    [task] = await client.poll()
    assert await client.succeed([task], '{"b":1, "a":"é"}') == [OK]
    row = await queue.row(run)
    assert (row["outcome"], row["output"], row["output_size"]) == ("succeeded", '{"b":1, "a":"é"}', 17)
    assert len(row["output_hash"]) == 16
    assert row["status"] == "open"
    assert await client.succeed([task], '{"b":1, "a":"é"}') == [OK]
    assert await queue.wakeups() == [run]
    assert (await queue.row(run))["stale_time"] is None


async def test_a_report_hints_once_that_a_run_is_woken(client: Client, queue: Queue) -> None:
    """PG-03: one NOTIFY per batch that was accepted, none for what counts nothing: without it each step would wait for a poll."""
    heard: asyncio.Queue[str] = asyncio.Queue()
    await queue.owner.add_listener("ductor_wakeup", lambda _c, _p, channel, _payload: heard.put_nowait(channel))
    await queue.put(3)
    tasks = await client.poll(3)
    assert await client.succeed(tasks) == [OK] * 3
    async with asyncio.timeout(20):
        assert await heard.get() == "ductor_wakeup"
    assert await client.succeed(tasks) == [OK] * 3
    await queue.owner.execute("select 1")  # what was sent before has come by its answer
    assert heard.empty()


async def test_one_wakeup_per_run(client: Client, queue: Queue) -> None:
    """Ten attempts of one run reported together wake it once."""
    [run] = await queue.put(1)
    await queue.owner.execute(
        "insert into eec_workflow_step_attempt (tenant_id, run_id, step_ref, attempt, tier, queue, action, input, idempotency_key, due_time, create_time)"
        " select tenant_id, run_id, 's' || n, 1, tier, queue, action, input, 'k', due_time, create_time from eec_workflow_step_attempt, generate_series(1, 9) n"
    )
    tasks = await client.poll(20)
    assert len(tasks) == 10
    assert await client.succeed(tasks) == [OK] * 10
    assert await queue.wakeups() == [run]


async def test_failures_and_releases(client: Client, queue: Queue) -> None:
    """Code, text and the worker's own delay are kept; a release is not a failure."""
    runs = await queue.put(3)
    tasks = {task.run_id: task for task in await client.poll()}
    a, b, c = (tasks[run] for run in runs)
    answers = await client.complete(
        failure(a, "RATE_LIMITED", "slow down", retry_after_ms=1_234), failure(b, non_retryable=True), release(c)
    )
    assert answers == [OK] * 3
    one, two, three = [await queue.row(run) for run in runs]
    assert (one["outcome"], one["error_code"], one["error_message"], one["non_retryable"], one["retry_after_ms"]) == (
        "failed", "RATE_LIMITED", "slow down", False, 1_234,
    )  # fmt: skip
    assert (two["error_code"], two["error_message"], two["non_retryable"], two["retry_after_ms"]) == (
        "UNKNOWN",
        "",
        True,
        None,
    )
    assert (three["outcome"], three["error_code"], three["error_message"]) == ("released", None, "draining")


async def test_rt_02_a_late_result_is_stale(client: Client, queue: Queue) -> None:
    """RT-02, C7: the attempt is closed and its result arrives: LEASE_LOST, kept as stale, once; the attempt stays as it was judged. Its run is woken,
    once: what the attempt did may have to be undone."""
    [run] = await queue.put(1)
    [task] = await client.poll()
    await queue.owner.execute(
        "update eec_workflow_step_attempt set outcome = 'timed_out', report_time = now(), status = 'timed_out', end_time = now()"
    )
    assert await client.succeed([task], '"late"') == [LOST]
    assert await client.succeed([task], '"later"') == [LOST]
    row = await queue.row(run)
    assert (row["status"], row["outcome"], row["output"]) == ("timed_out", "timed_out", None)
    assert (row["stale_outcome"], row["stale_output"]) == ("succeeded", '"late"')
    assert await queue.wakeups() == [run]


async def test_rt_02_a_late_failure_wakes_nobody(client: Client, queue: Queue) -> None:
    """RT-02: a failure that comes too late is kept, and there is nothing to do about it; nor about a success that says again what counted."""
    closed, counted = await queue.put(2)
    tasks = {task.run_id: task for task in await client.poll()}
    await queue.owner.execute("update eec_workflow_step_attempt set status = 'timed_out' where run_id = $1", closed)
    assert await client.succeed([tasks[counted]], '"a"') == [OK]
    await queue.owner.execute("update eec_workflow_step_attempt set status = 'succeeded' where run_id = $1", counted)
    assert await client.complete(failure(tasks[closed], "A"), success(tasks[counted], '"b"')) == [LOST, LOST]
    assert (await queue.row(counted))["stale_outcome"] == "succeeded"
    assert await queue.wakeups() == [counted]


async def test_rt_02_a_result_after_the_deadline_is_a_timeout(client: Client, queue: Queue) -> None:
    """RT-02, A3: judged by database time, also when no sweep has come by: `timed_out`, the output is stale, the run is woken."""
    [run] = await queue.put(1, timeout_ms=60_000)
    [task] = await client.poll()
    await queue.shift("deadline_time", -61_000)
    assert await client.succeed([task], '"late"') == [LOST]
    assert await client.succeed([task], '"late"') == [LOST]
    row = await queue.row(run)
    assert (row["outcome"], row["output"], row["output_hash"], row["stale_outcome"], row["stale_output"]) == (
        "timed_out", None, None, "succeeded", '"late"',
    )  # fmt: skip
    assert await queue.wakeups() == [run]


async def test_another_report_for_a_reported_attempt_is_stale(client: Client, queue: Queue) -> None:
    """Only the same report is a repetition; a different one from the same worker changes nothing."""
    [run] = await queue.put(1)
    [task] = await client.poll()
    assert await client.complete(failure(task, "A")) == [OK]
    assert await client.complete(failure(task, "A"), failure(task, "B"), success(task)) == [OK, LOST, LOST]
    row = await queue.row(run)
    assert (row["outcome"], row["error_code"], row["stale_outcome"]) == ("failed", "A", "failed")


async def test_an_expired_lease_that_nobody_swept_still_counts(client: Client, queue: Queue) -> None:
    """First writer wins: silence is judged by the sweep, and a report that comes before it is a report."""
    [run] = await queue.put(1)
    [task] = await client.poll()
    await queue.shift("lease_expire_time", -60_000)
    assert await client.succeed([task]) == [OK]
    assert (await queue.row(run))["outcome"] == "succeeded"


async def test_rt_05_each_of_fifty_lost_attempts_is_reported_once(client: Client, queue: Queue) -> None:
    """RT-05, RT-06 (dispatch's part): the sweep took 30 of 50; the draining old worker reports all: 20 count, 30 are fenced, row by row."""
    await queue.put(50)
    tasks = await client.poll(50)
    await queue.owner.execute(
        "update eec_workflow_step_attempt set outcome = 'lost', report_time = now() where run_id = any($1::uuid[])",
        [task.run_id for task in tasks[:30]],
    )
    answers = await client.succeed(tasks)
    assert answers == [LOST] * 30 + [OK] * 20
    assert await queue.outcomes() == {"lost": 30, "succeeded": 20}
    assert sorted(await queue.wakeups()) == sorted(task.run_id for task in tasks), "C7: the fenced ones too, as late"


async def test_concurrent_reports_of_one_attempt(client: Client, queue: Queue) -> None:
    """Many at once: one counts, the same ones are repetitions, the others are stale; nobody fails."""
    await queue.put(20)
    tasks = await client.poll(20)
    same = [client.succeed(tasks, "1") for _ in range(4)]
    other = [client.succeed(reversed(tasks), "2") for _ in range(4)]
    answers = await asyncio.gather(*same, *other)
    by_task = [{answers[i][n] for i in range(4)} | {answers[i][19 - n] for i in range(4, 8)} for n in range(20)]
    assert all(seen == {OK, LOST} for seen in by_task)
    assert await queue.outcomes() == {"succeeded": 20}
    assert len(await queue.wakeups()) == 20


@pytest.mark.parametrize(
    ("output", "code", "text"),
    [
        ('{"k\\u0000":1}', "payload_invalid", 'output["k\\u0000"]'),
        ('{"a":"x\\u0000y"}', "payload_invalid", "output.a"),
        ("\0", "payload_invalid", "output"),
        ('"\\ud800"', "payload_invalid", "output"),
        ('{"x":NaN}', "payload_invalid", "output.x"),
        ('{"x":1e999}', "payload_invalid", "output.x"),
        ('{"big":18446744073709551616}', "payload_invalid", "output.big"),
        ('{"a":1,"a":2}', "payload_invalid", "output.a"),
        ("[" * 40 + "]" * 40, "payload_invalid", "32 deep"),
        ("{oops", "payload_invalid", "not JSON"),
        ('"' + "x" * (1 << 20) + '"', "payload_too_large", "1,048,578 bytes"),
    ],
)
async def test_pl_output_that_cannot_be_carried(
    client: Client, queue: Queue, output: str, code: str, text: str
) -> None:
    """PL-01, PL-03, PL-04, PL-06, L5 to L7: the attempt fails for good with a code and the place; its neighbour in the batch does not."""
    runs = await queue.put(2)
    tasks = {task.run_id: task for task in await client.poll()}
    bad, good = (tasks[run] for run in runs)
    assert await client.complete(success(bad, output), success(good)) == [INVALID, OK]
    assert await client.complete(success(bad, output)) == [INVALID]
    row = await queue.row(runs[0])
    assert (row["outcome"], row["error_code"], row["non_retryable"], row["output"]) == ("failed", code, True, None)
    assert text in row["error_message"]
    assert (await queue.row(runs[1]))["outcome"] == "succeeded"


async def test_pl_03_int64_is_exact(client: Client, queue: Queue) -> None:
    """PL-03: the digits that the worker wrote are the digits that are stored."""
    [run] = await queue.put(1)
    [task] = await client.poll()
    assert await client.succeed([task], '{"id":9007199254740993,"low":-9223372036854775808}') == [OK]
    assert (await queue.row(run))["output"] == '{"id":9007199254740993,"low":-9223372036854775808}'


async def test_pl_01_error_text_is_always_stored(client: Client, queue: Queue) -> None:
    """PL-01: NUL is escaped, length is bounded; recording a failure cannot fail."""
    [run] = await queue.put(1)
    [task] = await client.poll()
    assert await client.complete(failure(task, "BAD\0CODE" + "x" * 500, "\0boom" + "y" * 100_000)) == [OK]
    row = await queue.row(run)
    assert row["error_code"].startswith("BAD\\u0000CODE")
    assert len(row["error_code"]) < 200
    assert row["error_message"].startswith("\\u0000boom")
    assert len(row["error_message"]) < 5_000


async def test_what_slips_through_the_checks_fails_its_attempt_alone(
    database: Database, client: Client, queue: Queue
) -> None:
    """A text that Postgres refuses is found by halving the batch and fails its own attempt; the others count."""
    await queue.put(9)
    tasks = await client.poll(9)
    pool = await open_pool(database.dsn("dispatch"), "dispatch", max_size=1, settings=PROBES)
    try:
        reports = []
        for number, task in enumerate(tasks):
            key = read(task.task_token, None)
            assert key is not None
            report = Report(
                outcome=Outcome.SUCCEEDED, output="{" if number == 4 else "{}", output_size=2, output_hash="h"
            )
            reports.append(KeyedReport(number=number, key=key, report=report))
        settled, _ = await Outcomes(pool, lease_ms=15_000).complete(reports)
    finally:
        await pool.close()
    assert {each.verdict for each in settled} == {Verdict.ACCEPTED}
    assert await queue.outcomes() == {"succeeded": 8, "failed": 1}
    assert (await queue.row(tasks[4].run_id))["error_code"] == "payload_invalid"


async def test_tokens_of_nobody(client: Client, queue: Queue) -> None:
    """N3: damaged, invented and foreign tokens are lost leases, each alone; nothing is stored for them."""
    [run] = await queue.put(1)
    [task] = await client.poll()
    key = read(task.task_token, None)
    assert key is not None
    strangers = [
        "",
        "x",
        task.task_token[:-3],
        written(key._replace(tenant_id="nobody")),
        written(key._replace(attempt=7)),
    ]
    reports = [success(api.Task(task_token=token)) for token in strangers]
    assert await client.complete(*reports) == [LOST] * 5
    assert await client.succeed([task], tenant="other") == [LOST]
    row = await queue.row(run)
    assert (row["report_time"], row["stale_time"]) == (None, None)
    assert await client.complete(success(api.Task(task_token=written(key._replace(lease_secret="0" * 32))))) == [LOST]
    assert (await queue.row(run))["stale_outcome"] == "succeeded"
    assert await client.succeed([task], tenant="acme") == [OK]


@pytest.mark.parametrize(
    ("request_", "reason", "field"),
    [
        (
            api.CompleteTasksRequest(completions=[api.TaskCompletion(task_token="t")]),
            "FIELD_REQUIRED",
            "completions[0].outcome",
        ),
        (
            api.CompleteTasksRequest(completions=[failure(api.Task(task_token="t"), "A", retry_after_ms=-1)]),
            "FIELD_INVALID",
            "completions[0].failure.retry_after_ms",
        ),
        (
            api.CompleteTasksRequest(completions=[release(api.Task(task_token="t"))] * 1_001),
            "BATCH_TOO_LARGE",
            "completions",
        ),
    ],
)
async def test_bad_batches_are_refused_whole(
    client: Client, request_: api.CompleteTasksRequest, reason: str, field: str
) -> None:
    """A coded error that names the field."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await client.stub.CompleteTasks(request_, metadata=outgoing(platform=True))
    refusal = refusal_from(refused.value)
    assert (refusal.reason, refusal.metadata["field"]) == (reason, field)


async def test_an_outage_is_unavailable_and_loses_nothing(
    dispatching: Dispatching, database: Database, queue: Queue
) -> None:
    """Connections are cut: the call answers after a retry or with DATABASE_UNAVAILABLE, and a repetition settles it."""
    await queue.put(1)
    async with dispatching() as client:
        [task] = await client.poll()
        await queue.owner.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'ductor_dispatch' and datname = current_database()"
        )
        assert await client.succeed([task]) == [OK]
    assert await queue.outcomes() == {"succeeded": 1}


def test_reports_keep_the_text_as_it_was() -> None:
    """Size and hash are of the bytes that are stored; equal bytes, equal hash."""
    report = success_report('{"a": 1}', 100)
    assert (report.output, report.output_size) == ('{"a": 1}', 8)
    assert (
        report.output_hash == success_report('{"a": 1}', 100).output_hash != success_report('{"a":1}', 100).output_hash
    )


async def test_dispatch_may_write_nothing_else(database: Database, queue: Queue) -> None:
    """Column grants: the verdict and the task are not dispatch's."""
    await queue.put(1)
    connection = await asyncpg.connect(database.dsn("dispatch"))
    try:
        for statement in (
            "update eec_workflow_step_attempt set status = 'lost'",
            "update eec_workflow_step_attempt set due_time = now()",
            "delete from eec_workflow_step_attempt",
            "delete from eec_workflow_wakeup",
            "select 1 from eec_workflow_run",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(statement)
    finally:
        await connection.close()
