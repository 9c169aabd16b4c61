"""What people see of runs that were operated: the ledger, where a run came from and went, the audit trail, a recording and its replay (C1 to C8)."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shop import Shop

pytestmark = [pytest.mark.xdist_group("operating"), pytest.mark.timeout(240)]

NOBODY = "01a227de-ae9f-7023-9d08-50a02dbe9fe7"


def _done(shop: Shop, *arguments: str) -> str:
    code, output, errors = shop.ductor(*arguments)
    assert code == 0, (arguments, output, errors)
    return output


def _facts(shop: Shop, run: str) -> dict[str, str]:
    return dict(re.findall(r"^(\w[\w ]*?)  +(.+)$", _done(shop, "run", "show", run), re.MULTILINE))


def _settled(shop: Shop, run: str) -> None:
    shop.until(run, lambda found: bool(found["summary"]["compensation_status"] not in ("none", "running")))


def _repairable(shop: Shop) -> str:
    run = shop.ended("stubborn", "failed")
    _settled(shop, run)
    return run


def test_a_run_shows_what_it_owes_and_what_became_of_it_c7(shop: Shop) -> None:
    """`run show`: status of the compensation, the ledger entry by entry with what went wrong; `compensation list` finds it over runs."""
    run = _repairable(shop)
    assert _facts(shop, run)["compensation"] == "manual_repair"
    shown = _done(shop, "run", "show", run)
    assert re.search(r"^0 +charge +on_failure +core:fail +manual_repair +1 +INVALID_ARGUMENT: the bank is closed$", shown, re.MULTILINE)  # fmt: skip
    tree = shop.json("run", "show", run)
    assert [(e["step_ref"], e["status"]) for e in tree["data"]["compensation"]] == [("charge", "manual_repair")]
    attempts = _done(shop, "run", "show", run, "--attempts")
    assert re.search(r"^charge +1 +succeeded", attempts, re.MULTILINE)
    assert re.search(r"^charge +1 inverse +failed", attempts, re.MULTILINE)
    listed = shop.json("compensation", "list", "--status", "manual_repair", "--workflow", "stubborn")["data"]
    assert run in [entry["run_id"] for entry in listed]
    (entry,) = shop.json("compensation", "list", "--run", run)["data"]
    assert (entry["action"], entry["block"], entry["error"]["message"]) == (
        "core:fail",
        "on_failure",
        "the bank is closed",
    )
    assert run in _done(shop, "compensation", "list", "--status", "manual_repair")
    assert run not in _done(shop, "compensation", "list", "--status", "done")
    assert run in _done(shop, "run", "list", "--compensation", "manual_repair", "--workflow", "stubborn")
    assert run not in _done(shop, "run", "list", "--compensation", "done")
    _done(shop, "run", "repair", run, "charge", "--done", "--reason", "by hand")
    assert _facts(shop, run)["compensation"] == "done"


def test_a_watch_goes_on_until_nothing_is_owed_c7(shop: Shop) -> None:
    """The end of a run is not the end of what is told: its inverses and final actions, who asked for what, and the verdict over both."""
    run = shop.waiting_for_a_packer(50)
    _done(shop, "run", "pause", run, "--reason", "stock-taking", "--request-id", "p-50")
    _done(shop, "run", "resume", run)
    _done(shop, "run", "cancel", run, "--reason", "no stock")
    code, output, _ = shop.ductor("run", "watch", run)
    assert code == 1
    assert re.search(r" run +pause asked for by anonymous: stock-taking \(p-50\)$", output, re.MULTILINE)
    for said in (r"pause applied", r"paused", r"resumed", r"cancelled", r"2 actions owed: charge on_cancel, charge finally"):  # fmt: skip
        assert re.search(rf" run +{said}$", output, re.MULTILINE), said
    for said in (r"inverse attempt 1 queued", r"inverse attempt 1 succeeded", r"final action attempt 1 succeeded"):
        assert re.search(rf" charge +{said}$", output, re.MULTILINE), said
    assert output.splitlines()[-2:] == ["cancelled", "compensation done"]
    last = json.loads(shop.ductor("run", "watch", run, "--json")[1].splitlines()[-1])
    assert last["run"]["summary"]["compensation_status"] == "done"
    code, output, errors = shop.ductor("run", "watch", _repairable(shop))
    assert (code, output.splitlines()[-1]) == (1, "compensation manual repair")
    assert "ductor run repair" in errors


def test_a_watch_whose_time_is_up_says_what_still_runs_c7(shop: Shop, tmp_path: Path) -> None:
    """A run that has ended is judged by its end, also when nobody has come yet to do its final action."""
    file = tmp_path / "patient.yaml"
    file.write_text(
        "type: workflow_definition\ndefinition:\n  family_slug: patient\n  steps:\n    - ref: a\n      type: action\n      action: core:echo\n"
        "      compensation: {finally: [{action: shop:sweep, queue: sweepers}]}\n"
    )
    _done(shop, "workflow", "publish", str(file))
    run = shop.ended("patient", "completed")
    code, output, errors = shop.ductor("run", "watch", run, "--timeout", "2.5")
    assert (code, output.splitlines()[-3:-1]) == (0, ["completed", "compensation running"])
    assert f"the compensation of run {run} still runs after 2.5 s" in errors
    assert re.search(r"^0 +a +finally +shop:sweep +running +1$", _done(shop, "run", "show", run), re.MULTILINE)
    assert run in _done(shop, "run", "list", "--compensation", "running")


def test_a_watch_follows_a_run_that_goes_on_as_another_c6(shop: Shop) -> None:
    """It says so, tells the successor's events and ends with it; `run show` names both ends."""
    run = shop.waiting_for_a_packer(51)
    successor = _done(shop, "run", "continue-as-new", run, "--seed", '{"note": "again"}').strip()
    _done(shop, "run", "terminate", successor, "--skip-finally")
    code, output, _ = shop.ductor("run", "watch", run)
    assert code == 1
    before, after = output.split(f"continued as new: {successor}\n")
    assert f"terminated, continued by {successor}" in before
    assert after.splitlines()[-1] == "terminated"
    entries = [json.loads(line) for line in shop.ductor("run", "watch", run, "--json")[1].splitlines()]
    assert {entry["run_id"] for entry in entries[:-1]} == {run, successor}
    assert entries[-1]["run"]["summary"]["run_id"] == successor
    assert _facts(shop, run).items() >= {"closed": "continued as new", "continued by": successor}.items()
    assert _facts(shop, successor)["continues"] == run


def test_paused_steps_and_controls_that_wait_are_shown_c1_c2(shop: Shop) -> None:
    """What an operator holds, and what no tick has judged yet."""
    run = shop.waiting_for_a_packer(52)
    _done(shop, "step", "pause", run, "ship")
    assert re.search(r"^ship +pending +paused$", _done(shop, "run", "show", run), re.MULTILINE)
    shop.stack["coordinator0"].terminate()
    try:
        _done(shop, "run", "pause", run, "--request-id", "soon", "--reason", "lunch", "--no-wait")
        shown = _done(shop, "run", "show", run)
        assert re.search(r"^pending controls\n.*\nsoon +pause +anonymous +.* lunch$", shown, re.MULTILINE)
        assert [o["request_id"] for o in shop.json("run", "show", run)["pending_operations"]] == ["soon"]
        assert "pause asked for by anonymous: lunch (soon)" in _done(shop, "run", "show", run, "--timeline")
    finally:
        shop.stack["coordinator0"].start()
    shop.stack["coordinator0"].wait_ready()
    shop.json("run", "operation", run, "soon", "--wait")
    assert "pending controls" not in _done(shop, "run", "show", run)
    _done(shop, "run", "cancel", run)


def test_who_did_what_and_why_c8(shop: Shop) -> None:
    """One line per control whatever became of it, per publish and per compensation; `--about`, `--action`, `--actor`, `--since`."""
    run = shop.waiting_for_a_packer(53)
    for request_id in ("a", "a", "b"):
        _done(shop, "run", "pause", run, "--request-id", request_id, "--reason", f"why {request_id}")
    _done(shop, "run", "cancel", run, "--request-id", "c")
    _settled(shop, run)
    found = shop.json("run", "show", run, "--audit")["data"]
    controls = [line for line in found if line["action"] in ("pause", "cancel")]
    assert [(line["action"], line["request_id"], line["reason"], line["outcome"], line["actor"]) for line in controls] == [
        ("pause", "a", "why a", "applied", "anonymous"), ("pause", "b", "why b", "applied", "anonymous"), ("cancel", "c", "", "applied", "anonymous"),
    ]  # fmt: skip
    assert [line["actor"] for line in found if line["action"].startswith("compensation")] == ["system"] * 2
    people = _done(shop, "run", "show", run, "--audit")
    assert re.search(r"^\S+ \S+ +anonymous +pause +applied +why a +a", people, re.MULTILINE)
    about = shop.json("audit", "list", "--about", f"run:{run}")["data"]
    assert about == found[::-1]
    narrow = ("--action", "cancel", "--actor", "anonymous", "--since", "1h")
    assert shop.json("audit", "list", "--about", f"run:{run}", *narrow)["data"] == [controls[2]]
    assert shop.json("audit", "list", "--actor", "nobody")["data"] == []
    assert shop.json("audit", "list", "--since", "2100-01-01T00:00:00Z")["data"] == []
    published = shop.json("audit", "list", "--action", "publish", "--limit", "100")["data"]
    assert {line["detail"]["family_slug"] for line in published} >= {"parcel", "delivery", "stubborn"}
    assert all(re.fullmatch(r"definition:[0-9a-f-]{36}", line["target"]) and line["request_id"] for line in published)
    assert f"run:{run}" in _done(shop, "audit", "list", "--limit", "5000")


def test_what_was_recorded_replays_without_a_difference(shop: Shop, tmp_path: Path) -> None:
    """Runs of every kind, as the stack really recorded them: completed after a redrive, cancelled with inverses, repaired, continued, reset, still open."""
    redriven = shop.ended("delivery", "failed", boxes=3)
    targets = shop.json("run", "reset", redriven, "--list-targets")["data"]
    reset = _done(shop, "run", "reset", redriven, "--at", str(targets[1]["transition_seq"])).strip()
    _done(shop, "run", "redrive", redriven)
    shop.until(redriven, lambda run: bool(run["summary"]["status"] == "completed"))
    shop.ductor("run", "watch", reset)
    cancelled = shop.waiting_for_a_packer(54)
    _done(shop, "step", "retry-policy", cancelled, "pack", "--max-attempts", "3")
    _done(shop, "run", "pause", cancelled)
    _done(shop, "run", "cancel", cancelled)
    _settled(shop, cancelled)
    repaired = _repairable(shop)
    _done(shop, "run", "repair", repaired, "charge", "--not-needed")
    source = shop.waiting_for_a_packer(55)
    successor = _done(shop, "run", "can", source).strip()
    cancelled_successor = successor
    shop.until(successor, lambda run: bool(run["summary"]["status"] == "running"))
    _done(shop, "run", "cancel", cancelled_successor)
    _settled(shop, cancelled_successor)
    still_open = shop.waiting_for_a_packer(56)
    for name, run in {
        "redriven": redriven, "reset": reset, "cancelled": cancelled, "repaired": repaired, "source": source,
        "successor": successor, "open": still_open,
    }.items():  # fmt: skip
        code, output, errors = shop.ductor("run", "replay", run)
        assert (code, errors) == (0, ""), (name, output)
        assert re.fullmatch(r"no difference over [1-9]\d* transitions?\n", output), (name, output)
        file = tmp_path / f"{name}.jsonl"
        code, output, errors = shop.ductor("run", "export", run, "-o", str(file))
        assert (code, output) == (0, "")
        assert errors == f"{file}: {len(file.read_text().splitlines())} lines\n"
        assert shop.ductor("run", "replay", "--file", str(file))[0] == 0
        answer = shop.json("run", "replay", run)
        assert (answer["run_id"], answer["difference"]) == (run, None)
    assert _done(shop, "run", "export", redriven) == (tmp_path / "redriven.jsonl").read_text()
    lines = (tmp_path / "redriven.jsonl").read_text().splitlines()
    assert shop.json("run", "export", redriven)["data"] == [json.loads(line) for line in lines]


def test_a_difference_is_named_and_is_exit_code_1(shop: Shop, tmp_path: Path) -> None:
    """Which transition, what was recorded and what today's engine decides; a recording with gaps is told as such."""
    run = shop.ended("delivery", "failed", boxes=3)
    recorded = [json.loads(line) for line in _done(shop, "run", "export", run).splitlines()]
    for line in recorded:
        for event in line.get("events", ()):
            if event["type"] == "node_ended" and event["status"] == "failed":
                event["fault"]["message"] = "flat tyre"
                changed = line["seq"]
    file = tmp_path / "other.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in recorded))
    code, output, errors = shop.ductor("run", "replay", "--file", str(file))
    assert (code, errors) == (1, "")
    assert output.startswith(f"transition {changed} of ")
    assert re.search(r"^-\{.*flat tyre", output, re.MULTILINE)
    assert re.search(r"^\+\{.*no fuel", output, re.MULTILINE)
    difference = shop.json("run", "replay", "--file", str(file), code=1)["difference"]
    assert difference["seq"] == changed
    assert "flat tyre" in json.dumps(difference["expected"])
    assert "no fuel" in json.dumps(difference["found"])
    file.write_text("".join(json.dumps(line) + "\n" for line in recorded if line.get("seq") != 2))
    code, output, errors = shop.ductor("run", "replay", "--file", str(file))
    assert (code, output) == (1, "")
    assert "transition 2 is not in the recording" in errors
    file.write_text("{}")
    assert "not a recording" in shop.ductor("run", "replay", "--file", str(file))[2]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("run", "show", NOBODY, "--audit"), 1, "RUN_NOT_FOUND"),
        (("run", "show", NOBODY, "--audit", "--attempts"), 2, "choose one"),
        (("run", "export", NOBODY), 1, "RUN_NOT_FOUND"),
        (("run", "replay", NOBODY), 1, "RUN_NOT_FOUND"),
        (("run", "replay"), 2, "one of the two"),
        (("run", "replay", NOBODY, "--file", "x"), 2, "one of the two"),
        (("run", "replay", "--file", "/nowhere.jsonl"), 1, "/nowhere.jsonl"),
        (("run", "list", "--compensation", "odd"), 2, "manual_repair"),
        (("compensation", "list", "--status", "none"), 2, "owed, running"),
        (("compensation", "list", "--run", NOBODY), 1, "RUN_NOT_FOUND"),
        (("audit", "list", "--since", "yesterday"), 2, "15m"),
        (("audit", "list", "--since", "999999999d"), 2, "15m"),
    ],
)
def test_what_cannot_be_shown(shop: Shop, arguments: tuple[str, ...], code: int, text: str) -> None:
    """1 for what the server refuses, 2 for what was called wrongly; nothing on standard output."""
    done = shop.ductor(*arguments)
    assert (done[0], done[1]) == (code, ""), done
    assert text in done[2]


def test_a_step_says_what_it_waits_for_e1_e4(shop: Shop) -> None:
    """`run show`, its timeline, `run snapshot` and `run watch`: for whom, for what, by which key, what counts so far, and who decided; the audit trail too."""
    run = shop.start("offer", order=70)
    shop.until(run, lambda found: all(step["status"] == "waiting" for step in found["nodes"]))
    shown = _done(shop, "run", "show", run)
    for step, said in (
        ("manager", "waits for approval"),
        ("paper", r"waits for case \S+.*"),
        ("go", "waits for signal go"),
        ("money", "waits for a set of events, key o-70"),
    ):
        assert re.search(rf"^{step} +waiting .* {said}$", shown, re.MULTILINE), step
    assert re.search(r"^manager +waiting .* waits for approval$", _done(shop, "run", "snapshot", run), re.MULTILINE)
    assert re.search(r"^ +waits for signal go$", _done(shop, "run", "show", run, "--step", "go"), re.MULTILINE)
    _done(shop, "event", "publish", "order.sent", "--key", "o-70", "--id", "s-70")
    shop.until(run, lambda found: bool(_waits(found, "money")["receipts"]))
    shown = _done(shop, "run", "show", run)
    assert "waits for a set of events, key o-70, 1 event so far (sent)" in shown
    _done(shop, "step", "reject", run, "manager", "--by", "kim", "--comment", "too dear", "--request-id", "r-70")
    code, output, _ = shop.ductor("run", "watch", run)
    assert code == 1
    for said in (
        r"manager +waits for approval",
        r"money +received order\.sent \(s-70\) as sent",
        r"manager +rejection by kim: too dear \(r-70\)",
        r"manager +failed: approval_rejected: rejected by kim",
        r"manager +rejection applied",
    ):
        assert re.search(rf" {said}$", output, re.MULTILINE), (said, output)
    trail = _done(shop, "run", "show", run, "--audit")
    assert re.search(r"reject +applied +too dear +r-70 +\{.*\"approver_id\": \"kim\"", trail), trail


def _waits(run: dict[str, Any], ref: str) -> dict[str, Any]:
    found: dict[str, Any] = next(node["waiting"] for node in run["nodes"] if node["step_ref"] == ref)
    return found
