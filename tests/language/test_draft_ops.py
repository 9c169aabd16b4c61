"""Draft operations as values: applied in order, all or none (contract: UpdateWorkflowDraft)."""

import copy
import time
from typing import Any

import pytest

from ductord.engine.draft_ops import apply_operations
from ductord.model.errors import Refusal
from tests.language.documents import definition, edge, step

TREE = definition(
    step("a"), step("b", timeout_ms=5), step("c"), edges=[edge("a", "b"), edge("b", "c"), edge("a", "c", "error")]
)


def refs(tree: dict[str, Any]) -> list[str]:
    return [found["ref"] for found in tree["steps"]]


def ends(tree: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(found["source_ref"], found["target_ref"], found["type"]) for found in tree["edges"]]


def test_graph_operations_in_order() -> None:
    before = copy.deepcopy(TREE)
    after = apply_operations(
        TREE,
        [
            {"add_step": step("d")},
            {"add_edge": edge("c", "d")},
            {"update_step": {"ref": "b", "title": "B", "timeout_ms": None, "args": {"x": 1}}},
            {"remove_step": {"ref": "a"}},
            {"remove_edge": edge("b", "c")},
            {"add_step": step("a", title="again")},
        ],
    )
    assert refs(after) == ["b", "c", "d", "a"]
    assert ends(after) == [("c", "d", "success")]
    assert after["steps"][0] == step("b", title="B", args={"x": 1})
    assert before == TREE, "the tree that was given is not touched"


def test_merge_patch_clears_by_name_too() -> None:
    after = apply_operations(
        TREE, [{"update_step": {"ref": "b", "queue": "q", "clear_fields": ["timeout_ms", "title"]}}]
    )
    assert after["steps"][1] == step("b", queue="q")


def test_parts_are_replaced_whole() -> None:
    after = apply_operations(
        TREE,
        [
            {"set_triggers": {"triggers": [{"id": "t", "type": "manual"}]}},
            {"set_checkpoints": {"checkpoints": [{"name": "k", "step_refs": ["a"]}]}},
            {"set_variables": {"variables": {"x": 1}}},
            {"set_settings": {"fail_policy": "drain", "output": "${{ RUN.id }}", "run_timeout_ms": 5}},
            {"set_settings": {"clear_fields": ["run_timeout_ms"], "tier": "bulk"}},
            {"set_triggers": {}},
        ],
    )
    assert "triggers" not in after
    assert after["checkpoints"] == [{"name": "k", "step_refs": ["a"]}]
    assert (after["variables"], after["fail_policy"], after["tier"]) == ({"x": 1}, "drain", "bulk")
    assert "run_timeout_ms" not in after


def test_replace_keeps_the_family() -> None:
    other = definition(step("z"))
    del other["family_slug"]
    after = apply_operations(
        TREE, [{"remove_step": {"ref": "a"}}, {"replace": {"definition": other}}, {"add_step": step("y")}]
    )
    assert (after["family_slug"], refs(after)) == ("f", ["z", "y"])


def test_edges_that_share_ends_and_type_go_together() -> None:
    """A choice group may have several; an edge is named by its ends and its type."""
    tree = definition(
        step("a"), step("b"),
        edges=[edge("a", "b", choice_group="g", condition="RUN.version > 1"), edge("a", "b", choice_group="g", default=True)],
    )  # fmt: skip
    assert ends(apply_operations(tree, [])) == [("a", "b", "success")] * 2
    assert apply_operations(tree, [{"remove_edge": edge("a", "b")}])["edges"] == []
    once = apply_operations(
        tree, [{"remove_edge": edge("a", "b")}, {"add_edge": edge("a", "b")}, {"remove_step": {"ref": "b"}}]
    )
    assert once["edges"] == []
    again = [
        {"remove_step": {"ref": "b"}},
        {"add_step": step("b")},
        {"add_edge": edge("a", "b")},
        {"remove_edge": edge("a", "b")},
    ]
    assert apply_operations(tree, again)["edges"] == []


def test_unfinished_parts_keep_their_place() -> None:
    tree = {"family_slug": "f", "steps": [{"type": "action"}, step("a"), 7, step("a")], "edges": [{}, edge("a", "b")]}
    after = apply_operations(tree, [{"add_step": step("c")}])
    assert after["steps"] == [*tree["steps"], step("c")]
    assert after["edges"] == tree["edges"]
    assert apply_operations({"family_slug": "f"}, []) == {"family_slug": "f"}


@pytest.mark.parametrize(
    ("operation", "path"),
    [
        ({}, "operations[1]"),
        ({"add_step": step("x"), "remove_step": {"ref": "a"}}, "operations[1]"),
        ({"add_stp": {}}, "operations[1].add_stp"),
        ({"add_step": []}, "operations[1].add_step"),
        ({"add_step": {"type": "action"}}, "operations[1].add_step.ref"),
        ({"add_step": step("a")}, "operations[1].add_step.ref"),
        ({"update_step": {"ref": "nope", "title": "x"}}, "operations[1].update_step.ref"),
        ({"update_step": {"ref": "a", "clear_fields": ["ref"]}}, "operations[1].update_step.clear_fields"),
        ({"update_step": {"ref": "a", "title": "x", "clear_fields": ["title"]}}, "operations[1].update_step.clear_fields"),
        ({"update_step": {"ref": "a", "clear_fields": "title"}}, "operations[1].update_step.clear_fields"),
        ({"remove_step": {"ref": "nope"}}, "operations[1].remove_step.ref"),
        ({"remove_step": {"ref": "a", "force": True}}, "operations[1].remove_step.force"),
        ({"add_edge": edge("a", "b")}, "operations[1].add_edge"),
        ({"add_edge": {"source_ref": "a"}}, "operations[1].add_edge.target_ref"),
        ({"remove_edge": edge("c", "a")}, "operations[1].remove_edge"),
        ({"set_variables": {"variables": []}}, "operations[1].set_variables.variables"),
        ({"set_triggers": {"trigger": []}}, "operations[1].set_triggers.trigger"),
        ({"set_settings": {"title": "x"}}, "operations[1].set_settings.title"),
        ({"set_settings": {"clear_fields": ["family_slug"]}}, "operations[1].set_settings.clear_fields"),
        ({"replace": {}}, "operations[1].replace.definition"),
        ({"replace": {"definition": {"family_slug": "g"}}}, "operations[1].replace.definition.family_slug"),
    ],
)  # fmt: skip
def test_an_impossible_operation_is_named_and_nothing_is_applied(operation: Any, path: str) -> None:
    with pytest.raises(Refusal) as caught:
        apply_operations(TREE, [{"add_step": step("new")}, operation])
    refusal = caught.value
    assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "DRAFT_OPERATION_INVALID")
    assert refusal.metadata == {"field": path, "operation_index": "1"}
    assert refusal.violations[0].path == path


def test_six_thousand_operations_are_one_pass() -> None:
    operations: list[dict[str, Any]] = [{"add_step": step(f"s{n}")} for n in range(500)]
    operations += [{"add_edge": edge(f"s{n % 500}", f"s{(n * 7 + 1) % 500}", f"t{n}")} for n in range(4_500)]
    operations += [{"update_step": {"ref": f"s{n}", "title": "x"}} for n in range(500)]
    operations += [{"remove_step": {"ref": f"s{n}"}} for n in range(500)]
    assert len(operations) == 6_000
    begin = time.process_time()
    after = apply_operations({"family_slug": "f"}, operations)
    assert time.process_time() - begin < 5
    assert after == {"family_slug": "f"}
    with pytest.raises(Refusal, match="6,001 operations, maximum is 6,000"):
        apply_operations(TREE, [*operations, {}])
