"""`ductor schedule …`, `ductor event triggers` and `ductor release …` against a running stack, and previews without one (T2, T3, T4)."""

import json
import re
from typing import Any

import pytest

from tests.cli.shop import Shop
from tests.support.dev import invoke

pytestmark = [pytest.mark.xdist_group("operating"), pytest.mark.timeout(240)]
UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
NOBODY = "01a227de-ae9f-7023-9d08-50a02dbe9fe7"


def _schedule(shop: Shop) -> Any:
    return shop.json("schedule", "show", "report")["data"]


def test_a_schedule_is_found_by_its_names(shop: Shop) -> None:
    """By id, by workflow and trigger, by workflow alone where that is enough."""
    (listed,) = shop.json("schedule", "list", "--workflow", "report")["data"]
    for name in (listed["schedule_id"], "report/schedule", "report"):
        assert shop.json("schedule", "show", name)["data"]["schedule_id"] == listed["schedule_id"]
    code, output, _ = shop.ductor("schedule", "list")
    assert code == 0
    assert re.search(rf"^report/schedule +active +0 3 1 1 \* +Europe/Berlin +\d{{4}}-.* {UUID}$", output, re.MULTILINE)
    code, output, _ = shop.ductor("schedule", "show", "report")
    facts = dict(re.findall(r"^(\w[\w -]*?)  +(.+)$", output, re.MULTILINE))
    assert (code, facts["schedule"], facts["cron"]) == (0, "report/schedule", "0 3 1 1 *  (Europe/Berlin)")
    assert (facts["overlap"], facts["catch-up"], facts["status"]) == ("skip", "600 s", "active")
    assert shop.json("schedule", "list", "--status", "broken")["data"] == []
    code, _, errors = shop.ductor("schedule", "show", "audit")
    assert (code, "audit/morning, audit/evening" in errors or "audit/evening, audit/morning" in errors) == (2, True)
    assert shop.ductor("schedule", "show", "audit/evening")[0] == 0
    for wrong in ("nothing", "report/other", NOBODY):
        code, output, errors = shop.ductor("schedule", "show", wrong)
        assert (code, output, "`ductor schedule list`" in errors) == (1, "", True)
    assert shop.ductor("schedule", "list", "--status", "sleeping")[0] == 2


def test_pause_resume_and_by_hand(shop: Shop) -> None:
    """A pause is told with its reason; a fire by hand gives the run's id, once per request; a run that is active is in the way unless it is allowed."""
    code, output, errors = shop.ductor("schedule", "pause", "report", "--reason", "month's end")
    assert (code, output, errors) == (0, "report/schedule is paused\n", "")
    assert (_schedule(shop)["status"], _schedule(shop)["pause_reason"]) == ("paused", "month's end")
    first = shop.ductor("schedule", "trigger", "report", "--request-id", "q1", "--overlap", "allow_all")
    assert (first[0], bool(re.fullmatch(rf"{UUID}\n", first[1])), first[2]) == (0, True, "")
    again = shop.ductor("schedule", "trigger", "report", "--request-id", "q1", "--overlap", "allow_all")
    assert again == (0, first[1], "the request was made before\n")
    code, output, errors = shop.ductor("schedule", "trigger", "report")
    assert (code, output, errors.startswith("skipped: a run of the schedule is active")) == (1, "", True)
    assert shop.json("schedule", "trigger", "report", code=1)["data"]["outcome"] == "skipped"
    code, output, _ = shop.ductor("schedule", "resume", "report/schedule")
    assert (code, output.startswith("report/schedule is active, next ")) == (0, True)
    code, output, _ = shop.ductor("schedule", "fires", "report", "--outcome", "started")
    assert (code, bool(re.search(rf"^\d{{4}}-.* started +manual +{UUID}$", output, re.MULTILINE))) == (0, True)
    assert shop.json("schedule", "fires", "report", "--limit", "1")["data"][0]["outcome"] == "skipped"
    acts = [
        entry["action"]
        for entry in shop.json("audit", "list", "--about", f"schedule:{_schedule(shop)['schedule_id']}")["data"]
    ]
    assert acts[-2:] == ["trigger_schedule", "pause_schedule"]
    assert shop.ductor("schedule", "trigger", "report", "--overlap", "buffer")[0] == 2


def test_a_backfill_prints_its_runs(shop: Shop) -> None:
    """The ids on standard output, the sum beside it; a second one starts nothing."""
    span = ("--from", "2020-12-31T00:00:00Z", "--to", "2023-01-02T00:00:00Z")
    code, output, errors = shop.ductor("schedule", "backfill", "report", *span, "--reason", "lost")
    assert (code, len(output.splitlines()), errors) == (0, 3, "3 started\n")
    assert shop.ductor("schedule", "backfill", "report", *span) == (0, "", "3 had started before\n")
    answer = shop.json("schedule", "backfill", "report", "--from", "1h")
    assert (answer["started_run_ids"], answer["failed_count"]) == ([], 0)
    assert shop.ductor("schedule", "backfill", "report", "--from", "1h") == (0, "", "no time falls into the span\n")
    code, _, errors = shop.ductor("schedule", "backfill", "report", "--from", "1h", "--to", "2h")
    assert (code, "FIELD_INVALID" in errors) == (1, True)
    assert shop.ductor("schedule", "backfill", "report", "--from", "yesterday")[0] == 2
    run = output.split()[0]
    assert shop.json("run", "show", run)["data"]["summary"]["run_id"] == run


def test_a_preview_of_a_schedule_and_of_a_cron_agree(shop: Shop) -> None:
    """What the server says of a schedule is what is computed here of its cron; the clock's changes are told."""
    after = ("--after", "2030-01-01T00:00:00Z", "--count", "3")
    there = shop.json("schedule", "preview", "report", *after)
    cron = ("--cron", "0 3 1 1 *", "--timezone", "Europe/Berlin")
    code, output, errors = invoke("schedule", "preview", *cron, *after, "--json")
    assert (code, json.loads(output), errors) == (0, there, "")
    assert [entry["local_time"][:16] for entry in there["data"]] == [f"203{n}-01-01T03:00" for n in range(3)]


def test_a_preview_needs_no_server_tc01_tc02_tc04_tc05() -> None:
    """TC-01, TC-02, TC-04, TC-05: gap and repeat are marked; what cannot be is refused with 2; days combine by OR."""
    code, output, _ = invoke(
        "schedule", "preview", "--cron", "30 2 * * *", "--timezone", "Europe/Berlin", "--after", "2030-03-30T12:00:00Z", "--count", "1"
    )  # fmt: skip
    assert (code, "2030-03-31T03:00:00+02:00" in output, "leave its time out" in output) == (0, True, True)
    code, output, _ = invoke(
        "schedule", "preview", "--cron", "0 0 13 * 5", "--after", "2030-09-01T00:00:00Z", "--count", "3", "--json"
    )
    assert [entry["local_time"][:10] for entry in json.loads(output)["data"]] == [
        "2030-09-06",
        "2030-09-13",
        "2030-09-20",
    ]
    for wrong in (
        ("--cron", "0 0 31 2 *"),
        ("--cron", "@hourly"),
        ("--cron", "* * * *"),
        ("--cron", "0 3 * * *", "--timezone", "Mars/Olympus"),
        ("--cron", "0 3 * * *", "--count", "101"),
        ("--cron", "0 3 * * *", "--after", "soon"),
        ("--timezone", "UTC"),
        (),
        ("report", "--cron", "0 3 * * *"),
    ):
        code, output, errors = invoke("schedule", "preview", *wrong)
        assert (code, output, bool(errors)) == (2, "", True), wrong


def test_event_triggers_are_listed(shop: Shop) -> None:
    """All, of a workflow, or those that an event meets."""
    code, output, _ = shop.ductor("event", "triggers")
    assert code == 0
    assert re.search(r"^order\.created +welcome +v1 +created +EVENT\.payload\.sum > 10$", output, re.MULTILINE)
    assert [one["pattern"] for one in shop.json("event", "triggers", "--event", "order.created")["data"]] == [
        "order.created"
    ]
    assert shop.json("event", "triggers", "--workflow", "report")["data"] == []


def test_a_release_policy_t4(shop: Shop) -> None:
    """T4: shown, set, and in the way of who names no live release."""
    assert shop.json("release", "show")["data"] == {
        "mode": "off", "live_release_ids": [], "update_time": None, "updated_by": "",
    }  # fmt: skip
    code, output, errors = shop.ductor("release", "show")
    assert (code, output.split(), errors) == (0, ["mode", "off"], "")
    try:
        code, output, _ = shop.ductor("release", "set", "required", "blue", "green", "--reason", "wave 2")
        assert (code, output.splitlines()[:2]) == (0, ["mode           required", "live releases  blue, green"])
        assert shop.json("release", "show")["data"]["live_release_ids"] == ["blue", "green"]
        code, output, errors = shop.ductor("trigger", "report")
        assert (code, output, "RELEASE_MISMATCH" in errors, "`ductor release show`" in errors) == (1, "", True, True)
        assert shop.ductor("trigger", "report", "--release", "blue")[0] == 0
        assert shop.ductor("release", "set", "required")[0] == 1
        assert shop.ductor("release", "set", "maybe")[0] == 2
    finally:
        assert shop.ductor("release", "set", "off")[0] == 0
