"""JSON Schema: what is a schema, what a value is told, and that neither an author's pattern nor a reference can hold up or misuse the process."""

import time

import pytest

from ductord.model.schemas import MAX_FAULTS, Schema, SchemaInvalid
from tests.language.documents import doubling


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
    assert time.process_time() - begin < 10


def test_recursion_and_dialects() -> None:
    """References inside the document work, recursive ones too; `$schema` picks the dialect."""
    tree = Schema({"properties": {"kids": {"items": {"$ref": "#"}}, "n": {"type": "integer"}}})
    assert tree.faults({"kids": [{"kids": [{"n": "x"}]}]})[0].path == "kids[0].kids[0].n"
    assert not Schema({"$schema": "http://json-schema.org/draft-07/schema#", "type": "string"}).faults("x")


def test_ce_05_a_schema_that_would_judge_for_ever_judges_nothing() -> None:
    """Forty definitions, each of which refers twice to the next: one value kept a process of everybody's busy until it was killed."""
    begin = time.process_time()
    (fault,) = Schema(doubling(40)).faults({}, root="input")
    assert (fault.path, fault.keyword) == ("input", "size")
    assert Schema(doubling(40)).endless
    assert Schema(doubling(40_000)).endless
    assert time.process_time() - begin < 25
    assert not Schema(doubling(10)).endless
    assert Schema(doubling(10)).faults({}) == ()


def test_ce_05_what_a_schema_may_do_depends_on_how_much_it_is_given() -> None:
    """A schema that is dear for one element is refused many, and takes few."""
    schema = Schema({"items": doubling(12), "$defs": doubling(12)["$defs"]})
    assert schema.faults([{}] * 10) == ()
    (fault,) = schema.faults([{}] * 100_000, root="input.rows")
    assert (fault.path, fault.keyword) == ("input.rows", "size")


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {
            "$defs": {"n": {"properties": {"left": {"$ref": "#/$defs/n"}, "right": {"$ref": "#/$defs/n"}}}},
            "$ref": "#/$defs/n",
        },
        {"$defs": {"x": {"$anchor": "here", "anyOf": [{"type": "object"}, {"$ref": "#here"}]}}, "$ref": "#here"},
        {"properties": {f"p{n}": {"type": "string", "pattern": "^a+$", "enum": ["a", "b"]} for n in range(1_000)}},
        {"oneOf": [{"properties": {"kind": {"const": n}}, "required": ["kind"]} for n in range(20)]},
        {"allOf": [{"properties": {"a": True}}], "unevaluatedProperties": {"type": ["array", "object", "string"]}},
        {"properties": {"code": {"enum": [f"c{n}" for n in range(2_000)]}}},
    ],
    ids=["itself", "tree", "anchor", "wide", "kinds", "unevaluated", "codes"],
)
def test_honest_schemas_take_a_payload_of_any_size(schema: dict[str, object]) -> None:
    """Recursion, many properties and alternatives are what schemas are for: the largest payload is judged."""
    value = {"kind": 1, "p1": "a", "code": "c7", "rest": [0] * 300_000}
    assert "size" not in [fault.keyword for fault in Schema(schema).faults(value)]
