"""Reasons, codes and their wire form; the contract's list and the code held together."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.rpc import code_pb2, error_details_pb2

from ductor.workflow.v1.error_reason_pb2 import ErrorReason
from ductord.model.errors import PayloadInvalid, Refusal, Violation
from ductord.rpc import errors
from ductord.rpc.reasons import CODES

ROOT = Path(__file__).parents[2]
PROTO = ROOT / "proto/ductor/workflow/v1/error_reason.proto"
COMMENT = re.compile(
    r"// (?P<text>.+?) Code: (?P<code>[A-Z_]+)\. Metadata: (?P<keys>[a-z_, ]+)\.\n  ERROR_REASON_(?P<reason>\w+) = \d+;"
)


def contract() -> dict[str, tuple[str, frozenset[str]]]:
    """Reason → (code, metadata keys), as the contract's comments say."""
    return {
        m["reason"]: (m["code"], frozenset(() if m["keys"] == "none" else m["keys"].split(", ")))
        for m in COMMENT.finditer(PROTO.read_text("utf-8"))
    }


def test_every_reason_of_the_contract_documents_code_and_metadata() -> None:
    names = {name.removeprefix("ERROR_REASON_") for name in ErrorReason.keys()} - {"UNSPECIFIED"}  # noqa: SIM118  # an enum wrapper
    assert set(contract()) == names
    assert {reason: code for reason, (code, _) in contract().items()} == CODES
    assert all(code in code_pb2.Code.keys() for code in CODES.values())  # noqa: SIM118


def used() -> Iterator[tuple[str, int, str, str, frozenset[str]]]:
    """(file, line, reason, code or "", metadata keys) of every refusal that the sources make with literal words."""
    for path in (ROOT / "services").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            words = [a.value if isinstance(a, ast.Constant) and isinstance(a.value, str) else None for a in node.args]
            where = (str(path.relative_to(ROOT)), node.lineno)
            if name == "refused" and words and words[0]:
                keys = frozenset(
                    k.arg for k in node.keywords if k.arg and k.arg not in ("violations", "retry_after_ms", "message")
                )
                yield (*where, words[0], "", keys)
            elif name == "Refusal" and len(words) > 1 and words[1]:
                given = next((k.value for k in node.keywords if k.arg == "metadata"), None)
                literal = (
                    [str(k.value) for k in given.keys if isinstance(k, ast.Constant)]
                    if isinstance(given, ast.Dict)
                    else []
                )
                yield (*where, words[1], words[0] or "", frozenset(literal))


def test_every_reason_that_the_sources_use_is_in_the_contract_with_its_code_and_metadata() -> None:
    known = contract()
    found = list(used())
    assert len(found) > 10
    wrong = [
        f"{path}:{line} {reason} {code} {sorted(keys)}"
        for path, line, reason, code, keys in found
        if reason not in known or (code and code != known[reason][0]) or not keys <= known[reason][1]
    ]
    assert not wrong


def test_a_refusal_survives_the_wire() -> None:
    refusal = errors.refused(
        "PAYLOAD_INVALID",
        "input.a is NaN",
        field="input",
        path="input.a",
        problem="nan",
        retry_after_ms=1234,
        violations=[Violation(code="NAN", message="is NaN", path="input.a", line=3, column=7)],
    )
    back = errors.refusal_of_status(errors.to_status(refusal, request_id="r"))
    assert (back.code, back.reason, back.message, back.metadata, back.retry_after_ms) == (
        refusal.code, refusal.reason, refusal.message, refusal.metadata, 1234,
    )  # fmt: skip
    assert [(v.code, v.path, v.message) for v in back.violations] == [("NAN", "input.a", "line 3, column 7: is NaN")]


def test_payload_faults_name_field_path_and_limit() -> None:
    invalid = errors.of_payload(PayloadInvalid("nul", "items[2].input.a", "holds a NUL"))
    assert (invalid.reason, invalid.metadata) == (
        "PAYLOAD_INVALID",
        {"field": "items", "path": "items[2].input.a", "problem": "nul"},
    )
    large = errors.of_payload(PayloadInvalid("too_large", "input", "is large", limit_bytes=1 << 20))
    assert (large.reason, large.metadata) == ("PAYLOAD_TOO_LARGE", {"field": "input", "limit_bytes": "1048576"})


def test_pl_01_error_texts_are_escaped_and_cut() -> None:
    status = errors.to_status(Refusal("INVALID_ARGUMENT", "FIELD_INVALID", "\0" * 5_000, metadata={"field": "\ud800"}))
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert info.metadata["field"] == "\\ud800"
    assert status.message.startswith("\\u0000")
    assert status.ByteSize() < errors.BUDGET


def test_a_status_stays_in_its_budget_whatever_the_violations() -> None:
    violations = [Violation(code="X" * 40, message="é" * 1000, path="p" * 1000) for _ in range(1000)]
    for code in ("INVALID_ARGUMENT", "FAILED_PRECONDITION"):
        refusal = Refusal(code, "DEFINITION_INVALID", "many", violations=violations)
        assert errors.to_status(refusal).ByteSize() <= errors.BUDGET + 100
        assert len(errors.refusal_of_status(errors.to_status(refusal)).violations) >= 2


@pytest.mark.parametrize(
    ("value", "budget"),
    [
        ("100000", 100_000),
        ("1", errors.BUDGET),
        ("999999999", errors.BUDGET),
        ("x", errors.BUDGET),
        ("99999999", errors.LARGEST_BUDGET),
    ],
)
def test_a_client_says_how_much_it_takes(value: str, budget: int) -> None:
    assert errors.budget_of([("x", "y"), (errors.BUDGET_KEY, value)]) == budget
    assert errors.budget_of(None) == errors.BUDGET
