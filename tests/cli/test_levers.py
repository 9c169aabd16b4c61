"""`ductor step …`, `run repair` and `run snapshot` against a running stack (C2, C7, C10, A1, A3)."""

import re

import pytest

from tests.cli.shop import Shop, node

pytestmark = [pytest.mark.xdist_group("operating"), pytest.mark.timeout(240)]


def test_a_node_is_held_and_let_go_c2(shop: Shop) -> None:
    run = shop.waiting_for_a_packer(11)
    assert shop.ductor("step", "pause", run, "pack") == (0, "pause of pack applied\n", "")
    assert re.search(r"^pack +running +1 +paused$", shop.ductor("run", "snapshot", run)[1], re.MULTILINE)
    assert shop.ductor("step", "pause", run, "ship") == (0, "pause of ship applied\n", "")
    assert shop.ductor("step", "resume", run, "pack") == (0, "resume of pack applied\n", "")
    code, _, errors = shop.ductor("step", "resume", run, "pack")
    assert (code, "NODE_STATUS_UNSUITED" in errors) == (1, True)
    code, _, errors = shop.ductor("step", "pause", run, "charge")
    assert (code, "NODE_FINISHED" in errors) == (1, True)
    code, _, errors = shop.ductor("step", "pause", run, "nobody")
    assert (code, "STEP_NOT_FOUND" in errors) == (1, True)


def test_a_node_starts_anew_c10(shop: Shop) -> None:
    run = shop.waiting_for_a_packer(12)
    assert shop.ductor("step", "reset", run, "pack", "--reason", "wrong box") == (0, "reset of pack applied\n", "")
    assert node(shop.json("run", "snapshot", run)["data"], "pack")["attempt"] == 2
    code, _, errors = shop.ductor("step", "reset", run, "charge")
    assert (code, "DOWNSTREAM_STARTED" in errors) == (1, True)


def test_a_nodes_retry_policy_is_changed_field_by_field_a1(shop: Shop) -> None:
    run = shop.waiting_for_a_packer(13)

    def policy() -> dict[str, object]:
        found: dict[str, object] = node(shop.json("run", "snapshot", run)["data"], "pack")["retry_policy"]
        return found

    original = policy()
    change = ("--max-attempts", "7", "--backoff-ms", "50", "--retry-on", "A", "--retry-on", "B", "--jitter")
    assert shop.ductor("step", "retry-policy", run, "pack", *change)[:2] == (0, "retry policy of pack applied\n")
    changed = policy()
    expected = {"retry_max_attempts": 7, "retry_backoff_ms": 50, "retry_on": ["A", "B"], "retry_jitter": True}
    assert changed == original | expected
    assert shop.ductor("step", "retry-policy", run, "pack", "--clear", "retry_on", "--no-jitter")[0] == 0
    assert policy() == original | {"retry_max_attempts": 7, "retry_backoff_ms": 50}
    assert "other retry policy" in shop.ductor("run", "snapshot", run)[1]
    assert shop.ductor("step", "retry-policy", run, "pack", "--restore")[0] == 0
    assert policy() == original
    assert "other retry policy" not in shop.ductor("run", "snapshot", run)[1]


def test_a_nodes_time_outs_are_changed_a3(shop: Shop) -> None:
    """The one across attempts counts at once, from the first on: its timer is there. 0 removes it."""
    run = shop.waiting_for_a_packer(14)
    change = ("--attempt-ms", "9000", "--total-ms", "3600000", "--queue-ms", "7200000", "--heartbeat-ms", "500")
    assert shop.ductor("step", "timeouts", run, "pack", *change)[:2] == (0, "time-outs of pack applied\n")
    found = shop.json("run", "snapshot", run)["data"]
    assert node(found, "pack")["timeouts"] == {
        "timeout_ms": 9_000, "total_timeout_ms": 3_600_000, "queue_timeout_ms": 7_200_000, "heartbeat_timeout_ms": 500,
    }  # fmt: skip
    assert [(timer["kind"], timer["step_ref"]) for timer in found["timers"]] == [("total_timeout", "pack")]
    assert re.search(r"^timers$\n.*\ntotal_timeout +pack ", shop.ductor("run", "snapshot", run)[1], re.MULTILINE)
    assert shop.ductor("step", "timeouts", run, "pack", "--total-ms", "0")[0] == 0
    found = shop.json("run", "snapshot", run)["data"]
    assert "total_timeout_ms" not in node(found, "pack")["timeouts"]
    assert found["timers"] == []


def test_a_person_settles_what_no_machine_can_undo_c7(shop: Shop) -> None:
    """SA-04: an undo that fails is not lost: it waits for a person, whose word settles it; a second word comes too late."""
    run = shop.ended("stubborn", "failed")
    found = shop.until(run, lambda run: run["summary"]["compensation_status"] == "manual_repair")
    (entry,) = found["compensation"]
    assert (entry["step_ref"], entry["status"], entry["position"]) == ("charge", "manual_repair", 0)
    assert "the bank is closed" in shop.ductor("run", "snapshot", run)[1]
    done = shop.ductor("run", "repair", run, "charge", "--retry", "--position", "0")
    assert done == (0, "repair of charge applied\n", "")
    shop.until(run, lambda run: run["compensation"][0]["attempt"] == 2 and run["compensation"][0]["status"] == "manual_repair")  # fmt: skip
    assert shop.ductor("run", "repair", run, "charge", "--done", "--reason", "refunded by hand")[0] == 0
    found = shop.json("run", "snapshot", run)["data"]
    assert (found["summary"]["status"], found["summary"]["compensation_status"]) == ("failed", "done")
    code, output, errors = shop.ductor("run", "repair", run, "charge", "--not-needed")
    assert (code, output, "NOTHING_TO_REPAIR" in errors) == (1, "", True), errors


def test_a_snapshot_for_people(shop: Shop) -> None:
    run = shop.waiting_for_a_packer(15)
    output = shop.ductor("run", "snapshot", run)[1]
    assert re.search(r"^status +running$", output, re.MULTILINE)
    assert re.search(r"^edges +1 open, 1 taken$", output, re.MULTILINE)
    assert re.search(r"^history +2 transitions, length \d$", output, re.MULTILINE)
    assert re.search(r"^charge +succeeded +1$", output, re.MULTILINE)
    assert re.search(r"^open attempts$\n.*\npack +1 +step ", output, re.MULTILINE)
