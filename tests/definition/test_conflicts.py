"""Two at once: nothing is merged silently, numbers have no gaps, one slug is one family (rulings D1, D2; PG-01, PG-07)."""

import asyncio
from typing import Any

import asyncpg
import grpc
import pytest

from ductord.db.pool import open_pool
from ductord.definition import drafts
from ductord.model.errors import Refusal
from ductord.rpc.errors import refusal_from
from tests.conftest import Database
from tests.definition.client import Definitions, order, refused
from tests.definition.conftest import Rows

pytestmark = pytest.mark.asyncio(loop_scope="module")

AT_ONCE = 8


async def settled(calls: list[Any]) -> tuple[list[Any], list[Refusal]]:
    """Await all; the answers, and how the others were refused."""
    ended = await asyncio.gather(*calls, return_exceptions=True)
    answers, refusals = [], []
    for one in ended:
        if isinstance(one, grpc.aio.AioRpcError):
            refusals.append(refusal_from(one))
        else:
            assert not isinstance(one, BaseException), one
            answers.append(one)
    return answers, refusals


async def test_a_stale_edit_is_refused_with_both_revisions(definitions: Definitions) -> None:
    """Spec: `expected_draft_revision` must equal the current one; AP-06: a conflict is ABORTED on every door."""
    draft = (await definitions.create()).data
    await definitions.update(draft.id, 1, title="First")
    for revision in (0, 1, 3, -1):
        refusal = await refused(definitions.update(draft.id, revision, title="Late"))
        assert (refusal.code, refusal.reason) == ("ABORTED", "DRAFT_REVISION_MISMATCH")
        assert refusal.metadata == {"expected_draft_revision": str(revision), "draft_revision": "2"}
    assert (await definitions.get(draft.id)).title == "First"


async def test_of_edits_at_once_one_wins_also_when_they_are_the_same(definitions: Definitions) -> None:
    """The revision decides, not the content."""
    draft = (await definitions.create()).data
    answers, refusals = await settled([definitions.update(draft.id, 1, title="Same") for _ in range(AT_ONCE)])
    assert len(answers) == 1
    assert {r.reason for r in refusals} == {"DRAFT_REVISION_MISMATCH"}
    assert (await definitions.get(draft.id)).draft_revision == 2


async def test_of_publishes_of_one_revision_at_once_one_wins(definitions: Definitions, rows: Rows) -> None:
    """D2: two publishes at once, one conflicts; also one after the other, since the first leaves a fresh draft."""
    draft = (await definitions.create()).data
    answers, refusals = await settled([definitions.publish(draft.id, 1) for _ in range(AT_ONCE)])
    assert len(answers) == 1
    assert {(r.code, r.reason) for r in refusals} <= {
        ("ABORTED", "PUBLISH_CONFLICT"),
        ("ABORTED", "DRAFT_REVISION_MISMATCH"),
    }
    assert (await refused(definitions.publish(draft.id, 1))).reason == "DRAFT_REVISION_MISMATCH"
    assert await rows.versions("version") == [1]
    assert await rows.audit("action") == ["publish"]


async def test_publishes_without_a_revision_serialise_or_conflict_and_leave_no_gap(
    definitions: Definitions, rows: Rows
) -> None:
    """D2: versions are 1, 2, 3 … whatever happens at once."""
    draft = (await definitions.create()).data
    for _ in range(3):
        answers, refusals = await settled([definitions.publish(draft.id) for _ in range(AT_ONCE)])
        assert answers
        assert {r.reason for r in refusals} <= {"PUBLISH_CONFLICT"}
    numbers = await rows.versions("version")
    assert numbers == list(range(1, len(numbers) + 1))
    assert (await definitions.get(draft.id)).version == len(numbers) + 1
    assert await rows.audit("action") == ["publish"] * len(numbers)


async def test_a_publish_never_freezes_what_was_not_judged(definitions: Definitions, rows: Rows) -> None:
    """Edits race publishes: every version holds the document of the revision it names, and validates."""
    draft = (await definitions.create()).data
    titles = {1: "Order"}
    codes: list[str] = []

    async def edit(number: int) -> None:
        try:
            answer = await definitions.update(
                draft.id, (await definitions.get(draft.id)).draft_revision, title=f"T{number}"
            )
            titles[answer.data.draft_revision] = answer.data.title
        except grpc.aio.AioRpcError as error:
            codes.append(refusal_from(error).code)

    await settled([call for n in range(12) for call in (edit(n), definitions.publish(draft.id))])
    frozen = await rows.versions("draft_revision, title, document->>'title'")
    assert frozen
    assert set(codes) <= {"ABORTED"}
    revisions = [revision for revision, _, _ in frozen]
    assert revisions == sorted(set(revisions))
    for revision, title, written in frozen:
        assert title == written
        assert title == titles.get(revision, title)


async def test_of_creations_of_one_slug_at_once_one_wins(definitions: Definitions, rows: Rows) -> None:
    """D1: a slug is one family, and every tenant has its own."""
    answers, refusals = await settled([definitions.create() for _ in range(AT_ONCE)])
    assert len(answers) == 1
    assert {r.reason for r in refusals} == {"FAMILY_SLUG_TAKEN"}
    assert {r.metadata["definition_id"] for r in refusals} == {answers[0].data.id}
    assert len(await rows.everything()) == 2
    assert (await definitions.of("other").create()).data.id != answers[0].data.id


async def test_of_archives_at_once_one_wins(definitions: Definitions) -> None:
    """One retirement, one audit row."""
    draft = (await definitions.create()).data
    await definitions.publish(draft.id)
    answers, refusals = await settled([definitions.archive(draft.id) for _ in range(AT_ONCE)])
    assert len(answers) == 1
    assert {r.reason for r in refusals} == {"DEFINITION_ARCHIVED"}


async def test_reopening_at_once_gives_one_draft(definitions: Definitions) -> None:
    """The family's lock serialises what gives revisions."""
    draft = (await definitions.create()).data
    await definitions.publish(draft.id)
    await definitions.delete_draft(draft.id)
    answers, refusals = await settled([definitions.create({"family_slug": "order"}) for _ in range(AT_ONCE)])
    assert [answer.data.draft_revision for answer in answers] == [3]
    assert {r.reason for r in refusals} == {"FAMILY_SLUG_TAKEN"}


async def test_lost_connections_are_not_the_callers_business(definitions: Definitions, rows: Rows) -> None:
    """PG-01: Postgres ends every connection of the service between two calls, and during some."""
    terminate = "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database() and usename = 'ductor_definition'"
    draft = (await definitions.create()).data
    assert await rows.owner.fetchval(terminate) > 0
    assert (await definitions.publish(draft.id)).published.version == 1
    for revision in (2, 3, 4):
        edit = asyncio.create_task(definitions.update(draft.id, revision, title=f"T{revision}"))
        await rows.owner.fetchval(terminate)
        assert (await edit).data.draft_revision == revision + 1
    assert await rows.audit("action") == ["publish"]


@pytest.mark.parametrize("broken", ["before", "after"])
async def test_a_creation_whose_commit_was_lost_is_done_once(
    module_database: Database, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """PG-01: the connection goes at the COMMIT, whose outcome nobody knows; the repeated work finds what it has done."""
    pool = await open_pool(module_database.dsn("definition"), "definition")
    attempts = 0

    execute = asyncpg.Connection.execute

    async def losing(connection: asyncpg.Connection, query: str, *args: Any, **options: Any) -> Any:
        nonlocal attempts
        if not query.endswith("commit"):
            return await execute(connection, query, *args, **options)
        attempts += 1
        if attempts > 1:
            return await execute(connection, query)
        await execute(connection, query if broken == "after" else "rollback")
        raise ConnectionResetError("the answer to COMMIT never came")

    monkeypatch.setattr(asyncpg.Connection, "execute", losing)
    try:
        draft = await drafts.create(pool, f"lost-{broken}", order())
        assert attempts == 2
        assert draft.draft_revision == 1
        assert await pool.fetchval("select 1") == 1
    finally:
        await pool.close()
