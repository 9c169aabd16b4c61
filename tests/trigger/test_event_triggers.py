"""ListEventTriggers: which patterns are live, and which an event of a name would meet (T3)."""

from typing import Any

import pytest
from msgspec.structs import replace

from ductor.workflow.v1 import workflow_trigger_service_pb2 as triggers
from ductord.db.ids import new_id
from ductord.model.manifest import Manifest
from ductord.model.specs import Expression
from ductord.model.starting import TriggerSpec
from ductord.trigger.service import SERVICE
from tests.conftest import Database
from tests.support.books import TENANT, chain
from tests.support.edges import Catalogue, Edges, as_tenant, refusal, serving


def listening(*triggers: TriggerSpec) -> Manifest:
    """A manifest with these triggers."""
    return replace(chain(1), triggers=triggers)


async def listed(edges: Edges, *, size: int = 1, tenant: str = TENANT, **fields: Any) -> list[str]:
    """All pages of a list: `pattern workflow/trigger`."""
    found, token = [], ""
    while True:
        request = triggers.ListEventTriggersRequest(page_size=size, page_token=token, **fields)
        page = await edges.trigger.ListEventTriggers(request, metadata=as_tenant(tenant), timeout=60)
        found += [f"{one.pattern} {one.workflow_type}/{one.trigger_id}" for one in page.data]
        token = page.next_page_token
        if not token:
            return found


async def test_t3_live_patterns_are_listed(edges: Edges, catalogue: Catalogue) -> None:
    """T3, D3: by pattern; those of the newest version alone; another tenant's are not there."""
    kept = Expression(source="EVENT.payload.sum > 1", names=("EVENT",))
    first = TriggerSpec(id="made", patterns=("order.made", "cart.closed"), filter=kept)
    orders = await catalogue.define("orders")
    await catalogue.publish(orders, listening(TriggerSpec(id="old", patterns=("order.old",))))
    version_id = await catalogue.publish(orders, listening(first))
    await catalogue.published(listening(TriggerSpec(id="any", patterns=("order.*",))), slug="audit")
    await catalogue.published(listening(first), slug="foreign", tenant="other")
    everything = ["cart.closed orders/made", "order.* audit/any", "order.made orders/made"]
    assert await listed(edges) == await listed(edges, size=50) == everything
    assert await listed(edges, definition_id=orders) == ["cart.closed orders/made", "order.made orders/made"]
    assert await listed(edges, definition_id=version_id) == await listed(edges, definition_id=orders)
    assert await listed(edges, event_name="order.made") == ["order.made orders/made"]
    assert await listed(edges, event_name="order.made", definition_id=orders) == ["order.made orders/made"]
    assert await listed(edges, event_name="order.made", definition_id=new_id()) == []
    assert await listed(edges, event_name="order") == []
    request = triggers.ListEventTriggersRequest(event_name="order.made")
    page = await edges.trigger.ListEventTriggers(request, metadata=as_tenant(TENANT), timeout=60)
    assert (page.data[0].filter, page.data[0].version, page.data[0].definition_id) == (kept.source, 2, orders)


async def test_t3_with_wildcards_a_name_meets_those_above_it(database: Database, catalogue: Catalogue) -> None:
    """T3: as matching does, only where the flag is on; never the name itself without more behind it."""
    for slug, pattern in (("a", "order.*"), ("b", "order.made.*"), ("c", "order.made")):
        await catalogue.published(listening(TriggerSpec(id="t", patterns=(pattern,))), slug=slug)
    async with serving(database, [SERVICE], pool_max_size=2, events_wildcards_enabled=True) as edges:
        assert await listed(edges, event_name="order.made") == ["order.* a/t", "order.made c/t"]
        assert await listed(edges, event_name="order.made.twice") == ["order.* a/t", "order.made.* b/t"]
        assert await listed(edges, event_name="order") == []


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"definition_id": "nonsense"}, "DEFINITION_NOT_FOUND"),
        ({"event_name": "e" * 257}, "FIELD_INVALID"),
        ({"page_size": 1001}, "FIELD_INVALID"),
        ({"page_token": "x"}, "PAGE_TOKEN_INVALID"),
    ],
)
async def test_what_cannot_be_listed(fields: dict[str, Any], reason: str, edges: Edges) -> None:
    request = triggers.ListEventTriggersRequest(**fields)
    call = edges.trigger.ListEventTriggers(request, metadata=as_tenant(TENANT), timeout=60)
    assert (await refusal(call)).reason == reason
