"""What steps say that fan out and compose: scatter, gather, for_each, dataflow, subworkflow (rulings F1 to F6). Pure data, as in `model.manifest`."""

from enum import StrEnum

from ductord.model.specs import ActionSpec, Expression, Template, Value

MAX_CHILDREN = 10_000
"""The hard cap on the children of one fan-out (spec: Scatter and gather)."""
MAX_DEPTH = 32
"""How deep runs may be nested (ruling F5)."""
PAGE = 100
"""How many items of a frozen collection stand in one row: a tick that begins children reads the rows of those, whatever the width."""


class ScatterMode(StrEnum):
    """Whether a scatter's children are tasks of the same run or runs of their own."""

    INLINE = "inline"
    CHILD_WORKFLOW = "child_workflow"


class StreamError(StrEnum):
    """What a failed child means to a gather (ruling F2)."""

    PARTITION = "partition"
    INCLUDE = "include"
    DROP = "drop"
    RAISE = "raise"


class OnItemError(StrEnum):
    """What a failed item means to a for_each (ruling F3)."""

    STOP = "stop"
    CONTINUE = "continue"


class Operation(StrEnum):
    """What a dataflow step does with the elements of its list (ruling F6)."""

    MAP = "map"
    FILTER = "filter"
    PARTITION = "partition"
    REDUCE = "reduce"
    PROJECT = "project"


class SubworkflowMode(StrEnum):
    """Whether a subworkflow step waits for its child (spec: Sub-workflows)."""

    SYNC = "sync"
    ASYNC = "async"


class OnChildTimeout(StrEnum):
    """What the time-out of a subworkflow step does; never anything to the child (spec: Sub-workflows)."""

    FAIL_PARENT = "fail_parent"
    DETACH = "detach"
    CONTINUE_WITH_ERROR = "continue_with_error"


class ClosePolicy(StrEnum):
    """What becomes of a child that is open when its parent ends (ruling F5)."""

    REQUEST_CANCEL = "request_cancel"
    ABANDON = "abandon"
    TERMINATE = "terminate"


class WorkflowRef(Value, frozen=True, kw_only=True):
    """Which definition a child runs. `version` 0: the newest when the children start, frozen then."""

    family_slug: str
    version: int = 0


class ScatterSpec(Value, frozen=True, kw_only=True):
    """Ruling F1. Inline: `action`, whose args may read ITEM and INDEX; else `workflow` and `input`, which may too (None: `{item, index}`).

    `max_inline_children` None: the engine's own setting. `max_concurrency` 0: no limit. `tolerated`, `tolerated_percent`: how many children may fail (both
    None: all). `raises`: its gather says `raise`, so none may."""

    items: Expression
    mode: ScatterMode = ScatterMode.INLINE
    action: ActionSpec | None = None
    workflow: WorkflowRef | None = None
    input: Template | None = None
    max_inline_children: int | None = None
    max_concurrency: int = 0
    interval_ms: int = 0
    tolerated: int | None = None
    tolerated_percent: float | None = None
    raises: bool = False
    close_policy: ClosePolicy = ClosePolicy.REQUEST_CANCEL


class GatherSpec(Value, frozen=True, kw_only=True):
    """Ruling F2."""

    scatter_ref: str
    stream_error: StreamError = StreamError.PARTITION


class ForEachSpec(Value, frozen=True, kw_only=True):
    """Ruling F3. `input` None: `{item, index}`."""

    items: Expression
    workflow: WorkflowRef
    input: Template | None = None
    on_item_error: OnItemError = OnItemError.STOP
    close_policy: ClosePolicy = ClosePolicy.REQUEST_CANCEL


class DataflowSpec(Value, frozen=True, kw_only=True):
    """Ruling F6. `expr` reads ITEM and INDEX, and of `reduce` ACC, which begins as `initial`. `fields`: of `project`, one expression per field."""

    operation: Operation
    items: Expression
    expr: Expression | None = None
    initial: Template | None = None
    fields: dict[str, Expression] = {}


class SubworkflowSpec(Value, frozen=True, kw_only=True):
    """Ruling F5. `checkpoint`: what of the child is waited for; empty: its end. `output`: what the step makes of the child's output, read as OUTPUT (None: the
    output as it is)."""

    workflow: WorkflowRef
    input: Template = Template(tree={})
    output: Template | None = None
    mode: SubworkflowMode = SubworkflowMode.SYNC
    checkpoint: str = ""
    timeout_ms: int | None = None
    on_timeout: OnChildTimeout = OnChildTimeout.FAIL_PARENT
    close_policy: ClosePolicy = ClosePolicy.REQUEST_CANCEL
