"""What a story sees of a run in memory: its rows as a `Snapshot`."""

from collections import Counter
from datetime import datetime

import orjson

from ductord.model.enums import AttemptStatus
from tests.support.naming import in_story_order
from tests.support.needs import result_of, status_of
from tests.support.rows import Rows
from tests.support.tasks import Attempt
from tests.support.world import Born, Child, Listening, OpenTask, Snapshot, Timer


def snapshot(rows: Rows, now: datetime) -> Snapshot:
    """Everything that there is of a run."""
    refs = tuple(step.ref for step in rows.manifest.steps)
    return Snapshot(
        run=rows.run,
        refs=refs,
        tasks=tuple(
            _open(row, now)
            for _, row in sorted(rows.attempts.items(), key=lambda i: (in_story_order(i[0][0]), i[0][1]))
            if row.status is AttemptStatus.OPEN
        ),
        timers=tuple(
            Timer(kind=kind, step_ref=ref, due_time=due)
            for (kind, ref), due in sorted(rows.timers.items(), key=lambda item: (item[1], item[0]))
        ),
        checkpoints={
            name: (status, {ref: rows.attempts[ref, attempt].output for ref, attempt in refs.items()})
            for name, (status, refs) in sorted(rows.checkpoints.items())
        },
        has_result=rows.result is not None,
        result=result_of(rows),
        born=tuple(
            Born(
                run_id=born.run_id,
                context=orjson.loads(born.context_json),
                reset_from_seq=born.reset_from_seq,
            )
            for born in rows.born.values()
        ),
        listening=tuple(
            Listening(step_ref=ref, attempt=attempt, pattern=pattern)
            for (ref, attempt), patterns in sorted(rows.outside.waits.items())
            for pattern in sorted(patterns, key=lambda p: p.requirement)
        ),
        kept=tuple(rows.outside.kept()),
        receipts=dict(sorted(Counter(receipt.step_ref for receipt in rows.outside.unapplied()).items())),
        children=tuple(children_of(rows)),
    )


def children_of(rows: Rows) -> list[Child]:
    """The children of a run, once each, as those of the latest attempt whose they are; by step, attempt and index."""
    return [
        Child(
            step_ref=row.step_ref,
            item_index=row.item_index,
            attempt=row.attempt,
            run_id=row.run_id,
            status=status_of(rows.family[row.run_id]),
            sync=row.sync,
            checkpoint=row.checkpoint,
            close_policy=row.close_policy,
            detached=row.detached,
            told=row.end_time is not None,
            applied=row.applied_time is not None,
        )
        for row in rows.kinship.of(rows.start.run_id)
    ]


def _open(row: Attempt, now: datetime) -> OpenTask:
    if row.outcome is not None:
        state = "reported"
    elif row.lease:
        state = "leased"
    else:
        state = "on hold" if row.held else "queued" if row.due_time <= now else "held"
    return OpenTask(
        step_ref=row.name,
        attempt=row.task.attempt,
        state=state,
        due_time=row.due_time,
        asked=row.asked,
    )
