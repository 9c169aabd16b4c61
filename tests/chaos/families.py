"""The definitions of a chaos run that fan out: a wide scatter, and trees of child runs of depth 4. Whatever acts calls the recorder, so that it leaves a trace
outside."""

from collections.abc import Iterator
from typing import Any

from tests.chaos.graphs import edge, step

WIDTH = 1_000
"""Children of the wide scatter."""
TREE = 1 + 3 + 3 + 6 + 6
"""Runs of a tree: a scatter of three runs; each has a subworkflow, that runs a for_each over two, each of which has a subworkflow."""

_TRIED: dict[str, Any] = {"retry_max_attempts": 12}
"""Hard enough that what is flaky succeeds in the end."""


def wide(url: str) -> dict[str, Any]:
    """A gathered scatter of `WIDTH` inline children. Every tenth fails for good."""
    scatter = {
        "items_expr": "TRIGGER.payload.items",
        "max_inline_children": WIDTH,
        "action": "http:request",
        "args": {"method": "POST", "url": f'{url}/${{{{ ITEM % 10 == 0 ? "fail" : "flaky" }}}}'},
    }
    per_attempt = {
        name: value for name, value in step("s", url, **_TRIED).items() if name not in ("ref", "type", "action", "args")
    }
    return {
        "family_slug": "wide",
        "steps": [
            {"ref": "s", "type": "scatter", "scatter": scatter, **per_attempt},
            {"ref": "g", "type": "gather", "gather": {"scatter_ref": "s"}},
            step("after", url),
        ],
        "edges": [edge("s", "g"), edge("g", "after")],
    }


def trees(url: str) -> Iterator[dict[str, Any]]:
    """The definitions of a tree, leaves first; the last one is the root's. Of the two leaves below each for_each one fails."""
    yield {"family_slug": "leaf", "steps": [step("act", url, "/${{ TRIGGER.payload.path }}", **_TRIED)]}
    yield {
        "family_slug": "twig",
        "steps": [step("before", url, "/flaky", **_TRIED), _child("leaf", {"path": "${{ TRIGGER.payload.path }}"})],
        "edges": [edge("before", "leaf")],
    }
    each = {
        "items_expr": '["flaky", "fail"]',
        "workflow": {"family_slug": "twig"},
        "input": {"path": "${{ ITEM }}"},
        "on_item_error": "continue",
    }
    yield {"family_slug": "branch", "steps": [{"ref": "each", "type": "for_each", "for_each": each}]}
    yield {
        "family_slug": "limb",
        "steps": [_child("branch", {}), step("after", url)],
        "edges": [edge("branch", "after")],
    }
    scatter = {"items_expr": "[1, 2, 3]", "mode": "child_workflow", "workflow": {"family_slug": "limb"}}
    yield {
        "family_slug": "tree",
        "steps": [
            step("begin", url),
            {"ref": "s", "type": "scatter", "scatter": scatter},
            {"ref": "g", "type": "gather", "gather": {"scatter_ref": "s"}},
        ],
        "edges": [edge("begin", "s"), edge("s", "g")],
    }


def _child(slug: str, given: dict[str, Any]) -> dict[str, Any]:
    return {"ref": slug, "type": "subworkflow", "subworkflow": {"workflow": {"family_slug": slug}, "input": given}}
