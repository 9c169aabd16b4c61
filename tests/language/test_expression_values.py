"""What an expression gives at run time (rulings L3, L4, L5; CE-01, CE-02, CE-05, CE-07, PL-07)."""

import contextlib
import datetime
import decimal
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ductord.engine.expressions import Bindings, ExpressionError, Programs, programs_for
from ductord.engine.expressions.environment import environment
from ductord.model.jsonvalue import normalise
from ductord.model.manifest import Manifest
from ductord.model.specs import Expression, Template
from tests.language.documents import law

MANIFEST = Manifest(format_version=1, engine_level=1, family_slug="f", steps=())


@pytest.fixture
def programs() -> Programs:
    return programs_for(MANIFEST)


def bindings(payload: Any = None, **fields: Any) -> Bindings:
    trigger = {"payload": {} if payload is None else payload, "event": None, "subject": {"type": "t", "id": "1"}}
    return Bindings(trigger=trigger, **fields)


def value(source: str, payload: Any = None, **fields: Any) -> Any:
    return programs_for(MANIFEST).value(Expression(source=source), bindings(payload, **fields))


def error(source: str, payload: Any = None) -> ExpressionError:
    with pytest.raises(ExpressionError) as caught:
        value(source, payload)
    return caught.value


@pytest.mark.parametrize(
    ("source", "x", "expected"),
    [
        ("TRIGGER.payload.x == 1", 1.0, True),
        ("1 < TRIGGER.payload.x", 1.5, True),
        ("TRIGGER.payload.x == '1'", 1, False),
        ("1 in TRIGGER.payload.x", [1.0], True),
        ("TRIGGER.payload.x * 1.1 > 13.1", 12, True),
        ("2 * TRIGGER.payload.x", 1.5, 3),
        ("7 / 2", None, 3),
        ("TRIGGER.payload.x / 2.0", 7, 3.5),
        ("TRIGGER.payload.x - 0.5 + 1", 1, 1.5),
    ],
)
def test_mixed_numbers_ce_01_l5(source: str, x: Any, expected: Any) -> None:
    result = value(source, {"x": normalise(x)})
    assert result == expected
    assert type(result) is type(expected)


def test_errors_in_and_and_or_ce_02(programs: Programs) -> None:
    def condition(source: str) -> bool:
        return programs.condition(Expression(source=source), bindings())

    assert condition("(1/0 > 0) && false") is False
    assert condition("TRIGGER.payload.a == 1 || true") is True
    assert condition('[{}, {"a": 1}].exists(i, i.a == 1)') is True
    with pytest.raises(
        ExpressionError, match=r'expression `TRIGGER.payload.a == 1 \|\| false`: Key not found in map : "a"'
    ):
        condition("TRIGGER.payload.a == 1 || false")


@pytest.mark.parametrize("x", ["true", 1, None, [], {}, 0.5])
def test_a_condition_insists_on_bool_l4_ce_02(programs: Programs, x: Any) -> None:
    with pytest.raises(ExpressionError, match="must be a bool"):
        programs.condition(Expression(source="TRIGGER.payload.x"), bindings({"x": x}))


@pytest.mark.parametrize(
    "x",
    [
        2**64,
        -(2**63) - 1,
        decimal.Decimal(1),
        datetime.date(2026, 1, 2),
        object(),
        {"y": {None: 1}},
        "\ud800",
        float("nan"),
    ],
)
def test_values_that_cannot_be_bound_are_typed_errors_ce_07(x: Any) -> None:
    assert error("dyn(TRIGGER.payload.x)", {"x": x}).code == "expression_error"


def test_an_input_that_was_not_loaded_is_no_expression_error() -> None:
    with pytest.raises(LookupError, match="step 'a' was not given"):
        value("STEPS.a.output", steps={})
    with pytest.raises(LookupError, match="OUTPUT was not given"):
        value("OUTPUT == 1")


def test_skipped_steps_have_a_null_output_and_has_guards_a_missing_key_l4() -> None:
    steps = {"a": {"output": None, "status": "skipped", "error": None, "attempt": 0}}
    assert value("STEPS.a.output == null", steps=steps) is True
    assert value('has(TRIGGER.payload.a) ? TRIGGER.payload.a : "none"') == "none"
    assert value('default(TRIGGER.payload.a, "none")', {"a": None}) == "none"


def test_every_int64_passes_exactly_pl_03() -> None:
    payload = {"id": 9007199254740993, "low": -(2**63)}
    assert value("TRIGGER.payload.id", payload) == 9007199254740993
    assert value("TRIGGER.payload.id + 0", payload) == 9007199254740993
    assert value("[TRIGGER.payload].map(p, p.id + 0)[0]", payload) == 9007199254740993
    assert value("[TRIGGER.payload.low]", payload) == [-(2**63)]


def test_results_that_json_cannot_hold_are_errors_pl_04() -> None:
    assert "NaN or infinite" in error("1.0 / 0.0").message
    assert "NaN or infinite" in error("1 / 0.0").message
    assert "keys are strings" in error("{1: 2}").message
    assert error("type(1)").code == "expression_error"
    assert error("9223372036854775807 + 1").code == "expression_error"


def test_times_durations_and_bytes_become_text() -> None:
    run = {"id": "r", "version": 1, "started_at": "2026-01-02T03:04:05.5Z", "labels": {}}
    assert value("timestamp(RUN.started_at)", run=run) == "2026-01-02T03:04:05.500000Z"
    assert value('{"d": duration("90s"), "n": duration("-1.5s")}') == {"d": "90s", "n": "-1.5s"}
    assert value('[b"abc"]') == ["YWJj"]


def test_only_the_branches_that_are_read_are_bound() -> None:
    payload = {"small": 1, "unbindable": object()}
    assert value("TRIGGER.payload.small + 1", payload) == 2
    assert value("has(TRIGGER.payload.none)", payload) is False
    assert error("TRIGGER.payload == null", payload).code == "expression_error"
    steps = {"a": {"output": {"x": 1}}, "b": {"output": {"x": 2}}}
    computed = Expression(
        source='STEPS[TRIGGER.payload.ref].output.x + size(STEPS["a"].output)', names=(), steps=("a", "b")
    )
    assert programs_for(MANIFEST).value(computed, bindings({"ref": "b"}, steps=steps)) == 3


MILLION = "y" * 1_000_000


def costly(source: str) -> ExpressionError | None:
    """What becomes of an expression over much data; that it takes no more than its budget of processor time."""
    items = list(range(9_000))
    payload = {"x": items, "y": list(items), "b": MILLION}
    begin = time.process_time()
    try:
        value(source.replace("P.", "TRIGGER.payload."), payload)
    except ExpressionError as caught:
        return caught
    finally:
        assert time.process_time() - begin < 10
        assert value("[1, 2].map(i, i + 1)") == [2, 3], "the budget is one evaluation's"
    return None


@pytest.mark.parametrize(
    "source",
    [
        "P.x.map(a, P.x.map(b, a * b)).size()",
        "P.x.map(a, P.x)",
        "[" + ", ".join(["P.x"] * 300) + "]",
        "P.x.map(a, P.b + P.b).size()",
        "P.x.all(a, (P.b + P.b).size() > 0)",
        "P.x.map(a, P.x + P.y).size()",
        "P.x.all(a, size(P.b) > a)",
        "P.x.all(a, P.x == P.y)",
        "P.x.map(i, P.x.map(j, P.b))",
        "P.x.exists(i, P.x.exists(j, P.x.exists(k, i + j + k == -1))) || true",
    ],
)
def test_work_without_end_is_given_up_typed_ce_05(source: str) -> None:
    caught = costly(source)
    assert caught is not None
    assert caught.code == "expression_budget_exceeded"


@pytest.mark.parametrize(
    "source",
    [
        "P.x.all(a, P.b.matches('(z+)+$') == false)",
        "P.x.all(a, P.b.contains('zz') || true)",
        "P.x.filter(a, a in P.x).size()",
        "P.x.map(a, timestamp('2026-01-01T00:00:00Z')).size()",
        "P.x.all(a, timestamp(P.b) > timestamp(P.b)) || true",
    ],
)
def test_heavy_expressions_end_within_their_budget_ce_05(source: str) -> None:
    caught = costly(source)
    assert caught is None or caught.code == "expression_budget_exceeded"


def test_evaluating_leaks_nothing() -> None:
    """The evaluator's bridge to Python leaks arguments and results of Python functions; nothing of ours may pass it."""
    payload = {"l": [{"id": number, "n": f"name {number}" * 5} for number in range(50)], "a": 1, "f": 1.5}
    sources = [
        "TRIGGER.payload.l.map(i, i.n + 'x')",
        "TRIGGER.payload.l.filter(i, i.n.contains('4'))",
        "default(TRIGGER.payload.none, TRIGGER.payload.l)",
        "TRIGGER.payload.a * TRIGGER.payload.f + 1",
        "TRIGGER.payload.none",
    ]
    programs = programs_for(MANIFEST)

    def evaluate(times: int) -> None:
        for _ in range(times):
            for source in sources:
                with contextlib.suppress(ExpressionError):
                    programs.value(Expression(source=source), bindings(payload))

    evaluate(20)
    tracemalloc.start()
    evaluate(20)
    before = tracemalloc.get_traced_memory()[0]
    evaluate(200)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 100_000


def test_building_a_list_is_linear_ce_05() -> None:
    items = [{"id": number, "name": "n" * 20} for number in range(6_000)]
    begin = time.process_time()
    assert value("TRIGGER.payload.map(i, i.id)", items) == list(range(6_000))
    assert (
        len(value('TRIGGER.payload.filter(i, i.id % 2 == 0).map(i, {"id": i.id, "n": i.name + "!"})', items)) == 3_000
    )
    assert time.process_time() - begin < 8


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.sampled_from([0.5, 1.5, -2.5])
    | st.sampled_from(["", "a", "ab", "é"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    max_leaves=8,
)

operands = st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from([0.5, 2.0, -1.5, "", "a", [], [1], {}])


@law
@given(st.sampled_from("+-*/"), operands, operands, st.booleans())
def test_an_int_and_a_double_meet_as_doubles_and_nothing_else_changes_l5(
    operator: str, a: Any, b: Any, looped: bool
) -> None:
    """Bound values, whose types show at run time only; `2.0` is bound as a double here, which no door would let in."""
    source = f"TRIGGER.payload.a {operator} TRIGGER.payload.b"
    numbers = {type(a), type(b)} == {int, float}
    plain = (
        environment()
        .compile(source)
        .eval(data={"TRIGGER": {"payload": {"a": float(a), "b": float(b)} if numbers else {"a": a, "b": b}}})
    )
    if looped:
        source = f"[0].map(i, {source})[0]"
    if plain.type().name() == "ERROR":
        assert error(source, {"a": a, "b": b}).code == "expression_error"
    elif plain.plain_value() in (float("inf"), float("-inf")) or plain.plain_value() != plain.plain_value():
        assert "NaN or infinite" in error(source, {"a": a, "b": b}).message
    else:
        assert value(source, {"a": a, "b": b}) == normalise(plain.plain_value())


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("[1, 2].map(i, i * 0.5)", [0.5, 1]),
        ("size([1, 2]) * 1.5", 3),
        ("1 + 2 * 1.5 - 0.5", 3.5),
        ("[1.5, 2.5].map(i, i + size([1]))", [2.5, 3.5]),
        ("TRIGGER.payload.n + 1.5 + TRIGGER.payload.n", 3.5),
        ("'a' + TRIGGER.payload.s", "ab"),
        ("[[1], [2]].map(l, l + [3])", [[1, 3], [2, 3]]),
        ("timestamp('2026-01-01T00:00:00Z') + duration('1s')", "2026-01-01T00:00:01.000000Z"),
        ("[1].map(i, timestamp('2026-01-01T00:00:00Z') - duration('1s'))", ["2025-12-31T23:59:59.000000Z"]),
    ],
)
def test_arithmetic_of_known_types_l5(source: str, expected: Any) -> None:
    assert value(source, {"n": 1, "s": "b"}) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("default(TRIGGER.payload.a, 'd')", "d"),
        ("default(TRIGGER.payload.n, 'd')", "d"),
        ("default(TRIGGER.payload.n.x.y, 'd')", "d"),
        ("default(TRIGGER.payload.m.x, 'd')", 1),
        ("default(TRIGGER.payload['m'].z, TRIGGER.payload.m.x + 1)", 2),
        ("default(TRIGGER.payload.l[0], 'd')", 0),
        ("default(TRIGGER.payload.f, 'd')", False),
        ("default(null, null)", None),
        ("default(1 + 1, 'd')", 2),
        ("default(STEPS.a.output.id, 'skipped')", "skipped"),
        ("default(default(TRIGGER.payload.a, TRIGGER.payload.n), 'd')", "d"),
        ("[1].map(i, default(TRIGGER.payload.a, i))", [1]),
    ],
)
def test_default_stands_in_for_null_and_missing_pl_07(source: str, expected: Any) -> None:
    steps = {"a": {"output": None, "status": "skipped", "error": None, "attempt": 0}}
    assert value(source, {"n": None, "m": {"x": 1}, "l": [0], "f": False}, steps=steps) == expected


def test_default_hides_no_other_error() -> None:
    assert "Index error" in error("default(TRIGGER.payload.l[5], 1)", {"l": [0]}).message
    assert error("default(1 / 0, 1)").code == "expression_error"


FOLDS = [
    "X.map(i, i)",
    "X.map(i, i + i)",
    "X.map(i, i != null, i)",
    "X.map(i, [i, 1, 'a'])",
    "X.map(i, {'k': i})",
    "X.filter(i, i == X[0])",
    "X.filter(i, i in X)",
    "X.filter(i, !(i in [1, 'a', null]))",
    "X.map(i, X.map(j, j == i))",
    "X.map(i, X.filter(j, j != i)).map(l, size(l))",
    "X.map(i, size(i) > 1)",
    "X.exists(i, i.a == 1)",
    "X.exists_one(i, i == 1)",
    "X.all(i, i.contains('a') || i.matches('b+'))",
    "X.map(i, string(i) + 'x')",
    "X.map(i, timestamp('2026-01-01T00:00:00Z')).map(t, t.getFullYear())",
    "X.map(i, duration('1s')).filter(d, d > duration('0s')).size()",
    "X.map(i, uint(1)).map(u, u + 1u)[0] == 2u",
    "X.map(i, b'ab').map(b, size(b))",
    "X.map(i, {1: i}).map(m, m[1])",
    "X.map(i, i).filter(i, i != null) + [1]",
    "[X, X].map(l, l.map(i, i))",
    "X.map(i, [1, 2].map(j, i)).exists(l, l.exists(e, e == 1))",
    "X.map(TRIGGER, TRIGGER)",
]


@pytest.mark.parametrize("fold", FOLDS)
@law
@given(items=st.lists(json_values, max_size=4))
def test_rewriting_changes_no_meaning(fold: str, items: list[Any]) -> None:
    source = fold.replace("X", "TRIGGER.payload")
    plain = environment().compile(source).eval(data={"TRIGGER": {"payload": items}})
    if plain.type().name() == "ERROR":
        assert error(source, items).code == "expression_error"
    else:
        assert value(source, items) == normalise(plain.plain_value())


def test_templates_keep_types_and_print_json_l3(programs: Programs) -> None:
    def render(tree: Any, payload: Any) -> Any:
        return programs.render(Template(tree=tree, static=False), bindings(payload))

    payload = {"n": 1, "f": 1.5, "t": True, "s": "x", "l": [1, {"a": None}], "z": None}
    assert render({"a": ["${{ TRIGGER.payload.l }}", "${{TRIGGER.payload.z}}"], "b": 7}, payload) == {
        "a": [[1, {"a": None}], None],
        "b": 7,
    }
    text = "n=${{ TRIGGER.payload.n }} f=${{ TRIGGER.payload.f }} t=${{ TRIGGER.payload.t }} s=${{ TRIGGER.payload.s }} l=${{ TRIGGER.payload.l }}"
    assert render(text, payload) == 'n=1 f=1.5 t=true s=x l=[1,{"a":null}]'
    assert render(" ${{ TRIGGER.payload.n }}", payload) == " 1"
    assert render('${{ {"a": {"b": "}}"}}}}', payload) == {"a": {"b": "}}"}}
    assert render('literal ${{ "${{" }} stays', payload) == "literal ${{ stays"
    assert render("${{ TRIGGER.payload.s }}", {"s": "${{ RUN.id }}"}) == "${{ RUN.id }}", "data is never evaluated"


def test_null_and_missing_in_templates_pl_07(programs: Programs) -> None:
    def render(tree: Any, payload: Any = None) -> Any:
        return programs.render(Template(tree=tree, static=False), bindings(payload))

    assert render("${{ TRIGGER.payload.a }}", {"a": None}) is None
    assert render('v=${{ default(TRIGGER.payload.a, "-") }}', {"a": None}) == "v=-"
    with pytest.raises(ExpressionError, match="is null inside text"):
        render("v=${{ TRIGGER.payload.a }}", {"a": None})
    for tree in ("${{ TRIGGER.payload.a }}", "v=${{ TRIGGER.payload.a }}"):
        with pytest.raises(ExpressionError, match="Key not found") as caught:
            render(tree)
        assert (caught.value.code, caught.value.source) == ("expression_error", "TRIGGER.payload.a")


def test_messages_name_the_expression_and_not_the_data_l4_l6() -> None:
    for source in (
        "int(TRIGGER.payload.s)",
        "TRIGGER.payload.s + 1",
        "'a'.matches(TRIGGER.payload.s)",
        "timestamp(TRIGGER.payload.s)",
    ):
        message = error(source, {"s": "(hunter2"}).message
        assert source in message
        assert "hunter2" not in message
    assert len(error("'a' + 1 > 2 || TRIGGER.payload." + "x" * 3_000).message) <= 1_000
