"""Steps that fan out and compose, with the least and with the most that they can say, for the tests of their words."""

from itertools import pairwise
from typing import Any

from ductord.engine.compile import compile_definition
from ductord.model.manifest import Manifest, Step
from ductord.model.specs import Expression
from tests.language.documents import definition, edge, step

ITEMS: dict[str, Any] = {"items_expr": "TRIGGER.payload.pages"}
PAGES = Expression(source="TRIGGER.payload.pages", names=("TRIGGER",))
ECHO = {"action": "core:echo"}
CHILD = {"workflow": {"family_slug": "page"}}
INLINE = ITEMS | ECHO
RUNS = ITEMS | CHILD | {"mode": "child_workflow"}
MAP = ITEMS | {"operation": "map", "expr": "ITEM.n"}

LEAST: dict[str, dict[str, Any]] = {
    "scatter": INLINE,
    "gather": {"scatter_ref": "s"},
    "for_each": ITEMS | CHILD,
    "dataflow": MAP,
    "subworkflow": CHILD,
}
"""The least that a step of each type says."""

MOST: dict[str, dict[str, Any]] = {
    "scatter": INLINE
    | {
        "mode": "inline",
        "args": {"page": "${{ ITEM.n }}", "at": "${{ INDEX }}"},
        "max_inline_children": 1_000,
        "max_concurrency": 8,
        "interval_ms": 50,
        "tolerated_failures": "2.5%",
    },
    "gather": {"scatter_ref": "s", "stream_error": "include"},
    "for_each": ITEMS
    | {
        "workflow": {"family_slug": "page", "version": 3},
        "input": ["${{ ITEM }}", "${{ INDEX }}"],
        "on_item_error": "continue",
        "parent_close_policy": "terminate",
    },
    "dataflow": ITEMS | {"operation": "reduce", "expr": "ACC + ITEM.n * INDEX", "initial": {"a": ["${{ VARS.kind }}"]}},
    "subworkflow": {
        "workflow": {"family_slug": "page", "version": 3},
        "input": {"order": "${{ TRIGGER.payload.order }}"},
        "mode": "sync",
        "wait_for": "checkpoint:paid.in-full",
        "timeout_ms": 5_000,
        "on_timeout": "continue_with_error",
        "parent_close_policy": "abandon",
    },
}
"""All that fits together."""

UNDO_ITEM = {"finally": [ECHO | {"args": {"x": "${{ ITEM }}"}}]}
CHILDREN = RUNS | {"input": {"page": "${{ ITEM }}"}, "tolerated_failures": 7, "parent_close_policy": "abandon"}
PROJECT = ITEMS | {"operation": "project", "fields": {"a": "ITEM.a", "at": "INDEX"}}


def of(kind: str, said: dict[str, Any] | None = None, ref: str = "w", /, **fields: Any) -> dict[str, Any]:
    """A step of this type."""
    return {"ref": ref, "type": kind, **({kind: said} if said is not None else {}), **fields}


def after(*steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The steps one after the other, behind an action `a` and a scatter `s`."""
    chain = [step("a"), of("scatter", INLINE, "s"), *steps]
    return definition(*chain, edges=[edge(one["ref"], other["ref"]) for one, other in pairwise(chain)], **fields)


def manifest_of(tree: dict[str, Any]) -> Manifest:
    """The manifest of a definition in which nothing is wrong."""
    result = compile_definition(tree)
    assert result.errors == ()
    assert result.manifest is not None
    return result.manifest


def step_of(kind: str, said: dict[str, Any], **fields: Any) -> Step:
    """A step of this type behind an action and a scatter, as the manifest has it."""
    return manifest_of(after(of(kind, said, **fields))).steps[-1]
