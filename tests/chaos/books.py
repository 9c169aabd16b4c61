"""After the killing: what the books of a whole database must say, and how they compare with what the outside saw."""

import asyncio
from collections import Counter

import asyncpg

from ductord.engine.evolve import fold
from ductord.model import events, stored
from ductord.model import manifest as manifests

_DUE = "select count(*) from eec_workflow_wakeup where due_time <= now()"
SPENT = {"failed", "lost", "timed_out", "cancelled"}


async def assert_whole(owner: asyncpg.Connection, *, tenant: str | None = None) -> Counter[str]:
    """Every run ended, every transition is there once, folding the history gives the row, nothing is left over. Answers runs by status.

    `tenant`: only its runs are counted and folded; that nothing is left over is said of the whole database. A run that has ended may be woken once more, as by
    a report that came too late (C7): what is due has a minute to be looked at.
    """
    await _looked_at(owner)
    statuses: Counter[str] = Counter()
    rows = await owner.fetch(
        "select s.run_id::text, r.status, r.record_version, r.node_states::text, r.edge_states, r.run_state::text, r.has_errors, r.start_time, r.end_time,"
        " v.manifest::text from eec_workflow_run_start s left join eec_workflow_run r using (tenant_id, run_id)"
        " join eec_workflow_version v on v.tenant_id = s.tenant_id and v.version_id = s.version_id"
        " where $1::text is null or s.tenant_id = $1",
        tenant,
    )
    cache: dict[str, manifests.Manifest] = {}
    for row in rows:
        columns = dict(row)
        text = columns.pop("manifest")
        manifest = cache.get(text) or cache.setdefault(text, manifests.decode(text))
        assert columns["end_time"] is not None, f"run {row['run_id']} has not ended: {row['status']}"
        run = stored.decode_run(manifest, **columns)
        history = await owner.fetch(
            "select seq, at, events::text from eec_workflow_transition where run_id = $1 order by seq", row["run_id"]
        )
        assert [h["seq"] for h in history] == list(range(1, len(history) + 1))
        assert fold(manifest, row["run_id"], [(h["at"], events.decode(h["events"])) for h in history]) == run
        assert all(node.status.terminal for node in run.nodes)
        statuses[run.status] += 1
    left = {
        "open attempts": "select count(*) from eec_workflow_step_attempt where status = 'open'",
        "wake-ups": _DUE,
        "timers": "select count(*) from eec_workflow_timer",
        "quarantined": "select count(*) from eec_workflow_quarantine",
        # A wait and a fan-out have a number among the attempts, and a row only if they came to an output. An inline child begins where others of its step are.
        "attempts numbered with a gap": "select count(*) from (select max(attempt) as last, count(distinct attempt) as n from ("
        " select tenant_id, run_id, step_ref, item_index, kind, attempt from eec_workflow_step_attempt union all"
        " select t.tenant_id, t.run_id, e ->> 'step_ref', -1, 'step', (e ->> 'attempt')::int"
        " from eec_workflow_transition t, json_array_elements(t.events) as e where e ->> 'type' in ('node_parked', 'fan_expanded', 'fan_resumed')"
        ") of where kind <> 'item' group by tenant_id, run_id, step_ref, item_index, kind) a where last <> n",
        "open waits": "select count(*) from eec_workflow_wait where close_time is null",
        "events that nobody applied": "select count(*) from eec_workflow_receipt where applied_time is null",
        "places in digests that nobody took": "select count(*) from eec_workflow_digest_arrival where told_time is null and leave_time is null",
        "windows that nobody flushed": "select count(*) from eec_workflow_digest where flush_time is null",
        "signals that nobody settled": "select count(*) from eec_workflow_signal where status = 'kept'",
        "second successes of one node": "select count(*) from (select 1 from eec_workflow_step_attempt where status = 'succeeded'"
        " group by tenant_id, run_id, step_ref, item_index, kind having count(*) > 1) a",
    }
    for what, sql in left.items():
        assert await owner.fetchval(sql) == 0, what
    return statuses


async def _looked_at(owner: asyncpg.Connection) -> None:
    """Until no wake-up is due, or for a minute."""
    for _ in range(600):
        if await owner.fetchval(_DUE) == 0:
            return
        await asyncio.sleep(0.1)


async def assert_seen(owner: asyncpg.Connection, seen: Counter[str]) -> None:
    """The outside saw the key of every step that the books say succeeded, and every other key belongs to an attempt that came to nothing."""
    rows = await owner.fetch(
        "select idempotency_key, array_agg(distinct status) as statuses from eec_workflow_step_attempt"
        " where idempotency_key <> '' group by 1"
    )
    books = {row["idempotency_key"]: set(row["statuses"]) for row in rows}
    succeeded = {key for key, statuses in books.items() if "succeeded" in statuses}
    assert succeeded - set(seen) == set(), "a success that never reached the outside"
    unknown = set(seen) - set(books)
    assert unknown == set(), "the outside saw a key that no attempt has"
    assert all(books[key] & SPENT for key in set(seen) - succeeded)
