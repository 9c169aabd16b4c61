"""Expressions that want the coordinator for themselves (CE-05): it is one thread, and every run's."""

import time
from typing import Any

import pytest

from ductord.engine.expressions import Bindings, ExpressionError, programs_for
from ductord.engine.expressions.check import Scope, check
from ductord.engine.expressions.environment import Site
from ductord.model.manifest import Manifest
from ductord.model.specs import Expression

MANIFEST = Manifest(format_version=1, engine_level=1, family_slug="f", steps=())
SCOPE = Scope(site=Site.GRAPH, reachable=frozenset(), steps=frozenset(), variables=frozenset())


def value(source: str, **payload: Any) -> Any:
    bindings = Bindings(trigger={"payload": payload, "event": None, "subject": {"type": "", "id": ""}})
    return programs_for(MANIFEST).value(Expression(source=source), bindings)


@pytest.mark.parametrize(
    "pattern",
    ["a" * 400_000, "[ab]*a[ab]{900}c", "(a|b)*a(a|b){300}c", "(((a?){9}){9}){9}b"],
    ids=["long", "counted", "doubling", "nested"],
)
def test_ce_05_a_pattern_from_data_cannot_stop_the_coordinator(pattern: str) -> None:
    """RE2 is linear in the text, and takes text times pattern: a payload of 400 kB matched with itself ran for minutes."""
    begin = time.process_time()
    with pytest.raises(ExpressionError) as caught:
        value("TRIGGER.payload.text.matches(TRIGGER.payload.pattern)", text="ab" * 200_000, pattern=pattern)
    assert caught.value.code == "expression_budget_exceeded"
    assert time.process_time() - begin < 10


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("TRIGGER.payload.text.matches('^[a-z]+-[0-9]{4}$')", True),
        ("matches(TRIGGER.payload.text, '^x')", False),
        ("TRIGGER.payload.text.matches(TRIGGER.payload.pattern)", True),
        ("TRIGGER.payload.many.exists(t, t.matches('^b{2}$')) && !('b'.matches(string(1)))", True),
        ("TRIGGER.payload.large.matches('^(ab)+$')", True),
    ],
)
def test_ce_05_honest_patterns_match_as_ever(source: str, expected: bool) -> None:
    """Member and function form, constant and computed, short texts in loops and a long text once."""
    payload = {"text": "order-2026", "pattern": "r.e", "many": ["a", "bb"] * 400, "large": "ab" * 400_000}
    assert value(source, **payload) is expected


def test_ce_05_a_matched_value_of_another_type_is_an_error_not_a_crash() -> None:
    """L4: the message names the expression, not the data."""
    with pytest.raises(ExpressionError, match="overload"):
        value("TRIGGER.payload.text.matches('a')", text=5)
    with pytest.raises(ExpressionError, match="invalid regular expression"):
        value("TRIGGER.payload.text.matches(TRIGGER.payload.pattern)", text="a", pattern="((secret")


@pytest.mark.parametrize(
    "source",
    [
        "size(TRIGGER.payload.x.map(a, " + "(" * 28 + "a" + "+a)" * 28 + ")) > 0",
        "size(" + "TRIGGER.payload.x.map(a, " * 3 + "+".join("a" * 16) + ")" * 3 + ") > 0",
    ],
    ids=["in one loop", "in three loops"],
)
def test_ce_05_what_rewriting_makes_too_deep_is_a_violation_not_a_server_error(source: str) -> None:
    """Sums inside loops pay for their size, which adds nesting: such an expression ended Publish with INTERNAL."""
    checked = check(source, SCOPE, boolean=True)
    assert checked.expression is not None or [fault.code for fault in checked.faults] == ["EXPRESSION_TOO_DEEP"]
