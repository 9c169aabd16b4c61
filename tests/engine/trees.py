"""Random trees of runs, lived through in any order of ticks, and what must hold of them: nobody waits for nothing, no child without its parent's knowledge.

A tree has three definitions: leaves do work, branches and the root have children of all kinds. Every run is ticked alone, at any moment, as replicas would.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from random import Random
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from ductord.engine.compile import compile_definition
from ductord.engine.decide import decide
from ductord.engine.evolve import fold
from ductord.model.control import Control, ControlBody
from ductord.model.decision import Decision
from ductord.model.enums import AttemptStatus, CompensationStatus, Outcome, RunStatus, Verb
from ductord.model.fault import Fault
from ductord.model.inbox import Inbox
from ductord.model.manifest import Manifest
from ductord.model.run import RunStart
from tests.support.births import bear
from tests.support.catalogue import Catalogue
from tests.support.rows import Rows
from tests.support.world import RUN_ID, START

Draw = Callable[[st.SearchStrategy[Any]], Any]

_ASKED = (
    Verb.PAUSE,
    Verb.RESUME,
    Verb.CANCEL,
    Verb.CANCEL,
    Verb.TERMINATE,
    Verb.REDRIVE,
    Verb.REDRIVE,
    Verb.CONTINUE_AS_NEW,
    Verb.RESET,
    Verb.PAUSE_NODE,
    Verb.RESUME_NODE,
    Verb.RESET_NODE,
)
_MOST_RUNS = 60


@st.composite
def trees(draw: Draw) -> tuple[Manifest, ...]:
    """The definitions of a tree, the root's last."""
    leaf = {
        "family_slug": "leaf",
        "steps": [{"ref": "work", "type": "action", "action": "core:echo"}],
        "checkpoints": [{"name": "done", "step_refs": ["work"]}],
    }
    branch = {"family_slug": "branch", **_graph(draw, ["leaf"])}
    root = {"family_slug": "root", **_graph(draw, ["leaf", "branch", "branch"])}
    if draw(st.booleans()):
        root["run_timeout_ms"] = 40_000
    return tuple(_compiled(definition) for definition in (leaf, branch, root))


def _compiled(definition: dict[str, Any]) -> Manifest:
    compiled = compile_definition(definition)
    assert compiled.manifest is not None, compiled.violations
    return compiled.manifest


def _graph(draw: Draw, families: list[str]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"ref": "a", "type": "action", "action": "core:echo"}]
    edges: list[dict[str, str]] = []
    kinds = draw(st.lists(st.sampled_from(["subworkflow", "for_each", "scatter", "inline"]), min_size=1, max_size=3))
    for number, kind in enumerate(kinds):
        ref = f"{kind[0]}{number}"
        steps.append({"ref": ref, **_step(draw, kind, draw(st.sampled_from(families)))})
        if draw(st.booleans()):
            edges.append({"source_ref": "a", "target_ref": ref, "type": draw(st.sampled_from(["success", "done"]))})
    refs = [step["ref"] for step in steps[1:]]
    if len(refs) > 1 and draw(st.booleans()):
        steps.append({"ref": "r", "type": "race"})
        edges += [{"source_ref": ref, "target_ref": "r", "type": "success"} for ref in refs[:2]]
    for ref, step in zip(refs, list(steps[1:]), strict=False):
        if step["type"] == "scatter" and draw(st.booleans()):
            raises = "tolerated_failures" not in step["scatter"] and draw(st.booleans())
            gather = {"scatter_ref": ref, "stream_error": "raise" if raises else "include"}
            steps.append({"ref": f"g{ref}", "type": "gather", "gather": gather})
            kind = draw(st.sampled_from(["success", "done"]))
            edges.append({"source_ref": ref, "target_ref": f"g{ref}", "type": kind})
    return {
        "steps": steps,
        "edges": edges,
        "fail_policy": draw(st.sampled_from(["fail_fast", "drain", "run_all"])),
    }


def _step(draw: Draw, kind: str, family: str) -> dict[str, Any]:
    said: dict[str, Any] = {"workflow": {"family_slug": family}}
    if draw(st.booleans()):
        said["parent_close_policy"] = draw(st.sampled_from(["request_cancel", "terminate", "abandon"]))
    items = f"[{', '.join(map(str, range(draw(st.integers(0, 3)))))}]"
    step: dict[str, Any] = {"type": kind}
    if draw(st.integers(0, 2)) == 0:
        step["on_error"] = "continue"
    match kind:
        case "subworkflow":
            said["mode"] = draw(st.sampled_from(["sync", "sync", "sync", "async"]))
            if said["mode"] == "sync":
                said["wait_for"] = draw(st.sampled_from(["terminal", "terminal", "checkpoint:done"]))
                if draw(st.booleans()):
                    said["timeout_ms"] = draw(st.sampled_from([5_000, 50_000]))
                    said["on_timeout"] = draw(st.sampled_from(["fail_parent", "detach", "continue_with_error"]))
        case "for_each":
            said |= {"items_expr": items, "on_item_error": draw(st.sampled_from(["stop", "continue"]))}
            # What does not evaluate for all is found before; this only fails behind the first item.
            said["input"] = {"n": draw(st.sampled_from(["${{ ITEM }}", "${{ ITEM < 2 ? 1 : 1 / (ITEM - 2) }}"]))}
        case "scatter":
            said |= {"items_expr": items, "mode": "child_workflow", "max_concurrency": draw(st.integers(1, 3))}
            said["input"] = {"n": draw(st.sampled_from(["${{ ITEM }}", "${{ ITEM < 2 ? 1 : 1 / (ITEM - 2) }}"]))}
            if draw(st.booleans()):
                said["tolerated_failures"] = draw(st.integers(0, 1))
        case "inline":
            step["type"], said = "scatter", {"items_expr": items, "action": "core:echo", "args": {"n": "${{ ITEM }}"}}
    step[step["type"]] = said
    return step


class Tree:
    """All runs of a tree, under one clock. `children_per_tick` makes ticks that begin many be several."""

    def __init__(self, manifests: tuple[Manifest, ...], seed: int, **limits: int) -> None:
        self.random = Random(seed)
        self.now = START
        self.catalogue = Catalogue()
        versions = [self.catalogue.publish(manifest) for manifest in manifests]
        self._asked = 0
        root = versions[-1]
        start = RunStart(
            tenant_id="t",
            run_id=RUN_ID,
            definition_id=root.definition_id,
            version_id=root.version_id,
            version=root.number,
            family_slug=root.manifest.family_slug,
            create_time=START,
            root_run_id=RUN_ID,
        )
        self.root = Rows(root.manifest, root.programs, start, None, self.catalogue)
        self._limits = limits

    @property
    def runs(self) -> list[Rows]:
        return list(self.root.family.values())

    def live(self, moves: int) -> None:
        """So many random moves."""
        for _ in range(moves):
            rows = self.random.choice(self.runs)
            move = self.random.choices((self.tick, self._work, self._wait, self._ask), (12, 5, 2, 2))[0]
            move(rows)

    def finish(self, *, work: bool = True) -> None:
        """Nobody holds anything any more, tasks succeed (with `work`), time passes: every run comes to rest."""
        for _ in range(400):
            moved = False
            for rows in self.runs:
                self._release(rows)
                while self.tick(rows):
                    moved = True
            ready = [(rows, row) for rows in self.runs for row in rows.attempts.values() if _ready(row, self.now)]
            for rows, row in ready if work else ():
                self._complete(rows, row, Outcome.SUCCEEDED)
                moved = True
            if moved:
                continue
            if not self._wait(self.root):
                return
        raise AssertionError("the tree does not come to rest")

    def ask(self, rows: Rows, verb: Verb, step_ref: str = "", **body: Any) -> None:
        """An operator's control is accepted, at an instant of its own; the next tick judges it."""
        self.now += timedelta(microseconds=1)
        self._asked += 1
        name = f"c{self._asked}"
        rows.controls[name] = Control(
            request_id=name, verb=verb, create_time=self.now, step_ref=step_ref, body=ControlBody(**body)
        )

    # What may happen

    def tick(self, rows: Rows) -> bool:
        """One tick of one run, at an instant of its own, and whom it gives birth to; whether anything happened."""
        self.now += timedelta(microseconds=1)
        rows.limits = replace(rows.limits, **self._limits)
        moved = rows.tick(self.now) is not None or rows.again
        for born in rows.born.values():
            if born.run_id not in rows.family:
                bear(rows, born, self.now)
                moved = True
        if rows.run is not None:
            self._check(rows)
        return moved

    def _work(self, rows: Rows) -> None:
        ready = [row for row in rows.attempts.values() if _ready(row, self.now)]
        if ready:
            row = self.random.choice(ready)
            outcomes = (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.LOST)
            self._complete(rows, row, self.random.choices(outcomes, (6, 2, 1))[0])

    def _complete(self, rows: Rows, row: Any, outcome: Outcome) -> None:
        if not row.lease:
            rows.lease(row, self.now)
        row.outcome, row.report_time = outcome, self.now
        if outcome is Outcome.SUCCEEDED:
            row.output, row.has_output = {"n": 1}, True
        elif outcome is Outcome.FAILED:
            row.fault = Fault(code="NOT_FOUND")

    def _wait(self, _rows: Rows) -> bool:
        """Time passes to the next instant at which something is due; False if nothing is."""
        due: list[datetime] = []
        for rows in self.runs:
            due += [a.due_time for a in rows.attempts.values() if a.waiting and not a.held]
            due += rows.timers.values()
            due += [rows.begin_time] if rows.run is None and rows.begin_time is not None else []
        later = min((d for d in due if d > self.now), default=None)
        self.now = later or self.now + timedelta(seconds=1)
        return later is not None

    def _ask(self, rows: Rows) -> None:
        verb = self.random.choice(_ASKED)
        new = verb in (Verb.CONTINUE_AS_NEW, Verb.RESET)
        if new and len(self.runs) > _MOST_RUNS // 2:
            return
        ref = self.random.choice(rows.manifest.steps).ref if verb.value.endswith("_node") else ""
        body = {"seq": self.random.randint(1, len(rows.history) + 1)} if verb is Verb.RESET else {}
        self.ask(rows, verb, ref, **body)

    def _release(self, rows: Rows) -> None:
        if rows.run is None or rows.run.status.terminal:
            return
        if rows.run.status is RunStatus.PAUSED:
            self.ask(rows, Verb.RESUME)
        for step, node in zip(rows.manifest.steps, rows.run.nodes, strict=True):
            if node.paused and not node.status.terminal:
                self.ask(rows, Verb.RESUME_NODE, step.ref)

    # What must hold

    def _check(self, rows: Rows) -> None:
        run = rows.run
        assert run is not None
        assert fold(rows.manifest, run.run_id, ((t.at, t.events) for t in rows.history)) == run
        for step, node in zip(rows.manifest.steps, run.nodes, strict=True):
            fan = node.fan
            if fan is not None and not node.status.terminal and step.scatter is not None:
                most = step.scatter.max_concurrency
                assert not most or fan.open <= most
            if fan is not None and step.for_each is not None:
                assert fan.open <= 1
        if not rows.again and not run.status.terminal:
            idle = decide(rows.manifest, rows.programs, run, Inbox(start=rows.start), self.now, rows.limits)
            assert not isinstance(idle, Decision) or not idle.events, "an empty inbox decides nothing"

    def check_rest(self) -> None:
        """What must hold of a tree at rest: everything has ended, and everybody who waited was told."""
        for rows in self.runs:
            run = rows.run
            assert run is not None
            assert run.status.terminal, f"{run.run_id} of {rows.start.family_slug} never ends"
            assert run.saga.status is not CompensationStatus.RUNNING
            assert not rows.timers
            assert not any(row.status is AttemptStatus.OPEN for row in rows.attempts.values())
            assert rows.controls.keys() == rows.settled.keys(), "no control stays unapplied (G8)"
            assert not rows.kinship.facts(run.run_id), "what became of a child is applied"
            parent = self.root.family.get(rows.start.parent_run_id)
            if rows.start.parent_run_id:
                assert parent is not None
                assert rows.start.nesting_depth == parent.start.nesting_depth + 1
                assert rows.start.root_run_id == parent.start.root_run_id
        for row in self.root.kinship.rows:
            assert row.run_id in self.root.family, "a child was born in the commit that knows of it (SW-01)"
            child = self.root.family[row.run_id].run
            assert child is not None
            assert not child.continued_to_run_id or row.status is not None or row.detached, (
                "a child is followed (SW-03)"
            )


def descendants(tree: Tree, run_id: str) -> Iterator[Rows]:
    """The child runs of a run, and theirs."""
    for row in tree.root.kinship.rows:
        if row.parent_run_id == run_id:
            yield tree.root.family[row.run_id]
            yield from descendants(tree, row.run_id)


def _ready(row: Any, now: datetime) -> bool:
    return bool(row.waiting and not row.held and row.due_time <= now)
