"""`ductor schedule …`: timetables, looked at and operated (T2).

What acts goes out with a request id, made here where none was given: whatever becomes of the answer, the same call under the same id is the same act. The ids
of the runs that were started stand on standard output alone.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

import msgspec

from ductor.workflow.v1 import definition_pb2 as definition_api
from ductor.workflow.v1 import schedule_service_pb2 as api
from ductord.cli.client import Client, Connection, connected, is_id, pages
from ductord.cli.ending import DONE, FAILED, MISUSED, CommandFailed
from ductord.cli.operating import surely
from ductord.cli.output import counted, facts, print_json, say, show, status_text, table
from ductord.cli.words import local, number, plain, time_of, word
from ductord.engine import moments, timetable
from ductord.trigger.spans import preview as shown

_STATUS: Final = api.ScheduleStatus.DESCRIPTOR
_OUTCOME: Final = api.FireOutcome.DESCRIPTOR
_SOURCE: Final = api.FireSource.DESCRIPTOR
_POLICY: Final = definition_api.OverlapPolicy.DESCRIPTOR
_CHANGES: Final = {
    api.CLOCK_CHANGE_UNSPECIFIED: "",
    api.CLOCK_CHANGE_GAP: "the clocks leave its time out: the first instant behind",
    api.CLOCK_CHANGE_REPEAT_FIRST: "the clocks repeat this hour: the first",
    api.CLOCK_CHANGE_REPEAT_SECOND: "the clocks repeat this hour: the second",
}


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody does to a schedule, as it was typed."""

    schedule: str
    reason: str = ""
    request_id: str = ""


async def listing(connection: Connection, *, workflow: str, status: str, limit: int, as_json: bool) -> int:
    """A tenant's schedules, or a workflow's."""
    wanted: Any = number(_STATUS, status, "--status")
    async with connected(connection) as client:
        found = await _schedules(client, workflow, wanted, limit)
    if as_json:
        print_json({"data": [plain(one) for one in found]})
        return DONE
    columns = ("SCHEDULE", "STATUS", "CRON", "ZONE", "NEXT", "LAST", "STARTED", "ID")
    table(columns, [_line(one) for one in found])
    return DONE


async def show_one(connection: Connection, schedule: str, *, as_json: bool) -> int:
    """One schedule."""
    async with connected(connection) as client:
        request = api.GetScheduleRequest(schedule_id=await _schedule_id(client, schedule))
        answer = await client.call(client.schedules.GetSchedule, request)
    if as_json:
        print_json(plain(answer))
    else:
        _facts(answer.data)
    return DONE


async def list_fires(connection: Connection, schedule: str, *, outcome: str, limit: int, as_json: bool) -> int:
    """What became of the times of a schedule."""
    wanted: Any = number(_OUTCOME, outcome, "--outcome")
    async with connected(connection) as client:
        schedule_id = await _schedule_id(client, schedule)

        async def fetch(token: str, size: int) -> api.ListScheduleFiresResponse:
            request = api.ListScheduleFiresRequest(
                schedule_id=schedule_id, outcome=wanted, page_size=size, page_token=token
            )
            return await client.call(client.schedules.ListScheduleFires, request)

        found = await pages(fetch, limit)
    if as_json:
        print_json({"data": [plain(one) for one in found]})
        return DONE
    rows = [
        (
            local(one.nominal_time),
            status_text(word(_OUTCOME, one.outcome)),
            word(_SOURCE, one.source),
            f"{one.count:,} times until {local(one.until_time)}" if one.HasField("until_time") else one.run_id,
            f"{one.error.code}: {one.error.message}" if one.error.code else "",
        )
        for one in found
    ]
    table(("TIME", "OUTCOME", "WHY", "RUN", "ERROR"), rows)
    return DONE


async def preview(
    connection: Connection, schedule: str, *, cron: str, timezone: str, after: str, count: int, as_json: bool
) -> int:
    """The next times, of a schedule on the server or of a cron expression here."""
    if bool(schedule) == bool(cron):
        raise CommandFailed("name a SCHEDULE or give --cron, one of the two", code=MISUSED)
    if timezone and not cron:
        raise CommandFailed("--timezone is that of --cron; a schedule has its own", code=MISUSED)
    if cron:
        answer = _computed(cron, timezone or "UTC", after, count)
    else:
        request = api.PreviewScheduleRequest(count=count)
        if after:
            request.after.CopyFrom(time_of(after, "--after"))
        async with connected(connection) as client:
            request.schedule_id = await _schedule_id(client, schedule)
            answer = await client.call(client.schedules.PreviewSchedule, request)
    if as_json:
        print_json({"data": [plain(one) for one in answer.data]})
        return DONE
    rows = [(one.local_time, local(one.fire_time), _CHANGES.get(one.clock_change, "")) for one in answer.data]
    table(("TIME", "HERE", "CLOCKS"), rows)
    return DONE


async def turn(connection: Connection, rpc: str, act: Act, *, as_json: bool) -> int:
    """Pause or resume; the schedule as it is then."""
    async with connected(connection) as client:
        answer = await _acted(client, rpc, getattr(api, f"{rpc}Request")(), act, as_json)
    if as_json:
        print_json(plain(answer))
        return DONE
    one = answer.data
    following = f", next {local(one.next_fire_time)}" if one.HasField("next_fire_time") else ""
    show(f"{_name(one)} is {word(_STATUS, one.status)}{following}")
    return DONE


async def trigger(connection: Connection, act: Act, *, overlap: str, as_json: bool) -> int:
    """Fire once; 1 if no run was started."""
    request = api.TriggerScheduleNowRequest(overlap_policy=_policy(overlap))
    async with connected(connection) as client:
        answer = await _acted(client, "TriggerScheduleNow", request, act, as_json)
    fire = answer.data
    if as_json:
        print_json(plain(answer))
    elif fire.run_id:
        if answer.duplicate:
            say("the request was made before", "dim")
        show(fire.run_id)
    elif fire.error.code:
        say(f"no run was started: {fire.error.message} ({fire.error.code})", "bold red")
    else:
        say("skipped: a run of the schedule is active", "yellow")
        say("  → --overlap allow_all starts one beside it", "yellow")
    return DONE if fire.run_id else FAILED


async def backfill(connection: Connection, act: Act, *, begin: str, end: str, overlap: str, as_json: bool) -> int:
    """Fire the times of a span; 1 if one of them could not start a run."""
    request = api.BackfillScheduleRequest(overlap_policy=_policy(overlap), from_time=time_of(begin, "--from"))
    async with connected(connection) as client:
        if end:
            request.to_time.CopyFrom(time_of(end, "--to"))
        else:
            schedule_id = await _schedule_id(client, act.schedule)
            act = msgspec.structs.replace(act, schedule=schedule_id)
            found = await client.call(client.schedules.GetSchedule, api.GetScheduleRequest(schedule_id=schedule_id))
            request.to_time.CopyFrom(found.metadata.fetched_at)  # the server's now, which no clock of ours is ahead of
        answer = await _acted(client, "BackfillSchedule", request, act, as_json)
    if as_json:
        print_json(plain(answer))
        return FAILED if answer.failed_count else DONE
    for run_id in answer.started_run_ids:
        show(run_id)
    parts = [
        (len(answer.started_run_ids), "started"),
        (answer.already_started_count, "had started before"),
        (answer.skipped_count, "skipped"),
        (answer.failed_count, "could not start"),
    ]
    say(", ".join(f"{count:,} {what}" for count, what in parts if count) or "no time falls into the span", "dim")
    return FAILED if answer.failed_count else DONE


async def _schedules(client: Client, workflow: str, status: Any, limit: int) -> Sequence[api.Schedule]:
    definition_id, slug = (workflow, "") if is_id(workflow) else ("", workflow)

    async def fetch(token: str, size: int) -> api.ListSchedulesResponse:
        request = api.ListSchedulesRequest(
            definition_id=definition_id, workflow_type=slug, status=status, page_size=size, page_token=token
        )
        return await client.call(client.schedules.ListSchedules, request)

    return await pages(fetch, limit)


async def _schedule_id(client: Client, name: str) -> str:
    """The id behind ID, SLUG/TRIGGER or SLUG. Raises `CommandFailed`; an id is answered as it is."""
    if is_id(name):
        return name
    slug, slash, trigger_id = name.partition("/")
    statuses = (api.SCHEDULE_STATUS_UNSPECIFIED, api.SCHEDULE_STATUS_RETIRED)
    found = [one for status in statuses for one in await _schedules(client, slug, status, 1_000)] if slug else []
    if slash:
        found = [one for one in found if one.trigger_id == trigger_id]
    elif len(live := [one for one in found if one.status != api.SCHEDULE_STATUS_RETIRED]) == 1:
        found = live
    if not found:
        raise CommandFailed(
            f"this tenant has no schedule {name!r}", way_out="`ductor schedule list` shows what this tenant has"
        )
    if len(found) > 1:
        names = ", ".join(_name(one) for one in found)
        raise CommandFailed(f"{name} has {counted(len(found), 'schedule')}: name one of {names}", code=MISUSED)
    return found[0].schedule_id


async def _acted(client: Client, rpc: str, request: Any, act: Act, as_json: bool) -> Any:
    request.schedule_id = await _schedule_id(client, act.schedule)
    request.reason = act.reason
    request.request_id = act.request_id or str(uuid4())
    again = f"--request-id {request.request_id}"
    return await surely(client, getattr(client.schedules, rpc), request, again=again, as_json=as_json)


def _computed(cron: str, zone: str, after: str, count: int) -> api.PreviewScheduleResponse:
    """A preview without a server."""
    begin = time_of(after, "--after").ToDatetime(tzinfo=UTC) if after else datetime.now(UTC)
    try:
        moments.time_zone(zone)
    except moments.MomentInvalid as error:
        raise CommandFailed(f"--timezone {zone!r} {error}", code=MISUSED) from None
    try:
        moments.cron(cron)
        ticks = timetable.preview(cron, zone, begin, count)
    except moments.MomentInvalid as error:
        raise CommandFailed(f"--cron {cron!r} {error}", code=MISUSED) from None
    return api.PreviewScheduleResponse(data=[shown(tick) for tick in ticks])


def _policy(text: str) -> Any:
    return number(_POLICY, text, "--overlap")


def _name(one: api.Schedule) -> str:
    return f"{one.workflow_type}/{one.trigger_id}"


def _line(one: api.Schedule) -> list[Any]:
    return [
        _name(one),
        status_text(word(_STATUS, one.status)),
        one.spec.cron_expression,
        one.spec.timezone,
        local(one.next_fire_time) if one.HasField("next_fire_time") else "",
        local(one.last_fire_time) if one.HasField("last_fire_time") else "",
        f"{one.started_count:,}",
        one.schedule_id,
    ]


def _facts(one: api.Schedule) -> None:
    counts = ("started", "skipped", "failed", "missed", "dropped")
    facts(
        [
            ("schedule", _name(one)),
            ("id", one.schedule_id),
            ("definition", f"{one.definition_id} v{one.version}"),
            ("cron", f"{one.spec.cron_expression}  ({one.spec.timezone})"),
            ("overlap", word(_POLICY, one.spec.overlap_policy)),
            ("catch-up", f"{one.spec.catchup_window_ms / 1000:g} s"),
            ("status", status_text(word(_STATUS, one.status))),
            ("next", local(one.next_fire_time) if one.HasField("next_fire_time") else ""),
            ("last", local(one.last_fire_time) if one.HasField("last_fire_time") else ""),
            ("last run", one.last_run_id),
            ("times", ", ".join(f"{getattr(one, f'{what}_count'):,} {what}" for what in counts)),
            ("error", f"{one.error.code}: {one.error.message}" if one.error.code else ""),
            ("paused", f"{local(one.pause_time)} by {one.paused_by}" if one.HasField("pause_time") else ""),
            ("because", one.pause_reason),
        ]
    )
