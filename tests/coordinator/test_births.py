"""Runs that are born of runs, as rows: successors and reset runs, what they carry on and what they take over (rulings C5, C6)."""

import orjson
import pytest
from msgspec import structs

from ductord.coordinator import histories
from ductord.coordinator.cache import LARGE_BYTES
from ductord.model.control import ControlBody
from ductord.model.enums import Verb
from ductord.model.ids import derived
from ductord.model.manifest import Checkpoint, Manifest
from ductord.model.specs import ActionSpec, Template
from tests.coordinator.conftest import Ticker
from tests.support.books import TENANT, Books, chain

_KEPT = ", ".join(
    (
        "definition_id", "version_id", "version", "family_slug", "given_definition_id", "subject_type", "subject_id", "labels::text", "input::text",
        "tier", "traceparent", "journey_id", "actor",
    )
)  # fmt: skip


def _reading(manifest: Manifest, expression: str, name: str, steps: tuple[str, ...] = ()) -> Manifest:
    """The manifest with an arg of its last step read from an expression."""
    args = Template(tree={"x": f"${{{{ {expression} }}}}"}, static=False, names=(name,), steps=steps)
    last = structs.replace(manifest.steps[-1], action=ActionSpec(action="noop:noop", args=args))
    return structs.replace(manifest, steps=(*manifest.steps[:-1], last))


async def _started(books: Books, manifest: Manifest) -> str:
    run_id = await books.start(
        await books.publish(manifest), input_='{"order": 7}', subject=("order", "7"), actor="ann"
    )
    await books.owner.execute(
        "update eec_workflow_run_start set labels = '{\"team\": \"red\"}', tier = 'bulk', traceparent = '00-a-b-01', nesting_depth = 3,"
        " parent_run_id = gen_random_uuid(), root_run_id = gen_random_uuid(), journey_id = gen_random_uuid(), idempotency_key = 'key'"
    )
    return run_id


async def _continue(books: Books, ticker: Ticker, run_id: str, seed: dict[str, object]) -> str:
    new_run_id = derived("continue", run_id, "c")
    body = ControlBody(new_run_id=new_run_id, seed=seed)
    await books.control(run_id, Verb.CONTINUE_AS_NEW, request_id="c", body=body)
    await ticker.drain()
    return new_run_id


async def _reset(books: Books, ticker: Ticker, run_id: str, request_id: str = "r", **body: object) -> str:
    new_run_id = derived("reset", run_id, request_id)
    asked = ControlBody(new_run_id=new_run_id, **body)  # type: ignore[arg-type]
    await books.control(run_id, Verb.RESET, request_id=request_id, body=asked)
    await ticker.drain()
    operation = await books.operation(run_id, request_id)
    assert operation["status"] == "applied", operation["message"]
    return new_run_id


async def test_c6_a_successor_stands_where_its_predecessor_stood(books: Books, ticker: Ticker) -> None:
    """C6, T5: same version, input, subject, labels (with their rows), tier and trace; parent, root, depth and journey kept; the key stays with the first."""
    run_id = await _started(books, chain(2))
    await ticker.drain()
    new_run_id = await _continue(books, ticker, run_id, {"n": 1})
    more = "parent_run_id, root_run_id, nesting_depth"
    rows = [
        await books.owner.fetchrow(f"select {_KEPT}, {more} from eec_workflow_run_start where run_id = $1", r)
        for r in (run_id, new_run_id)
    ]
    assert rows[0] == rows[1]
    born = await books.owner.fetchrow("select * from eec_workflow_run_start where run_id = $1", new_run_id)
    assert (born["idempotency_key"], str(born["continued_from_run_id"]), born["reset_from_run_id"]) == (
        None,
        run_id,
        None,
    )
    assert orjson.loads(born["context"]) == {"n": 1}
    label = "select label, create_time from eec_workflow_run_label where run_id = $1"
    assert tuple(await books.owner.fetchrow(label, new_run_id)) == ("team:red", born["create_time"])
    assert (await books.settled(new_run_id)).status == "running"


async def test_c6_a_context_is_carried_from_run_to_run(books: Books, ticker: Ticker) -> None:
    """C6: the seed overlays what the run had; a large context is read where an expression or a continuation reads it, and is not lost by runs that do not."""
    text = "x" * 2 * LARGE_BYTES
    run_id = await books.start(await books.publish(_reading(chain(1), "CONTEXT.n", "CONTEXT")))
    await books.owner.execute(
        "update eec_workflow_run_start set context = $1", orjson.dumps({"n": 1, "text": text}).decode()
    )
    for n in (2, 3):
        await ticker.drain()
        rendered = await books.owner.fetchval(
            "select input ->> 'x' from eec_workflow_step_attempt where run_id = $1", run_id
        )
        assert rendered == str(n - 1)
        assert run_id not in ticker.cache.runs, "a large payload is not kept"
        run_id = await _continue(books, ticker, run_id, {"n": n})
    context = await books.owner.fetchval("select context::text from eec_workflow_run_start where run_id = $1", run_id)
    assert orjson.loads(context) == {"n": 3, "text": text}


async def test_a_large_context_that_nothing_reads_stays_where_it_is(books: Books, ticker: Ticker) -> None:
    """C6: no tick loads it, until the run is asked to go on as a successor."""
    text = "x" * 2 * LARGE_BYTES
    run_id = await books.start(await books.publish(chain(2)))
    await books.owner.execute("update eec_workflow_run_start set context = $1", orjson.dumps({"text": text}).decode())
    await ticker.drain()
    known = ticker.cache.runs[run_id]
    assert (known.start.context, set(known.left)) == ({}, {"context"})
    new_run_id = await _continue(books, ticker, run_id, {})
    context = await books.owner.fetchval(
        "select context::text from eec_workflow_run_start where run_id = $1", new_run_id
    )
    assert orjson.loads(context) == {"text": text}


async def test_c5_a_reset_run_folds_like_any_other(books: Books, ticker: Ticker) -> None:
    """C5: it begins behind the transitions that it adopts, with the outputs and checkpoints that it keeps, as a root of its own; its source stays as it is."""
    manifest = _reading(chain(3), 'STEPS["s0"].output.n', "STEPS", ("s0",))
    manifest = structs.replace(manifest, checkpoints=(Checkpoint(name="paid", steps=(0,)),))
    run_id = await _started(books, manifest)
    for n in range(3):
        await ticker.drain()
        await books.report(output=f'{{"n": {n}}}')
    await ticker.drain()
    before = await books.settled(run_id)
    new_run_id = await _reset(books, ticker, run_id, seq=3)
    ticker.cache.runs.clear()
    run = await books.settled(new_run_id)
    assert (run.seq, run.nodes[0].status, run.nodes[1].status, run.nodes[2].status) == (
        4, "succeeded", "succeeded", "running",
    )  # fmt: skip
    born = await books.owner.fetchrow("select * from eec_workflow_run_start where run_id = $1", new_run_id)
    assert (str(born["root_run_id"]), born["parent_run_id"], born["nesting_depth"]) == (new_run_id, None, 0)
    assert (str(born["reset_from_run_id"]), born["reset_from_seq"], born["continued_from_run_id"]) == (run_id, 3, None)
    rows = [
        await books.owner.fetchrow(f"select {_KEPT} from eec_workflow_run_start where run_id = $1", r)
        for r in (run_id, new_run_id)
    ]
    assert rows[0] == rows[1]
    attempts = await books.owner.fetch(
        "select step_ref, status, output::text, input::text, lease_secret from eec_workflow_step_attempt where run_id = $1 order by step_ref",
        new_run_id,
    )
    assert [(r["step_ref"], r["status"], r["output"]) for r in attempts] == [
        ("s0", "succeeded", '{"n": 0}'), ("s1", "succeeded", '{"n": 1}'), ("s2", "open", None),
    ]  # fmt: skip
    assert orjson.loads(attempts[2]["input"]) == {"x": 0}
    assert {r["lease_secret"] for r in attempts} == {None}
    checkpoint = "select name, status, at, refs::text from eec_workflow_checkpoint where run_id = $1"
    assert await books.owner.fetchrow(checkpoint, new_run_id) == await books.owner.fetchrow(checkpoint, run_id)
    assert await books.settled(run_id) == before
    await books.report(output='{"n": 9}')
    await ticker.drain()
    assert (await books.settled(new_run_id)).status == "completed"


async def test_c5_overrides_and_preserved_outputs(books: Books, ticker: Ticker) -> None:
    """C5: an input that the operator gave, also a large one, and an output that is taken over instead of running the step, read by what comes after."""
    text = "x" * 2 * LARGE_BYTES
    run_id = await books.start(await books.publish(_reading(chain(3), 'STEPS["s1"].output.n', "STEPS", ("s1",))))
    for n in range(3):
        await ticker.drain()
        await books.report(output=f'{{"n": {n}}}')
    await ticker.drain()
    new_run_id = await _reset(books, ticker, run_id, seq=1, overrides={"s0": {"given": text}}, preserve=("s1",))
    row = await books.owner.fetchrow(
        "select step_ref, attempt, input::text from eec_workflow_step_attempt where run_id = $1 and status = 'open'",
        new_run_id,
    )
    assert (row["step_ref"], orjson.loads(row["input"])) == ("s0", {"given": text})
    await books.report()
    await ticker.drain()
    rendered = await books.owner.fetchval(
        "select input::text from eec_workflow_step_attempt where run_id = $1 and step_ref = 's2' and status = 'open'",
        new_run_id,
    )
    assert orjson.loads(rendered) == {"x": 1}
    await books.report()
    await ticker.drain()
    assert (await books.settled(new_run_id)).status == "completed"


async def test_c5_a_reset_run_is_born_once(books: Books, ticker: Ticker, other_ticker: Ticker) -> None:
    """C5, RR-03: two coordinators decide the same reset and both commit, as nothing of the source's row keeps them apart: one run, one wake-up, one line."""
    run_id = await books.start(await books.publish(chain(1)))
    await ticker.drain()
    new_run_id = derived("reset", run_id, "r")
    await books.control(run_id, Verb.RESET, request_id="r", body=ControlBody(new_run_id=new_run_id, seq=1))
    first, second = await ticker.decide(TENANT, run_id), await other_ticker.decide(TENANT, run_id)
    assert await ticker.commit(first) == set()
    assert await other_ticker.commit(second) == set()
    wakeups = "select count(*) from eec_workflow_wakeup where run_id = $1"
    assert await books.owner.fetchval(wakeups, new_run_id) == 1
    assert await books.trail(run_id) == [("somebody", "reset", "applied")]
    await ticker.drain()
    assert (await books.settled(new_run_id)).status == "running"


async def test_c5_histories_are_folded_a_few_at_a_time(
    books: Books, ticker: Ticker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C5: resets whose histories together are more than a tick folds are taken in turns, each complete; nobody has to wake them for it."""
    monkeypatch.setattr(histories, "_TRANSITIONS", 3)
    version = await books.publish(chain(3))
    runs = [await books.start(version) for _ in range(3)]
    for _ in range(2):
        await ticker.drain()
        await books.report()
    await ticker.drain()
    born = [derived("reset", run_id, "reset") for run_id in runs]
    for run_id, new_run_id in zip(runs, born, strict=True):
        await books.control(run_id, Verb.RESET, body=ControlBody(new_run_id=new_run_id, seq=2))
    settled = "select count(*) from eec_workflow_intent where status = 'applied'"
    counts = []
    for _ in range(3):
        await ticker.tick(3)
        counts.append(await books.owner.fetchval(settled))
    await ticker.drain()
    assert counts[0] == 1
    assert await books.owner.fetchval(settled) == 3
    for new_run_id in born:
        assert (await books.settled(new_run_id)).seq == 3


async def test_c9_a_source_that_does_not_fold_keeps_its_reset_run_from_beginning(books: Books, ticker: Ticker) -> None:
    """C9, C5: the reset run is set aside with the reason; the reset of a run whose own history does not fold is refused, and the run goes on."""
    run_id = await books.start(await books.publish(chain(2)))
    await ticker.drain()
    await books.report()
    await ticker.drain()
    await books.control(run_id, Verb.RESET, body=ControlBody(new_run_id=derived("reset", run_id, "reset"), seq=1))
    await ticker.tick()
    await books.owner.execute("update eec_workflow_transition set events = '[]' where seq = 1")
    assert (await ticker.tick()).quarantined == 1
    await books.control(
        run_id, Verb.RESET, request_id="again", body=ControlBody(new_run_id=derived("reset", run_id, "again"), seq=2)
    )
    await ticker.tick()
    assert (await books.operation(run_id, "again"))["status"] == "rejected"
    await books.report()
    await ticker.drain()
    assert await books.status(run_id) == "completed"
