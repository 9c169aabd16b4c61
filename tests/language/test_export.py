"""Definitions as text and picture: what is written reads as the same definition (YM-01; the spec's export and schema)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from ductord.engine.compile import compile_definition
from ductord.engine.document import read_document
from ductord.engine.export import export_yaml, json_schema, mermaid
from ductord.model.errors import PayloadInvalid
from ductord.model.jsonvalue import normalise
from ductord.model.schemas import Schema
from tests.language.documents import HELLO_WORLD, compiled, definition, edge, law, step
from tests.language.test_compile import RICH


def read_back(tree: dict[str, Any]) -> Any:
    read = read_document(export_yaml(tree))
    assert read.violations == ()
    return read.definition


def test_a_file_exports_as_it_was_written() -> None:
    canonical = compiled(HELLO_WORLD).canonical_definition
    assert canonical is not None
    assert export_yaml(canonical) == HELLO_WORLD


@pytest.mark.parametrize(
    "text",
    [
        "no", "On", "yes", "true", "null", "~", "", " ", "a ", " a", "1", "1.10", "0123", "0x1f", "1e3", "12:30:45", "2026-01-02", ".inf",
        "a: b", "a:", ":a", "a #b", "#a", "- a", "-", "[a]", "{a}", "&a", "*a", "!a", "|", ">", "%a", "@a", "`a`", "'a'", '"a"', "a\\b",
        "a\nb", "a\n", "\na", "a\n\nb\n", "a\n\n", " a\nb", "a \nb", "a\tb", "a\rb", "a\x85b", "a\u2028b", "\ufeff", "a\x7f", "😀", "é", "<<", "=", "?", "? a",
        "${{ TRIGGER.payload.x }}", "a" * 2000, "---", "...", "a: |\n  b", "x\n  y\nz", "€ — – …", "\x1b[0m",
    ],
)  # fmt: skip
def test_strings_survive_as_value_and_as_key_ym_01(text: str) -> None:
    tree = definition(step("a", args={"v": text, "l": [text, [text]], "m": {text: text}}))
    exported = export_yaml(tree)
    assert read_back(tree) == tree
    # and for readers of YAML 1.1, which take more words for something else
    old = YAML(typ="safe", pure=True)
    old.version = (1, 1)
    if "\x85" not in text and "\u2028" not in text:
        assert old.load(exported)["definition"] == tree


json_trees = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
    | st.text("ab:#-[]{}&*!|>'\"%@`, \n\\01.~", max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab:#-? \n\"'01~é", max_size=5), inner, max_size=3)
    ),
    max_leaves=12,
)


@law
@given(json_trees)
def test_any_json_comes_back_ym_01(value: Any) -> None:
    tree = definition(step("a", args={"v": value}))
    try:
        expected = normalise(tree)
    except PayloadInvalid:  # no definition could hold it
        return
    assert read_back(expected) == expected


def test_unfinished_drafts_can_be_written() -> None:
    draft = {
        "family_slug": "f",
        "steps": [{"type": "wait", "wait": {"duration": "1m"}}, 5, [1, [2, {"x": []}]], {}],
        "strange": {},
    }
    assert read_back(draft) == draft
    assert read_back({"family_slug": "f"}) == {"family_slug": "f"}


def test_the_schema_accepts_what_compile_accepts() -> None:
    schema = Schema(json_schema())
    triggers = [
        {"id": "m", "type": "manual"},
        {
            "id": "e",
            "type": "event",
            "patterns": ["a.b", "a.*"],
            "filter": "EVENT.payload.x",
            "input": {"x": "${{ EVENT.id }}"},
            "tier": "bulk",
        },
        {
            "id": "s",
            "type": "schedule",
            "schedule": {"cron_expression": "0 2 * * *", "timezone": "UTC", "catchup_window_ms": 1_000},
            "input": [],
        },
    ]
    tree = definition(
        step("a"), triggers=triggers, schedule={"cron_expression": "* * * * *", "overlap_policy": "allow_all"}
    )
    assert compile_definition(tree).errors == ()
    assert schema.faults({"type": "workflow_definition", "definition": tree}) == ()
    assert read_back(tree) == tree
    for text in (HELLO_WORLD, export_yaml(RICH)):
        document = YAML(typ="safe", pure=True).load(text)
        assert schema.faults(document) == ()


@pytest.mark.parametrize(
    "tree",
    [
        definition(step("a", joinn=1)),
        definition(step("a b")),
        definition({"ref": "a", "type": "wait"}),
        definition(step("a", compensation={"on_error": []})),
        definition(step("a", compensation={"failure_policy": "give_up"})),
        definition(step("a", compensation={"finally": [{"args": {}}]})),
        definition(triggers=[{"id": "t", "type": "event"}]),
        definition(step("a"), triggers=[{"id": "t", "type": "event", "patterns": []}]),
        definition(step("a"), triggers=[{"id": "t", "type": "manual", "input": {}}]),
        definition(step("a"), triggers=[{"id": "t", "type": "schedule"}]),
        definition(
            step("a"),
            triggers=[{"id": "t", "type": "schedule", "schedule": {"cron_expression": "* * * * *"}, "filter": "true"}],
        ),
        definition(step("a"), schedule={"cron_expression": "* * * * *", "overlap_policy": "queue"}),
        definition(step("a"), schedule={"cron_expression": "* * * * *", "catchup_window_ms": 999}),
        definition(step("a"), schedule={"timezone": "UTC"}),
        definition(edges=[edge("a", "b", "sucess")]),
        definition(variables={"a-b": 1}),
        definition(fail_policy="now"),
        {"family_slug": "f"},
    ],
)
def test_the_schema_refuses_what_compile_refuses(tree: Any) -> None:
    assert compile_definition(tree).errors
    assert Schema(json_schema()).faults({"type": "workflow_definition", "definition": tree})


def test_flowcharts_escape_what_is_markup() -> None:
    tree = definition(
        step("a", run_if='TRIGGER.payload.x == "<b>" && true'),
        step("b", join="any"),
        edges=[edge("a", "b", condition="RUN.version > 1"), edge("a", "b", "done")],
        checkpoints=[{"name": "k", "step_refs": ["b"]}],
    )
    manifest = compile_definition(tree).manifest
    assert manifest is not None
    assert mermaid(manifest) == (
        "flowchart TD\n"
        '    s0["a<br/>core:echo<br/>if TRIGGER.payload.x == #34;#60;b#62;#34; #38;#38; true"]\n'
        '    s1["b<br/>core:echo<br/>join any"]\n'
        '    s0 -- "RUN.version #62; 1" --> s1\n'
        '    s0 -. "done" .-> s1\n'
        '    c0(["checkpoint k"])\n'
        "    s1 -.- c0\n"
    )
