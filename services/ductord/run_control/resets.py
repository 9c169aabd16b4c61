"""Resets, as they are told (C5): the transitions that a run can be reset to, and what a reset to one of them keeps and runs."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import asyncpg
import msgspec

from ductor.workflow.v1 import workflow_run_control_service_pb2 as api
from ductord.db.queries import Queries
from ductord.engine import forks
from ductord.engine.forks import Preview, Relation, Target
from ductord.engine.graph import graph_of
from ductord.model.control import Rejection
from ductord.model.enums import RunStatus
from ductord.model.fan import Kin
from ductord.model.run import Run
from ductord.rpc.answers import timestamp
from ductord.rpc.paging import Page
from ductord.rpc.room import fitting
from ductord.rpc.words import RUN_STATUS
from ductord.run_control.asked import Ask
from ductord.run_control.histories import Histories, state_after
from ductord.run_control.intents import check, find_known, refusal_of
from ductord.run_control.runs import Found, Versions, find

_q: Final = Queries("ductord.run_control")
_NAMED = 3
"""Steps that a description names."""
_SHOWN_CHILDREN: Final = 100
"""Detached children that a preview lists."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What a reset does. `preview` None: the same call was accepted before, and by now it would be refused. `now` is the database's time."""

    preview: api.ResetPreview | None
    now: datetime


async def told(db: asyncpg.Connection, versions: Versions, tenant_id: str, ask: Ask, *, dry_run: bool) -> Told:
    """What the reset would do to the run as it stands. Raises what keeps it from being made, unless it was accepted before."""
    found = await find(db, versions, tenant_id, ask.run_id)
    known = None if dry_run else await find_known(db, tenant_id, ask)
    if known is None:
        check(found, ask)
    assert found.run is not None, "admission refuses to reset what has not begun"
    kin = await _kin(db, found)
    made = forks.preview(
        found.manifest,
        await state_after(db, found, ask.body.seq),
        found.run,
        seq=ask.body.seq,
        overrides=ask.body.overrides,
        preserve=ask.body.preserve,
        force=ask.body.force,
        kin=kin,
    )
    if isinstance(made, Rejection):
        if known is None:
            raise refusal_of(made)
        return Told(preview=None, now=found.now)
    untaken: int = await db.fetchval(_q["count_untaken"], tenant_id, ask.run_id, made.seq)
    return Told(preview=_preview(made, found.run, untaken, kin), now=found.now)


async def list_targets(
    db: asyncpg.Connection, histories: Histories, found: Found, page: Page, max_bytes: int
) -> tuple[Sequence[api.ResetTarget], str]:
    """One page of targets, oldest first, and the next page's token."""
    after = 0 if page.after is None else int(str(page.after[0]))
    found_targets = await histories.targets(db, found, after, page.fetch)
    shown, last = fitting(((target.seq, _target(target)) for target in found_targets), page.size, max_bytes)
    return shown, "" if last is None else page.next_token((last,))


async def _kin(db: asyncpg.Connection, found: Found) -> Mapping[str, tuple[Kin, ...]]:
    """The child runs of its steps, by ref."""
    if not graph_of(found.manifest).parents:
        return {}
    kin: dict[str, list[Kin]] = {}
    for row in await db.fetch(_q["load_kin"], found.tenant_id, found.run_id):
        one = Kin(
            item_index=row["item_index"],
            run_id=row["child_run_id"],
            status=RunStatus(row["status"]),
            first_run_id=row["first_run_id"],
        )
        kin.setdefault(row["step_ref"], []).append(one)
    return {ref: tuple(those) for ref, those in kin.items()}


def _preview(made: Preview, source: Run, untaken: int, kin: Mapping[str, tuple[Kin, ...]]) -> api.ResetPreview:
    statuses = {one.run_id: one.status for those in kin.values() for one in those}

    def shown(relations: Sequence[Relation]) -> list[api.ResetChild]:
        return [
            api.ResetChild(
                step_ref=one.step_ref,
                item_index=one.item_index,
                run_id=one.run_id,
                status=RUN_STATUS[statuses[one.run_id]],
            )
            for one in relations
        ]

    return api.ResetPreview(
        transition_seq=made.seq,
        kept_step_refs=made.kept,
        preserved_step_refs=list(made.preserved),
        restarted_step_refs=made.restarted,
        overridden_step_refs=made.overridden,
        compensated_step_refs=made.compensated,
        inherited_inverse_step_refs=list(dict.fromkeys(registered.step_ref for registered in made.inherited)),
        source_status=RUN_STATUS[source.status],
        reapplied_signals=untaken,
        attached_children=shown(made.attached),
        detached_children=shown(made.detached[:_SHOWN_CHILDREN]),
        detached_children_count=len(made.detached),
    )


def _target(target: Target) -> api.ResetTarget:
    return api.ResetTarget(
        transition_seq=target.seq,
        transition_time=timestamp(target.at),
        ended_step_refs=target.ended,
        open_step_refs=target.at_work,
        description=_described(target),
    )


def _described(target: Target) -> str:
    """What happened in the transition, and what a reset to it runs again."""
    happened = f"after the end of {_listed(target.ended)}" if target.ended else "after a transition that ended no step"
    if target.seq == 1 and not target.ended:
        happened = "at the very start"
    return f"{happened}; {_listed(target.at_work)} would run again" if target.at_work else happened


def _listed(refs: Sequence[str]) -> str:
    if len(refs) <= _NAMED:
        return ", ".join(refs)
    return f"{', '.join(refs[:_NAMED])} and {len(refs) - _NAMED:,} more"
