"""PG-01: the connection breaks between COMMIT and its answer, or just before COMMIT arrives.

Who asked cannot know which; nothing is lost and nothing doubled.
"""

import asyncpg
import pytest

from tests.faults.load import assert_each_effect_once, effects, metric, trickle
from tests.faults.wire import Wire
from tests.support.api import Api, chain
from tests.support.recorder import Recorder
from tests.support.stack import Stack

pytestmark = [pytest.mark.xdist_group("stack"), pytest.mark.timeout(300), pytest.mark.usefixtures("untouched")]

LOST = ("answer", "request")


async def test_pg_01_commits_of_unknown_outcome(stack: Stack, api: Api, recorder: Recorder, wire: Wire) -> None:
    """PG-01: ticks, claims, reports and starts all lose some of their commits or of the answers to them, over 200 runs."""
    definition_id = await api.publish(effects("cut", recorder))
    names = ("ductor-coordinator", "ductor-dispatch", "ductor-trigger")
    wire.cuts.clear()
    wire.cut = dict.fromkeys(names, 0.15)
    run_ids = await trickle(api, definition_id, 200, 4, batch=2)
    await api.until_ended()
    wire.calm()
    for name in names:
        for lost in LOST:
            assert wire.cuts[name, lost] > 0, wire.cuts
    await assert_each_effect_once(stack.postgres.dsn(), api, run_ids, recorder)
    assert await metric(stack, "ductor_lost_wakeups_total") == 0


async def test_pg_01_publishing_with_unknown_outcome(
    stack: Stack, api: Api, owner: asyncpg.Connection, wire: Wire
) -> None:
    """PG-01: drafts and versions whose commit went unheard are found again: one version each, numbered 1, and one audit row."""
    wire.cuts.clear()
    wire.cut = {"ductor-definition": 0.15}
    ids = [await api.publish(chain(f"unheard{i}", 2)) for i in range(30)]
    wire.calm()
    assert all(wire.cuts["ductor-definition", lost] > 0 for lost in LOST), wire.cuts
    assert len(set(ids)) == 30
    versions = await owner.fetch(
        "select d.definition_id::text, v.version from eec_workflow_definition d left join eec_workflow_version v using (tenant_id, definition_id)"
        " where d.family_slug like 'unheard%'"
    )
    assert {row["definition_id"]: row["version"] for row in versions} == dict.fromkeys(ids, 1)
    assert len(versions) == 30
    audited = await owner.fetchval(
        "select count(*) from eec_workflow_audit where action = 'publish' and tenant_id = $1",
        dict(api.metadata)["x-tenant-id"],
    )
    assert audited == 30
