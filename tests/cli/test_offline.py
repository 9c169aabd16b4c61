"""`ductor workflow validate | schema | graph`: offline, every violation with file, line and column (AP-05 and the spec's «Validate offline»)."""

import json
from pathlib import Path

import jsonschema_rs
import pytest

from ductord.engine.document import read_document
from tests.support.dev import EXAMPLES, invoke

BAD = """\
type: workflow_definition
definition:
  family_slug: bad
  steps:
    - ref: a
      type: action
      action: noop:nop
      run_if: STEPS["nobody"].status == "succeeded"
    - ref: a
      type: bridge
      colour: red
  edges:
    - {source_ref: a, target_ref: z, type: success}
"""


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    """A file with a fault of every pass."""
    path = tmp_path / "bad.yaml"
    path.write_text(BAD)
    return path


def test_the_examples_are_valid() -> None:
    """Exit code 0, a line each."""
    files = [str(path) for path in sorted(EXAMPLES.glob("*.yaml"))]
    code, output, errors = invoke("workflow", "validate", *files)
    assert (code, errors) == (0, "")
    assert [line.split(": ")[0] for line in output.splitlines()] == files


def test_every_violation_has_its_place(bad: Path) -> None:
    """All of them, in the order of the lines, `file:line:column: error: …`; exit code 1, and a valid file beside it is still judged."""
    code, output, errors = invoke("workflow", "validate", str(bad), str(EXAMPLES / "hello_world.yaml"))
    assert (code, errors) == (1, "")
    lines = output.splitlines()
    places = [line.removeprefix(f"{bad}:").split(": ")[0] for line in lines[:-1]]
    assert places == sorted(places, key=lambda place: tuple(map(int, place.split(":"))))
    assert f"{bad}:8:21: error: no step is named `nobody` [UNKNOWN_STEP_REF] at steps[0].run_if" in lines
    for code_, line in (
        ("UNKNOWN_ACTION", 7),
        ("DUPLICATE_STEP_REF", 9),
        ("STEP_TYPE_NOT_SUPPORTED", 10),
        ("DANGLING_EDGE", 13),
    ):
        assert any(text.startswith(f"{bad}:{line}:") and code_ in text for text in lines), code_
    assert lines[-1].endswith("valid  hello_world, 2 steps, 1 edge")


def test_the_same_for_machines(bad: Path) -> None:
    """`--json`: a document per call, violations with code, path, line and column."""
    code, output, errors = invoke("workflow", "validate", str(bad), "--json")
    assert (code, errors) == (1, "")
    [found] = json.loads(output)["data"]
    assert (found["file"], found["valid"], found["manifest_hash"]) == (str(bad), False, "")
    assert all({"code", "message", "line", "column"} <= violation.keys() for violation in found["violations"])
    code, output, _ = invoke("workflow", "validate", "-", "--json", input_=(EXAMPLES / "order.yaml").read_text())
    [found] = json.loads(output)["data"]
    assert (code, found["valid"], len(found["manifest_hash"]), found["violations"]) == (0, True, 64, [])


@pytest.mark.parametrize(
    ("text", "violation"),
    [
        ("", "DOCUMENT_EMPTY"),
        ("a: [", "YAML_SYNTAX"),
        ("- 1\n- 2\n", "WRONG_TYPE"),
        ("type: workflow_definition\ntype: x\n", "DUPLICATE_KEY"),
        ("type: workflow_definition\ndefinition: !!python/object:os.system {}\n", "YAML_TAG"),
        (
            "a: &a [x, x]\nb: &b [*a, *a]\n"
            + "".join(f"{c}: &{c} [{', '.join(['*' + chr(ord(c) - 1)] * 9)}]\n" for c in "cdefghij"),
            "DOCUMENT_TOO_LARGE",
        ),
    ],
)
def test_malformed_and_hostile_texts(text: str, violation: str) -> None:
    """YM-01 to YM-03: told with their place, never a traceback, at once."""
    code, output, errors = invoke("workflow", "validate", "-", input_=text)
    assert (code, errors) == (1, "")
    assert violation in output
    assert output.startswith("<stdin>:")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """Named, exit code 1, whatever is wrong."""
    (tmp_path / "latin.yaml").write_bytes(b"title: caf\xe9\n")
    for name, text in (("none.yaml", "No such file"), (".", "directory"), ("latin.yaml", "UTF-8")):
        code, output, errors = invoke("workflow", "validate", str(tmp_path / name))
        assert (code, output) == (1, "")
        assert text in errors


def test_the_schema_accepts_the_examples_and_no_misspelling() -> None:
    """Ruling L1: editors complete and check files by it."""
    code, output, _ = invoke("workflow", "schema")
    assert code == 0
    schema = json.loads(output)
    validator = jsonschema_rs.Draft202012Validator(schema)
    for path in EXAMPLES.glob("*.yaml"):
        definition = read_document(path.read_text()).definition
        document = {"type": "workflow_definition", "definition": definition}
        assert list(validator.iter_errors(document)) == []
        document["definitions"] = definition
        assert list(validator.iter_errors(document))


def test_the_graph_as_mermaid(bad: Path) -> None:
    """A flowchart of a valid file; the violations of one that is not, and exit code 1."""
    code, output, errors = invoke("workflow", "graph", str(EXAMPLES / "order.yaml"))
    assert (code, errors, output.splitlines()[0]) == (0, "", "flowchart TD")
    assert "check" in output
    _, output, _ = invoke("workflow", "graph", str(EXAMPLES / "document_pipeline.yaml"))
    assert '[/"read<br/>scatter core:echo, 4 at once<br/>over TRIGGER.payload.pages"\\]' in output
    assert '[["publish<br/>subworkflow document_publish"]]' in output
    code, output, errors = invoke("workflow", "graph", str(bad))
    assert (code, output) == (1, "")
    assert "UNKNOWN_ACTION" in errors
