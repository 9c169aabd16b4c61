"""What is wrong with a definition, and what of it stops what (ruling L1).

`engine.compile` finds everything. A publish takes nothing that is wrong. A draft may be unfinished: a step without its action, an edge without its
step, an expression without sense are warnings there. It may not be what no later edit could address or the model cannot say: a step without a
ref, two of one ref, a name or number outside of its bounds, more than fits. Compiling runs in a thread of its own, one definition at a time, so
that a large one does not hold up every other call of the process. One thing `engine.compile` cannot know, as it depends on where a definition is published:
whether event patterns may have wildcards (T3).
"""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from ductord.engine.compile import compile_definition, manifest_hash
from ductord.engine.document import ReadDocument, read_document
from ductord.engine.positions import Path, Positions, dotted
from ductord.model import jsonvalue
from ductord.model.errors import Refusal, Violation
from ductord.model.jsonvalue import JSON
from ductord.model.manifest import Manifest
from ductord.rpc.errors import refused

_FATAL_TO_DRAFTS: Final = frozenset(
    {
        "DUPLICATE_CHECKPOINT",
        "DUPLICATE_EDGE",
        "DUPLICATE_STEP_REF",
        "DUPLICATE_TRIGGER_ID",
        "INVALID_LENGTH",
        "INVALID_NAME",
        "INVALID_OVERLAP_POLICY",
        "MAX_EDGE_COUNT_EXCEEDED",
        "MAX_STEP_COUNT_EXCEEDED",
        "OUT_OF_RANGE",
        "UNKNOWN_EDGE_TYPE",
        "UNKNOWN_FIELD",
        "UNKNOWN_STEP_TYPE",
        "UNKNOWN_TRIGGER_TYPE",
        "UNKNOWN_VALUE",
        "WRONG_TYPE",
    }
)
_IDENTITIES: Final = frozenset({"ref", "source_ref", "target_ref", "id", "name"})
"""Fields that may not even be missing in a draft: edits find the part by them. So is the definition's own `family_slug`, though not that of a child."""
_DISABLED: Final = "WILDCARDS_DISABLED"
_NO_DOCUMENT: Final = Violation(
    code="WRONG_TYPE", message="a document is a map with `type` and `definition`", line=1, column=1
)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`violations` stop a publish, `warnings` do not. Without violations there are a manifest and (unless nobody asked) its hash. `wildcard`: the first pattern
    with one, where they are off."""

    violations: tuple[Violation, ...]
    warnings: tuple[Violation, ...] = ()
    manifest: Manifest | None = None
    manifest_hash: str = ""
    wildcard: str = ""

    @property
    def valid(self) -> bool:
        """Whether it would publish."""
        return self.manifest is not None

    @property
    def told(self) -> tuple[Violation, ...]:
        """What the author of a draft should know."""
        return (*self.violations, *self.warnings)

    def publishable(self) -> Manifest:
        """The manifest to freeze. Raises DEFINITION_INVALID with every violation; WILDCARDS_DISABLED when that is all that is wrong."""
        if self.manifest is None:
            if all(violation.code == _DISABLED for violation in self.violations):
                first = self.violations[0]
                raise refused(
                    _DISABLED,
                    f"{first.path}: {first.message}",
                    violations=self.violations,
                    field=first.path,
                    pattern=self.wildcard,
                )
            raise _invalid(self.violations)
        return self.manifest

    def refuse_draft(self) -> None:
        """Raise DEFINITION_INVALID with every violation that not even a draft may have."""
        fatal = [violation for violation in self.violations if _is_fatal(violation)]
        if fatal:
            raise _invalid(fatal)


class Judge:
    """Judges definitions; `wildcards`: event patterns may have them. `close` it at the end."""

    def __init__(self, *, max_bytes: int, wildcards: bool) -> None:
        self._max_bytes = max_bytes
        self._wildcards = wildcards
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="definition-judge")

    async def judge(self, document: JSON, *, hashed: bool = True) -> Verdict:
        """The verdict over a definition's tree. Raises `PayloadInvalid` (`too_large`) for one beyond the limit of a payload (L7).

        Hashing a large manifest takes as long as compiling it: a draft's verdict does without.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._judge, document, hashed)

    async def judge_text(self, text: str) -> Verdict:
        """The verdict over a definition file's text, YAML or JSON; its violations have line and column. Never raises for what the text says."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._judge_text, text)

    async def close(self) -> None:
        """Let the definition at hand end."""
        self._thread.shutdown(cancel_futures=True)

    def _judge(self, document: JSON, hashed: bool) -> Verdict:
        size = len(jsonvalue.dumps(document).encode())
        if size > self._max_bytes:
            raise jsonvalue.too_large(size, self._max_bytes, "definition")
        return self._verdict(document, hashed)

    def _judge_text(self, text: str) -> Verdict:
        read = _read(text)
        if read.definition is None:
            return Verdict(violations=read.violations or (_NO_DOCUMENT,))
        return self._verdict(read.definition, True, read)

    def _verdict(self, document: JSON, hashed: bool, read: ReadDocument | None = None) -> Verdict:
        """`read`: where it was read from, with what is wrong with the text."""
        found = compile_definition(document, positions=read.positions if read else None)
        off = {} if self._wildcards else dict(_wildcards(document, read.positions if read else None))
        wrong = (*(read.violations if read else ()), *found.errors, *off)
        if wrong or found.manifest is None:
            return Verdict(violations=wrong, warnings=found.warnings, wildcard=next(iter(off.values()), ""))
        return Verdict(
            violations=(),
            warnings=found.warnings,
            manifest=found.manifest,
            manifest_hash=manifest_hash(found.manifest) if hashed else "",
        )


def _wildcards(document: JSON, positions: Positions | None) -> Iterator[tuple[Violation, str]]:
    """Each with its pattern. The tree may be anything: what is wrong with it otherwise is found elsewhere."""
    triggers = document.get("triggers")
    for number, trigger in enumerate(triggers if isinstance(triggers, list) else ()):
        patterns = trigger.get("patterns") if isinstance(trigger, dict) else None
        for place, pattern in enumerate(patterns if isinstance(patterns, list) else ()):
            if isinstance(pattern, str) and pattern.endswith(".*"):
                path: Path = ("triggers", number, "patterns", place)
                at = positions.value(path) if positions else None
                message = (
                    "patterns with a wildcard are switched off: name each event, or have "
                    "ductor.events.wildcards.enabled (DUCTOR_EVENTS_WILDCARDS_ENABLED) switched on"
                )
                line, column = at or (None, None)
                yield Violation(code=_DISABLED, message=message, path=dotted(path), line=line, column=column), pattern


def _read(text: str) -> ReadDocument:
    """JSON is YAML too, though slower and with other words for a fault: a text that looks like JSON is read as such if it can be."""
    if text.lstrip("\ufeff \t\r\n").startswith("{"):
        read = read_document(text, door="json")
        if read.definition is not None:
            return read
    return read_document(text)


def _is_fatal(violation: Violation) -> bool:
    if violation.code == "MISSING_FIELD":
        return violation.path == "family_slug" or violation.path.rpartition(".")[2] in _IDENTITIES
    return violation.code in _FATAL_TO_DRAFTS or violation.code.startswith("PAYLOAD_")


def _invalid(violations: tuple[Violation, ...] | list[Violation]) -> Refusal:
    first, count = violations[0], len(violations)
    more = "" if count == 1 else f", and {count - 1:,} more"
    message = f"the definition is not valid: {first.path and first.path + ': '}{first.message}{more}"
    return refused("DEFINITION_INVALID", message, violations=violations, violation_count=count)
