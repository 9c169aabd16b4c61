"""`ductor run export` and `run replay`: a run's recorded facts, and today's engine deciding them again.

A replay reads facts and writes nothing: no server decides anything, and a recording of another machine replays here as it does there.
"""

import difflib
import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from ductor.workflow.v1 import workflow_service_pb2 as api
from ductord.cli.client import Client, Connection, connected
from ductord.cli.ending import DONE, FAILED, MISUSED, CommandFailed
from ductord.cli.output import counted, print_json, say, show
from ductord.engine.replay import Difference, ReplayError
from ductord.engine.replay import replay as replayed
from ductord.model import events as history
from ductord.model import recording as recordings
from ductord.model.recording import Recording


async def export(connection: Connection, run_id: str, *, file: str, as_json: bool) -> int:
    """The recording of a run as JSON Lines, to a file or to standard output."""
    async with connected(connection) as client:
        text = await fetched(client, run_id)
    if file and file != "-":
        _write(Path(file), text)
        say(f"{file}: {counted(text.count(chr(10)), 'line')}", "dim")
    elif as_json:
        print_json({"data": [json.loads(line) for line in text.split("\n") if line]})
    else:
        sys.stdout.write(text)
        sys.stdout.flush()
    return DONE


async def replay(connection: Connection, run_id: str, *, file: str, as_json: bool) -> int:
    """Decide a recorded run again; 1 where something would come out differently, and then what is told."""
    if bool(run_id) == bool(file):
        raise CommandFailed("replay a run of a server, or with --file a recording: one of the two", code=MISUSED)
    if file:
        recording = _decoded(_read(file), file)
    else:
        async with connected(connection) as client:
            recording = _decoded(await fetched(client, run_id), run_id)
    try:
        difference = replayed(recording)
    except ReplayError as error:
        raise CommandFailed(f"the recording cannot be replayed: {error}") from None
    _tell(recording, difference, as_json)
    return DONE if difference is None else FAILED


async def fetched(client: Client, run_id: str) -> str:
    """The whole recording of a run."""
    parts: list[str] = []
    token = ""
    while True:
        request = api.ExportRunRequest(run_id=run_id, page_token=token)
        page = await client.call(client.runs.ExportRun, request)
        parts.append(page.lines)
        token = page.next_page_token
        if not token:
            return "".join(parts)


def _tell(recording: Recording, difference: Difference | None, as_json: bool) -> None:
    run_id, count = recording.run.start.run_id, len(recording.transitions)
    if as_json:
        print_json({"run_id": run_id, "transitions": count, "difference": _tree(difference)})
        return
    if difference is None:
        show(f"no difference over {counted(count, 'transition')}")
        return
    show(f"transition {difference.seq} of {count} would be decided otherwise (at {difference.at.isoformat()})", "bold red")  # fmt: skip
    if difference.error:
        show(f"today's engine raises {difference.error}")
    expected, found = ([_text(event) for event in events] for events in (difference.expected, difference.found))
    for line in difflib.unified_diff(expected, found, "expected", "found", n=1_000, lineterm=""):
        show(line, {"+": "green", "-": "red"}.get(line[:1], "dim"))


def _tree(difference: Difference | None) -> dict[str, Any] | None:
    if difference is None:
        return None
    tree: dict[str, Any] = msgspec.to_builtins(difference)
    return {"seq": tree["seq"], "at": tree["at"], "error": tree["error"], "expected": tree["expected"], "found": tree["found"]}  # fmt: skip


def _text(event: history.Event) -> str:
    return msgspec.json.encode(event).decode()


def _decoded(text: str, name: str) -> Recording:
    try:
        return recordings.decode(text)
    except msgspec.MsgspecError as error:
        raise CommandFailed(f"{name} is not a recording that this release reads: {error}") from None


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"{file}: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from None


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    try:
        part.write_text(text, "utf-8", newline="\n")
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise CommandFailed(f"{path}: {error.strerror}") from None
