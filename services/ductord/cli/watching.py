"""`ductor run watch`: follow a run to its end. The graph on a terminal, a line per event elsewhere, JSON lines for machines.

The end is where nothing moves any more: a run that is continued as new is followed to its successor, and one that owes inverses until they are worked off.
It polls the reads: quickly at first, then twice a second. A server that is away for a while (a restart, a kill) is waited for: runs outlive it.
"""

import asyncio
import sys
from collections.abc import AsyncIterator

import msgspec

from ductor.workflow.v1 import run_pb2 as model
from ductor.workflow.v1 import workflow_service_pb2 as api
from ductord.cli import drawing
from ductord.cli.client import Client, Connection, connected
from ductord.cli.ending import DONE, FAILED, CommandFailed
from ductord.cli.history import event_line
from ductord.cli.output import STATUS_STYLES, compact, print_json, say, show
from ductord.cli.runs import EXACT, fault_text, run_status, steps_of
from ductord.cli.words import plain, word
from ductord.model.enums import RunStatus
from ductord.model.errors import Refusal

FIRST_PAUSE_S, LAST_PAUSE_S = 0.03, 0.5
PAGE = 1_000


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a run. `away`: the server could not be reached, the rest is what was seen before."""

    answer: api.GetRunResponse
    away: bool = False

    @property
    def run_id(self) -> str:
        """Which run of its chain was seen."""
        return str(self.answer.data.summary.run_id)

    @property
    def successor(self) -> str:
        """The run that continues this one, where one does."""
        return "" if self.away else str(self.answer.data.summary.continued_to_run_id)

    @property
    def over(self) -> bool:
        """Whether the run is terminal and owes nothing that is still to run."""
        summary = self.answer.data.summary
        unwinding = summary.compensation_status == model.COMPENSATION_STATUS_RUNNING
        return not self.away and RunStatus(run_status(summary)).terminal and not unwinding


async def watch(connection: Connection, run_id: str, *, timeout_s: float, as_json: bool) -> int:
    """Follow one run; 0 if it completed."""
    async with connected(connection) as client:
        return await to_the_end(client, run_id, timeout_s, as_json=as_json)


async def to_the_end(client: Client, run_id: str, timeout_s: float, *, as_json: bool, whole: bool = False) -> int:
    """Follow a run and tell it. `whole`: machines get one document at the end, not a line per event. Raises `CommandFailed` when time is up."""
    if as_json:
        last = await (
            _silently(client, run_id, timeout_s) if whole else _as_lines(client, run_id, timeout_s, as_json=True)
        )
        if whole:
            print_json(plain(last.answer))
        else:
            _json_line({"run": plain(last.answer.data)})
    elif sys.stdout.isatty():
        last = await _on_a_terminal(client, run_id, timeout_s)
    else:
        last = await _as_lines(client, run_id, timeout_s, as_json=False)
    status = run_status(last.answer.data)
    if not as_json:
        _verdict(last.answer.data, status)
    return DONE if status == RunStatus.COMPLETED else FAILED


async def looks(client: Client, run_id: str, timeout_s: float) -> AsyncIterator[Seen]:
    """Looks at a run, and at what continues it, until the last one is over, or until time is up when only its compensation still runs.

    Raises `CommandFailed` when time is up before the run has ended, `Refusal` for anything but an absent server.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + timeout_s
    pause = FIRST_PAUSE_S
    before: api.GetRunResponse | None = None
    while True:
        try:
            answer = await client.call(client.runs.GetRun, api.GetRunRequest(run_id=run_id, payload_format=EXACT))
            seen = Seen(answer=answer)
            if before is not None and answer.data != before.data:
                pause = FIRST_PAUSE_S
            before = answer
        except Refusal as refusal:
            if before is None or refusal.code not in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"):
                raise
            seen = Seen(answer=before, away=True)
        yield seen
        if seen.over:
            if not seen.successor:
                return
            run_id = seen.successor
            continue
        if clock() + pause > deadline:
            status = run_status(before.data)
            if RunStatus(status).terminal:
                say(f"the compensation of run {run_id} still runs after {timeout_s:g} s; it goes on", "yellow")
                return
            raise CommandFailed(f"run {run_id} is still {status} after {timeout_s:g} s; it goes on")
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, LAST_PAUSE_S)


async def _silently(client: Client, run_id: str, timeout_s: float) -> Seen:
    async for seen in looks(client, run_id, timeout_s):
        last = seen
    return last


async def _on_a_terminal(client: Client, run_id: str, timeout_s: float) -> Seen:
    with drawing.live() as screen:
        board: drawing.Board | None = None
        async for seen in looks(client, run_id, timeout_s):
            last = seen
            if board is None:
                board = await drawing.board(client, seen.answer.data.summary.version_id)
            nodes = () if seen.away else await steps_of(client, seen.run_id)
            screen.update(board.drawn(seen.answer, nodes, away=seen.away), refresh=True)
    return last


async def _as_lines(client: Client, run_id: str, timeout_s: float, *, as_json: bool) -> Seen:
    history = History(client, run_id)
    away = False
    async for seen in looks(client, run_id, timeout_s):
        last = seen
        if seen.away and not away:
            say("the server cannot be reached; trying again …", "dim")
        away = seen.away
        if away:
            continue
        if seen.run_id != history.run_id:
            history = History(client, seen.run_id)
            if not as_json:
                show(f"continued as new: {seen.run_id}", "bold")
        for entry in await history.new():
            if as_json:
                _json_line(plain(entry))
            else:
                show(event_line(entry))
    return last


class History:
    """A run's timeline with its controls, each entry told once."""

    def __init__(self, client: Client, run_id: str) -> None:
        self.run_id = run_id
        self._client = client
        self._page = ""
        self._told: set[bytes] = set()

    async def new(self) -> list[model.TimelineEntry]:
        """What has happened since the last time. The last page is read again until there is one after it: a control may yet find its place in it."""
        found: list[model.TimelineEntry] = []
        while True:
            request = api.GetRunTimelineRequest(
                run_id=self.run_id, page_token=self._page, page_size=PAGE, payload_format=EXACT, unified=True
            )
            answer = await self._client.call(self._client.runs.GetRunTimeline, request)
            keys = [_name(entry) for entry in answer.data]
            found += [entry for entry, key in zip(answer.data, keys, strict=True) if key not in self._told]
            if not answer.next_page_token:
                self._told = set(keys)
                return found
            self._page, self._told = answer.next_page_token, set()


def _name(entry: model.TimelineEntry) -> bytes:
    """What tells an entry from every other one, also when a control that is told of late moves it."""
    if entry.event_index >= 0:
        return f"{entry.seq}.{entry.event_index}".encode()
    named = model.TimelineEntry(type=entry.type, event_time=entry.event_time, detail_json=entry.detail_json)
    return named.SerializeToString(deterministic=True)


def _verdict(run: model.RunDetail, status: str) -> None:
    style = "bold green" if status == RunStatus.COMPLETED else "bold red"
    error = f": {fault_text(run.error)}" if run.HasField("error") else ""
    where = f" at {run.error_step_ref}" if run.error_step_ref else ""
    show(f"{status}{where}{error}", style)
    compensation = word(model.CompensationStatus.DESCRIPTOR, run.summary.compensation_status)
    if compensation not in ("none", "unspecified"):
        show(f"compensation {compensation.replace('_', ' ')}", STATUS_STYLES.get(compensation, ""))
    if compensation == "manual_repair":
        say(f"  → `ductor run show {run.summary.run_id}` shows the ledger; `ductor run repair` settles it", "yellow")
    result = plain(run)["result"]
    if result is not None:
        show(compact(result))


def _json_line(value: object) -> None:
    sys.stdout.write(compact(value) + "\n")
    sys.stdout.flush()
