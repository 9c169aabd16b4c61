"""What the books of finished runs must say of order and number: one attempt per step, none queued before its parents had ended."""

import asyncpg


async def assert_once_in_order(owner: asyncpg.Connection, run_id: str, parents: dict[str, list[str]]) -> None:
    """Every step of `parents` has just one attempt, which succeeded, and was queued at or after the end of each parent's."""
    rows = await owner.fetch(
        "select step_ref, attempt, status, create_time, end_time, worker_id, start_time from eec_workflow_step_attempt where run_id = $1",
        run_id,
    )
    assert len(rows) == len(parents)
    by_ref = {row["step_ref"]: row for row in rows}
    assert set(by_ref) == set(parents)
    for ref, row in by_ref.items():
        assert (row["attempt"], row["status"]) == (1, "succeeded"), ref
        for parent in parents[ref]:
            assert by_ref[parent]["end_time"] <= row["create_time"] <= row["start_time"], (parent, ref)
