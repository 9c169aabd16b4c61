"""The client commands against a running `ductor dev`: what they print, for people and machines, and their exit codes."""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.demo.engine import TENANT, Engine
from tests.support.dev import EXAMPLE_NAMES, EXAMPLES, dev_folder, ductor, invoke, running_dev

pytestmark = [pytest.mark.xdist_group("tour"), pytest.mark.timeout(240)]

ORDER = str(EXAMPLES / "order.yaml")
INPUT = '{"order_id": "o-1", "amount": 4900}'


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """One engine for all tests, with the examples published by `workflow load`."""
    with dev_folder() as folder, running_dev(folder) as running:
        done = _ductor(running, "workflow", "load", str(EXAMPLES))
        assert done == (0, "".join(f"{name} v1 published\n" for name in EXAMPLE_NAMES), ""), done
        yield running


def _ductor(engine: Engine, *arguments: str, input_: str | None = None, tenant: str = TENANT) -> tuple[int, str, str]:
    return invoke(*arguments, input_=input_, DUCTOR_TARGET=engine.grpc, DUCTOR_TENANT_ID=tenant)


def _json(engine: Engine, *arguments: str) -> dict[str, object]:
    code, output, errors = _ductor(engine, *arguments, "--json")
    assert (code, errors) == (0, "")
    found: dict[str, object] = json.loads(output)
    return found


def test_a_second_dev_on_one_folder_is_refused(engine: Engine) -> None:
    """It names the process that has the folder and where that listens; the first goes on."""
    second = ductor("dev", "--data-dir", str(engine.folder), DUCTOR_GRPC_ADDRESS=":0", DUCTOR_HTTP_ADDRESS="off")
    assert second.returncode == 1
    assert str(engine.pid) in second.stderr
    assert engine.grpc in second.stderr
    assert engine.running


def test_trigger_waits_and_says_how_it_ended(engine: Engine) -> None:
    """The id first, then an event a line where nobody watches, then the verdict; exit code 0 for a completed run."""
    code, output, errors = _ductor(engine, "trigger", "order", "--input", INPUT, "--wait")
    lines = output.splitlines()
    assert (code, errors) == (0, "")
    assert re.fullmatch(r"[0-9a-f-]{36}", lines[0])
    assert lines[-2] == "completed"
    assert json.loads(lines[-1]) == {"order_id": "o-1", "outcome": "shipped"}
    assert any(re.search(r" charge +attempt 1 succeeded$", line) for line in lines)
    assert sum(bool(re.search(r" run +completed$", line)) for line in lines) == 1
    shown = _json(engine, "run", "show", lines[0])
    assert shown["data"]["summary"]["status"] == "completed"  # type: ignore[index]
    assert shown["data"]["result"] == {"order_id": "o-1", "outcome": "shipped"}  # type: ignore[index]


def test_a_document_is_read_page_by_page(engine: Engine) -> None:
    """The example of fan-outs: pages side by side, sums by dataflow, published through a run of another definition (F1, F2, F5, F6)."""
    pages = '{"title": "Logbook", "pages": [{"text": "Calm."}, {}, {"text": "Land."}]}'
    code, output, errors = _ductor(engine, "trigger", "document_pipeline", "--input", pages, "--wait")
    lines = output.splitlines()
    assert (code, errors) == (0, "")
    assert json.loads(lines[-1]) == {"path": "/documents/Logbook", "characters": 10, "unreadable": [2]}
    shown = _json(engine, "run", "show", lines[0], "--step", "publish")
    assert shown["output"]["output"] == {"path": "/documents/Logbook"}  # type: ignore[index]


def test_a_failed_run_is_exit_code_1(engine: Engine) -> None:
    """`trigger --wait` and `run watch` fail with the run, and say where and why."""
    code, output, _ = _ductor(
        engine, "trigger", "order", "--input", '{"order_id": "x", "amount": 1, "bad_address": true}', "--wait"
    )
    assert code == 1
    assert "failed at parcel: INVALID_ARGUMENT: the carrier does not know the address" in output
    run_id = output.splitlines()[0]
    code, output, _ = _ductor(engine, "run", "watch", run_id, "--json")
    entries = [json.loads(line) for line in output.splitlines()]
    assert code == 1
    assert entries[0]["type"] == "run_started"
    assert entries[-1]["run"]["summary"]["status"] == "failed"
    code, output, _ = _ductor(engine, "run", "show", run_id)
    assert code == 0
    assert re.search(r"^ship +skipped +run_ended$", output, re.MULTILINE)
    code, output, _ = _ductor(engine, "run", "show", run_id, "--step", "parcel")
    assert (code, "the carrier does not know" in output) == (0, True)
    code, output, _ = _ductor(engine, "run", "show", run_id, "--attempts")
    assert re.search(r"^parcel +1 +failed", output, re.MULTILINE)


def test_a_trip_is_booked_whole_or_not_at_all_c7(engine: Engine) -> None:
    """The example: a declined card gives back the hotel, then the flight; then the final action of the step that failed."""
    code, output, _ = _ductor(engine, "trigger", "trip", "--input", '{"traveller": "Ada", "declines": 1}', "--wait")
    assert code == 1
    run_id = output.splitlines()[0]
    deadline = time.monotonic() + 120
    while (found := _json(engine, "run", "snapshot", run_id)["data"])["summary"]["compensation_status"] == "running":  # type: ignore[index]
        assert time.monotonic() < deadline
    assert [(entry["step_ref"], entry["block"], entry["status"]) for entry in found["compensation"]] == [  # type: ignore[index]
        ("hotel", "on_failure", "done"),
        ("flight", "on_failure", "done"),
        ("charge", "finally", "done"),
    ]
    code, output, _ = _ductor(engine, "trigger", "trip", "--input", '{"traveller": "Ada"}', "--wait")
    assert (code, json.loads(output.splitlines()[-1])) == (0, {"tickets": {"flight": "F-Ada", "hotel": "H-Ada"}})


def test_on_a_terminal_the_graph_is_drawn(engine: Engine) -> None:
    """A row per step in graph order with what leads to it, redrawn until the end; then the verdict. Who stands still may miss the middle, and looks again."""
    for _ in range(3):
        pictures = _pictures(engine)
        assert re.search(r"✓ charge +succeeded", pictures[-1])
        assert re.search(r"↷ express +skipped +choice +← pack", pictures[-1])
        assert "9 succeeded  5 skipped" in pictures[-1]
        assert '"outcome": "shipped"' in pictures[-1]
        if len(pictures) > 3 and any(re.search(r"▶ reserve +running", picture) for picture in pictures):
            return
    raise AssertionError(pictures)


def _pictures(engine: Engine) -> list[str]:
    """What a terminal shows of an order, one after the other."""
    controller, terminal = os.openpty()
    environment = {
        **os.environ,
        "DUCTOR_TARGET": engine.grpc,
        "DUCTOR_TENANT_ID": TENANT,
        "TERM": "xterm",
        "COLUMNS": "120",
        "LINES": "40",
    }
    with subprocess.Popen(
        [sys.executable, "-m", "ductord.cli", "trigger", "order", "--input", INPUT, "--wait"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=terminal,
    ) as process:
        os.close(terminal)
        shown = _all_of(controller)
    assert process.returncode == 0
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).split("order v1  ")


def _all_of(descriptor: int) -> str:
    """What was written to a terminal until its last writer left."""
    parts = []
    with contextlib.suppress(OSError):  # Linux says EIO at the end of a terminal
        while part := os.read(descriptor, 65_536):
            parts.append(part)
    os.close(descriptor)
    return b"".join(parts).decode()


def test_keys_labels_and_checkpoints(engine: Engine) -> None:
    """T1, T5, G9 from the command line."""
    arguments = ("trigger", "order", "--input", "-", "--key", "k-1", "--subject", "order:o-1", "--label", "shop:s-1")
    code, first, _ = _ductor(engine, *arguments, input_=INPUT)
    again = _ductor(engine, *arguments, input_=INPUT)
    assert (code, again[0], again[1]) == (0, 0, first)
    assert "used before" in again[2]
    other = _ductor(engine, *arguments, input_='{"order_id": "o-1", "amount": 1}')
    assert other[0] == 1
    assert "IDEMPOTENCY_MISMATCH" in other[2]
    listed = _json(engine, "run", "list", "--label", "shop:s-1", "--workflow", "order", "--subject", "order:o-1")
    assert [run["run_id"] for run in listed["data"]] == [first.strip()]  # type: ignore[attr-defined]
    code, output, _ = _ductor(engine, "trigger", "order", "--input", INPUT, "--checkpoint", "accepted", "--json")
    answer = json.loads(output)
    assert (code, answer["checkpoint_reached"]) == (0, True)
    assert answer["response_group_output"] == {"charge": {}}


def test_what_started_a_run(engine: Engine) -> None:
    """`run show` says what started a run and in which environment; `run list` finds runs by their journey and by when they were born."""
    payload = '{"order": {"id": "o-9", "amount": 5}, "shop": "web"}'
    published = ("event", "publish", "order.created", "--id", "cli-1", "--key", "o-9", "--payload", payload)
    code, output, _ = _ductor(engine, *published)
    matched, started = output.splitlines()
    run = started.removeprefix("started ")
    assert (code, matched) == (0, "matched 0")
    shown = _ductor(engine, "run", "show", run)[1]
    assert "event order.created cli-1 (created)" in shown
    assert ["environment", "dev"] in [line.split() for line in shown.splitlines()]
    for times, there in (((), [run]), (("--since", "1h"), [run]), (("--until", "1h"), [])):
        listed = _json(engine, "run", "list", "--journey", run, *times)
        assert [one["run_id"] for one in listed["data"]] == there  # type: ignore[attr-defined]
    assert _ductor(engine, "run", "list", "--since", "odd")[0] == 2


def test_definitions_from_the_command_line(engine: Engine, tmp_path: Path) -> None:
    """Load only what changed, diff, export, publish, archive: one family's life."""
    assert _ductor(engine, "workflow", "load", ORDER)[1] == "order v1 unchanged\n"
    assert _ductor(engine, "workflow", "diff", ORDER) == (0, "", "")
    exported = _ductor(engine, "workflow", "export", "hello_world")[1]
    file = tmp_path / "mine.yaml"
    file.write_text(exported.replace("hello_world", "mine").replace("Hello World", "Mine"))
    code, output, _ = _ductor(engine, "workflow", "diff", str(file))
    assert (code, "+  family_slug: mine" in output) == (1, True)
    assert _ductor(engine, "workflow", "publish", str(file))[:2] == (0, "mine v1 published\n")
    file.write_text(file.read_text().replace("title: Mine", "title: Mine, changed"))
    code, output, _ = _ductor(engine, "workflow", "diff", str(file))
    assert (code, "+  title: Mine, changed" in output) == (1, True)
    assert _ductor(engine, "workflow", "publish", str(file))[:2] == (0, "mine v2 published\n")
    listed = _json(engine, "workflow", "list", "--slug", "mine")
    states = {(e["version"], e["status"]) for e in listed["data"]}  # type: ignore[attr-defined]
    assert states == {(3, "draft"), (2, "published"), (1, "published")}
    assert _ductor(engine, "workflow", "archive", "mine")[:2] == (0, "mine v2 archived\n")
    refused = _ductor(engine, "trigger", "mine")
    assert (refused[0], "DEFINITION_ARCHIVED" in refused[2]) == (1, True)
    code, output, _ = _ductor(engine, "workflow", "show", "mine", "--draft")
    assert (code, "v3" in output) == (0, True)


def test_a_broken_file_is_told_and_the_others_load(engine: Engine, tmp_path: Path) -> None:
    """D5: file, line and column of each violation; exit code 1; nothing of the broken one is written."""
    (tmp_path / "a.yaml").write_text(
        "type: workflow_definition\ndefinition:\n  family_slug: broken\n  steps:\n    - ref: a\n      type: bridge\n"
    )
    good = (EXAMPLES / "hello_world.yaml").read_text().replace("hello_world", "beside")
    (tmp_path / "b.yaml").write_text(good)
    code, output, errors = _ductor(engine, "workflow", "load", str(tmp_path))
    assert (code, output) == (1, "beside v1 published\n")
    assert f"{tmp_path}/a.yaml:6:13: error: " in errors
    assert "STEP_TYPE_NOT_SUPPORTED" in errors
    assert _json(engine, "workflow", "list", "--slug", "broken") == {"data": []}


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("run", "show", "01a227de-ae9f-7023-9d08-50a02dbe9fe7"), 1, "RUN_NOT_FOUND"),
        (("trigger", "nobody"), 1, "DEFINITION_NOT_FOUND"),
        (("trigger", "order", "--input", "{"), 1, "PAYLOAD_INVALID"),
        (("trigger", "order", "--input", "{}"), 1, "order_id"),
        (("trigger", "order", "--input", "@/nowhere.json"), 2, "/nowhere.json"),
        (("trigger", "order", "--label", "x"), 2, "KEY:ID"),
        (("trigger", "order", "--tier", "gold"), 2, "critical, standard, bulk"),
        (("trigger", "order", "--wait", "--checkpoint", "accepted"), 2, "--checkpoint"),
        (("run", "list", "--status", "odd"), 2, "timed_out"),
        (("run", "show", "x", "--timeline", "--attempts"), 2, "choose one"),
        (("workflow", "publish", "/nowhere.yaml"), 1, "/nowhere.yaml"),
        (("run", "nothing"), 2, "nothing"),
    ],
)
def test_failures_and_their_codes(engine: Engine, arguments: tuple[str, ...], code: int, text: str) -> None:
    """1 for what failed, 2 for what was called wrongly; nothing on standard output."""
    done = _ductor(engine, *arguments)
    assert (done[0], done[1]) == (code, "")
    assert text in done[2]


def test_errors_as_json(engine: Engine) -> None:
    """The reason, its metadata and the fields, on standard error."""
    code, output, errors = _ductor(engine, "trigger", "order", "--input", "{}", "--json")
    assert (code, output) == (1, "")
    error = json.loads(errors)["error"]
    assert (error["code"], error["reason"]) == ("INVALID_ARGUMENT", "INPUT_SCHEMA_MISMATCH")
    assert {violation["path"] for violation in error["violations"]} == {"input"}


def test_there_is_no_default_tenant_and_no_view_into_another(engine: Engine) -> None:
    """N1: a client command without a tenant is a usage error; another tenant sees nothing."""
    code, _, errors = _ductor(engine, "run", "list", tenant="")
    assert (code, "--tenant" in errors) == (2, True)
    code, output, _ = _ductor(engine, "workflow", "list", "--json", tenant="other")
    assert (code, json.loads(output)) == (0, {"data": []})


def test_a_server_that_is_not_there_is_told_as_such() -> None:
    """The address, and the way out."""
    code, _, errors = invoke("run", "list", "--tenant", "x", "--target", "127.0.0.1:1")
    assert code == 1
    assert "127.0.0.1:1" in errors
    assert "ductor dev" in errors
