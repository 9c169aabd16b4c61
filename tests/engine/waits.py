"""Random steps that wait, and an outside world that speaks to them: people, events, and time."""

from collections.abc import Callable
from random import Random
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from ductord.engine.steps import SUPPORTED
from ductord.model.enums import CompletionPolicy, EdgeType, NodeStatus, OnTimeout, RaceLosers, SignalVerb, StepType
from ductord.model.fanout import DataflowSpec, Operation
from ductord.model.inbox import External, Signal
from ductord.model.manifest import Manifest, Step
from ductord.model.specs import (
    ApprovalSpec,
    EventPattern,
    EventSetSpec,
    Expression,
    HumanLoopSpec,
    RaceSpec,
    Requirement,
    RetryPolicy,
    Template,
    WaitSpec,
)
from tests.engine.families import Family
from tests.engine.sagas import sagas
from tests.support.rows import Rows

Draw = Callable[[st.SearchStrategy[Any]], Any]

EVENTS = ("paid", "sent")
_KEY = Expression(source='"k"')
_KINDS = (
    StepType.WAIT,
    StepType.WAIT,
    StepType.APPROVAL,
    StepType.HUMAN_LOOP,
    StepType.EVENT_SET,
    StepType.RACE,
    StepType.DATAFLOW,
)
_AFTER_WAIT = (OnTimeout.FAIL, OnTimeout.SKIP, OnTimeout.CONTINUE)


@st.composite
def waits(draw: Draw) -> Manifest:
    """A manifest such as `sagas` gives, some of whose steps wait, or end where they would begin. An approval's handled edges may be about its decision."""
    manifest: Manifest = draw(sagas())
    steps, edges = list(manifest.steps), list(manifest.edges)
    for index, step in enumerate(steps):
        if draw(st.booleans()):
            continue
        runners = {edges[e].source for e in step.incoming}
        kinds = [k for k in _KINDS if k in SUPPORTED and (k is not StepType.RACE or len(runners) > 1)]
        kind = draw(st.sampled_from(kinds))
        before = [steps[source].ref for source in sorted(runners)]
        steps[index] = _waiting(draw, step, kind, before)
        if kind is StepType.APPROVAL:
            for e in step.outgoing:
                words = {EdgeType.ERROR: EdgeType.REJECTED, EdgeType.SUCCESS: EdgeType.APPROVED}
                if edges[e].choice_group is None and edges[e].type in words and draw(st.booleans()):
                    edges[e] = replace(edges[e], type=words[edges[e].type])
    return replace(manifest, steps=tuple(steps), edges=tuple(edges))


def _waiting(draw: Draw, step: Step, kind: StepType, before: list[str]) -> Step:
    timeout_ms = draw(st.sampled_from([None, 2_000, 4_000]))
    on_timeout = draw(st.sampled_from(_AFTER_WAIT))
    bare = replace(
        step,
        type=kind,
        action=None,
        compensation=None,
        retry=RetryPolicy(),
        total_timeout_ms=None,
        result_expr=Expression(source="has(OUTPUT.x)", names=("OUTPUT",)) if step.result_expr is not None else None,
    )
    match kind:
        case StepType.APPROVAL:
            policy = draw(st.sampled_from([OnTimeout.FAIL, OnTimeout.SKIP, OnTimeout.APPROVE]))
            required = draw(st.integers(1, 2))
            return replace(bare, approval=ApprovalSpec(timeout_ms=timeout_ms, on_timeout=policy, required=required))
        case StepType.HUMAN_LOOP:
            loop = HumanLoopSpec(case_type="case", timeout_ms=timeout_ms, on_timeout=on_timeout)
            return replace(bare, human_loop=loop)
        case StepType.RACE:
            return replace(bare, race=RaceSpec(losers=draw(st.sampled_from(RaceLosers))))
        case StepType.EVENT_SET:
            policies = (CompletionPolicy.ALL_REQUIRED, CompletionPolicy.ANY, CompletionPolicy.UNTIL_TIMEOUT)
            policy = draw(st.sampled_from(policies))
            event_set = EventSetSpec(
                correlation_key=_KEY,
                requirements=tuple(Requirement(name=n, event_name=Template(tree=n)) for n in EVENTS),
                completion_policy=policy,
                timeout_ms=timeout_ms or (3_000 if policy is CompletionPolicy.UNTIL_TIMEOUT else None),
                on_timeout=on_timeout,
            )
            return replace(bare, event_set=event_set)
        case StepType.DATAFLOW:
            return replace(bare, dataflow=_dataflow(draw, before))
    return replace(bare, wait=replace(_wait(draw, before), timeout_ms=timeout_ms or 6_000, on_timeout=on_timeout))


def _dataflow(draw: Draw, before: list[str]) -> DataflowSpec:
    """Over a list that may be empty, no list, or what a predecessor says; one element may have no value."""
    items = [Expression(source=source) for source in ("[1, 2, 3]", "[]", "{'a': 1}", "null")]
    if before:
        ref = draw(st.sampled_from(before))
        source = f'[STEPS["{ref}"].attempt, size(STEPS["{ref}"].output)]'
        items += 2 * [Expression(source=source, names=("STEPS",), steps=(ref,))]
    expr = Expression(source=draw(st.sampled_from(["[ITEM, INDEX]", "6 / (INDEX - 2)"])))
    return DataflowSpec(operation=Operation.MAP, items=draw(st.sampled_from(items)), expr=expr)


def _wait(draw: Draw, before: list[str]) -> WaitSpec:
    """Any of what a wait step may wait for. A condition is about a predecessor."""
    pattern = EventPattern(event_name=Template(tree=draw(st.sampled_from(EVENTS))), correlation_key=_KEY)
    choices = [
        WaitSpec(duration=Template(tree=draw(st.sampled_from(["0s", "1s", "3s", "4s"])))),
        WaitSpec(duration=Template(tree="-1s")),
        WaitSpec(timestamp=Template(tree="2030-01-01T00:00:05Z")),
        WaitSpec(cron="* * * * *"),
        WaitSpec(event=pattern),
        WaitSpec(event=EventPattern(event_name=pattern.event_name)),
        WaitSpec(signal="go"),
    ]
    if before:
        ref = draw(st.sampled_from(before))
        source = f'STEPS["{ref}"].status == "succeeded"'
        until = Expression(source=source, names=("STEPS",), steps=(ref,))
        choices += 2 * [WaitSpec(until=until, interval_ms=1_500)]
    return draw(st.sampled_from(choices))  # type: ignore[no-any-return]


def speak(family: Family, rows: Rows, random: Random) -> None:
    """Somebody says something to some step, or an event is published; it need not be what anybody waits for."""
    if random.random() < 0.4:
        publish(family, rows, random.choice(EVENTS), random.choice(("k", "k", "other")), random.random() < 0.3)
        return
    step = random.choice(family.manifest.steps)
    verb = random.choice((SignalVerb.APPROVE, SignalVerb.APPROVE, SignalVerb.REJECT, SignalVerb.RESOLVE_INTERACTION))
    tell(family, rows, step.ref, verb, status=random.choice(("", "resolved", "open")))


def answer(family: Family, rows: Rows) -> bool:
    """Give every step that waits what it waits for, as far as anybody can; whether there was something to say."""
    assert rows.run is not None
    said = False
    for step, node in zip(family.manifest.steps, rows.run.nodes, strict=True):
        if node.status is not NodeStatus.WAITING:
            continue
        if step.approval is not None:
            said = tell(family, rows, step.ref, SignalVerb.APPROVE)
        elif step.human_loop is not None or (step.wait is not None and step.wait.signal):
            said = tell(family, rows, step.ref, SignalVerb.RESOLVE_INTERACTION, status="resolved")
        elif step.event_set is not None or (step.wait is not None and step.wait.event is not None):
            for name in EVENTS:
                publish(family, rows, name, "k", False)
            said = True
    return said


def tell(family: Family, rows: Rows, ref: str, verb: SignalVerb, *, status: str = "") -> bool:
    """A signal is accepted, unless the run has ended (E1); whether it was."""
    if rows.run is not None and rows.run.status.terminal:
        return False
    number = len(rows.outside.signals) + 1
    signal = Signal(
        request_id=f"{rows.start.run_id}-{number}",
        verb=verb,
        step_ref=ref,
        create_time=family.now,
        approver_id=f"p{number}",
        status=status,
    )
    rows.outside.tell(signal, {"n": number})
    return True


def publish(family: Family, rows: Rows, name: str, key: str, kept: bool) -> None:
    """An event that nobody has published before."""
    number = len(rows.outside.events) + len(rows.outside.receipts)
    event = External(
        event_name=name, event_id=f"e{number}-{family.now}", correlation_key=key, payload={"n": number}, time=family.now
    )
    rows.outside.publish(event, None if not kept else family.now.replace(year=2031))
