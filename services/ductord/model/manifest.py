"""The compiled manifest: a published version in the form that the engine runs.

A manifest is pure data: expression *sources* and what each reads, steps in Kahn order, edges by index. It is stored as JSON, hashed
(SHA-256 over canonical JSON) and never mutated. Compiled CEL programs are not in it: every process compiles a manifest's sources once.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from ductord.model.enums import (
    EdgeType,
    FailPolicy,
    Join,
    OnError,
    StepType,
    Tier,
)
from ductord.model.fanout import DataflowSpec, ForEachSpec, GatherSpec, ScatterSpec, SubworkflowSpec
from ductord.model.specs import (
    ActionSpec,
    ApprovalSpec,
    Compensation,
    DigestSpec,
    EventSetSpec,
    Expression,
    HumanLoopSpec,
    RaceSpec,
    RetryPolicy,
    Template,
    Value,
    WaitSpec,
)
from ductord.model.starting import TriggerSpec

FORMAT_VERSION = 1
"""Version of this JSON shape. A coordinator leaves runs of a newer format alone."""

ENGINE_LEVEL = 5
"""Level of behaviour that this engine has. A manifest says which level it needs: the lowest that runs it rightly, so that it keeps its hash when the
engine learns more. 1: graphs of actions. 2: compensation and continuing as new. 3: steps that wait, and races. 4: children. 5: triggers of events and
schedules, and what `TRIGGER` says of them."""


class Step(Value, frozen=True, kw_only=True):
    """One step with every default resolved. `incoming`/`outgoing` are edge indexes; `action` is set for type `action`."""

    ref: str
    type: StepType
    title: str = ""
    run_if: Expression | None = None
    join: Join = Join.ALL
    on_error: OnError = OnError.FAIL
    result_expr: Expression | None = None
    retry: RetryPolicy = RetryPolicy()
    timeout_ms: int | None = None
    total_timeout_ms: int | None = None
    queue_timeout_ms: int | None = None
    heartbeat_timeout_ms: int | None = None
    max_lost: int = 5
    queue: str = "default"
    incoming: tuple[int, ...] = ()
    outgoing: tuple[int, ...] = ()
    action: ActionSpec | None = None
    compensation: Compensation | None = None
    wait: WaitSpec | None = None
    approval: ApprovalSpec | None = None
    human_loop: HumanLoopSpec | None = None
    race: RaceSpec | None = None
    event_set: EventSetSpec | None = None
    digest: DigestSpec | None = None
    scatter: ScatterSpec | None = None
    gather: GatherSpec | None = None
    for_each: ForEachSpec | None = None
    dataflow: DataflowSpec | None = None
    subworkflow: SubworkflowSpec | None = None

    def texts(self) -> Iterator[Expression | Template]:
        """What the step reads to begin and while it waits. Not `result_expr`, which is read when it ends, and no event filters, which see EVENT alone."""
        texts: list[Expression | Template | None] = [self.run_if]
        if self.action is not None:
            texts.append(self.action.args)
        if self.wait is not None:
            texts += [self.wait.duration, self.wait.timestamp, self.wait.until]
            texts += [self.wait.event.event_name, self.wait.event.correlation_key] if self.wait.event else []
        if self.event_set is not None:
            texts.append(self.event_set.correlation_key)
            texts += [requirement.event_name for requirement in self.event_set.requirements]
        if self.digest is not None:
            texts += [self.digest.digest_key, self.digest.dedupe_key]
        if self.scatter is not None:
            texts += [self.scatter.items, self.scatter.input, self.scatter.action.args if self.scatter.action else None]
        if self.for_each is not None:
            texts += [self.for_each.items, self.for_each.input]
        if self.dataflow is not None:
            texts += [self.dataflow.items, self.dataflow.expr, self.dataflow.initial, *self.dataflow.fields.values()]
        if self.subworkflow is not None:
            texts += [self.subworkflow.input, self.subworkflow.output]
        return (text for text in texts if text is not None)


class Edge(Value, frozen=True, kw_only=True):
    """An edge by step index. `order` and `default` matter inside a choice group (ruling G6)."""

    source: int
    target: int
    type: EdgeType
    condition: Expression | None = None
    choice_group: str | None = None
    order: int = 0
    default: bool = False


class Checkpoint(Value, frozen=True, kw_only=True):
    """A named progress marker over step indexes (ruling G9)."""

    name: str
    steps: tuple[int, ...]


class Manifest(Value, frozen=True, kw_only=True, weakref=True):
    """A compiled definition. `steps` are in Kahn order, `entrypoints` the indexes without incoming edges, in that order."""

    format_version: int
    engine_level: int
    family_slug: str
    title: str = ""
    steps: tuple[Step, ...]
    edges: tuple[Edge, ...] = ()
    entrypoints: tuple[int, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    response_checkpoint: str | None = None
    output: Template | None = None
    variables: dict[str, Any] = {}
    fail_policy: FailPolicy = FailPolicy.FAIL_FAST
    run_timeout_ms: int | None = None
    tier: Tier = Tier.STANDARD
    auto_continue: bool = False
    """Ruling C6: the hard tier of the history's length may continue the run as new."""
    manual_start: bool = True
    """Ruling D4: False when the definition declares triggers and none of them is `manual`."""
    input_schema: Any = None
    triggers: tuple[TriggerSpec, ...] = ()
    """Those of type event and schedule, in the order of the definition; its own schedule comes last, with the id `schedule`."""


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Manifest)


def encode(manifest: Manifest) -> str:
    """The manifest as JSON text (not canonical: hash with `engine.compile`)."""
    return _encoder.encode(manifest).decode()


def decode(text: str | bytes) -> Manifest:
    """The manifest of a stored JSON text. Raises `msgspec.ValidationError` for a shape of another format version."""
    return _decoder.decode(text)
