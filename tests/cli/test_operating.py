"""`ductor run pause`, `cancel`, `redrive` … against a running stack: what they do, print and exit with (C1 to C7)."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.shop import Shop, node

pytestmark = [pytest.mark.xdist_group("operating"), pytest.mark.timeout(240)]

ID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
NOBODY = "01a227de-ae9f-7023-9d08-50a02dbe9fe7"


def test_pause_and_resume_c2(shop: Shop) -> None:
    """Each waits until it is applied; what is the case already is applied and says so; what cannot be is refused at once."""
    run = shop.waiting_for_a_packer(1)
    assert shop.ductor("run", "pause", run, "--reason", "stock-taking") == (0, "pause applied\n", "")
    assert shop.json("run", "snapshot", run)["data"]["summary"]["status"] == "paused"
    code, output, _ = shop.ductor("run", "pause", run)
    assert (code, output) == (0, "pause applied: the run was paused already\n")
    assert shop.ductor("run", "resume", run) == (0, "resume applied\n", "")
    code, output, errors = shop.ductor("run", "resume", run)
    assert (code, output) == (1, "")
    assert "the run is running, not paused (RUN_STATUS_UNSUITED)" in errors


def test_an_operation_is_named_and_repeated_under_its_name_c1(shop: Shop) -> None:
    """The same call under the same id is the same operation; another one under it is refused."""
    run = shop.waiting_for_a_packer(2)
    first = shop.json("run", "pause", run, "--request-id", "pause-2", "--reason", "because")
    again = shop.json("run", "pause", run, "--request-id", "pause-2", "--reason", "because")
    assert first["request_id"] == again["request_id"] == "pause-2"
    assert first["operation"] == again["operation"]
    assert (first["operation"]["verb"], first["operation"]["status"]) == ("pause", "applied")
    code, _, errors = shop.ductor("run", "resume", run, "--request-id", "pause-2")
    assert (code, "REQUEST_MISMATCH" in errors) == (1, True)
    code, output, _ = shop.ductor("run", "operation", run, "pause-2")
    assert code == 0
    facts = dict(re.findall(r"^(\w[\w ]*?)  +(.+)$", output, re.MULTILINE))
    assert (
        facts.items() >= {"operation": "pause-2", "control": "pause", "status": "applied", "reason": "because"}.items()
    )
    assert shop.json("run", "operation", run, "pause-2") == first["operation"]
    code, _, errors = shop.ductor("run", "operation", run, "nothing")
    assert (code, "OPERATION_NOT_FOUND" in errors) == (1, True)


def test_cancel_undoes_what_was_done_c3_c7(shop: Shop) -> None:
    """The run is cancelled, its charge refunded with the output of the charge, its final action done."""
    run = shop.waiting_for_a_packer(3)
    assert shop.ductor("run", "cancel", run, "--reason", "no stock") == (0, "cancel applied\n", "")
    found = shop.until(run, lambda run: run["summary"]["compensation_status"] == "done")
    assert found["summary"]["status"] == "cancelled"
    assert [(e["step_ref"], e["block"], e["status"]) for e in found["compensation"]] == [
        ("charge", "on_cancel", "done"),
        ("charge", "finally", "done"),
    ]
    code, output, errors = shop.ductor("run", "cancel", run)
    assert (code, output) == (1, "")
    assert "already cancelled (RUN_TERMINAL)" in errors


def test_terminate_undoes_nothing_c3(shop: Shop) -> None:
    run = shop.waiting_for_a_packer(4)
    assert shop.ductor("run", "terminate", run, "--skip-finally") == (0, "terminate applied\n", "")
    found = shop.json("run", "snapshot", run)["data"]
    assert (found["summary"]["status"], found["compensation"]) == ("terminated", [])


def test_redrive_says_what_it_will_do_and_does_it_c4(shop: Shop) -> None:
    run = shop.ended("delivery", "failed", boxes=3)
    code, output, _ = shop.ductor("run", "redrive", run, "--dry-run")
    assert code == 0
    assert [line.split(maxsplit=1) for line in output.splitlines()] == [
        ["STEP", "REDRIVE"], ["drive", "starts anew"], ["unload", "starts anew"], ["load", "stays"],
    ]  # fmt: skip
    planned = shop.json("run", "redrive", run, "--dry-run")
    assert (planned["status"], planned["plan"]["kept_step_refs"]) == ("dry_run", ["load"])
    assert shop.ductor("run", "redrive", run) == (0, "redrive applied: 2 steps anew, 1 kept\n", "")
    code, output, _ = shop.ductor("run", "watch", run)
    assert (code, output.splitlines()[-2]) == (0, "completed")
    code, _, errors = shop.ductor("run", "redrive", run)
    assert (code, "RUN_STATUS_UNSUITED" in errors) == (1, True)


def test_reset_starts_a_new_run_c5(shop: Shop, tmp_path: Path) -> None:
    """Its id alone is on standard output; the preview said what it keeps and what it runs; the source stays."""
    run = shop.ended("delivery", "failed", boxes=3)
    code, output, _ = shop.ductor("run", "reset", run, "--list-targets")
    assert code == 0
    targets = {row.split()[0]: row for row in output.splitlines()[1:]}
    loaded = next(seq for seq, row in targets.items() if re.search(r"\bload\b.*\bdrive\b", row))
    assert shop.json("run", "reset", run, "--list-targets")["data"][0]["transition_seq"] == 1
    (tmp_path / "fuel.json").write_text('{"code": "INVALID_ARGUMENT", "times": 0}')
    fork = ("--at", loaded, "--override", f"drive=@{tmp_path}/fuel.json")
    code, output, errors = shop.ductor("run", "reset", run, *fork, "--dry-run")
    assert (code, errors) == (0, f"a new run from transition {loaded}; the source stays failed\n")
    assert [line.split(maxsplit=2) for line in output.splitlines()[1:]] == [
        ["load", "kept"], ["drive", "runs", "with another input"], ["unload", "runs"],
    ]  # fmt: skip
    code, output, errors = shop.ductor("run", "reset", run, *fork, "--reason", "refuelled")
    assert (code, errors) == (0, "reset applied\n")
    assert re.fullmatch(rf"{ID}\n", output)
    code, output, _ = shop.ductor("run", "watch", output.strip())
    assert (code, output.splitlines()[-2]) == (0, "completed")
    assert json.loads(output.splitlines()[-1]) == {"unload": {"boxes": 3}}
    assert shop.json("run", "snapshot", run)["data"]["summary"]["status"] == "failed"
    code, _, errors = shop.ductor("run", "reset", run, "--at", "4711")
    assert (code, "RESET_POINT_INVALID" in errors) == (1, True), errors


def test_continue_as_new_carries_the_context_on_c6(shop: Shop) -> None:
    """The successor's id is on standard output, also when it is asked for again; controls of the source name it."""
    run = shop.waiting_for_a_packer(5)
    code, output, errors = shop.ductor("run", "continue-as-new", run, "--seed", '{"note": "again"}')
    assert (code, errors) == (0, "continue-as-new applied\n")
    successor = output.strip()
    found = shop.until(successor, lambda run: node(run, "charge")["status"] == "succeeded")
    assert found["run_context"] == {"note": "again"}
    assert shop.ductor("run", "can", run)[:2] == (0, f"{successor}\n")
    code, _, errors = shop.ductor("run", "pause", run)
    assert (code, "RUN_TERMINAL" in errors, successor in errors) == (1, True, True)


def test_a_race_that_was_lost_is_told_and_is_exit_code_1_c1(shop: Shop) -> None:
    """Nobody judges controls while the coordinator is away: what waits says so and that it goes on; the second of two resumes is rejected."""
    run = shop.waiting_for_a_packer(6)
    assert shop.ductor("run", "pause", run)[0] == 0
    shop.stack["coordinator0"].terminate()
    try:
        code, output, errors = shop.ductor("run", "resume", run, "--request-id", "first", "--timeout", "1.5")
        assert (code, output) == (1, "")
        assert "resume is still pending after 1.5 s" in errors
        assert f"`ductor run operation {run} first --wait`" in errors
        assert shop.ductor("run", "resume", run, "--request-id", "second", "--no-wait") == (
            0, "resume accepted as second\n", "",
        )  # fmt: skip
        assert shop.json("run", "operation", run, "second")["status"] == "pending"
        pending = shop.ductor("run", "snapshot", run)[1]
        assert re.search(r"^pending controls$\n.*\nfirst +resume .*\nsecond +resume ", pending, re.MULTILINE)
    finally:
        shop.stack["coordinator0"].start()
    shop.stack["coordinator0"].wait_ready()
    assert shop.json("run", "operation", run, "first", "--wait")["status"] == "applied"
    code, output, _ = shop.ductor("run", "operation", run, "second", "--wait")
    assert (code, "rejected" in output) == (1, True)
    assert "RUN_STATUS_UNSUITED: the run is running, not paused" in output
    code, output, errors = shop.ductor("run", "resume", run, "--request-id", "second")
    assert (code, output) == (1, "")
    assert errors == "resume rejected: the run is running, not paused (RUN_STATUS_UNSUITED)\n"
    assert shop.json("run", "resume", run, "--request-id", "second", code=1)["operation"]["status"] == "rejected"


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("run", "pause", NOBODY), 1, "RUN_NOT_FOUND"),
        (("run", "pause", "not-an-id"), 1, "RUN_NOT_FOUND"),
        (("run", "cancel", NOBODY, "--request-id", "x" * 257), 1, "FIELD_INVALID"),
        (("run", "redrive", NOBODY), 1, "RUN_NOT_FOUND"),
        (("run", "reset", NOBODY), 2, "--list-targets"),
        (("run", "reset", NOBODY, "--at", "0"), 2, "--at"),
        (("run", "reset", NOBODY, "--at", "1", "--override", "drive"), 2, "STEP=JSON"),
        (("run", "reset", NOBODY, "--at", "1", "--override", "drive={"), 1, "PAYLOAD_INVALID"),
        (("run", "reset", NOBODY, "--at", "1", "--override", "drive=[1]"), 1, "step_input_overrides[0].input_json"),
        (("run", "reset", NOBODY, "--at", "1", "--override", "drive=@/nowhere.json"), 2, "/nowhere.json"),
        (("run", "reset", NOBODY, "--at", "1", "--dry-run"), 1, "RUN_NOT_FOUND"),
        (("run", "continue-as-new", NOBODY, "--seed", "[]"), 1, "seed_run_context_json"),
        (("run", "continue-as-new", NOBODY, "--seed", "@/nowhere.json"), 2, "--seed @/nowhere.json"),
        (("run", "repair", NOBODY, "charge"), 2, "--not-needed"),
        (("run", "repair", NOBODY, "charge", "--done", "--retry"), 2, "--not-needed"),
        (("run", "repair", NOBODY, "charge", "--done"), 1, "RUN_NOT_FOUND"),
        (("run", "snapshot", NOBODY), 1, "RUN_NOT_FOUND"),
        (("run", "operation", NOBODY, "x"), 1, "NOT_FOUND"),
        (("step", "pause", NOBODY, "charge"), 1, "RUN_NOT_FOUND"),
        (("step", "retry-policy", NOBODY, "charge"), 2, "--restore"),
        (("step", "retry-policy", NOBODY, "charge", "--restore", "--max-attempts", "2"), 2, "--restore"),
        (("step", "retry-policy", NOBODY, "charge", "--clear", "retries"), 2, "retry_backoff_ms"),
        (("step", "retry-policy", NOBODY, "charge", "--clear", "retry_on", "--retry-on", "X"), 2, "retry_on"),
        (("step", "retry-policy", NOBODY, "charge", "--max-attempts", "0"), 1, "retry_policy.retry_max_attempts"),
        (("step", "timeouts", NOBODY, "charge", "--attempt-ms", "-1"), 1, "timeouts.timeout_ms"),
        (("step", "timeouts", NOBODY, "charge"), 2, "--restore"),
    ],
)
def test_what_cannot_be_asked_for(shop: Shop, arguments: tuple[str, ...], code: int, text: str) -> None:
    """1 for what the server refuses, 2 for what was called wrongly; nothing on standard output."""
    done = shop.ductor(*arguments)
    assert (done[0], done[1]) == (code, ""), done
    assert text in done[2]
