"""One expression for many elements: the same values as one evaluation each, and little beside (rulings F1, F6, L3, L4; CE-02, CE-05)."""

import sys
import tracemalloc
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ductord.engine.expressions import (
    BUDGET_EXCEEDED,
    EXPRESSION_ERROR,
    Bindings,
    ExpressionError,
    PerElement,
    Scope,
    Site,
    check,
    meter,
    one_decision,
    programs_for,
)
from ductord.engine.expressions.element import current
from ductord.model.manifest import Manifest
from ductord.model.specs import Expression, Template
from tests.language.documents import law
from tests.language.test_expression_values import json_values

MANIFEST = Manifest(format_version=1, engine_level=1, family_slug="f", steps=())
PRICES = {f"k{n}": {"price": n} for n in range(3_000)}
BINDINGS = Bindings(
    variables={"limit": 3, "names": ["x", "y"]},
    steps={"prices": {"output": PRICES, "status": "succeeded", "error": None, "attempt": 1}},
)
SCOPE = Scope(site=Site.ITEM, reachable=frozenset({"prices"}), steps=frozenset({"prices"}), variables=frozenset())


def of(text: str | Any) -> PerElement:
    """Per element: of a string its expression, of anything else its template."""
    programs = programs_for(MANIFEST)
    if isinstance(text, str):
        return programs.per_element(Expression(source=text, steps=("prices",)), BINDINGS)
    return programs.per_element(Template(tree=text, static=False), BINDINGS)


def came_to(call: Any) -> Any:
    try:
        return call()
    except ExpressionError as error:
        return error.code, error.message


SOURCES = (
    "ITEM",
    "INDEX",
    "ACC",
    "ITEM.a",
    "ITEM.a.b",
    "ITEM[0]",
    "INDEX + VARS.limit",
    "ITEM + ITEM",
    "ITEM.a + ITEM.b",
    "ITEM * 1.5",
    "has(ITEM.a)",
    "has(ITEM.a) ? ITEM.a : INDEX",
    "default(ITEM.a.b, VARS.limit)",
    "ITEM == ACC",
    "size(ITEM)",
    "string(ITEM)",
    "[ITEM, INDEX, ACC]",
    '{"item": ITEM, "acc": {"is": ACC}}',
    "ITEM.map(x, x == ACC)",
    "ITEM.filter(x, x != INDEX)",
    "ITEM.exists(x, x == 1)",
    "VARS.names.map(ITEM, ITEM + string(INDEX))",
    "VARS.names.map(name, {name: ITEM})",
    "[1, 2].map(INDEX, INDEX * 2)",
    'VARS.limit > 2 && ITEM == "a"',
    'ITEM.matches("^a+$")',
    "10 / INDEX",
    'STEPS.prices.output["k" + string(INDEX)].price',
    "STEPS.prices.status",
    "VARS.limit / 0",
)


@law
@given(st.sampled_from(SOURCES), st.lists(json_values, max_size=5), json_values)
def test_an_element_has_the_value_of_one_evaluation_f6(source: str, items: list[Any], accumulated: Any) -> None:
    expression = Expression(source=source, steps=("prices",))
    programs = programs_for(MANIFEST)
    each = programs.per_element(expression, BINDINGS)
    for index, item in enumerate(items):
        alone = replace(BINDINGS, item=item, index=index, accumulated=accumulated)
        expected = came_to(lambda alone=alone: programs.value(expression, alone))
        assert came_to(lambda item=item, index=index: each(item, index, accumulated)) == expected


@law
@given(st.lists(json_values, max_size=5))
def test_an_element_is_rendered_as_once_f1_l3(items: list[Any]) -> None:
    tree = {
        "of": "${{ ITEM }}",
        "text": "${{ INDEX }} of ${{ VARS.limit }}: ${{ default(ITEM.a, 7) }}",
        "list": [1, ["${{ ITEM }}"]],
        "n": {"s": [1, "x"]},
    }
    template = Template(tree=tree, static=False)
    programs = programs_for(MANIFEST)
    each = programs.per_element(template, BINDINGS)
    for index, item in enumerate(items):
        alone = replace(BINDINGS, item=item, index=index)
        expected = came_to(lambda alone=alone: programs.render(template, alone))
        assert came_to(lambda item=item, index=index: each(item, index)) == expected


def test_what_a_path_says_is_passed_on_as_it_is() -> None:
    item = {"url": ["http://a"], "n": {"m": [1]}}
    assert of("ITEM.url")(item, 0) is item["url"]
    rendered: Any = of({"url": "${{ ITEM.url }}", "static": {"a": [1]}})(item, 0)
    assert rendered["url"] is item["url"]


def test_static_parts_are_the_templates_own() -> None:
    tree = {"a": "${{ ITEM }}", "static": {"deep": [1, 2]}}
    rendered: Any = of(tree)(5, 0)
    assert rendered == {"a": 5, "static": {"deep": [1, 2]}}
    assert rendered["static"] is tree["static"]


def test_an_element_without_a_value_concerns_no_other_l4_ce_02() -> None:
    each = of("10 / ITEM.n")
    assert each({"n": 5}, 0) == 2
    for broken in ({"n": 0}, {}, None, "n"):
        with pytest.raises(ExpressionError) as caught:
            each(broken, 1)
        assert caught.value.code == EXPRESSION_ERROR
        assert "10 / ITEM.n" in caught.value.message
    assert each({"n": 10}, 2) == 1


def test_what_reads_no_element_is_evaluated_once() -> None:
    each = of("VARS.names.map(n, n + n)")
    assert each(1, 0) is each(2, 1)
    broken = of("1 / (VARS.limit - 3)")
    with pytest.raises(ExpressionError) as first:
        broken(1, 0)
    with pytest.raises(ExpressionError) as second:
        broken(2, 1)
    assert second.value is first.value


def test_nothing_is_evaluated_before_the_first_element() -> None:
    of("1 / (VARS.limit - 3)")
    programs_for(MANIFEST).per_element(Expression(source="EVENT.x + ITEM"), BINDINGS)


def test_a_hostile_element_is_given_up_and_the_next_has_its_own_budget_ce_05() -> None:
    each = of("ITEM.map(a, ITEM.map(b, ITEM.map(c, a + b + c))).size()")
    assert each([1, 2], 0) == 2
    with pytest.raises(ExpressionError) as caught:
        each(list(range(400)), 1)
    assert caught.value.code == BUDGET_EXCEEDED
    assert each([1, 2, 3], 2) == 3


@pytest.mark.parametrize(
    "source", ["[ITEM.map(a, ITEM.map(b, a * b)).size()]", "[size(bytes(VARS.text) + bytes(VARS.text)), INDEX]"]
)
def test_elements_share_the_budget_of_their_decision_ce_05(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "DECISION_BUDGET_S", 0.05)
    large = replace(BINDINGS, variables={"text": "x" * 1_000_000})
    each = programs_for(MANIFEST).per_element(Expression(source=source), large)
    items = list(range(60))

    def evaluated() -> int:
        """The first element that was given up."""
        return next(n for n in range(10_000) if came_to(lambda n=n: each(items, n))[0] == BUDGET_EXCEEDED)

    with one_decision():
        assert evaluated() > 0
        assert evaluated() == 0, "what comes after it fails too"
    assert isinstance(each(items, 0), list), "the next decision has a budget of its own"


def test_memory_is_released_ce_05() -> None:
    def evaluate(many: int) -> None:
        sources = ("ITEM.t + ITEM.t + string(INDEX)", "ITEM.l.map(x, x + ITEM.t)", "STEPS.prices.output[ITEM.k].price")
        for source in sources:
            each = of(source)
            for index in range(many):
                each({"t": f"{index}" * 100, "l": [f"{index}", "a"], "k": "k1"}, index)

    evaluate(400)
    tracemalloc.start()
    evaluate(400)
    before = tracemalloc.get_traced_memory()[0]
    evaluate(2_000)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 100_000


def test_native_memory_is_bounded_ce_05() -> None:
    """What many evaluations leave in the evaluator's own memory, which `tracemalloc` does not see: hundreds of megabytes if it were kept for all."""
    large = replace(BINDINGS, variables={"text": "x" * 1_000_000, "numbers": list(range(1_000))})
    before = _resident_mb()
    for source in (
        "VARS.numbers.map(n, n + INDEX).size()",
        "size(bytes(VARS.text)) + INDEX",
        "VARS.numbers.map(n, bytes(VARS.text)).size() + INDEX",
    ):
        each = programs_for(MANIFEST).per_element(Expression(source=source), large)
        for index in range(200):
            came_to(lambda each=each, index=index: each(None, index))
            if index == 3 and "bytes" in source and "map" in source:
                break
        assert _resident_mb() - before < 250, source


def _resident_mb() -> float:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096 / 1e6


def test_an_element_is_let_go_once_it_is_evaluated() -> None:
    item = {"t": "x" * 100, "l": [[1]]}
    counts = sys.getrefcount(item), sys.getrefcount(item["t"]), sys.getrefcount(item["l"])
    each = of("[ITEM, ITEM.t, ITEM.l[0]]")
    for index in range(600):
        each(item, index)
    assert (sys.getrefcount(item), sys.getrefcount(item["t"]), sys.getrefcount(item["l"])) == counts
    assert current() == [None, 0, None]


def test_threads_do_not_see_each_others_elements_f6() -> None:
    def square(numbers: range, found: list[Any]) -> None:
        each = of("ITEM * ITEM")
        found += [each(number, 0) for number in numbers]

    results: list[list[Any]] = [[], [], []]
    threads = [Thread(target=square, args=(range(n, n + 2_000), results[n])) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[number * number for number in range(n, n + 2_000)] for n in range(3)]


@pytest.mark.parametrize(
    ("source", "site", "code"),
    [
        ("ITEM.a + INDEX", Site.ITEM, None),
        ("ITEM.a + INDEX + ACC", Site.REDUCE, None),
        ("ACC + 1", Site.ITEM, "NAME_NOT_AVAILABLE"),
        ("ITEM", Site.GRAPH, "NAME_NOT_AVAILABLE"),
        ("INDEX", Site.RESULT, "NAME_NOT_AVAILABLE"),
        ("OUTPUT.x", Site.ITEM, "NAME_NOT_AVAILABLE"),
        ("OUTPUT.x", Site.RESULT, None),
        ("ITEMS.a", Site.ITEM, "UNKNOWN_NAME"),
        ("INDEX + 'a'", Site.ITEM, "EXPRESSION_TYPE"),
    ],
)
def test_names_of_an_element_have_their_places_f1_f6_l3(source: str, site: Site, code: str | None) -> None:
    codes = [fault.code for fault in check(source, SCOPE._replace(site=site)).faults]
    assert codes == ([code] if code else [])


@pytest.mark.parametrize("depth", range(8, 40, 4))
@pytest.mark.parametrize("form", ["(%ITEM)%", "%ITEM + %1", "default(%ITEM%, 1)", "[1].map(x, %ITEM%)[0]"])
def test_what_is_published_runs_per_element_ce_05(form: str, depth: int) -> None:
    before, inner, after = form.partition("ITEM")
    source = before.replace("%", "") * depth + inner + after.replace("%", "") * depth
    checked = check(source, SCOPE)
    if checked.expression is None:
        assert {fault.code for fault in checked.faults} <= {"EXPRESSION_TOO_DEEP", "EXPRESSION_SYNTAX"}
        return
    of(source)(1, 0)
