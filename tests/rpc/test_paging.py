"""Pages: sizes, and tokens that go on in the list that they came from and in no other (TN-01)."""

import datetime

import pytest

from ductor.workflow.v1.workflow_service_pb2 import GetRunTimelineRequest, ListRunsRequest, ListRunStepsRequest
from ductord.model.errors import Refusal
from ductord.rpc.paging import DEFAULT_SIZE, MAX_SIZE, page_of

AT = datetime.datetime(2026, 11, 29, 1, 2, 3, 456789, tzinfo=datetime.UTC)


def test_sizes() -> None:
    assert page_of(ListRunsRequest(), "a").size == DEFAULT_SIZE
    assert page_of(ListRunsRequest(page_size=MAX_SIZE), "a").fetch == MAX_SIZE + 1
    for size in (-1, MAX_SIZE + 1, 2**31 - 1):
        with pytest.raises(Refusal) as refused:
            page_of(ListRunsRequest(page_size=size), "a")
        assert (refused.value.reason, refused.value.metadata) == ("FIELD_INVALID", {"field": "page_size"})


def test_a_token_goes_on_where_the_page_ended() -> None:
    token = page_of(ListRunsRequest(workflow_type="order"), "a").next_token((AT, "run-1", 7))
    page = page_of(ListRunsRequest(workflow_type="order", page_size=3, page_token=token), "a")
    assert page.after == (AT, "run-1", 7)
    assert page_of(ListRunsRequest(), "a").after is None


@pytest.mark.parametrize(
    ("request_", "tenant"),
    [
        (ListRunsRequest(workflow_type="order"), "b"),
        (ListRunsRequest(workflow_type="orders"), "a"),
        (ListRunsRequest(), "a"),
        (ListRunsRequest(workflow_type="order", active_only=True), "a"),
        (ListRunsRequest(workflow_type="order", label=["x:y"]), "a"),
        (ListRunStepsRequest(run_id="order"), "a"),
        (GetRunTimelineRequest(run_id="order"), "a"),
    ],
)
def test_a_token_of_another_tenant_filter_or_rpc_is_refused(request_: ListRunsRequest, tenant: str) -> None:
    request_.page_token = page_of(ListRunsRequest(workflow_type="order"), "a").next_token((AT, "run-1"))
    with pytest.raises(Refusal) as refused:
        page_of(request_, tenant)
    assert refused.value.reason == "PAGE_TOKEN_INVALID"


@pytest.mark.parametrize("token", ["x", "AAAA", "=", "ä", "\0", "A" * 5_000, "W10", "////", "eyJhIjoxfQ"])
def test_a_damaged_token_is_refused(token: str) -> None:
    with pytest.raises(Refusal) as refused:
        page_of(ListRunsRequest(page_token=token), "a")
    assert refused.value.reason == "PAGE_TOKEN_INVALID"


def test_every_flipped_character_is_noticed() -> None:
    token = page_of(ListRunsRequest(), "a").next_token((AT, "run-1"))
    for index in range(len(token)):
        other = "A" if token[index] != "A" else "B"
        try:
            page = page_of(ListRunsRequest(page_token=token[:index] + other + token[index + 1 :]), "a")
        except Refusal:
            continue
        assert page.after == (AT, "run-1"), "bits that base64 ignores at the end"
