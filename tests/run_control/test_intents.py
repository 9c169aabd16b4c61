"""The one transaction of a control: names and repetitions, who sees what, limits, runs that were set aside."""

import asyncio

import asyncpg
import pytest

from ductor.workflow.v1 import control_pb2
from ductord.db.ids import new_id
from ductord.db.pool import open_pool
from ductord.model.enums import Verb
from ductord.model.ids import derived
from ductord.run_control.service import SERVICE
from tests.conftest import Database
from tests.run_control.operator import RPCS, Operator
from tests.run_control.standing import SUCCESSOR, Stands
from tests.support.edges import Edges, refusal, serving


async def test_the_server_fills_an_empty_request_id(operator: Operator, stands: Stands) -> None:
    """C1: the filled name is answered and finds the operation; two such calls are two operations."""
    run_id = await stands.run()
    first, second = [await operator.ask(Verb.PAUSE, run_id) for _ in range(2)]
    assert first.request_id
    assert first.request_id != second.request_id
    assert (await operator.operation(run_id, first.request_id)).verb == control_pb2.CONTROL_VERB_PAUSE
    assert len(await stands.intents(run_id)) == 2


async def test_a_repetition_is_the_same_operation(operator: Operator, stands: Stands) -> None:
    """C1: the same call is answered the same, whatever has become of the run, and records nothing more."""
    run_id = await stands.run()
    for _ in range(3):
        answer = await operator.ask(Verb.CANCEL, run_id, request_id="r", reason="why")
        assert (answer.status, answer.request_id) == (control_pb2.ACCEPT_STATUS_ACCEPTED, "r")
    await stands.settle(run_id, "r", "rejected", "RUN_TERMINAL")
    await operator.ask(Verb.CANCEL, run_id, request_id="r", reason="why")
    assert len(await stands.intents(run_id)) == 1
    assert await stands.wakeups(run_id) == 1


@pytest.mark.parametrize(
    ("verb", "fields"),
    [
        (Verb.CANCEL, {"reason": "another"}),
        (Verb.PAUSE, {"reason": "why"}),
        (Verb.TERMINATE, {"reason": "why"}),
        (Verb.TERMINATE, {"reason": "why", "skip_finally": True}),
        (Verb.PAUSE_NODE, {"reason": "why"}),
    ],
)
async def test_the_same_name_with_another_body(
    verb: Verb, fields: dict[str, object], operator: Operator, stands: Stands
) -> None:
    """C1: another verb, step, reason or body under a known name is ALREADY_EXISTS and says what the name was used for."""
    run_id = await stands.run()
    await operator.ask(Verb.CANCEL, run_id, request_id="r", reason="why")
    refused = await operator.refused(verb, run_id, request_id="r", **fields)
    assert (refused.code, refused.reason) == ("ALREADY_EXISTS", "REQUEST_MISMATCH")
    assert refused.metadata == {"request_id": "r", "verb": "cancel"}


async def test_a_known_name_wins_over_an_unknown_step(operator: Operator, stands: Stands) -> None:
    run_id = await stands.run()
    await operator.ask(Verb.PAUSE_NODE, run_id, request_id="r")
    assert (await operator.refused(Verb.PAUSE_NODE, run_id, request_id="r", step_ref="s9")).reason == "REQUEST_MISMATCH"


async def test_names_are_those_of_one_run(operator: Operator, stands: Stands) -> None:
    """C1: (run, request id) names an operation, so another run's is another one."""
    for run_id in (await stands.run(), await stands.run()):
        assert (await operator.ask(Verb.PAUSE, run_id, request_id="r")).run_id == run_id
        assert len(await stands.intents(run_id)) == 1


async def test_rr03_the_same_call_from_everywhere_at_once(
    edges: Edges, database: Database, operator: Operator, stands: Stands
) -> None:
    """RR-03: twenty times the same control through two processes is one intent, one wake-up, one answer."""
    run_id = await stands.run()
    async with serving(database, [SERVICE], pool_max_size=4) as other:
        both = [operator, Operator(other)] * 10
        calls = [o.ask(Verb.CONTINUE_AS_NEW, run_id, request_id="r", seed_run_context={"n": 1}) for o in both]
        answers = await asyncio.gather(*calls)
    assert {answer.new_run_id for answer in answers} == {derived("continue", run_id, "r")}
    assert len(await stands.intents(run_id)) == 1
    assert await stands.wakeups(run_id) == 1


async def test_of_two_bodies_at_once_one_wins(operator: Operator, stands: Stands) -> None:
    """The loser of a race for a name hears of the mismatch, as it would later."""
    run_id = await stands.run()
    outcomes = await asyncio.gather(
        *(operator.ask(Verb.PAUSE, run_id, request_id="r", reason=str(i % 2)) for i in range(8)), return_exceptions=True
    )
    refused = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    assert len(refused) == 4
    assert len(await stands.intents(run_id)) == 1


async def test_a_hundred_controls_may_be_pending(operator: Operator, stands: Stands) -> None:
    """At most 100, exactly, even at once; one that is settled makes room, and a known name needs none."""
    run_id = await stands.run()
    outcomes = await asyncio.gather(
        *(operator.ask(Verb.PAUSE, run_id, request_id=str(i)) for i in range(120)), return_exceptions=True
    )
    accepted = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    assert len(accepted) == len(await stands.intents(run_id)) == 100
    refused = await operator.refused(Verb.PAUSE, run_id, request_id="more")
    assert (refused.code, refused.reason) == ("RESOURCE_EXHAUSTED", "TOO_MANY_PENDING_CONTROLS")
    assert refused.metadata == {"limit": "100"}
    await operator.ask(Verb.PAUSE, run_id, request_id=accepted[0].request_id)
    await stands.settle(run_id, accepted[0].request_id)
    await operator.ask(Verb.PAUSE, run_id, request_id="more")


async def test_tn01_a_foreign_run_is_an_unknown_one(operator: Operator, stands: Stands) -> None:
    """TN-01: a run of another tenant, a random id and a text that is none get the same answer from every control."""
    foreign = await stands.run(tenant="other")
    for verb in Verb:
        answers = [await operator.refused(verb, text) for text in (foreign, new_id(), "no id", "1" * 36)]
        assert {(r.code, r.reason, r.message, *r.metadata) for r in answers} == {
            ("NOT_FOUND", "RUN_NOT_FOUND", "there is no such run")
        }, verb
        missing = await operator.refused(verb, "")
        name = "source_run_id" if verb is Verb.RESET else "run_id"
        assert (missing.reason, missing.metadata["field"]) == ("FIELD_REQUIRED", name)
    assert await stands.intents(foreign) == []


async def test_a_step_that_the_run_does_not_have(operator: Operator, stands: Stands) -> None:
    run_id = await stands.run()
    for verb in [v for v in Verb if "node" in v or v is Verb.RESOLVE_REPAIR]:
        refused = await operator.refused(verb, run_id, step_ref="s9")
        assert (refused.code, refused.reason) == ("NOT_FOUND", "STEP_NOT_FOUND"), verb
        missing = await operator.refused(verb, run_id, step_ref="")
        assert (missing.reason, missing.metadata["field"]) == ("FIELD_REQUIRED", "step_ref"), verb


async def test_a_run_that_was_set_aside_is_woken(operator: Operator, stands: Stands, owner: asyncpg.Connection) -> None:
    """C9: a resume has the tick tried again at once; it is applied by that, and stands in the audit trail. A paused run is resumed as ever."""
    run_id = await stands.run()
    await stands.quarantine(run_id)
    await operator.ask(Verb.RESUME, run_id, request_id="r", reason="fixed")
    operation = await operator.operation(run_id, "r")
    assert operation.status == control_pb2.OPERATION_STATUS_APPLIED
    assert operation.HasField("settle_time")
    assert await stands.wakeups(run_id) == 1
    line = await owner.fetchrow("select actor, action, target, reason, request_id, outcome from eec_workflow_audit")
    assert tuple(line) == ("anonymous", "resume", f"run:{run_id}", "fixed", "r", "applied")
    await operator.ask(Verb.RESUME, run_id, request_id="r", reason="fixed")
    assert await stands.wakeups(run_id) == 1
    for stand in ("pending", "failed"):  # its first tick raised, or one of its unwinding
        aside = await stands.run(stand)
        await stands.quarantine(aside)
        await operator.ask(Verb.RESUME, aside, request_id="r")
        assert (await operator.operation(aside, "r")).status == control_pb2.OPERATION_STATUS_APPLIED
    paused = await stands.run("paused")
    await stands.quarantine(paused)
    await operator.ask(Verb.RESUME, paused, request_id="r")
    assert (await operator.operation(paused, "r")).status == control_pb2.OPERATION_STATUS_PENDING


async def test_a_run_that_cannot_be_read_is_woken_and_not_judged(
    operator: Operator, stands: Stands, owner: asyncpg.Connection
) -> None:
    """C9: a resume has the tick tried again; what has to be judged by the run's state is refused, and can be repeated. Nothing of it is an internal error."""
    run_id = await stands.run()
    await stands.quarantine(run_id)
    await owner.execute("update eec_workflow_run set run_state = '{\"saga\": 5}' where run_id = $1", run_id)
    for verb in (Verb.PAUSE, Verb.CANCEL, Verb.REDRIVE):
        assert (await operator.refused(verb, run_id)).reason == "SERVICE_UNAVAILABLE"
    await operator.ask(Verb.RESUME, run_id, request_id="r")
    assert (await operator.operation(run_id, "r")).status == control_pb2.OPERATION_STATUS_APPLIED
    assert await stands.wakeups(run_id) == 1


async def test_rr03_the_successor_that_there_is_already(operator: Operator, stands: Stands) -> None:
    """RR-03: whoever asks to continue a run hears of its one successor, as far as it is known: ended, on its way, or asked for by another."""
    for stand in ("continued", "continuing"):
        run_id = await stands.run(stand)
        for name in ("a", "b"):
            answer = await operator.ask(Verb.CONTINUE_AS_NEW, run_id, request_id=name)
            assert answer.new_run_id == SUCCESSOR, stand
    run_id = await stands.run()
    answers = [await operator.ask(Verb.CONTINUE_AS_NEW, run_id, request_id=name) for name in ("a", "b", "a", "b")]
    assert {answer.new_run_id for answer in answers} == {derived("continue", run_id, "a")}
    await stands.settle(run_id, "a", new_run_id=answers[0].new_run_id)
    await stands.settle(run_id, "b", new_run_id=SUCCESSOR)
    assert (await operator.ask(Verb.CONTINUE_AS_NEW, run_id, request_id="b")).new_run_id == SUCCESSOR


async def test_a_call_cannot_touch_a_run(database: Database, stands: Stands) -> None:
    """The service's login may insert intents and wake-ups and lines of the trail, and change nothing (architecture: who writes what)."""
    run_id = await stands.run()
    pool = await open_pool(database.dsn("run_control"), "run_control")
    try:
        for sql in (
            "update eec_workflow_run set status = 'paused' where run_id = $1",
            "update eec_workflow_intent set status = 'applied' where run_id = $1",
            "delete from eec_workflow_intent where run_id = $1",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await pool.execute(sql, run_id)
    finally:
        await pool.close()


@pytest.mark.parametrize("stand", ["running", "failed"])
async def test_a_run_of_a_newer_release(
    stand: str, operator: Operator, stands: Stands, owner: asyncpg.Connection
) -> None:
    """What a newer release wrote is not judged by halves: the call may be repeated and finds a replica of that release."""
    run_id = await stands.run(stand)
    await owner.execute("update eec_workflow_run set engine_level = 1000 where run_id = $1", run_id)
    for rpc in (RPCS[Verb.CANCEL], "GetRunSnapshot", "ListResetTargets"):
        refused = await refusal(operator.call(rpc, run_id=run_id))
        assert (refused.code, refused.reason) == ("UNAVAILABLE", "SERVICE_UNAVAILABLE"), rpc
    await owner.execute("update eec_workflow_run set engine_level = 1 where run_id = $1", run_id)
    await owner.execute("update eec_workflow_version set format_version = 1000")
    assert (await operator.refused(Verb.CANCEL, run_id)).reason in ("SERVICE_UNAVAILABLE", "RUN_TERMINAL")
