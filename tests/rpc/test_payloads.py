"""Struct doors and text doors carry the same values, exactly or not at all (rulings L5, L6, L7)."""

import math
from typing import Any

import orjson
import pytest
from google.protobuf import json_format
from google.protobuf.struct_pb2 import Struct, Value
from hypothesis import given, settings
from hypothesis import strategies as st

from ductor.workflow.v1.common_pb2 import PayloadFormat
from ductor.workflow.v1.run_pb2 import RunDetail
from ductor.workflow.v1.workflow_trigger_service_pb2 import TriggerWorkflowRequest, TriggerWorkflowResponse
from ductord.model import jsonvalue
from ductord.model.errors import PayloadInvalid, Refusal
from ductord.rpc.payloads import (
    EXACT,
    JSON_FORMAT,
    fill_payload,
    from_struct,
    payload_of,
    to_struct,
    to_value,
    warn_above,
)

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
numbers = st.integers(-EXACT + 1, EXACT - 1) | st.floats(allow_nan=False, allow_infinity=False).filter(
    lambda f: not f.is_integer()
)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda v: st.lists(v, max_size=4) | st.dictionaries(texts, v, max_size=4),
    max_leaves=20,
)


@settings(deadline=None, max_examples=200)
@given(values)
def test_a_value_comes_back_as_it_went(value: Any) -> None:
    message = Value.FromString(to_value(value).SerializeToString())
    back = from_struct(message)
    assert back == value
    assert jsonvalue.dumps(back) == ordered(value), "and its keys are sorted: a protobuf map has no order"


@settings(deadline=None, max_examples=100)
@given(values)
def test_both_doors_give_the_same_value_l5(value: Any) -> None:
    text = ordered(value)
    by_text = payload_of(TriggerWorkflowRequest(input_json=text), "input")
    by_struct = payload_of(TriggerWorkflowRequest(input=to_value(value)), "input")
    assert by_text == by_struct
    assert by_text is not None
    assert by_text.text == text


@settings(deadline=None, max_examples=100)
@given(values.filter(lambda v: v is not None))
def test_conversion_agrees_with_protobufs_own(value: Any) -> None:
    theirs = json_format.Parse(jsonvalue.dumps(value), Value())
    assert to_value(value) == theirs


def test_pl_03_integers_above_2_53_are_exact_or_refused() -> None:
    text = '{"id":9007199254740993,"low":-9223372036854775808}'
    exact = payload_of(TriggerWorkflowRequest(input_json=text), "input")
    assert exact is not None
    assert exact.text == text
    for door, field in (
        (TriggerWorkflowRequest(input_json='{"big":18446744073709551616}'), "input_json.big"),
        (struct(9007199254740993.0), "input.big"),
    ):
        with pytest.raises(PayloadInvalid) as refused:
            payload_of(door, "input")
        assert (refused.value.reason, refused.value.path) == ("integer_range", field)
    largest = payload_of(struct(float(EXACT - 1)), "input")
    assert largest is not None
    assert largest.value == {"big": EXACT - 1}
    assert type(largest.value["big"]) is int


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_pl_04_nan_and_infinity_are_refused_with_their_path(number: float) -> None:
    with pytest.raises(PayloadInvalid) as refused:
        payload_of(struct(number), "input", root="items[1]")
    assert (refused.value.reason, refused.value.path) == ("nan", "items[1].input.big")
    for literal in ("NaN", "1e999", "-Infinity"):
        with pytest.raises(PayloadInvalid) as refused:
            payload_of(TriggerWorkflowRequest(input_json=f'{{"x":{literal}}}'), "input")
        assert (refused.value.reason, refused.value.path) == ("nan", "input_json.x")


def test_pl_01_nul_in_a_key_and_in_a_text() -> None:
    bad = TriggerWorkflowRequest()
    bad.input.struct_value.fields["k\0"].number_value = 1
    with pytest.raises(PayloadInvalid) as refused:
        payload_of(bad, "input")
    assert refused.value.reason == "nul"


def test_one_of_a_field_and_its_twin() -> None:
    assert payload_of(TriggerWorkflowRequest(), "input") is None
    null = payload_of(TriggerWorkflowRequest(input_json="null"), "input")
    assert null is not None
    assert null.value is None
    assert payload_of(TriggerWorkflowRequest(input=Value()), "input") == null, "a Value without a kind is null"
    with pytest.raises(Refusal) as both:
        payload_of(TriggerWorkflowRequest(input_json="1", input=to_value(1)), "input", root="items[0]")
    assert (both.value.reason, both.value.metadata) == (
        "FIELDS_EXCLUSIVE",
        {"field": "items[0].input", "other_field": "items[0].input_json"},
    )


def test_l6_depth_is_32_on_both_doors() -> None:
    deep: Any = 1
    for _ in range(32):
        deep = {"a": [deep][0]}
    assert payload_of(TriggerWorkflowRequest(input=to_value(deep)), "input") == payload_of(
        TriggerWorkflowRequest(input_json=jsonvalue.dumps(deep)), "input"
    )
    request = TriggerWorkflowRequest(input=to_value([deep]))
    with pytest.raises(PayloadInvalid) as refused:
        payload_of(request, "input")
    assert refused.value.reason == "too_deep"
    # The wire form of what is allowed is read by every protobuf with the usual limit of 100 levels.
    answer = RunDetail(input=to_value(deep))
    assert RunDetail.FromString(answer.SerializeToString()) == answer


def test_l7_the_limit_counts_bytes_of_the_json_text() -> None:
    assert payload_of(TriggerWorkflowRequest(input=to_value("ä" * 49)), "input", max_bytes=100)
    for request in (
        TriggerWorkflowRequest(input=to_value("ä" * 50)),
        TriggerWorkflowRequest(input_json='"' + "ä" * 50 + '"'),
    ):
        with pytest.raises(PayloadInvalid) as refused:
            payload_of(request, "input", max_bytes=100)
        assert (refused.value.reason, refused.value.limit_bytes) == ("too_large", 100)


def test_l7_a_large_payload_is_noted(caplog: pytest.LogCaptureFixture) -> None:
    warn_above(10)
    try:
        assert payload_of(TriggerWorkflowRequest(input=to_value("x" * 8)), "input")
        assert not caplog.records
        assert payload_of(TriggerWorkflowRequest(input=to_value("secret" * 2)), "input", root="items[1]")
        assert payload_of(TriggerWorkflowRequest(input_json='"secretsecret"'), "input")
    finally:
        warn_above(jsonvalue.WARN_PAYLOAD_BYTES)
    assert [r.getMessage().split(" is ")[0] for r in caplog.records] == ["items[1].input", "input_json"]
    assert "secret" not in caplog.text


def test_answers_give_the_twin_when_asked_and_when_a_struct_would_round() -> None:
    assert PayloadFormat.PAYLOAD_FORMAT_JSON == JSON_FORMAT
    for text, payload_format, twin in (
        ('{"a": 1}', 0, False),
        ('{"a": 1}', 1, False),
        ('{"a": 1}', 2, True),
        ("[9007199254740993]", 0, True),
        ("null", 0, False),
    ):
        run = RunDetail()
        fill_payload(run, "input", text, payload_format)
        assert run.HasField("input_json") is twin, text
        assert run.HasField("input") is not twin, text
    untouched = RunDetail()
    fill_payload(untouched, "input", None, 0)
    assert untouched == RunDetail()
    outputs = TriggerWorkflowResponse()
    fill_payload(outputs, "response_group_output", "{}", 0)
    assert outputs.HasField("response_group_output")
    fill_payload(outputs, "response_group_output", '{"a": {"b": 1.5}}', 0)
    assert json_format.MessageToDict(outputs.response_group_output) == {"a": {"b": 1.5}}


def test_what_a_double_would_round_is_never_put_in_a_struct() -> None:
    with pytest.raises(PayloadInvalid):
        to_value([EXACT])
    with pytest.raises(PayloadInvalid):
        to_struct({"a": -EXACT - 1})
    assert to_struct({"a": 1}) == Struct(fields={"a": Value(number_value=1)})


def ordered(value: Any) -> str:
    """The JSON text of a value with its keys sorted."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def struct(number: float) -> TriggerWorkflowRequest:
    """A request whose input is `{"big": number}` by the Struct door."""
    request = TriggerWorkflowRequest()
    request.input.struct_value.fields["big"].number_value = number
    return request
