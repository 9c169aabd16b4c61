"""What a dataflow comes to (ruling F6): the laws of its operations against the same in Python, and what it refuses."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ductord.engine.decide import decide
from ductord.engine.expressions import programs_for
from ductord.engine.limits import Limits
from ductord.engine.steps.dataflow import FEW, MAX_ELEMENTS
from ductord.model.decision import Decision, Missing
from ductord.model.effects import RecordOutput
from ductord.model.enums import EdgeType, NodeStatus, Outcome, StepType
from ductord.model.fanout import DataflowSpec, Operation
from ductord.model.fault import Fault, OutputRef
from ductord.model.inbox import AttemptReport, Inbox
from ductord.model.manifest import Edge, Manifest, Step
from ductord.model.needs import APART
from ductord.model.run import RunStart
from ductord.model.specs import ActionSpec, Expression, Template
from tests.language.documents import law
from tests.support.starts import start_of
from tests.support.world import START

_ITEMS = Expression(source="TRIGGER.payload.items", names=("TRIGGER",))


def _manifest(operation: Operation, expr: str, items: Expression, **more: Any) -> Manifest:
    each = Expression(source=expr, names=("TRIGGER",)) if expr else None
    spec = DataflowSpec(operation=operation, items=items, expr=each, **more)
    step = Step(ref="d", type=StepType.DATAFLOW, dataflow=spec)
    return Manifest(format_version=1, engine_level=4, family_slug="f", steps=(step,), entrypoints=(0,))


def _decided(
    operation: Operation, expr: str, items: Any, *, apart: bool = True, limits: Limits | None = None, **more: Any
) -> Decision | Missing:
    manifest = _manifest(operation, expr, more.pop("items_expr", _ITEMS), **more)
    start = _start(items)
    inbox = Inbox(start=start, given={APART: True} if apart else {})
    return decide(manifest, programs_for(manifest), None, inbox, START, limits or Limits())


def _start(items: Any) -> RunStart:
    return start_of(payload={"items": items})


def _output(*args: Any, **more: Any) -> Any:
    decided = _decided(*args, **more)
    assert isinstance(decided, Decision)
    assert decided.run is not None
    assert decided.run.nodes[0].fault is None
    (stored,) = [effect for effect in decided.effects if isinstance(effect, RecordOutput)]
    assert (stored.step_ref, stored.attempt, stored.action) == ("d", 1, "dataflow")
    return orjson.loads(stored.output_json)


def _fault(*args: Any, **more: Any) -> Fault:
    decided = _decided(*args, **more)
    assert isinstance(decided, Decision)
    assert decided.run is not None
    node = decided.run.nodes[0]
    assert node.status is NodeStatus.FAILED
    assert node.fault is not None
    assert not any(isinstance(effect, RecordOutput) for effect in decided.effects)
    return node.fault


numbers = st.lists(st.integers(-100, 100), max_size=300)


@law
@given(numbers)
def test_map_is_the_expression_of_each_in_order_f6(items: list[int]) -> None:
    expected = [[item * 2, index] for index, item in enumerate(items)]
    assert _output(Operation.MAP, "[ITEM * 2, INDEX]", items) == {"result": expected}


@law
@given(numbers)
def test_filter_keeps_those_of_which_it_holds_in_order_f6(items: list[int]) -> None:
    expected = [item for item in items if item % 3 == 0]
    assert _output(Operation.FILTER, "ITEM % 3 == 0", items) == {"result": expected}


@law
@given(numbers)
def test_partition_is_a_split_that_loses_nothing_and_keeps_the_order_f6(items: list[int]) -> None:
    output = _output(Operation.PARTITION, "ITEM > 0 && INDEX % 2 == 0", items)
    holds = [item > 0 and index % 2 == 0 for index, item in enumerate(items)]
    assert output["result"] == [item for item, kept in zip(items, holds, strict=True) if kept]
    assert output["rest"] == [item for item, kept in zip(items, holds, strict=True) if not kept]
    assert output["result"] == _output(Operation.FILTER, "ITEM > 0 && INDEX % 2 == 0", items)["result"]


@law
@given(numbers, st.integers(-5, 5))
def test_reduce_is_a_fold_from_the_left_f6(items: list[int], initial: int) -> None:
    output = _output(Operation.REDUCE, "ACC * 3 % 1009 + ITEM", items, initial=Template(tree=initial))
    assert output == {"result": _folded(items, initial)}


def _folded(items: list[int], acc: int) -> int:
    """In CEL a remainder has the sign of what is divided."""
    for item in items:
        product = acc * 3
        acc = (abs(product) % 1009) * (-1 if product < 0 else 1) + item
    return acc


@law
@given(numbers)
def test_project_makes_a_map_of_fields_of_each_f6(items: list[int]) -> None:
    fields = {"n": Expression(source="INDEX"), "square": Expression(source="ITEM * ITEM")}
    expected = [{"n": index, "square": item * item} for index, item in enumerate(items)]
    assert _output(Operation.PROJECT, "", items, fields=fields) == {"result": expected}
    whole = '{"n": INDEX, "square": ITEM * ITEM}'
    assert _output(Operation.PROJECT, whole, items) == {"result": expected}


@law
@given(numbers)
def test_a_map_of_a_filter_is_one_in_python_f6(items: list[int]) -> None:
    even = _output(Operation.FILTER, "ITEM % 2 == 0", items)["result"]
    assert _output(Operation.MAP, "ITEM + 1", even)["result"] == [item + 1 for item in items if item % 2 == 0]


@law
@given(st.dictionaries(st.text("abÄé𝄞 ", max_size=3), st.integers(-5, 5)))
def test_a_map_is_its_entries_in_the_order_of_the_keys_f6(items: dict[str, int]) -> None:
    expected = [{"key": key, "value": items[key]} for key in sorted(items)]
    assert _output(Operation.MAP, "ITEM", items) == {"result": expected}


@law
@given(numbers)
def test_where_it_is_decided_makes_no_difference_f6(items: list[int]) -> None:
    apart = _decided(Operation.MAP, "ITEM + INDEX", items)
    here = _decided(Operation.MAP, "ITEM + INDEX", items, apart=False)
    if len(items) > FEW:
        assert here == Missing(needs=frozenset({APART}))
    else:
        assert here == apart


@pytest.mark.parametrize("items", [None, 5, "text", True])
def test_what_is_neither_list_nor_map_fails_the_step_f6_l4(items: Any) -> None:
    fault = _fault(Operation.MAP, "ITEM", items)
    assert fault.code == "expression_error"
    assert fault.message.startswith("expression `TRIGGER.payload.items`: must be a list or a map, this is ")


def test_what_is_missing_fails_the_step_f6_l4() -> None:
    fault = _fault(Operation.MAP, "ITEM", [], items_expr=Expression(source="TRIGGER.payload.nope", names=("TRIGGER",)))
    assert fault.code == "expression_error"


def test_an_element_without_a_value_is_named_f6_l4() -> None:
    fault = _fault(Operation.MAP, "10 / ITEM", [1, 2, 0, 3])
    assert fault == Fault(code="expression_error", message="step d, element 2: expression `10 / ITEM`: divide by zero")


@pytest.mark.parametrize("operation", [Operation.FILTER, Operation.PARTITION])
def test_a_condition_is_a_bool_f6_l4(operation: Operation) -> None:
    fault = _fault(operation, "INDEX == 0 ? true : ITEM", [1, None])
    assert fault.code == "expression_error"
    assert fault.message.endswith("a condition must be a bool, this is null")
    assert fault.message.startswith("step d, element 1: ")


def test_an_element_that_takes_too_much_is_given_up_ce_05() -> None:
    loops = "ITEM.map(a, ITEM.map(b, ITEM.map(c, a + b + c))).size()"
    fault = _fault(Operation.MAP, loops, [[1], list(range(300))])
    assert fault.code == "expression_budget_exceeded"
    assert fault.message.startswith("step d, element 1: ")


def test_the_evaluators_bound_on_iterations_is_each_elements_own_ce_05_f6() -> None:
    """One comprehension over 10,000 elements stops at 10,000 iterations together; here each of 2,000 elements takes 50 of its own."""
    items = [list(range(50))] * 2_000
    assert _output(Operation.MAP, "ITEM.map(x, x + 1).size()", items) == {"result": [50] * 2_000}


def test_ten_thousand_elements_are_not_too_many_f6() -> None:
    items = list(range(MAX_ELEMENTS))
    assert _output(Operation.REDUCE, "ACC + ITEM", items, initial=Template(tree=0)) == {"result": sum(items)}
    fault = _fault(Operation.REDUCE, "ACC + ITEM", [*items, 1], initial=Template(tree=0))
    assert fault == Fault(code="collection_too_large", message="10,001 elements, the limit is 10,000")


def test_too_many_are_refused_before_any_is_evaluated_f6() -> None:
    assert _fault(Operation.MAP, "10 / ITEM", [0] * 10_001, apart=False).code == "collection_too_large"


@pytest.mark.parametrize(
    ("operation", "expr"),
    [
        (Operation.MAP, "ITEM + ITEM"),
        (Operation.MAP, "TRIGGER.payload"),
        (Operation.FILTER, "true"),
        (Operation.PARTITION, "INDEX > 3"),
        (Operation.PROJECT, '{"x": ITEM}'),
    ],
)
def test_an_output_over_the_limit_is_refused_with_the_limit_f6_l7(operation: Operation, expr: str) -> None:
    fault = _fault(operation, expr, ["x" * 100] * 20, limits=Limits(aggregate_max_bytes=1_000))
    assert fault.code == "payload_too_large"
    assert "1,000" in fault.message


def test_what_is_refused_is_not_built_first_f6_l7() -> None:
    """Ten thousand times the whole collection would be gigabytes."""
    fault = _fault(Operation.MAP, "TRIGGER.payload.items", ["x" * 100] * 10_000)
    assert fault.code == "payload_too_large"
    assert "with element 2 of 10,000" in fault.message


def test_a_reduce_begins_with_its_initial_or_null_f6() -> None:
    template = Template(tree={"n": "${{ size(TRIGGER.payload.items) }}"}, static=False, names=("TRIGGER",))
    assert _output(Operation.REDUCE, "ACC", [1, 2], initial=template) == {"result": {"n": 2}}
    assert _output(Operation.REDUCE, "ACC", []) == {"result": None}
    assert _output(Operation.REDUCE, "ACC == null ? ITEM : ACC + ITEM", ["a", "b"]) == {"result": "ab"}


def test_a_projection_is_a_map_of_each_f6_l4() -> None:
    fault = _fault(Operation.PROJECT, "ITEM", [{"a": 1}, [2]])
    assert fault.message == "step d, element 1: expression `ITEM`: must be a map, this is a list"


@pytest.mark.parametrize("expr", ["1.0 / ITEM", "ITEM / 0.0", "-1.0 / ITEM"])
def test_what_is_no_number_fails_the_step_pl_04_f6(expr: str) -> None:
    fault = _fault(Operation.MAP, expr, [0])
    assert fault.code == "expression_error"
    assert fault.message.startswith(f"step d, element 0: expression `{expr}`: its value cannot be carried")


def test_a_condition_may_settle_what_one_side_cannot_ce_02_f6() -> None:
    items = [{}, {"a": 1}, {"a": 2}]
    assert _output(Operation.FILTER, "has(ITEM.a) && ITEM.a == 1", items) == {"result": [{"a": 1}]}
    assert _output(Operation.FILTER, "ITEM.a == 1 || true", items) == {"result": items}
    assert _fault(Operation.FILTER, "ITEM.a == 1 || false", items).code == "expression_error"


def test_int_and_double_meet_as_doubles_ce_01_l5_f6() -> None:
    assert _output(Operation.MAP, "ITEM * 1.5 + INDEX", [2, 2.5]) == {"result": [3, 4.75]}
    assert _output(Operation.FILTER, "1 <= ITEM && ITEM < 2", [1, 1.5, 2]) == {"result": [1, 1.5]}


def test_data_is_never_evaluated_f6_l3() -> None:
    items = ["${{ RUN.id }}", "ITEM", {"x": "${{ 1 }}"}]
    assert _output(Operation.MAP, "ITEM", items) == {"result": items}


def test_what_the_steps_after_a_long_list_read_is_asked_for_with_its_place_f6() -> None:
    """The tick is asked again once, and evaluates once."""
    reads = Expression(source='has(STEPS["a"].output.x)', names=("STEPS",), steps=("a",))
    steps = (
        Step(ref="a", type=StepType.ACTION, outgoing=(0,), action=ActionSpec(action="core:echo")),
        Step(
            ref="d",
            type=StepType.DATAFLOW,
            incoming=(0,),
            outgoing=(1,),
            dataflow=DataflowSpec(operation=Operation.MAP, items=_ITEMS, expr=Expression(source="ITEM")),
        ),
        Step(ref="b", type=StepType.ACTION, run_if=reads, incoming=(1,), action=ActionSpec(action="core:echo")),
    )
    edges = (Edge(source=0, target=1, type=EdgeType.SUCCESS), Edge(source=1, target=2, type=EdgeType.SUCCESS))
    manifest = Manifest(format_version=1, engine_level=4, family_slug="f", steps=steps, edges=edges, entrypoints=(0,))
    programs = programs_for(manifest)
    start = _start(list(range(FEW + 1)))
    begun = decide(manifest, programs, None, Inbox(start=start), START)
    assert isinstance(begun, Decision)
    report = AttemptReport(
        step_ref="a",
        attempt=1,
        outcome=Outcome.SUCCEEDED,
        report_time=START,
        start_time=START,
        output=OutputRef(attempt=1, size=9, hash="x"),
    )
    inbox = Inbox(start=start, reports=(report,))
    lacking = decide(manifest, programs, begun.run, inbox, START)
    assert lacking == Missing(steps=frozenset({"a"}), needs=frozenset({APART}))
    inbox = Inbox(start=start, reports=(report,), given={APART: True}, outputs={"a": {"x": 1}})
    assert isinstance(decide(manifest, programs, begun.run, inbox, START), Decision)
