"""What publish says about an expression (rulings L3, L5; CE-01, CE-04, CE-05)."""

import pytest

from ductord.engine.expressions import Scope, Site, check

SCOPE = Scope(
    site=Site.GRAPH,
    reachable=frozenset({"a", "b.c"}),
    steps=frozenset({"a", "b.c", "later"}),
    variables=frozenset({"limit"}),
)


def faults(source: str, site: Site = Site.GRAPH, boolean: bool = True) -> list[tuple[str, int]]:
    return [(fault.code, fault.offset) for fault in check(source, SCOPE._replace(site=site), boolean=boolean).faults]


@pytest.mark.parametrize(
    ("source", "code", "offset"),
    [
        ("foo(1)", "UNKNOWN_NAME", 0),
        ("true && 1", "EXPRESSION_TYPE", 5),
        ("steps.nope.result.x == 1", "UNKNOWN_NAME", 0),
        ("TRIGGER.payload.a ==", "EXPRESSION_SYNTAX", 20),
        ("true &&\n  fou", "UNKNOWN_NAME", 10),
        ("'é' == bar(1)", "UNKNOWN_NAME", 7),
        ('STEPS["nope"].output == 1', "UNKNOWN_STEP_REF", 6),
        ("STEPS.nope.output == 1", "UNKNOWN_STEP_REF", 6),
        ("STEPS.later.output == 1", "STEP_NOT_ANCESTOR", 6),
        ('has(STEPS["later"].output.x)', "STEP_NOT_ANCESTOR", 10),
        ('STEPS["b.c"].outptu == 1', "UNKNOWN_NAME", 13),
        ("TRIGGER.playload.x", "UNKNOWN_NAME", 8),
        ("RUN.started == ''", "UNKNOWN_NAME", 4),
        ("OUTPUT.ok", "NAME_NOT_AVAILABLE", 0),
        ("EVENT.x == ITEM", "NAME_NOT_AVAILABLE", 0),
        ("1 + 1", "NOT_BOOLEAN", 0),
        ("'a' in ['a\\u0000']", "EXPRESSION_SYNTAX", 8),
        ("true // \0", "EXPRESSION_SYNTAX", 8),
        ("google.protobuf.Duration{} == duration('1s')", "EXPRESSION_SYNTAX", 0),
    ],
)
def test_publish_names_the_fault_and_its_column_ce_04(source: str, code: str, offset: int) -> None:
    assert (code, offset) in faults(source)
    assert check(source, SCOPE, boolean=True).expression is None


def test_mixed_number_literals_compare_only_when_one_side_is_cast_ce_01() -> None:
    """CE-01, the literal form pinned: the checker knows both types and refuses at publish, with a way out."""
    refused = check("10 < 4.0", SCOPE)
    assert [fault.code for fault in refused.faults] == ["EXPRESSION_TYPE"]
    assert "double(…)" in refused.faults[0].message
    assert faults("1 in [1.0]") == [("EXPRESSION_TYPE", 2)]
    assert faults("double(10) < 4.0") == []
    assert faults("1 + 1.5 > 2.0") == []


def test_suggestions_name_what_was_meant() -> None:
    def message(source: str) -> str:
        return check(source, SCOPE).faults[0].message

    assert "did you mean `TRIGGER`?" in message("trigger.payload.a")
    assert "did you mean `output`?" in message('STEPS["a"].ouput')
    assert "did you mean `later`?" in message("STEPS.latre.output")
    assert "did you mean `limit`?" in message("VARS.limt")


def test_an_undeclared_variable_is_a_warning_for_an_override_may_bring_it() -> None:
    checked = check("VARS.other == 1", SCOPE)
    assert checked.expression is not None
    assert [(fault.code, fault.warning) for fault in checked.faults] == [("UNDECLARED_VARIABLE", True)]


def test_reads_are_recorded_l3() -> None:
    def reads(source: str, site: Site = Site.GRAPH) -> tuple[tuple[str, ...], tuple[str, ...]]:
        expression = check(source, SCOPE._replace(site=site)).expression
        assert expression is not None
        return expression.names, expression.steps

    assert reads('STEPS["b.c"].output.x > STEPS.a.attempt') == (("STEPS",), ("a", "b.c"))
    assert reads("TRIGGER.payload.x == RUN.id || VARS.limit > 1") == (("RUN", "TRIGGER", "VARS"), ())
    assert reads("OUTPUT.ok && has(CONTEXT.y)", Site.RESULT) == (("CONTEXT", "OUTPUT"), ())
    assert reads('"a" in STEPS') == (("STEPS",), ("a", "b.c"))
    assert reads("STEPS[TRIGGER.payload.ref].output") == (("STEPS", "TRIGGER"), ("a", "b.c"))
    assert reads("[1, 2].all(TRIGGER, TRIGGER > 0)") == ((), ())
    assert reads("[1].exists(x, STEPS.a.output == x)") == (("STEPS",), ("a",))
    assert reads("1 == 1") == ((), ())


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("(" * 200 + "true" + ")" * 200, "EXPRESSION_TOO_DEEP"),
        ("+".join(["1"] * 300), "EXPRESSION_TOO_DEEP"),
        ("TRIGGER" + ".a" * 400, "EXPRESSION_TOO_DEEP"),
        ("[" * 100 + "]" * 100, "EXPRESSION_TOO_DEEP"),
        ("x" * 1_000_000, "EXPRESSION_TOO_LONG"),
        (
            "[1].all(a, [1].all(b, [1].all(c, [1].all(d, true))))",
            "EXPRESSION_TOO_DEEP",
        ),
        ("", "EXPRESSION_SYNTAX"),
        ("  ", "EXPRESSION_SYNTAX"),
    ],
)
def test_publish_limits_ce_05(source: str, code: str) -> None:
    assert [found for found, _ in faults(source)] == [code]


@pytest.mark.parametrize(
    "source", ["\ud800", "'\ud800' == ''", '"\\ud800" == ""', "`", "}}", "\\", "'''", "(((", "a" * 4_096]
)
def test_no_text_crashes_the_check(source: str) -> None:
    assert check(source, SCOPE, boolean=True).expression is None
