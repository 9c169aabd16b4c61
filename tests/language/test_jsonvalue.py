"""What JSON the product carries, and what it refuses with a path (rulings L5, L6, L7; PL-01, PL-03, PL-04, PL-06, CE-07)."""

import datetime
import decimal
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ductord.model import jsonvalue
from ductord.model.errors import PayloadInvalid
from tests.language.documents import law


def refusal(text: str | bytes, **options: Any) -> tuple[str, str]:
    with pytest.raises(PayloadInvalid) as caught:
        jsonvalue.parse(text, **options)
    return caught.value.reason, caught.value.path


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5.0", 5),
        ("[5.0, -0.0, 5e0, 0.5]", [5, 0, 5, 0.5]),
        ('{"id":9007199254740993}', {"id": 9007199254740993}),
        ('{"id":9007199254740993.0}', {"id": 9007199254740993}),
        ('{"id":9223372036854775807,"low":-9223372036854775808}', {"id": 2**63 - 1, "low": -(2**63)}),
        ("-9223372036854775808.0", -(2**63)),
        ("[1e17]", [10**17]),
        ("9007199254740992.5", 2**53),
        ('{"at":"12:30:45","u":"a:b"}', {"at": "12:30:45", "u": "a:b"}),
        (r'{"\u003a":"\u003A", "b": ":"}', {":": ":", "b": ":"}),
        (r'"\ud83d\ude00"', "😀"),
        (r'"\\u0000"', r"\u0000"),
        (" null ", None),
    ],
)
def test_text_doors_carry_every_int64_exactly_pl_03_l5(text: str, value: Any) -> None:
    parsed = jsonvalue.parse(text)
    assert parsed == value
    assert json.dumps(parsed) == json.dumps(value)  # 5 and 5.0 are equal but not the same text


@pytest.mark.parametrize(
    ("text", "reason", "path"),
    [
        ('{"id":1,"big":18446744073709551616}', "integer_range", "input.big"),
        ('{"big":9223372036854775808}', "integer_range", "input.big"),
        ('{"big":-9223372036854775809}', "integer_range", "input.big"),
        ('{"big":[1,9223372036854775808.0]}', "integer_range", "input.big[1]"),
        ('{"big":1e30}', "integer_range", "input.big"),
        ('{"x":NaN}', "nan", "input.x"),
        ('{"x":[-Infinity]}', "nan", "input.x[0]"),
        ('{"x":1e999}', "nan", "input.x"),
        ('{"a":"x\\u0000y"}', "nul", "input.a"),
        ('{"k\\u0000":1}', "nul", 'input["k\\u0000"]'),
        ('{"a":["\\ud800"]}', "surrogate", "input.a[0]"),
        ('{"a":{"b":1,"b":2}}', "duplicate_key", "input.a.b"),
        ('{"a":1,"a":{"x":":"}}', "duplicate_key", "input.a"),
        (r'{"a":":","\u0061":"\u003a"}', "duplicate_key", "input.a"),
        ("[" * 33 + "]" * 33, "too_deep", "input" + "[0]" * 32),
        ("[" * 100_000 + "]" * 100_000, "too_deep", "input"),
        ('{"a":1,}', "not_json", "input"),
        ("", "not_json", "input"),
        ("01", "not_json", "input"),
        ('"a\tb"', "not_json", "input"),
        (b'"\xff"', "not_json", "input"),
        (b"\xef\xbb\xbf1", "not_json", "input"),
        ("9" * 900_000, "integer_range", "input"),
        ("9" * 900_000 + ".5", "nan", "input"),
    ],
)
def test_unrepresentable_text_is_refused_with_its_path_pl_01_pl_03_pl_04(text: str, reason: str, path: str) -> None:
    assert refusal(text, root="input") == (reason, path)


def test_a_text_of_thirty_two_levels_passes_l6() -> None:
    assert jsonvalue.parse("[" * 32 + "]" * 32)
    assert jsonvalue.normalise(jsonvalue.parse('{"a":' * 31 + "[]" + "}" * 31))


def test_too_large_names_size_and_limit_pl_06() -> None:
    text = json.dumps("é" * 600_000, ensure_ascii=False)
    with pytest.raises(PayloadInvalid, match=r"input is 1,200,002 bytes, the limit is 1,048,576") as caught:
        jsonvalue.parse(text, root="input")
    assert caught.value.reason == "too_large"
    with pytest.raises(PayloadInvalid, match="output is 20,000,002 bytes"):
        jsonvalue.encode("x" * 20_000_000, root="output")
    assert jsonvalue.parse(text, max_bytes=None)


@pytest.mark.parametrize(
    ("value", "reason", "path"),
    [
        ({"x": float("nan")}, "nan", "x"),
        ({"x": [float("inf")]}, "nan", "x[0]"),
        ({"k\0": 1}, "nul", '["k\\u0000"]'),
        ({"a": "\ud800"}, "surrogate", "a"),
        ({"a": 2**63}, "integer_range", "a"),
        ({"a": 2.0**63}, "integer_range", "a"),
        ({"d": datetime.date(2026, 1, 2)}, "not_json", "d"),
        ({"d": decimal.Decimal("1.1")}, "not_json", "d"),
        ({1: "a"}, "not_json", ""),
        (b"bytes", "not_json", ""),
        ({"a": {"b c": [0, "\0"]}}, "nul", 'a["b c"][1]'),
    ],
)
def test_values_that_are_no_json_are_typed_errors_ce_07_pl_04(value: Any, reason: str, path: str) -> None:
    with pytest.raises(PayloadInvalid) as caught:
        jsonvalue.encode(value)
    assert (caught.value.reason, caught.value.path) == (reason, path)


def test_a_cyclic_value_ends_as_too_deep() -> None:
    ring: list[Any] = []
    ring.append(ring)
    with pytest.raises(PayloadInvalid, match="nested more than 32 deep"):
        jsonvalue.normalise(ring)


def test_struct_doors_refuse_integers_that_a_double_may_have_rounded_l5() -> None:
    assert jsonvalue.normalise({"a": 2.0**53 - 1}, struct=True) == {"a": 2**53 - 1}
    assert jsonvalue.normalise({"a": 2.0**53}) == {"a": 2**53}
    for rounded in (2.0**53, -(2.0**53), 1e300):
        with pytest.raises(PayloadInvalid, match="_json` twin or a string") as caught:
            jsonvalue.normalise({"a": rounded}, root="input", struct=True)
        assert (caught.value.reason, caught.value.path) == ("integer_range", "input.a")


def test_messages_never_quote_the_payload() -> None:
    with pytest.raises(PayloadInvalid) as caught:
        jsonvalue.parse('{"password":"hunter2\\u0000"}', root="input")
    assert "hunter2" not in caught.value.message


def test_error_text_becomes_storable_pl_01() -> None:
    text = jsonvalue.storable_text("\x00boom \ud800 é\n")
    assert text == "\\u0000boom \\ud800 é\n"
    assert jsonvalue.storable(text)
    assert not jsonvalue.storable("a\0")
    assert jsonvalue.storable_text("x" * 5000).endswith("… (1,000 more characters)")


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(-1e15, 1e15)
    | st.text(":ab\\é\"'😀{}[]0\n"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(":ab\\é", max_size=3), inner, max_size=4),
    max_leaves=20,
)


@law
@given(json_values, st.booleans(), st.sampled_from([None, 2]))
def test_both_gears_agree_and_what_is_written_reads_the_same(value: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    parsed = jsonvalue.parse(text)
    normal = jsonvalue.normalise(value)
    assert json.dumps(parsed) == json.dumps(normal)
    assert jsonvalue.parse(jsonvalue.dumps(normal)) == normal
    assert jsonvalue.encode(value) == jsonvalue.dumps(parsed)


member_lists = st.lists(st.tuples(st.sampled_from(["a", "b", ":", "\\u003a"]), json_values), max_size=4)


@law
@given(member_lists, st.booleans())
def test_a_duplicate_key_is_never_swallowed(members: list[tuple[str, Any]], nested: bool) -> None:
    text = "{" + ",".join(f'"{key}":{json.dumps(value)}' for key, value in members) + "}"
    names = [json.loads(f'"{key}"') for key, _ in members]
    if nested:
        text = f'[{{"x":{text}}},":"]'
    if len(set(names)) == len(names):
        jsonvalue.parse(text)
    else:
        assert refusal(text)[0] == "duplicate_key"
