"""`ductor run watch`: follow a run to its end. The graph on a terminal, a line per event elsewhere, JSON lines for machines.

The end is where nothing moves any more: a run that is continued as new is followed to its successor, and one that owes inverses until they are worked off.
It is told of every change (WatchRun), and goes on where it was when the stream breaks: a server that is away for a while (a restart, a kill) is waited for,
and runs outlive it.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing

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

INTERVAL_MS, BEAT_MS = 100, 1_000
"""How often a change is drawn at most, and how often the picture is drawn anew without one: its clocks run."""
PAUSE_S = 0.5
"""How long a server that is away is left alone."""
LATE_S = 0.05
"""So near to its end, a call that fails has no time to be made again."""
TREE_S = 1.0
"""How often the tree of children is read."""
PASSING = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED")
PAGE = 1_000


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a run. `nodes`: by step ref, in graph order. `away`: the server cannot be reached, the rest is what was seen before. `moved`: it is not
    the same as before."""

    answer: api.GetRunResponse
    nodes: Mapping[str, model.StepState]
    away: bool = False
    moved: bool = True

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
    seen: Seen | None = None
    after: int | None = None
    while True:
        request = api.WatchRunRequest(
            run_id=run_id, after_seq=after, follow=True, min_interval_ms=INTERVAL_MS, heartbeat_ms=BEAT_MS
        )
        try:
            messages = client.stream(client.runs.WatchRun, request, limit_s=max(deadline - clock(), 0.01))
            async with aclosing(messages):
                async for message in messages:
                    seen = await _seen(client, seen, message)
                    run_id, after = message.run_id, message.seq
                    yield seen
            if seen is not None and seen.over and not seen.successor:
                return
        except Refusal as refusal:
            late = clock() > deadline - LATE_S
            if refusal.code not in PASSING or (seen is None and not late):
                raise
            if seen is not None and not late:
                seen = msgspec.structs.replace(seen, away=True)
                yield seen
        if clock() > deadline - LATE_S:
            break
        await asyncio.sleep(PAUSE_S)
    _time_is_up(seen, run_id, timeout_s)


def _time_is_up(seen: Seen | None, run_id: str, timeout_s: float) -> None:
    status = run_status(seen.answer.data) if seen is not None else "not known"
    if seen is not None and RunStatus(status).terminal:
        say(f"the compensation of run {run_id} still runs after {timeout_s:g} s; it goes on", "yellow")
        return
    raise CommandFailed(f"run {run_id} is still {status} after {timeout_s:g} s; it goes on")


async def _seen(client: Client, before: Seen | None, message: api.WatchRunResponse) -> Seen:
    """What a message makes of what was known."""
    if message.kind == api.WATCH_KIND_HEARTBEAT and before is not None:
        return msgspec.structs.replace(before, away=False, moved=False)
    owes = message.summary.compensation_status not in (
        model.COMPENSATION_STATUS_NONE, model.COMPENSATION_STATUS_UNSPECIFIED,
    )  # fmt: skip
    nodes = {} if before is None or message.kind != api.WATCH_KIND_CHANGE else dict(before.nodes)
    if message.kind == api.WATCH_KIND_CHANGE and before is None:  # gone on where another connection had been
        nodes = {node.step_ref: node for node in await steps_of(client, message.run_id)}
    nodes |= {node.step_ref: node for node in message.nodes}
    if before is None or before.run_id != message.run_id or message.ended or owes:
        request = api.GetRunRequest(run_id=message.run_id, payload_format=EXACT)
        answer = await client.call(client.runs.GetRun, request)
    else:
        answer = api.GetRunResponse()
        answer.CopyFrom(before.answer)
        answer.data.summary.CopyFrom(message.summary)
        answer.metadata.CopyFrom(message.metadata)
    return Seen(answer=answer, nodes=nodes)


async def _silently(client: Client, run_id: str, timeout_s: float) -> Seen:
    async for seen in looks(client, run_id, timeout_s):
        last = seen
    return last


async def _on_a_terminal(client: Client, run_id: str, timeout_s: float) -> Seen:
    clock = asyncio.get_running_loop().time
    with drawing.live() as screen:
        board: drawing.Board | None = None
        shown, known_at = 0.0, clock()
        tree: Sequence[model.RunTreeNode] = ()
        async for seen in looks(client, run_id, timeout_s):
            last = seen
            known_at = clock() if seen.moved else known_at
            if board is None:
                board = await drawing.board(client, seen.answer.data.summary.version_id)
            if _has_child_runs(seen) and not seen.away and (clock() - shown > TREE_S or seen.over):
                shown, tree = clock(), await _tree(client, seen.run_id)
            picture = board.drawn(
                seen.answer, list(seen.nodes.values()), tree=tree, away=seen.away, later_s=clock() - known_at
            )
            screen.update(picture, refresh=True)
    return last


def _has_child_runs(seen: Seen) -> bool:
    return any(node.fan.mode == model.FAN_MODE_CHILD_WORKFLOW for node in seen.nodes.values() if node.HasField("fan"))


async def _tree(client: Client, run_id: str) -> Sequence[model.RunTreeNode]:
    """The runs below a run; none where the server is away just now, which the stream says itself."""
    request = api.GetRunRequest(run_id=run_id, payload_format=EXACT, include_tree=True)
    try:
        return (await client.call(client.runs.GetRun, request)).data.tree
    except Refusal as refusal:
        if refusal.code not in PASSING:
            raise
        return ()


async def _as_lines(client: Client, run_id: str, timeout_s: float, *, as_json: bool) -> Seen:
    history = History(client, run_id)
    away = False
    async for seen in looks(client, run_id, timeout_s):
        last = seen
        if seen.away and not away:
            say("the server cannot be reached; trying again …", "dim")
        away = seen.away
        if away or not seen.moved:
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
    named = model.TimelineEntry()
    named.CopyFrom(entry)
    named.ClearField("seq")  # the transition before it, which may yet be another one
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
