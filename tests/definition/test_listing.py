"""Lists: filters, keyset pages, and pages that fit a reply (contract: Lists; L7; PG-09)."""

from typing import Any

import pytest
import pytest_asyncio

from ductor.workflow.v1 import definition_pb2 as pb
from tests.definition.client import Definitions, order, refused
from tests.definition.conftest import Rows

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def slugs(definitions: Definitions, **filters: Any) -> list[tuple[str, int, str]]:
    """(slug, version, status) of every entry, over all pages."""
    found: list[tuple[str, int, str]] = []
    token = ""
    while True:
        page = await definitions.list(page_token=token, **filters)
        found += [
            (e.family_slug, e.version, pb.DefinitionStatus.Name(e.status).rpartition("_")[2].lower()) for e in page.data
        ]
        token = page.next_page_token
        if not token:
            return found


@pytest_asyncio.fixture(loop_scope="module")
async def catalogue(definitions: Definitions) -> Definitions:
    """Three families: `alpha` with two versions, the newer archived; `beta` published; `gamma` a draft only."""
    alpha = (await definitions.create(order("alpha", title="First Émile", tags=["sales", "eu"]))).data
    await definitions.publish(alpha.id)
    await definitions.publish(alpha.id)
    await definitions.archive(alpha.id)
    beta = (await definitions.create(order("beta", title="Second", tags=["sales"]))).data
    await definitions.publish(beta.id)
    await definitions.create(order("gamma", title="Third 100%_sure", description="Ships to the EU", tags=[]))
    return definitions


async def test_drafts_and_versions_are_entries_of_their_own_newest_first(catalogue: Definitions) -> None:
    """An entry tells enough to choose by: counts, number, hash, times."""
    page = await catalogue.list()
    assert [(e.family_slug, e.version, e.status) for e in page.data] == [
        ("gamma", 1, pb.DEFINITION_STATUS_DRAFT),
        ("beta", 1, pb.DEFINITION_STATUS_PUBLISHED),
        ("beta", 2, pb.DEFINITION_STATUS_DRAFT),
        ("alpha", 2, pb.DEFINITION_STATUS_ARCHIVED),
        ("alpha", 1, pb.DEFINITION_STATUS_PUBLISHED),
        ("alpha", 3, pb.DEFINITION_STATUS_DRAFT),
    ]
    assert page.next_page_token == ""
    assert page.metadata.HasField("fetched_at")
    archived = page.data[3]
    assert (archived.step_count, archived.edge_count, len(archived.manifest_hash)) == (2, 1, 64)
    assert archived.HasField("archive_time")
    assert archived.update_time == archived.archive_time
    assert page.data[0].manifest_hash == ""
    assert page.data[0].id == page.data[0].definition_id
    assert page.data[1].id != page.data[1].definition_id == page.data[2].id


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"status": pb.DEFINITION_STATUS_DRAFT}, ["gamma1", "beta2", "alpha3"]),
        ({"status": pb.DEFINITION_STATUS_PUBLISHED}, ["beta1", "alpha1"]),
        ({"status": pb.DEFINITION_STATUS_ARCHIVED}, ["alpha2"]),
        ({"family_slug": "beta"}, ["beta1", "beta2"]),
        ({"family_slug": "bet"}, []),
        ({"q": "ÉMILE", "status": pb.DEFINITION_STATUS_DRAFT}, ["alpha3"]),
        ({"q": "to the eu"}, ["gamma1"]),
        ({"q": "100%_SURE"}, ["gamma1"]),
        ({"q": "%"}, ["gamma1"]),
        ({"q": "bet"}, ["beta1", "beta2"]),
        ({"q": "' or 1=1 --"}, []),
        ({"tags": ["sales"], "status": pb.DEFINITION_STATUS_DRAFT}, ["beta2", "alpha3"]),
        ({"tags": ["eu", "sales"], "status": pb.DEFINITION_STATUS_DRAFT}, ["alpha3"]),
        ({"tags": ["EU"]}, []),
    ],
)
async def test_filters_combine(catalogue: Definitions, filters: dict[str, Any], found: list[str]) -> None:
    """Status, text in slug, title or description whatever the case and with nothing special in it, all of the tags, the family."""
    assert [f"{slug}{version}" for slug, version, _ in await slugs(catalogue, **filters)] == found


async def test_pages_neither_lose_nor_double_entries_of_one_instant(definitions: Definitions, rows: Rows) -> None:
    """Keyset order with equal times, whatever the page size; an entry that comes meanwhile does not shift the others."""
    for number in range(7):
        draft = (await definitions.create(order(f"family-{number}"))).data
        await definitions.publish(draft.id)
    for table, column in (("draft", "create_time"), ("version", "publish_time")):
        await rows.owner.execute(
            f"update eec_workflow_{table} set {column} = '2030-01-01' where tenant_id = $1", rows.tenant
        )
    whole = await slugs(definitions)
    assert len(set(whole)) == 14
    for size in (1, 3, 13, 14):
        assert await slugs(definitions, page_size=size) == whole
    first = await definitions.list(page_size=5)
    await definitions.create(order("newcomer"))
    rest = await definitions.list(page_token=first.next_page_token, page_size=1_000)
    seen = [(e.family_slug, e.version) for e in (*first.data, *rest.data)]
    assert [entry for entry in seen if entry[0] != "newcomer"] == [(slug, version) for slug, version, _ in whole]


async def test_a_page_ends_before_the_reply_is_too_large(definitions: Definitions) -> None:
    """L7: generated clients stop at 4 MiB; entries with long texts come in smaller pages."""
    for number in range(2):
        draft = (
            await definitions.create(
                order(f"long-{number}", description="ä" * 10_000, tags=[f"{t:064d}" for t in range(100)])
            )
        ).data
        for _ in range(60):
            await definitions.publish(draft.id)
    page = await definitions.list(page_size=1_000)
    assert 0 < len(page.data) < 122
    assert page.ByteSize() < 3 << 20
    assert len(await slugs(definitions, page_size=1_000)) == 122


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"page_size": -1}, "FIELD_INVALID"),
        ({"page_size": 1_001}, "FIELD_INVALID"),
        ({"status": 99}, "FIELD_INVALID"),
        ({"q": "x" * 257}, "FIELD_INVALID"),
        ({"q": "nul\0"}, "FIELD_INVALID"),
        ({"family_slug": "x" * 50_000}, "FIELD_INVALID"),
        ({"tags": ["x"] * 101}, "FIELD_INVALID"),
        ({"page_token": "!"}, "PAGE_TOKEN_INVALID"),
        ({"page_token": "x" * 3_000}, "PAGE_TOKEN_INVALID"),
    ],
)
async def test_bad_lists_are_refused(definitions: Definitions, fields: dict[str, Any], reason: str) -> None:
    """AP-02, PG-09: unknown enum numbers, texts without end, damaged tokens."""
    refusal = await refused(definitions.list(**fields))
    assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", reason)
    if reason == "FIELD_INVALID":
        assert refusal.metadata["field"] == next(iter(fields))


async def test_a_token_goes_on_in_its_own_list_only(catalogue: Definitions) -> None:
    """Bound to tenant and filter (contract: Lists; TN-01)."""
    token = (await catalogue.list(page_size=2)).next_page_token
    assert token
    for call in (
        catalogue.list(page_token=token, q="a"),
        catalogue.list(page_token=token, status=pb.DEFINITION_STATUS_DRAFT),
        catalogue.of("other").list(page_token=token),
        catalogue.list(page_token=token[:-2] + "xx"),
    ):
        assert (await refused(call)).reason == "PAGE_TOKEN_INVALID"
