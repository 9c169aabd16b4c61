"""The doors for texts: what YAML and JSON may say, and where a fault stands (ruling L1; YM-01, YM-02, YM-03)."""

import json
import time
import tracemalloc
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ductord.engine.document import read_document
from ductord.engine.jsontext import read_json
from ductord.engine.positions import Place
from ductord.engine.yamltext import read_yaml
from ductord.model import jsonvalue
from ductord.model.errors import PayloadInvalid
from tests.language.documents import law

Door = Literal["yaml", "json"]


def told(text: str | bytes, door: Door = "yaml") -> list[tuple[str, int | None, int | None]]:
    return [(found.code, found.line, found.column) for found in read_document(text, door=door).violations]


def test_yaml_words_keep_their_type_ym_01() -> None:
    """YAML 1.2 core: only its own words are null, booleans and numbers; dates and times stay strings."""
    text = """
country: no
on: off
at: 12:30:45
day: 2026-01-02
n: 1e3
v: 017
o: 0o17
h: 0x1F
f: 1.50
i: -0
e:
t: ~
y: True
q: "true"
s: 1_000
p: +.5
"""
    read = read_yaml(text)
    assert read.violations == ()
    assert read.value == {
        "country": "no",
        "on": "off",
        "at": "12:30:45",
        "day": "2026-01-02",
        "n": 1000,
        "v": 17,
        "o": 15,
        "h": 31,
        "f": 1.5,
        "i": 0,
        "e": None,
        "t": None,
        "y": True,
        "q": "true",
        "s": "1_000",
        "p": 0.5,
    }
    assert type(read.value["n"]) is int


def test_duplicate_keys_name_both_lines_ym_02() -> None:
    text = "type: workflow_definition\ndefinition:\n  steps: []\n  title: x\n  steps: []\n"
    (violation,) = read_document(text).violations
    assert (violation.code, violation.line, violation.column) == ("DUPLICATE_KEY", 5, 3)
    assert "`steps` is given twice, first in line 3" in violation.message
    assert told('{"type": "workflow_definition",\n "definition": {},\n "definition": {}}', "json") == [
        ("DUPLICATE_KEY", 3, 2)
    ]


def test_keys_that_are_no_strings_are_refused_ym_02() -> None:
    read = read_yaml('args:\n  1: a\n  "1": b\n  true: c\n  ~: d\n  ? [x]\n  : e\n')
    assert [(found.code, found.line) for found in read.violations] == [
        ("YAML_KEY_NOT_STRING", line) for line in (2, 4, 5, 6)
    ]
    assert read.value == {"args": {"1": "b"}}
    assert "key `1` is not a string: quote it" in read.violations[0].message


def alias_bomb(levels: int = 8, width: int = 9) -> str:
    lines = ["a0: &a0 [" + ", ".join(["x"] * width) + "]"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} [" + ", ".join([f"*a{level - 1}"] * width) + "]")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (alias_bomb(), "DOCUMENT_TOO_LARGE"),
        ("a: &x [*x]", "YAML_CYCLE"),
        ("a: &x {b: {c: *x}}", "YAML_CYCLE"),
        (
            "\n".join(["m0: &m0 {a: 1}"] + [f"m{n}: &m{n} {{<<: [*m{n - 1}, *m{n - 1}]}}" for n in range(1, 19)]),
            "YAML_MERGE_KEY",
        ),
        ("[" * 50_000, "DOCUMENT_TOO_DEEP"),
        ("{a: " * 50_000, "DOCUMENT_TOO_DEEP"),
        (
            "x: &a [[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]\ny: [[[[[[[[[[[[[[[[[[[[*a]]]]]]]]]]]]]]]]]]]]",
            "DOCUMENT_TOO_DEEP",
        ),
        ("[" + "a, " * 200_000 + "]", "DOCUMENT_TOO_LARGE"),
        ("x: " + "y" * 2_000_000, "DOCUMENT_TOO_LARGE"),
    ],
)
def test_bombs_end_early_ym_03(text: str, code: str) -> None:
    begin = time.process_time()
    violations = read_document(text).violations
    assert time.process_time() - begin < 15
    assert code in [found.code for found in violations]


def test_bombs_stay_small_ym_03() -> None:
    tracemalloc.start()
    read_document(alias_bomb())
    read_document("[" * 50_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50 << 20


def test_a_modest_alias_is_what_it_names() -> None:
    read = read_yaml("x: &x {a: [1, &s str]}\ny: *x\nz: *s\n*s : k\n")
    assert read.violations == ()
    assert read.value == {"x": {"a": [1, "str"]}, "y": {"a": [1, "str"]}, "z": "str", "str": "k"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: !!python/object:os.system x", [("YAML_TAG", 1, 4)]),
        ("a: !!str 1", [("YAML_TAG", 1, 4)]),
        ("a: !!binary eA==\nb: !x {c: 1}", [("YAML_TAG", 1, 4), ("YAML_TAG", 2, 4)]),
        (
            "a: .nan\nb: [.inf, 1e999, 9223372036854775808]",
            [("NUMBER_OUT_OF_RANGE", 1, 4), *[("NUMBER_OUT_OF_RANGE", 2, column) for column in (5, 11, 18)]],
        ),
        ("a: " + "9" * 100_000, [("NUMBER_OUT_OF_RANGE", 1, 4)]),
    ],
)
def test_values_that_json_cannot_hold(text: str, expected: Any) -> None:
    assert [(found.code, found.line, found.column) for found in read_yaml(text).violations] == expected


@pytest.mark.parametrize(
    ("text", "code", "line", "column"),
    [
        ("a: [1", "YAML_SYNTAX", 1, 6),
        ("a: b: c", "YAML_SYNTAX", 1, 5),
        ("a: 1\n\tb: 2", "YAML_SYNTAX", 2, 1),
        ("a: 1\nb: \x01", "YAML_SYNTAX", 2, 4),
        ("a: *nope", "YAML_SYNTAX", 1, 4),
        ("a: 1\n---\nb: 2", "MULTIPLE_DOCUMENTS", 2, 1),
        ("%YAML 1.1\n---\na: 1", "YAML_SYNTAX", 2, 1),
        ("", "DOCUMENT_EMPTY", 1, 1),
        ("# nothing\n", "DOCUMENT_EMPTY", 1, 1),
        (b"a: 1\nb: \xff", "DOCUMENT_ENCODING", 2, 1),
        ("[1, 2]", "WRONG_TYPE", 1, 1),
        ("text", "WRONG_TYPE", 1, 1),
    ],
)
def test_texts_that_are_no_document(text: str | bytes, code: str, line: int, column: int) -> None:
    assert (code, line, column) in told(text)


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ('{"a": 1,}', 1, 9),
        ('{"a": 1\n "b": 2}', 2, 2),
        ("{'a': 1}", 1, 2),
        ('{"a" 1}', 1, 6),
        ('{"a": "x\n"}', 1, 9),
        ('{"a": tru}', 1, 7),
        ('{"a": 01}', 1, 8),
        ('{"a": 1} x', 1, 10),
        ("", 1, 1),
    ],
)
def test_broken_json_names_the_place(text: str, line: int, column: int) -> None:
    assert told(text, "json") == [("JSON_SYNTAX", line, column)]


def test_the_envelope_is_named_when_it_is_missing() -> None:
    violations = read_document("family_slug: x\nsteps: []\n").violations
    assert [(found.code, found.path) for found in violations] == [
        ("MISSING_FIELD", "type"),
        ("MISSING_FIELD", "definition"),
        ("UNKNOWN_FIELD", "family_slug"),
        ("UNKNOWN_FIELD", "steps"),
    ]
    assert "stand under `definition:`" in violations[0].message
    assert (
        "did you mean `definition`?" in read_document("type: workflow_definition\ndefinitoin: {}").violations[1].message
    )
    assert told("type: workflow\ndefinition: {}") == [("UNKNOWN_DOCUMENT_TYPE", 1, 1)]


def test_positions_reach_into_strings() -> None:
    text = 'type: workflow_definition\ndefinition:\n  plain: abc def\n  quoted: "abc def"\n  block: |\n    abc\n    def\n  escaped: "a\\u0062c"\n'
    positions = read_document(text).positions
    assert positions is not None
    assert positions.key(("plain",)) == Place(3, 3)
    assert positions.value(("plain",)) == Place(3, 10)
    assert positions.inside(("plain",), "abc def", 4) == Place(3, 14)
    assert positions.inside(("quoted",), "abc def", 4) == Place(4, 16)
    assert positions.inside(("block",), "abc\ndef\n", 5) == Place(7, 6)
    assert positions.inside(("escaped",), "abc", 2) == Place(8, 12), "an escape moves columns: the start is told"
    assert positions.value(("plain", "nothing", 3)) == Place(3, 10), "the nearest thing above what is not there"


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(-1e9, 1e9) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@law
@given(values, st.sampled_from([None, 2]), st.booleans())
def test_json_reads_alike_at_every_door(value: Any, indent: int | None, ascii_only: bool) -> None:
    """A JSON text means the same to the request's parser, to the file's and to YAML (which JSON is a subset of)."""
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    normal = jsonvalue.normalise(json.loads(text)) if jsonvalue.storable(text) and "\\u0000" not in text else None
    if normal is None:
        return
    assert jsonvalue.parse(text) == normal
    assert read_json(text).value == normal


@law
@given(st.text('{}[]:,"\\ \n0123456789.eE-+trufalsn/x', max_size=24))
def test_the_two_json_readers_accept_the_same_texts(text: str) -> None:
    try:
        expected = jsonvalue.parse(text)
    except PayloadInvalid:
        assert read_json(text).violations != ()
    else:
        read = read_json(text)
        assert read.violations == ()
        assert read.value == expected


@law
@given(st.text(max_size=40) | st.text("-:[]{}&*!|>'\"%#? \n\tab01", max_size=40))
def test_no_text_raises(text: str) -> None:
    read_document(text)
    read_document(text, door="json")
