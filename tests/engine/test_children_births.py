"""How child runs are born and told, beyond what the stories tell: what a tick asks for, how many it begins, what it commits (rulings F1, F3, F5, C4 to C6)."""

from datetime import timedelta
from typing import Any

import msgspec

from ductord.engine.compile import compile_definition
from ductord.engine.decide import decide
from ductord.engine.expressions import programs_for
from ductord.engine.limits import LIMITS, Limits
from ductord.model.control import Control
from ductord.model.decision import Decision, Missing
from ductord.model.effects import SettleControl
from ductord.model.enums import CheckpointStatus, NodeStatus, OperationStatus, Outcome, RunStatus, Verb
from ductord.model.events import RunEnded
from ductord.model.fan import Gathered, Kin, Workflow
from ductord.model.fan_effects import (
    AttachChildren,
    CloseChildren,
    ControlChildren,
    PassChildOn,
    RecordItemFault,
    StartChildren,
    TakeChildren,
    TellCheckpoint,
    TellParent,
    TickAgain,
)
from ductord.model.fan_events import ChildFailed, ChildrenBegun, ChildrenSucceeded, FanExpanded, FanResumed
from ductord.model.fault import Fault, OutputRef
from ductord.model.ids import derived
from ductord.model.inbox import AttemptReport, ChildFact, Inbox
from ductord.model.manifest import Manifest
from ductord.model.needs import GatheredNeed, KinNeed, Need, PageNeed, WorkflowNeed
from ductord.model.run import Run, RunStart
from tests.support.starts import start_of
from tests.support.story import parse_definition
from tests.support.world import RUN_ID, START

PAGE = Workflow(definition_id="dp", version_id="vp", version=3, tier="bulk")
NEWEST = WorkflowNeed(family_slug="page", version=0)
PINNED = WorkflowNeed(family_slug="page", version=3)
EACH = 'step each type=for_each for_each={"items_expr": "[1, 2, 3]", "workflow": {"family_slug": "page"}}'
SUB = 'step p type=subworkflow subworkflow={"workflow": {"family_slug": "page"}}'


def _manifest(*lines: str) -> Manifest:
    compiled = compile_definition(parse_definition(lines, "parent"))
    assert compiled.manifest is not None, compiled.violations
    return compiled.manifest


def _start(**more: Any) -> RunStart:
    return start_of(run_id=RUN_ID, family_slug="parent", **more)


def _asked(
    manifest: Manifest,
    run: Run | None,
    *,
    after_ms: int = 0,
    limits: Limits = LIMITS,
    start: RunStart | None = None,
    **more: Any,
) -> Decision | Missing:
    inbox = Inbox(start=start or _start(), **more)
    return decide(manifest, programs_for(manifest), run, inbox, START + timedelta(milliseconds=after_ms), limits)


def _decided(manifest: Manifest, run: Run | None, **more: Any) -> tuple[Decision, Run]:
    decision = _asked(manifest, run, **more)
    assert isinstance(decision, Decision), decision
    assert decision.run is not None
    return decision, decision.run


def _of(decision: Decision, kind: type[Any]) -> list[Any]:
    return [e for e in (*decision.events, *decision.effects) if isinstance(e, kind)]


def _ended(ref: str, index: int, attempt: int = 1, status: RunStatus = RunStatus.COMPLETED, **more: Any) -> ChildFact:
    return ChildFact(
        step_ref=ref, attempt=attempt, item_index=index, run_id=f"child-{index}", time=START, status=status, **more
    )


def _control(verb: Verb) -> Control:
    return Control(request_id="c1", verb=verb, create_time=START)


def test_a_step_asks_for_the_version_and_is_told_it_for_good() -> None:
    """F5: the version that the children run stands in the parent's event."""
    manifest = _manifest(SUB)
    assert _asked(manifest, None) == Missing(needs=frozenset({NEWEST}))
    decision, run = _decided(manifest, None, given={NEWEST: PAGE})
    (expanded,) = _of(decision, FanExpanded)
    assert (expanded.definition_id, expanded.version_id, expanded.version, expanded.tier) == ("dp", "vp", 3, "bulk")
    (born,) = _of(decision, StartChildren)
    child = derived("child", RUN_ID, "p", 1, 0)
    assert (born.attempt, born.family_slug, born.version_id, born.sync) == (1, "page", "vp", True)
    assert [(birth.item_index, birth.run_id, birth.input_json) for birth in born.births] == [(0, child, "{}")]
    assert run.nodes[0].fan is not None
    assert run.nodes[0].fan.child_run_id == child


def test_a_tick_begins_so_many_children_and_has_itself_woken_for_the_rest() -> None:
    """F1: a wide scatter of runs holds up nobody; the ticks after the first read the pages of those that they begin."""
    scatter = {"items_expr": "TRIGGER.payload.xs", "mode": "child_workflow", "workflow": {"family_slug": "page"}}
    manifest = _manifest(f"step s type=scatter scatter={msgspec.json.encode(scatter).decode()}")
    start = _start(payload={"xs": list(range(1_200))})
    decision, run = _decided(manifest, None, start=start, given={NEWEST: PAGE})
    begun = []
    ticks = 0
    while True:
        ticks += 1
        (born,) = _of(decision, StartChildren)
        begun += [birth.item_index for birth in born.births]
        if not _of(decision, TickAgain):
            break
        missing = _asked(manifest, run, start=start)
        assert isinstance(missing, Missing)
        given: dict[Need, Any] = {PINNED: PAGE}
        given |= {
            n: list(range(n.number * 100, n.number * 100 + 100)) for n in missing.needs if isinstance(n, PageNeed)
        }
        assert given.keys() == missing.needs
        decision, run = _decided(manifest, run, start=start, given=given)
    assert (begun, ticks) == (list(range(1_200)), 3)


def test_large_inputs_begin_in_several_ticks() -> None:
    """F1, L7: one commit carries about so many bytes of inputs."""
    scatter = {"items_expr": "TRIGGER.payload.xs", "mode": "child_workflow", "workflow": {"family_slug": "page"}}
    manifest = _manifest(f"step s type=scatter scatter={msgspec.json.encode(scatter).decode()}")
    start = _start(payload={"xs": ["x" * 1_000] * 10})
    limits = msgspec.structs.replace(LIMITS, children_max_bytes=2_500)
    decision, _ = _decided(manifest, None, start=start, given={NEWEST: PAGE}, limits=limits)
    (born,) = _of(decision, StartChildren)
    assert len(born.births) == 3
    assert _of(decision, TickAgain)


def test_an_input_over_the_limit_fails_the_step_before_any_child() -> None:
    """L7: and names the item."""
    spec = {"items_expr": "[1, 2]", "workflow": {"family_slug": "page"}, "input": {"x": "${{ TRIGGER.payload.x }}"}}
    manifest = _manifest(f"step each type=for_each for_each={msgspec.json.encode(spec).decode()}")
    start = _start(payload={"x": "y" * 2_000})
    limits = msgspec.structs.replace(LIMITS, payload_max_bytes=1_000)
    decision, run = _decided(manifest, None, start=start, given={NEWEST: PAGE}, limits=limits)
    assert not _of(decision, FanExpanded)
    fault = run.nodes[0].fault
    assert fault is not None
    assert fault.code == "payload_too_large"
    assert fault.message.startswith("item 0: ")


def test_a_run_that_is_nested_too_deep_has_no_children() -> None:
    """SW-02."""
    decision, run = _decided(_manifest(SUB), None, start=_start(nesting_depth=32, parent_run_id="up"))
    assert not _of(decision, StartChildren)
    assert run.nodes[0].fault is not None
    assert run.nodes[0].fault.code == "depth_limit_exceeded"
    assert _of(decision, TellParent) == [TellParent(status=RunStatus.FAILED, fault=run.nodes[0].fault)]
    deepest = _asked(_manifest(SUB), None, start=_start(nesting_depth=31, parent_run_id="up"))
    assert deepest == Missing(needs=frozenset({NEWEST}))


def test_what_became_of_a_child_is_put_away_whoever_it_concerns() -> None:
    """F5: of an earlier attempt, of a step that has ended, of a run that has ended: it changes nothing and is not shown again."""
    manifest = _manifest(SUB)
    _, run = _decided(manifest, None, given={NEWEST: PAGE})
    earlier = _asked(manifest, run, children=(_ended("p", 0, attempt=7),))
    assert earlier == Decision(effects=(TakeChildren(run_ids=("child-0",)),))
    _, over = _decided(manifest, run, controls=(_control(Verb.TERMINATE),))
    late = _asked(manifest, over, children=(_ended("p", 0),))
    assert late == Decision(effects=(TakeChildren(run_ids=("child-0",)),))


def test_the_output_of_a_child_is_asked_for_when_it_has_completed() -> None:
    """F5, L7: and only its size is told of one that is too large."""
    manifest = _manifest(SUB)
    _, run = _decided(manifest, None, given={NEWEST: PAGE})
    need = GatheredNeed(step_ref="p", expected=1, runs=True, max_bytes=LIMITS.aggregate_max_bytes)
    assert _asked(manifest, run, children=(_ended("p", 0),)) == Missing(needs=frozenset({need}))
    decision, run = _decided(manifest, run, children=(_ended("p", 0),), given={need: Gathered(size=3 << 20)})
    assert [e.children for e in _of(decision, ChildrenSucceeded)] == [((0, 0),)]
    assert run.nodes[0].fault is not None
    assert run.nodes[0].fault.code == "payload_too_large"


def test_a_child_whose_input_fails_later_is_recorded_without_a_run() -> None:
    """F5: `RecordItemFault` says what the event says."""
    spec = {"items_expr": "[1, 0]", "workflow": {"family_slug": "page"}, "input": {"x": "${{ 1 / ITEM }}"}}
    manifest = _manifest(f"step each type=for_each for_each={msgspec.json.encode(spec).decode()} on_error=continue")
    _, run = _decided(manifest, None, given={NEWEST: PAGE})
    given = {PINNED: PAGE, PageNeed("each", 1, 0): [1, 0]}
    decision, run = _decided(manifest, run, children=(_ended("each", 0),), given=given)
    (failed,) = _of(decision, ChildFailed)
    (recorded,) = _of(decision, RecordItemFault)
    assert (failed.item_index, failed.run_id, failed.status) == (1, "", None)
    assert (recorded.item_index, recorded.attempt, recorded.fault) == (1, 1, failed.fault)
    assert not _of(decision, StartChildren)
    assert _of(decision, TickAgain), "nobody else would wake the run to end the step"
    _, run = _decided(manifest, run)
    assert run.nodes[0].status is NodeStatus.COMPLETED_WITH_ERROR


def test_a_redrive_takes_up_what_there_is() -> None:
    """F3, F4, C4: completed children stay, open ones and redrivable ones are taken up, the others are born anew under new ids."""
    scatter = {"items_expr": "[1, 2, 3, 4, 5, 6]", "mode": "child_workflow", "workflow": {"family_slug": "page"}}
    manifest = _manifest(f"step s type=scatter scatter={msgspec.json.encode(scatter).decode()}")
    limits = msgspec.structs.replace(LIMITS, children_per_tick=5)
    _, run = _decided(manifest, None, given={NEWEST: PAGE}, limits=limits)
    given: dict[Need, Any] = {PINNED: PAGE, PageNeed("s", 1, 0): [1, 2, 3, 4, 5, 6]}
    _, run = _decided(manifest, run, controls=(_control(Verb.CANCEL),), given=given)
    kin = (
        Kin(item_index=0, run_id="k0", status=RunStatus.COMPLETED),
        Kin(item_index=1, run_id="k1", status=RunStatus.RUNNING),
        Kin(item_index=2, run_id="k2", status=RunStatus.CANCELLED, redrivable=True),
        Kin(item_index=3, run_id="k3", status=RunStatus.TERMINATED),
        Kin(item_index=4, run_id="k4", status=RunStatus.COMPLETED, told=False),
    )
    need = KinNeed(step_ref="s", since=1)
    given[need] = kin
    decision, run = _decided(manifest, run, controls=(_control(Verb.REDRIVE),), given=given)
    assert [e.again for e in _of(decision, FanResumed)] == [((1, 4),)]
    assert [(e.first, e.count) for e in _of(decision, ChildrenBegun)] == [(1, 4), (5, 1)]
    attached = {e.redrive: e.children for e in _of(decision, AttachChildren)}
    assert attached == {False: ((4, "k4"),), True: ((1, "k1"), (2, "k2"))}
    born = [birth for e in _of(decision, StartChildren) for birth in e.births]
    assert [(birth.item_index, birth.run_id) for birth in born] == [
        (index, derived("child", RUN_ID, "s", 2, index)) for index in (3, 5)
    ]
    fan = run.nodes[0].fan
    assert fan is not None
    assert (fan.succeeded, fan.open) == (1, 5)


def test_children_behind_a_step_that_starts_anew_start_anew() -> None:
    """C4: their items may be others."""
    manifest = _manifest("step a", EACH, "a -done-> each", "fail_policy run_all")
    _, run = _decided(manifest, None)
    report = AttemptReport(
        step_ref="a", attempt=1, outcome=Outcome.FAILED, report_time=START, fault=Fault(code="NOT_FOUND")
    )
    _, run = _decided(manifest, run, reports=(report,), given={NEWEST: PAGE})
    _, run = _decided(manifest, run, controls=(_control(Verb.CANCEL),))
    assert run.nodes[1].fan is not None
    _, run = _decided(manifest, run, controls=(_control(Verb.REDRIVE),))
    assert (run.nodes[0].status, run.nodes[1].status, run.nodes[1].fan) == (
        NodeStatus.RUNNING,
        NodeStatus.PENDING,
        None,
    )


def test_only_a_child_tells_of_its_end() -> None:
    """F5: with what it failed by; a root tells nobody, and who has no child runs closes none."""
    manifest = _manifest("step a", "checkpoint done: a")
    for parent in ("", "up"):
        start = _start(parent_run_id=parent)
        _, run = _decided(manifest, None, start=start)
        report = AttemptReport(
            step_ref="a",
            attempt=1,
            outcome=Outcome.SUCCEEDED,
            report_time=START,
            output=OutputRef(attempt=1, size=2, hash="h"),
        )
        decision, _ = _decided(manifest, run, start=start, reports=(report,), outputs={"a": {}})
        assert _of(decision, RunEnded)
        assert _of(decision, CloseChildren) == []
        told = [TellParent(status=RunStatus.COMPLETED)] if parent else []
        assert _of(decision, TellParent) == told
        reached = [TellCheckpoint(name="done", status=CheckpointStatus.REACHED)] if parent else []
        assert _of(decision, TellCheckpoint) == reached


def test_a_child_that_goes_on_as_another_says_where() -> None:
    """SW-03: `terminated` with a successor is not an end. Its own children are closed, or go on with it."""
    manifest, start = _manifest(SUB), _start(parent_run_id="up")
    _, run = _decided(manifest, None, start=start, given={NEWEST: PAGE})
    can = _control(Verb.CONTINUE_AS_NEW)
    asked, run = _decided(manifest, run, start=start, controls=(can,))
    assert not _of(asked, RunEnded), "its child is waited for (C6)"
    failed = _ended("p", 0, status=RunStatus.FAILED, fault=Fault(code="X"))
    decision, run = _decided(manifest, run, start=start, controls=(can,), children=(failed,))
    successor = run.continued_to_run_id
    assert _of(decision, PassChildOn) == [PassChildOn(run_id=successor)]
    assert _of(decision, TellParent) == []
    assert _of(decision, CloseChildren) == [CloseChildren(status=RunStatus.TERMINATED, continued_to_run_id=successor)]
    assert run.nodes[0].status is NodeStatus.CANCELLED, "what was only waited for fails nothing"
    # A redrive that a parent has asked for comes too late, and says again where the run went on.
    late = _asked(manifest, run, start=start, controls=(_control(Verb.REDRIVE),))
    assert isinstance(late, Decision)
    assert _of(late, PassChildOn) == [PassChildOn(run_id=successor)]


def test_a_redrive_that_is_refused_tells_the_parent_again() -> None:
    """F5, C4: it waits for a child that will not run."""
    manifest, start = _manifest("step a"), _start(parent_run_id="up")
    _, run = _decided(manifest, None, start=start)
    _, run = _decided(manifest, run, start=start, controls=(_control(Verb.TERMINATE),))
    refused = _asked(manifest, run, start=start, controls=(_control(Verb.REDRIVE),))
    assert isinstance(refused, Decision)
    assert not refused.events
    assert _of(refused, TellParent) == [TellParent(status=RunStatus.TERMINATED)]
    _, open_run = _decided(manifest, None, start=start)
    early = _asked(manifest, open_run, start=start, controls=(_control(Verb.REDRIVE),))
    assert isinstance(early, Decision)
    assert not _of(early, TellParent), "it will tell when it ends"


def test_controls_of_children_are_the_same_however_often_they_are_decided() -> None:
    """C1: their ids are derived, so that a repeated commit sends none twice."""
    manifest = _manifest(SUB)
    _, run = _decided(manifest, None, given={NEWEST: PAGE})
    reset = Control(request_id="c1", verb=Verb.RESET_NODE, create_time=START, step_ref="p")
    made = [_decided(manifest, run, controls=(reset,), given={NEWEST: PAGE})[0] for _ in range(2)]
    first, second = ([e for e in m.effects if isinstance(e, ControlChildren)] for m in made)
    assert first == second
    assert (first[0].verb, first[0].step_ref) == (Verb.CANCEL, "p")
    order = [type(e) for e in made[0].effects if isinstance(e, ControlChildren | StartChildren)]
    assert order == [ControlChildren, StartChildren], "those that are born by it are not asked to stop"


def test_a_parents_redrive_waits_for_the_end_of_a_child_that_is_being_stopped() -> None:
    """C4, F5: a cancel and a redrive may meet a child in one tick, since each level of a tree is told by the one above it."""
    manifest, start = _manifest("step a"), _start(parent_run_id="up")
    _, run = _decided(manifest, None, start=start)
    cancel = msgspec.structs.replace(_control(Verb.CANCEL), request_id="c0")
    redrive = msgspec.structs.replace(_control(Verb.REDRIVE), actor="run:up")
    _, stopping = _decided(manifest, run, start=start, controls=(cancel, redrive))
    assert stopping.stop is not None
    report = AttemptReport(step_ref="a", attempt=1, outcome=Outcome.REVOKED, report_time=START)
    decision, ended = _decided(manifest, stopping, start=start, controls=(redrive,), reports=(report,))
    assert ended.status is RunStatus.CANCELLED
    assert _of(decision, TellParent) == [], "an end that is none"
    assert _of(decision, TickAgain)
    _, again = _decided(manifest, ended, start=start, controls=(redrive,))
    assert again.status is RunStatus.RUNNING
    # One that is at work goes on: that is what the parent wants of it. A stranger's redrive is refused as ever.
    for actor, status in (("run:up", OperationStatus.APPLIED), ("ann", OperationStatus.REJECTED)):
        asked = msgspec.structs.replace(redrive, actor=actor)
        told = _asked(manifest, run, start=start, controls=(asked,))
        assert isinstance(told, Decision)
        assert [e.status for e in _of(told, SettleControl)] == [status]
        assert not told.events


def test_a_redriven_child_tells_again_of_the_checkpoints_that_it_has_reached() -> None:
    """F5: who waits for one anew, as a child of another attempt, has not heard of it."""
    manifest, start = _manifest("step a", "step b", "a -success-> b", "checkpoint done: a"), _start(parent_run_id="up")
    _, run = _decided(manifest, None, start=start)
    report = AttemptReport(
        step_ref="a",
        attempt=1,
        outcome=Outcome.SUCCEEDED,
        report_time=START,
        output=OutputRef(attempt=1, size=2, hash="h"),
    )
    _, run = _decided(manifest, run, start=start, reports=(report,), outputs={"a": {}})
    failed = AttemptReport(
        step_ref="b", attempt=1, outcome=Outcome.FAILED, report_time=START, fault=Fault(code="NOT_FOUND")
    )
    _, run = _decided(manifest, run, start=start, reports=(failed,))
    decision, _ = _decided(manifest, run, start=start, controls=(_control(Verb.REDRIVE),))
    assert _of(decision, TellCheckpoint) == [TellCheckpoint(name="done", status=CheckpointStatus.REACHED)]


def test_children_that_nobody_waits_for_are_born_in_their_step_s_own_tick() -> None:
    """F5, L7: an async step is over with the birth, however much else begins; of inputs that no commit carries the step fails."""
    spec = '{"workflow": {"family_slug": "page"}, "mode": "async", "input": {"x": "${{ TRIGGER.payload.x }}"}}'
    manifest = _manifest(*(f"step p{n} type=subworkflow subworkflow={spec} on_error=continue" for n in range(4)))
    start = _start(payload={"x": "y" * 1_000})
    limits = msgspec.structs.replace(LIMITS, children_per_tick=1, children_max_bytes=500, inputs_max_bytes=3_500)
    decision, run = _decided(manifest, None, start=start, given={NEWEST: PAGE}, limits=limits)
    assert [e.step_ref for e in _of(decision, StartChildren)] == ["p0", "p1", "p2"]
    assert [node.status for node in run.nodes] == [NodeStatus.SUCCEEDED] * 3 + [NodeStatus.COMPLETED_WITH_ERROR]
    assert run.nodes[3].fault is not None
    assert run.nodes[3].fault.code == "payload_too_large"
