"""`ductor run reset`: the transitions that a run can be reset to, what a reset would do, and the reset (ruling C5)."""

from collections.abc import Sequence
from typing import Final

import msgspec

from ductor.workflow.v1 import run_pb2
from ductor.workflow.v1 import workflow_run_control_service_pb2 as api
from ductord.cli.client import Connection, connected, pages
from ductord.cli.ending import DONE, MISUSED, CommandFailed
from ductord.cli.operating import Manner, control
from ductord.cli.output import print_json, say, show, table
from ductord.cli.triggering import given
from ductord.cli.words import local, plain, word

EVERYTHING: Final = 1_000_000


class Fork(msgspec.Struct, frozen=True, kw_only=True):
    """Where a new run takes over and what it is given, as it was typed."""

    seq: int | None
    overrides: tuple[str, ...] = ()
    preserve: tuple[str, ...] = ()
    force: bool = False


async def reset(connection: Connection, run_id: str, fork: Fork, manner: Manner, *, dry_run: bool) -> int:
    """Start a new run from a transition of another; with `dry_run` only say what it would keep and run."""
    if fork.seq is None:
        raise CommandFailed(
            "--at SEQ says after which transition the new run takes over", way_out=_way_out(run_id), code=MISUSED
        )
    if dry_run:
        return await _preview(connection, run_id, fork, manner.as_json)
    request = api.ResetRunRequest(source_run_id=run_id)
    _put(request, fork)
    return await control(connection, "ResetRun", request, manner, name="reset")


async def targets(connection: Connection, run_id: str, *, as_json: bool) -> int:
    """Every transition that the run can be reset to."""
    async with connected(connection) as client:

        async def fetch(token: str, size: int) -> api.ListResetTargetsResponse:
            request = api.ListResetTargetsRequest(run_id=run_id, page_token=token, page_size=size)
            return await client.call(client.controls.ListResetTargets, request)

        found: Sequence[api.ResetTarget] = await pages(fetch, EVERYTHING)
    if as_json:
        print_json({"data": [plain(target) for target in found]})
        return DONE
    table(
        ("AT", "TIME", "ENDED", "OPEN", ""),
        [
            (
                str(target.transition_seq),
                local(target.transition_time),
                " ".join(target.ended_step_refs),
                " ".join(target.open_step_refs),
                target.description,
            )
            for target in found
        ],
    )
    return DONE


async def _preview(connection: Connection, run_id: str, fork: Fork, as_json: bool) -> int:
    request = api.PreviewResetRequest(source_run_id=run_id)
    _put(request, fork)
    async with connected(connection) as client:
        preview = (await client.call(client.controls.PreviewReset, request)).data
    if as_json:
        print_json(plain(preview))
        return DONE
    status = word(run_pb2.RunStatus.DESCRIPTOR, preview.source_status)
    say(f"a new run from transition {preview.transition_seq}; the source stays {status}", "dim")
    if preview.reapplied_signals:
        say(f"told again: {preview.reapplied_signals:,} signals that no step had taken by then", "dim")
    said = (
        (preview.kept_step_refs, "kept"),
        (preview.preserved_step_refs, "output preserved"),
        (preview.restarted_step_refs, "runs"),
    )
    table(("STEP", "NEW RUN", ""), [(ref, what, _remark(preview, ref)) for refs, what in said for ref in refs])
    _children(preview)
    return DONE


def _children(preview: api.ResetPreview) -> None:
    """The child runs of the source that the new run takes for its own, and those that stay."""
    rows = [
        (f"{child.step_ref}[{child.item_index}]", child.run_id, word(run_pb2.RunStatus.DESCRIPTOR, child.status), what)
        for children, what in (
            (preview.attached_children, "becomes the new run's"),
            (preview.detached_children, "stays the source's"),
        )
        for child in children
    ]
    if rows:
        show("")
        table(("CHILD", "RUN", "STATUS", ""), rows)
    more = preview.detached_children_count - len(preview.detached_children)
    if more > 0:
        say(f"… and {more:,} more that stay", "dim")


def _remark(preview: api.ResetPreview, ref: str) -> str:
    remarks = (
        (preview.overridden_step_refs, "with another input"),
        (preview.compensated_step_refs, "its effect has been undone"),
        (preview.inherited_inverse_step_refs, "its inverse moves to the new run"),
    )
    return ", ".join(remark for refs, remark in remarks if ref in refs)


def _put(request: api.ResetRunRequest | api.PreviewResetRequest, fork: Fork) -> None:
    """Inputs go as the texts that they are: the server judges them, exactly (L5, L6)."""
    request.transition_seq = fork.seq or 0
    request.force = fork.force
    request.preserve_step_refs.extend(fork.preserve)
    for text in fork.overrides:
        ref, equals, value = text.partition("=")
        if not (ref and equals and value):
            raise CommandFailed(f"--override is written as STEP=JSON or STEP=@FILE, not {text!r}", code=MISUSED)
        request.step_input_overrides.add(step_ref=ref, input_json=given(value, f"--override {ref}"))


def _way_out(run_id: str) -> str:
    return f"`ductor run reset {run_id} --list-targets` shows them"
