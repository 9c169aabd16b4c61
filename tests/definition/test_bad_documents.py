"""Hostile and broken documents, and ids that are none (YM-01 to YM-03, AP-05, PG-09)."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.definition.client import Definitions, refused

pytestmark = pytest.mark.asyncio(loop_scope="module")

HEAD = "type: workflow_definition\ndefinition:\n  family_slug: a\n"
STEP = "    - {ref: a, type: action, action: noop:noop}\n"
BOMB = "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{name}: &{name} [{','.join(['*' + before] * 9)}]\n" for before, name in pairwise("abcdefghi")
)

DOCUMENTS: dict[str, tuple[str, str]] = {
    # text → the code of a violation, where it is settled
    "malformed": ("type: [", "YAML_SYNTAX"),
    "JSON that stops": ('{"type": "workflow_definition"', ""),
    "nothing": ("", ""),
    "no envelope": (f"family_slug: a\nsteps:\n{STEP}", "MISSING_FIELD"),
    "an unknown field": (f"{HEAD}  stepps: []\n  steps:\n{STEP}", "UNKNOWN_FIELD"),
    "a key twice": (f"{HEAD}  steps: []\n  steps: []\n", "DUPLICATE_KEY"),
    "a ref that is a number": (f"{HEAD}  steps:\n{STEP.replace('ref: a', 'ref: 1.10')}", "WRONG_TYPE"),
    "a tag": ("type: !!python/object:os.system x\n", ""),
    "an alias bomb": (BOMB, ""),
    "a cycle of aliases": ("a: &x [*x]\n", ""),
    "a merge key": ("type: workflow_definition\nx: &x {a: 1}\ndefinition:\n  <<: *x\n", ""),
    "too deep": ("a: " + "[" * 100 + "]" * 100, ""),
    "too large": ("#" * (1 << 20) + "\n", "DOCUMENT_TOO_LARGE"),
}


@pytest.mark.parametrize("case", DOCUMENTS)
async def test_hostile_and_broken_documents(nothing_written: str, definitions: Definitions, case: str) -> None:
    """YM-01 to YM-03: judged within a second, with the place of the fault; nothing is written."""
    text, code = DOCUMENTS[case]
    verdict = await definitions.validate(document=text)
    assert not verdict.valid
    assert verdict.violations
    assert all(v.code and v.message for v in verdict.violations)
    assert all(v.line >= 1 and v.column >= 1 for v in verdict.violations)
    if code:
        assert code in [v.code for v in verdict.violations]


Call = Callable[[Definitions, str], Any]
BY_ID: dict[str, Call] = {
    "get": lambda d, i: d.get(i),
    "update": lambda d, i: d.update(i, 1),
    "delete": lambda d, i: d.delete_draft(i),
    "publish": lambda d, i: d.publish(i),
    "archive": lambda d, i: d.archive(i),
    "duplicate": lambda d, i: d.duplicate(i, "copy"),
    "validate": lambda d, i: d.validate(id=i),
    "export": lambda d, i: d.export(i),
}


@pytest.mark.parametrize("rpc", BY_ID)
async def test_ids_that_are_none(nothing_written: str, definitions: Definitions, rpc: str) -> None:
    """PG-09: whatever stands for an id, the answer is NOT_FOUND or a named field, never an error of the server."""
    unknown = await refused(BY_ID[rpc](definitions, "01234567-89ab-7def-8123-456789abcdef"))
    assert (unknown.code, unknown.reason, unknown.metadata) == ("NOT_FOUND", "DEFINITION_NOT_FOUND", {})
    for text in (
        "x",
        "x" * 129,
        "x" * 50_000,
        " a ",
        "ä",
        "..",
        "a/b",
        "a:b",
        "%00",
        "1",
        nothing_written + "\n",
        "{" + nothing_written + "}",
    ):
        refusal = await refused(BY_ID[rpc](definitions, text))
        assert (refusal.code, refusal.reason, refusal.message) == (unknown.code, unknown.reason, unknown.message)
    for text in ("", "nul\0"):
        refusal = await refused(BY_ID[rpc](definitions, text))
        assert (refusal.code, refusal.metadata["field"]) == ("INVALID_ARGUMENT", "id")
