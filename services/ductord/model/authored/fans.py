"""What an author writes about steps that fan out and compose (rulings F1 to F6): one object per type, named like it."""

import re
from typing import Annotated, Any, Final

from pydantic import Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from ductord.model.authored.words import (
    ACTION_PATTERN,
    FAMILY_SLUG_PATTERN,
    NAME_PATTERN,
    VARIABLE_PATTERN,
    Cel,
    DelayMs,
    Part,
    StepRef,
    TimeoutMs,
)
from ductord.model.fanout import (
    MAX_CHILDREN,
    ClosePolicy,
    OnChildTimeout,
    OnItemError,
    Operation,
    ScatterMode,
    StreamError,
    SubworkflowMode,
)

MAX_VERSION: Final = (1 << 31) - 1
MAX_FIELDS: Final = 100
"""Of one projection: each is evaluated for each element."""
WAIT_FOR_PATTERN: Final = rf"^(terminal|checkpoint:{NAME_PATTERN[1:-1]})$"
PERCENT_PATTERN: Final = r"^(100|[0-9]{1,2}(\.[0-9]{1,2})?)%$"


def _tolerated(given: Any) -> int | str:
    """A count or a share of the children. Its faults name their code themselves: those of a union would have two for one."""
    if isinstance(given, int) and not isinstance(given, bool):
        if not 0 <= given <= MAX_CHILDREN:
            raise PydanticCustomError("OUT_OF_RANGE", "`tolerated_failures` is from 0 to {most}", {"most": "10,000"})
        return given
    if not isinstance(given, str):
        raise PydanticCustomError("WRONG_TYPE", "`tolerated_failures` must be a number, or a share as in `10%`")
    if re.fullmatch(PERCENT_PATTERN, given) is None:
        message = "`tolerated_failures` is a number, or a share of the children from `0%` to `100%`, as in `2.5%`"
        raise PydanticCustomError("OUT_OF_RANGE", message)
    return given


Items = Annotated[Cel, Field(description="CEL; a list. Evaluated once, when the step begins.")]
Tolerated = Annotated[
    int | str,
    PlainValidator(_tolerated),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": MAX_CHILDREN},
                {"type": "string", "pattern": PERCENT_PATTERN},
            ],
            "description": "How many children may fail, as a count or as in `10%`; all by default.",
        }
    ),
]
ChildInput = Annotated[Any, Field(description="Input of each child; strings may hold ${{ CEL }} over ITEM and INDEX.")]
CloseWith = Annotated[
    ClosePolicy, Field(strict=False, description="What becomes of a child that is open when this run ends.")
]


class WorkflowReference(Part):
    """Which definition a child runs."""

    family_slug: Annotated[str, Field(pattern=FAMILY_SLUG_PATTERN)]
    version: (
        Annotated[int, Field(ge=1, le=MAX_VERSION, description="The newest when the step begins by default.")] | None
    ) = None


class Scatter(Part):
    """A `scatter` step: `action` with `args` for each element, or a child run of `workflow` with `input` (ruling F1)."""

    items_expr: Items
    mode: Annotated[ScatterMode, Field(strict=False, description="`inline` by default.")] | None = None
    action: Annotated[str, Field(pattern=ACTION_PATTERN, description="`provider:action`.")] | None = None
    args: (
        Annotated[dict[str, Any], Field(description="JSON; strings may hold ${{ CEL }} over ITEM and INDEX.")] | None
    ) = None
    workflow: WorkflowReference | None = None
    input: ChildInput = None
    max_inline_children: (
        Annotated[int, Field(ge=1, le=MAX_CHILDREN, description="The widest list of the mode `inline`.")] | None
    ) = None
    max_concurrency: (
        Annotated[int, Field(ge=1, le=MAX_CHILDREN, description="How many children are open at once.")] | None
    ) = None
    interval_ms: Annotated[DelayMs, Field(description="Between the beginnings of two children.")] | None = None
    tolerated_failures: Tolerated | None = None
    parent_close_policy: CloseWith | None = None


class Gather(Part):
    """A `gather` step: the results of a scatter before it (ruling F2)."""

    scatter_ref: StepRef
    stream_error: (
        Annotated[StreamError, Field(strict=False, description="What a failed child is; `partition` by default.")]
        | None
    ) = None


class ForEach(Part):
    """A `for_each` step: one child run after the other (ruling F3)."""

    items_expr: Items
    workflow: WorkflowReference
    input: ChildInput = None
    on_item_error: (
        Annotated[OnItemError, Field(strict=False, description="What a failed item leads to; `stop` by default.")]
        | None
    ) = None
    parent_close_policy: CloseWith | None = None


class Dataflow(Part):
    """A `dataflow` step: an expression per element of a list (ruling F6)."""

    operation: Annotated[Operation, Field(strict=False)]
    items_expr: Annotated[
        Cel, Field(description="CEL; a list, or a map: its entries {key, value} in the order of the keys.")
    ]
    expr: Annotated[Cel, Field(description="CEL over ITEM and INDEX; of `reduce` over ACC too.")] | None = None
    initial: Annotated[Any, Field(description="ACC of the first element; strings may hold ${{ CEL }}.")] = None
    fields: (
        Annotated[
            dict[Annotated[str, Field(pattern=VARIABLE_PATTERN)], Cel],
            Field(min_length=1, max_length=MAX_FIELDS, description="Of `project`: an expression per field."),
        ]
        | None
    ) = None


class Subworkflow(Part):
    """A `subworkflow` step: one child run (ruling F5)."""

    workflow: WorkflowReference
    input: Annotated[Any, Field(description="Input of the child; strings may hold ${{ CEL }}. {} by default.")] = None
    output: Annotated[Any, Field(description="Output of the step; strings may hold ${{ CEL }} over OUTPUT.")] = None
    mode: Annotated[SubworkflowMode, Field(strict=False, description="`sync` by default.")] | None = None
    wait_for: (
        Annotated[str, Field(pattern=WAIT_FOR_PATTERN, description="`terminal` (by default) or `checkpoint:<name>`.")]
        | None
    ) = None
    timeout_ms: Annotated[TimeoutMs, Field(description="The longest wait for the child.")] | None = None
    on_timeout: (
        Annotated[OnChildTimeout, Field(strict=False, description="`fail_parent` by default; the child goes on.")]
        | None
    ) = None
    parent_close_policy: CloseWith | None = None
