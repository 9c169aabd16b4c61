"""The doors for files and texts: YAML or JSON in, the definition's plain tree and its positions out (ruling L1).

A door says whether the text can be read and whether it is a `type: workflow_definition` envelope; what the definition means is judged by
`engine.compile`. Violations of the text do not stop the reading where a value can still be told, so that all are reported at once.
"""

from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple

from ductord.engine.jsontext import read_json
from ductord.engine.positions import Positions
from ductord.engine.suggest import suggestion
from ductord.engine.yamltext import read_yaml
from ductord.model.definition import DOCUMENT_TYPE
from ductord.model.errors import Violation

MAX_DOCUMENT_BYTES: Final = 1 << 20
_ENVELOPE: Final = ("type", "definition")


class ReadDocument(NamedTuple):
    """`definition` is the tree under `definition:`, None when there is none to judge; `positions` are those of that tree."""

    definition: dict[str, Any] | None
    positions: Positions | None
    violations: tuple[Violation, ...]


def read_document(text: str | bytes, *, door: Literal["yaml", "json"] = "yaml") -> ReadDocument:
    """Read a document. Never raises for what the text says; bytes are UTF-8."""
    size = len(text) if isinstance(text, bytes) else len(text.encode(errors="surrogatepass"))
    if size > MAX_DOCUMENT_BYTES:
        message = f"document is {size:,} bytes, maximum is {MAX_DOCUMENT_BYTES:,}"
        return _unread(Violation(code="DOCUMENT_TOO_LARGE", message=message, line=1, column=1))
    try:
        decoded = text.decode() if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        message = f"document is not UTF-8 at byte {error.start}"
        return _unread(Violation(code="DOCUMENT_ENCODING", message=message, line=line, column=1))
    decoded = decoded.removeprefix("\ufeff")
    read = read_json(decoded) if door == "json" else read_yaml(decoded)
    if read.root is None:
        return ReadDocument(None, None, read.violations)
    positions = Positions(decoded, read.root)
    violations = (*read.violations, *_envelope_violations(read.value, positions))
    definition = read.value.get("definition") if isinstance(read.value, dict) else None
    if not isinstance(definition, dict):
        return ReadDocument(None, None, violations)
    return ReadDocument(definition, positions.under("definition"), violations)


def _unread(violation: Violation) -> ReadDocument:
    return ReadDocument(None, None, (violation,))


def _envelope_violations(document: Any, positions: Positions) -> Iterable[Violation]:
    if not isinstance(document, dict):
        yield _violation(
            "WRONG_TYPE", f"a document is a map with `type: {DOCUMENT_TYPE}` and `definition:`", (), positions
        )
        return
    if "type" not in document:
        hint = "; the fields of the definition stand under `definition:`" if "family_slug" in document else ""
        yield _violation("MISSING_FIELD", f"`type: {DOCUMENT_TYPE}` is missing{hint}", ("type",), positions)
    elif document["type"] != DOCUMENT_TYPE:
        yield _violation("UNKNOWN_DOCUMENT_TYPE", f"`type` must be `{DOCUMENT_TYPE}`", ("type",), positions)
    if not isinstance(document.get("definition"), dict):
        code = "WRONG_TYPE" if "definition" in document else "MISSING_FIELD"
        yield _violation(code, "`definition` must be a map", ("definition",), positions)
    for key in document:
        if key not in _ENVELOPE:
            message = f"unknown field `{key[:64]}`{suggestion(key, _ENVELOPE)}"
            yield _violation("UNKNOWN_FIELD", message, (key,), positions)


def _violation(code: str, message: str, path: tuple[str, ...], positions: Positions) -> Violation:
    place = positions.key(path)
    return Violation(code=code, message=message, path=".".join(path), line=place.line, column=place.column)
