"""JSON Schema: what is a schema, what a value is told, and that neither an author's pattern nor a reference can hold up or misuse the process."""

import time

import pytest

from ductord.model.schemas import MAX_FAULTS, Schema, SchemaInvalid


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ({"type": "strin"}, "type"),
        ({"properties": {"a": {"minLength": -1}}}, "properties.a.minLength"),
        ({"pattern": "("}, "pattern"),
        ({"allOf": [{"type": 5}]}, "allOf[0].type"),
        ({"$ref": "#/$defs/missing"}, ""),
        ({"$ref": "http://127.0.0.1:1/x"}, ""),
        ({"$ref": "file:///etc/passwd"}, ""),
        ({"$schema": "http://example.com/my-dialect"}, ""),
        ("type", ""),
        (None, ""),
    ],
)
def test_what_is_no_schema(source: object, path: str) -> None:
    """The place is named; a reference out of the document is refused and never followed."""
    with pytest.raises(SchemaInvalid) as caught:
        Schema(source)
    assert caught.value.path == path
    assert caught.value.message


def test_faults_name_the_place_and_the_rule_and_not_the_value() -> None:
    """Every fault has a path from the root, a keyword and a message without the value."""
    schema = Schema({"required": ["a"], "properties": {"b": {"items": {"type": "integer"}}, "c": {"enum": [1]}}})
    assert schema.faults({"a": 1, "b": [1, 2]}, root="input") == ()
    faults = schema.faults({"b": [1, "secret"], "c": "secret"}, root="input")
    assert {(f.path, f.keyword) for f in faults} == {("input", "required"), ("input.b[1]", "type"), ("input.c", "enum")}
    assert "secret" not in "".join(f.message for f in faults)


def test_integers_are_judged_exactly() -> None:
    """L5: 64-bit integers are not rounded on the way."""
    assert Schema({"const": 9007199254740993}).faults(9007199254740992)
    assert not Schema({"maximum": 9223372036854775807}).faults(9223372036854775807)


def test_a_value_that_is_wrong_everywhere() -> None:
    """So many faults are named, and the rest is not even looked for."""
    assert len(Schema({"items": {"type": "string"}}).faults([1] * 100_000)) == MAX_FAULTS


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(?=a)(a+)+\\1?$", "^(a|a?)+\\1(?=b)c$"])
def test_no_pattern_holds_up_the_process(pattern: str) -> None:
    """Nested repetition, look-ahead and back-reference are bounded: what takes too many steps does not match."""
    schema = Schema({"pattern": pattern})
    begin = time.process_time()
    assert schema.faults("a" * 50_000 + "b")
    assert time.process_time() - begin < 1


def test_recursion_and_dialects() -> None:
    """References inside the document work, recursive ones too; `$schema` picks the dialect."""
    tree = Schema({"properties": {"kids": {"items": {"$ref": "#"}}, "n": {"type": "integer"}}})
    assert tree.faults({"kids": [{"kids": [{"n": "x"}]}]})[0].path == "kids[0].kids[0].n"
    assert not Schema({"$schema": "http://json-schema.org/draft-07/schema#", "type": "string"}).faults("x")
