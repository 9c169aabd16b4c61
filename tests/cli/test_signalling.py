"""`ductor step approve|reject|resolve|receipts` and `ductor event publish|explain` against a running stack (E1, E2, E3, E6)."""

import json
import re
from typing import Any

import pytest

from tests.cli.shop import Shop, node

pytestmark = [pytest.mark.xdist_group("operating"), pytest.mark.timeout(240)]
UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def _offered(shop: Shop, order: int) -> str:
    """An offer all of whose steps wait."""
    run = shop.start("offer", order=order)
    shop.until(run, lambda run: all(step["status"] == "waiting" for step in run["nodes"]))
    return run


def _output(shop: Shop, run: str, ref: str) -> Any:
    """The output of a step that has ended."""
    shop.until(run, lambda run: node(run, ref)["status"] in ("succeeded", "completed_with_error", "failed"))
    return shop.json("run", "show", run, "--step", ref)["output"]


def test_people_are_heard_e1_e2_e6(shop: Shop) -> None:
    """An approval, a case that moves on, a signal that somebody waits for; each goes under a name that is printed, and twice is once."""
    run = _offered(shop, 1)
    said = ("step", "approve", run, "manager", "--by", "kim", "--comment", "fine", "--payload", '{"tier": "gold"}')
    for _ in range(2):
        assert shop.ductor(*said, "--request-id", "r1") == (0, "approval of manager accepted as r1\n", "")
    output = _output(shop, run, "manager")
    told = {name: output[name] for name in ("decision", "approver_id", "comment", "payload")}
    assert told == {"decision": "approved", "approver_id": "kim", "comment": "fine", "payload": {"tier": "gold"}}
    code, shown, errors = shop.ductor("step", "reject", run, "manager")
    assert (code, errors) == (0, "")
    assert re.fullmatch(rf"rejection of manager accepted as {UUID}\n", shown)
    assert shop.ductor("step", "resolve", run, "paper", "--status", "in_review", "--payload", '{"by": "kim"}')[0] == 0
    answer = shop.json("step", "resolve", run, "paper", "--payload", '{"ok": true}')
    assert (answer["status"], answer["run_id"]) == ("accepted", run)
    paper = _output(shop, run, "paper")
    assert paper["status"] == "resolved"
    assert shop.ductor("step", "resolve", run, "go", "--payload", "-", input_="7")[0] == 0
    assert _output(shop, run, "go")


def test_what_people_may_not_say(shop: Shop) -> None:
    run = _offered(shop, 2)
    for arguments, reason in (
        (("step", "approve", run, "nobody"), "STEP_NOT_FOUND"),
        (("step", "approve", run, "paper"), "SIGNAL_UNSUITED"),
        (("step", "resolve", run, "manager"), "SIGNAL_UNSUITED"),
        (("step", "approve", run, "manager", "--payload", "{"), "PAYLOAD_INVALID"),
        (("step", "resolve", run, "paper", "--payload", "[1]"), "FIELD_INVALID"),
        (("event", "publish", "order.paid", "--payload", "NaN"), "PAYLOAD_INVALID"),
        (("event", "publish", "x" * 257), "FIELD_INVALID"),
    ):
        code, output, errors = shop.ductor(*arguments)
        assert (code, output, reason in errors) == (1, "", True), (arguments, errors)
    assert shop.ductor("step", "approve", run, "manager", "--payload", "@nowhere.json")[0] == 2
    assert shop.ductor("event", "publish", "order.paid", "--ttl", "86401")[0] == 2
    assert shop.ductor("run", "cancel", run)[0] == 0
    code, _, errors = shop.ductor("step", "approve", run, "manager")
    assert (code, "RUN_TERMINAL" in errors) == (1, True)


def test_events_start_runs_t3(shop: Shop) -> None:
    """Which runs an event started, and which triggers could not start one."""
    publish = ("event", "publish", "parcel.returned", "--id", "r1", "--payload")
    code, output, errors = shop.ductor(*publish, '{"order": 1}')
    assert (code, errors) == (0, "")
    matched, started, head, broken = output.splitlines()
    assert matched == "matched 0"
    run = re.fullmatch(f"started ({UUID})", started)
    assert run is not None
    assert head.split() == ["STARTED", "NOTHING", "TRIGGER", "CODE", "WHY"]
    assert re.fullmatch(rf"{UUID} +broken +INPUT_SCHEMA_MISMATCH +input: .*order.*", broken)
    assert shop.ductor(*publish, '{"order": 1}') == (0, "matched 0\n", "the event was published before\n")
    answer = shop.json("event", "publish", "parcel.returned", "--payload", '{"order": 0}')
    assert (answer["started_run_ids"], len(answer["refused_triggers"])) == ([], 1)
    assert shop.ductor("run", "cancel", run[1])[0] == 0


def test_events_reach_the_sets_that_wait_e3(shop: Shop) -> None:
    """What an event would do, what it does, and what a set has received."""
    run = _offered(shop, 3)
    paid = ("order.paid", "--key", "o-3", "--payload")
    assert shop.ductor("event", "explain", *paid, '{"amount": 5}', "--run", run) == (
        0, "open sets    1 set\nwould match  0\nWHY NOT       SETS\nfilter_false  1\n", "",
    )  # fmt: skip
    assert shop.json("event", "explain", *paid, '{"amount": 50}', "--run", run)["matched"] == 1
    assert shop.ductor("event", "publish", *paid, '{"amount": 5}') == (0, "matched 0\n", "")
    assert shop.ductor("event", "publish", *paid, '{"amount": 50}', "--id", "e1") == (0, "matched 1\n", "")
    again = shop.ductor("event", "publish", *paid, '{"amount": 50}', "--id", "e1")
    assert again == (0, "matched 0\n", "the event was published before\n")
    (receipt,) = shop.json("step", "receipts", run, "money")["data"]
    assert (receipt["event_id"], receipt["event_name"], receipt["requirement"]) == ("e1", "order.paid", "paid")
    code, output, _ = shop.ductor("step", "receipts", run, "money")
    assert (code, bool(re.search(r"^e1 +order\.paid +paid +\d{4}-", output, re.MULTILINE))) == (0, True)
    kept = shop.ductor("event", "publish", "order.sent", "--key", "o-4", "--ttl", "60")
    assert kept == (0, "matched 0\n", "it is kept for 60 s\n")
    answer = shop.json("event", "publish", "order.sent", "--key", "o-3", "--payload", json.dumps({"by": "ship"}))
    assert (answer["matched"], answer["duplicate"], answer["started_run_ids"]) == (1, False, [])
    output = _output(shop, run, "money")
    assert [event["requirement"] for event in output["events"]] == ["paid", "sent"]
