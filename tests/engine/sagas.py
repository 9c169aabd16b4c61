"""Random compensations, and an outside world that keeps count: what acted, what was undone, whoever was told of it."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec.structs import replace

from ductord.engine.doubt import NO_WORD
from ductord.model.enums import FailurePolicy, Outcome, TaskKind
from ductord.model.manifest import Manifest
from ductord.model.specs import Compensation, InverseSpec, RetryPolicy, Template
from tests.engine.graphs import manifests
from tests.support.tasks import Attempt

Draw = Callable[[st.SearchStrategy[Any]], Any]

SILENT = (Outcome.LOST, Outcome.TIMED_OUT, Outcome.HEARTBEAT_TIMED_OUT, Outcome.RELEASED)


@st.composite
def sagas(draw: Draw) -> Manifest:
    """A manifest whose steps have random blocks. The args of inverses name the effect that they undo."""
    manifest: Manifest = draw(manifests())
    blocks = st.none() | compensations() | compensations()
    steps = tuple(replace(step, compensation=draw(blocks)) for step in manifest.steps)
    return replace(manifest, steps=steps)


@st.composite
def compensations(draw: Draw) -> Compensation:
    """Random blocks of one step. The args of inverses name the effect that they undo."""
    return Compensation(
        on_failure=_block(draw, "on_failure", "${{ OUTPUT.effect }}"),
        on_cancel=_block(draw, "on_cancel", "${{ OUTPUT.effect }}"),
        final=_block(draw, "finally", None),
        failure_policy=draw(st.sampled_from(FailurePolicy)),
    )


def _block(draw: Draw, name: str, effect: str | None) -> tuple[InverseSpec, ...]:
    tree = {"block": name, "effect": effect}
    return tuple(
        InverseSpec(
            action="core:echo",
            args=Template(tree={**tree, "number": number}, static=effect is None, names=("OUTPUT",) if effect else ()),
            retry=RetryPolicy(max_attempts=draw(st.integers(1, 3)), backoff_ms=draw(st.sampled_from([0, 2_000]))),
        )
        for number in range(draw(st.sampled_from([0, 1, 1, 2])))
    )


class Outside:
    """What happened out there, by idempotency key: the callee knows its keys, so a second call under one does nothing new and cannot fail."""

    def __init__(self) -> None:
        self.acted: dict[str, str] = {}
        """Effects of steps: key → step ref."""
        self.told: set[str] = set()
        """Effects of which a worker said that they are there."""
        self.undone: dict[str, tuple[str, str, int]] = {}
        """Undoing calls: key → (effect, block, number)."""

    def acts(self, row: Attempt) -> None:
        """The worker's call had its effect."""
        key = row.task.idempotency_key
        if row.task.kind is TaskKind.STEP:
            self.acted[key] = row.task.step_ref
        elif row.task.kind is TaskKind.COMPENSATION:
            what = (row.input["effect"], row.input["block"], row.input["number"])
            assert self.undone.setdefault(key, what) == what, "one key, one purpose"

    def known(self, row: Attempt) -> bool:
        """Whether this key has had its effect."""
        return row.task.idempotency_key in self.acted or row.task.idempotency_key in self.undone

    def output(self, row: Attempt) -> dict[str, Any]:
        """What a successful call of this attempt answers."""
        self.acts(row)
        if row.task.kind is TaskKind.STEP:
            self.told.add(row.task.idempotency_key)
        return {"x": 5, "effect": row.task.idempotency_key}

    def times(self) -> Counter[tuple[str, str, int]]:
        """How often each effect was undone by each action, under different keys."""
        return Counter(self.undone.values())


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker does with a task: `acts` or not, and says so or not. A `code` of NO_WORD says neither."""

    outcome: Outcome
    acts: bool = False
    code: str = "UNAVAILABLE"


words = st.one_of(
    st.just(Word(outcome=Outcome.SUCCEEDED, acts=True)),
    st.just(Word(outcome=Outcome.SUCCEEDED, acts=True)),
    st.builds(Word, outcome=st.just(Outcome.FAILED), code=st.sampled_from(["UNAVAILABLE", "INVALID_ARGUMENT"])),
    st.builds(Word, outcome=st.sampled_from(SILENT), acts=st.booleans()),
    st.builds(Word, outcome=st.just(Outcome.FAILED), code=st.sampled_from(sorted(NO_WORD)), acts=st.booleans()),
)
