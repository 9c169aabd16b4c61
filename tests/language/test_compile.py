"""From definition to manifest: defaults, order, hash (rulings D4, G4, G9, L1; PL-03; the spec's compiled plan)."""

import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ductord.engine.compile import compile_definition, manifest_hash
from ductord.engine.document import read_document
from ductord.engine.export import export_yaml
from ductord.model import manifest as manifests
from ductord.model.enums import FailPolicy, Join, OnError, Tier
from ductord.model.manifest import Manifest
from tests.graphs import layered, workflow_graphs
from tests.language.documents import HELLO_WORLD, compiled, definition, edge, law, step


def manifest_of(tree: Any) -> Manifest:
    result = compile_definition(tree)
    assert result.errors == ()
    assert result.manifest is not None
    return result.manifest


def test_the_smallest_definition_compiles() -> None:
    result = compiled(HELLO_WORLD)
    assert result.violations == ()
    manifest = result.manifest
    assert manifest is not None
    assert [found.ref for found in manifest.steps] == ["a", "b"]
    assert manifest.entrypoints == (0,)
    assert manifest.steps[0].outgoing == manifest.steps[1].incoming == (0,)
    assert manifest.checkpoints[0].steps == (1,)
    assert manifest.response_checkpoint == "accepted", "the only one (G9)"
    assert manifest.manual_start
    assert manifests.decode(manifests.encode(manifest)) == manifest


def test_defaults_are_resolved() -> None:
    manifest = manifest_of({"family_slug": "f", "steps": [step("a")]})
    only = manifest.steps[0]
    assert (only.join, only.on_error, only.queue, only.max_lost) == (Join.ALL, OnError.FAIL, "default", 5)
    assert (only.retry.max_attempts, only.retry.backoff_ms, only.retry.max_backoff_ms) == (1, 0, 3_600_000)
    assert (manifest.fail_policy, manifest.tier, manifest.manual_start) == (FailPolicy.FAIL_FAST, Tier.STANDARD, True)
    assert only.action is not None
    assert only.action.args.tree == {}


def test_a_constant_back_off_is_not_cut_by_the_default_ceiling_a1() -> None:
    (only,) = manifest_of(definition(step("a", retry_max_attempts=2, retry_backoff_ms=7_200_000))).steps
    assert (only.retry.backoff_ms, only.retry.max_backoff_ms) == (7_200_000, 7_200_000)


def test_on_error_follows_the_edges_when_unset_g4() -> None:
    manifest = manifest_of(
        definition(
            step("a"), step("b"), step("c", on_error="continue"), step("d"),
            edges=[edge("a", "b", "error"), edge("b", "c"), edge("c", "d", "done")],
        )
    )  # fmt: skip
    assert {found.ref: found.on_error.value for found in manifest.steps} == {
        "a": "continue",
        "b": "fail",
        "c": "continue",
        "d": "fail",
    }


def test_kahn_order_prefers_what_is_written_first() -> None:
    steps = [step(ref) for ref in ("late", "root2", "mid", "root1")]
    edges = [edge("root1", "mid"), edge("root2", "mid"), edge("mid", "late")]
    manifest = manifest_of(definition(*steps, edges=edges))
    assert [found.ref for found in manifest.steps] == ["root2", "root1", "mid", "late"]
    assert manifest.entrypoints == (0, 1)
    assert [(found.source, found.target) for found in manifest.edges] == [(1, 2), (0, 2), (2, 3)]


def test_expressions_record_what_they_read_l3() -> None:
    tree = definition(
        step("a", result_expr="OUTPUT.ok && VARS.limit > 1"),
        step("b", run_if='STEPS["a"].output.x > 1', args={"v": ["x ${{ STEPS.a.output }}", "${{ RUN.id }}"], "k": 1}),
        edges=[edge("a", "b", "true", condition="TRIGGER.payload.go")],
        variables={"limit": 3},
        output={"all": "${{ STEPS.b.output }}"},
    )
    manifest = manifest_of(tree)
    first, second = manifest.steps
    assert first.result_expr is not None
    assert first.result_expr.names == ("OUTPUT", "VARS")
    assert second.run_if is not None
    assert second.run_if.steps == ("a",)
    assert second.action is not None
    args = second.action.args
    assert (args.static, args.names, args.steps) == (False, ("RUN", "STEPS"), ("a",))
    assert manifest.edges[0].condition is not None
    assert manifest.edges[0].condition.names == ("TRIGGER",)
    assert manifest.output is not None
    assert manifest.output.steps == ("b",)


def test_a_computed_step_counts_as_reading_every_ancestor_l3() -> None:
    tree = definition(
        *(step(ref) for ref in "abcd"),
        step("e", run_if="STEPS[TRIGGER.payload.ref].output == null"),
        edges=[edge("a", "b"), edge("b", "e"), edge("c", "d")],
    )
    last = next(found for found in manifest_of(tree).steps if found.ref == "e")
    assert last.run_if is not None
    assert last.run_if.steps == ("a", "b")


@pytest.mark.parametrize(("triggers", "allowed"), [(None, True), ([], True), ([{"id": "m", "type": "manual"}], True)])
def test_manual_starts_d4(triggers: Any, allowed: bool) -> None:
    assert manifest_of({**definition(), "triggers": triggers}).manual_start is allowed


def test_null_counts_as_not_written() -> None:
    tree = definition(step("a", run_if=None, retry_on=None), title=None, output=None, checkpoints=None)
    assert manifest_hash(manifest_of(tree)) == manifest_hash(manifest_of(definition(step("a"))))


def test_manifests_keep_every_digit_pl_03() -> None:
    def hash_of(number: Any) -> str:
        return manifest_hash(manifest_of(definition(step("a", args={"id": number}))))

    assert hash_of(9007199254740993) != hash_of(9007199254740992)
    assert hash_of(9223372036854775807) != hash_of(9223372036854775806)
    assert hash_of(5) == hash_of(5.0)
    manifest = manifest_of(definition(step("a", args={"id": 9007199254740993})))
    stored = manifests.decode(manifests.encode(manifest))
    assert manifest_hash(stored) == manifest_hash(manifest)


RICH = definition(
    step("a", args={"é": 1.5, "z": [1, {"b": None, "a": True}], "t": "${{ TRIGGER.payload }}"}, retry_max_attempts=3),
    step("b", run_if="STEPS.a.output != null", on_error="continue", queue="mine"),
    step("c", join="any", timeout_ms=5000),
    edges=[
        edge("a", "b", choice_group="g", condition="VARS.n > 1", order=1),
        edge("a", "c", choice_group="g", default=True),
        edge("b", "c", "done"),
    ],
    variables={"n": 2, "m": {"y": 1, "x": "text"}},
    triggers=[{"id": "t", "type": "manual"}],
    checkpoints=[{"name": "k", "step_refs": ["a"]}],
    output={"r": "${{ VARS.m }} and ${{ STEPS.c.status }}"},
    tags=["x", "y"],
    title="Rich",
)


def shuffled(tree: Any, chance: random.Random) -> Any:
    """The same JSON with the keys of every map in another order."""
    if isinstance(tree, dict):
        keys = list(tree)
        chance.shuffle(keys)
        return {key: shuffled(tree[key], chance) for key in keys}
    if isinstance(tree, list):
        return [shuffled(item, chance) for item in tree]
    return tree


def doors(tree: dict[str, Any]) -> list[dict[str, Any]]:
    """The tree as each door reads it."""
    document = {"type": "workflow_definition", "definition": tree}
    texts = [
        read_document(export_yaml(tree)),
        read_document(json.dumps(document), door="json"),
        read_document(json.dumps(document, indent=2)),  # JSON is YAML
    ]
    assert all(read.violations == () for read in texts)
    return [read.definition for read in texts if read.definition is not None]


@law
@given(st.integers(0, 10_000))
def test_one_definition_has_one_hash_whatever_order_and_door(seed: int) -> None:
    expected = manifest_hash(manifest_of(RICH))
    tree = shuffled(RICH, random.Random(seed))
    for read in [tree, *doors(tree)]:
        assert manifest_hash(manifest_of(read)) == expected


# Keys stay under the 1,024 characters that YAML allows before a colon, escapes counted: JSON read as YAML has no other way to write one.
free_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False, width=32)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0$"), max_size=40), inner, max_size=3
        )
    ),
    max_leaves=10,
)


@law
@given(free_json, st.integers(0, 1000))
def test_free_json_survives_every_door(args: Any, seed: int) -> None:
    """Whatever args hold: YAML out and in again, JSON, another key order: the same values, the same hash (YM-01)."""
    tree = definition(step("a", action="noop:noop", args={"x": args}))
    result = compile_definition(tree)
    if result.manifest is None:  # an integral float beyond 64 bits, a `${{`
        return
    canonical = result.canonical_definition
    assert canonical is not None
    expected = manifest_hash(result.manifest)
    for read in [shuffled(tree, random.Random(seed)), *doors(canonical)]:
        assert manifest_hash(manifest_of(read)) == expected
    assert export_yaml(canonical) == export_yaml(shuffled(canonical, random.Random(seed)))


def test_hashes_differ_where_definitions_do() -> None:
    base = manifest_hash(manifest_of(RICH))
    for change in ({"fail_policy": "drain"}, {"run_timeout_ms": 1}, {"variables": {"n": 3, "m": {}}}, {"tier": "bulk"}):
        assert manifest_hash(manifest_of({**RICH, **change})) != base


def test_this_hash_is_the_format() -> None:
    """Stored manifests are found by it: a change of the format must be meant."""
    expected = "8516132588d9bc84e06fdf5385518daecffd3cf9591c0a2ed21886d1c476b00b"
    assert manifest_hash(manifest_of(read_document(HELLO_WORLD).definition)) == expected


def test_all_real_graphs_compile() -> None:
    graphs = list(workflow_graphs())
    assert len(graphs) == 31
    for graph in graphs:
        manifest = manifest_of(graph.definition())
        position = {found.ref: index for index, found in enumerate(manifest.steps)}
        assert len(position) == len(graph.tasks)
        assert len(manifest.edges) == sum(len(task.parents) for task in graph.tasks)
        for ref, parents in graph.parents().items():
            assert all(position[parent] < position[ref] for parent in parents)


@pytest.mark.parametrize("seed", range(20))
def test_generated_graphs_compile(seed: int) -> None:
    graph = layered(seed)
    manifest = manifest_of(graph.definition(sleep_scale=0.001))
    assert len(manifest.steps) == len(graph.tasks)


def test_the_canonical_definition_is_what_was_written() -> None:
    result = compile_definition(shuffled(RICH, random.Random(1)))
    assert result.canonical_definition == {**RICH}
    assert list(result.canonical_definition or {})[:3] == ["family_slug", "title", "tags"]
    assert msgspec.json.encode(result.canonical_definition)


@pytest.mark.parametrize("where", ["manifest", "steps"])
def test_a_manifest_of_which_something_is_not_known_is_not_read(where: str) -> None:
    """C9: a field that this build does not know is meant by somebody: a run whose manifest has one is set aside, and not driven without it."""
    tree = json.loads(manifests.encode(manifest_of(read_document(HELLO_WORLD).definition)))
    (tree if where == "manifest" else tree["steps"][0])["later"] = True
    with pytest.raises(msgspec.ValidationError, match="later"):
        manifests.decode(json.dumps(tree))
