"""What holds the documents together: rules that are named can be looked up, limits and options are those of the code, links lead somewhere."""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import PydanticUndefined

from ductord.admin import service as admin
from ductord.dispatch import requests
from ductord.engine import document, draft_ops, moments, windows, yamltext
from ductord.engine.compile import MAX_COMPENSATING_ACTIONS, MAX_EDGES, MAX_STEPS
from ductord.engine.expressions import meter, results
from ductord.engine.expressions.check import MAX_NESTING, MAX_SOURCE_CHARS
from ductord.engine.limits import LIMITS
from ductord.engine.retry import FINAL, REFUSED
from ductord.engine.steps import event_set, human_loop
from ductord.model import jsonvalue
from ductord.model.authored import compensation, fans, waits, words
from ductord.model.fanout import MAX_CHILDREN, MAX_DEPTH
from ductord.model.starting import MAX_BACKFILL
from ductord.rpc import paging
from ductord.rpc.config import Settings
from ductord.rpc.reasons import CODES
from ductord.signals import asked as published
from ductord.signals import telling
from ductord.trigger import asked, spans
from ductord.trigger import service as trigger

ROOT = Path(__file__).resolve().parents[2]
SEMANTICS = (ROOT / "docs" / "semantics.md").read_text("utf-8")
OPERATIONS = (ROOT / "docs" / "operations.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "tests" / "scenarios" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]  # fmt: skip

SECTIONS = {"D": 5, "L": 9, "G": 9, "A": 6, "F": 6, "C": 10, "E": 6, "T": 5, "N": 4}
"""Letter of a section → its last rule."""
RULE = re.compile(r"\b([DLGAFCETN])([1-9][0-9]?)\b")
LIMITS_TABLE = {
    "a payload: input, rendered args, an output, heartbeat details": Settings().payload_max_bytes,
    "the same, still allowed": Settings().payload_warn_bytes,
    "what an expression gives": results.MAX_RESULT_BYTES,
    "a run's `output` expression": LIMITS.aggregate_max_bytes,
    "idempotency key, subject, worker, poll and queue names": Settings().key_max_bytes,
    "a request": Settings().request_max_bytes,
    "payloads of a reply": Settings().reply_max_bytes,
    "a definition's document": document.MAX_DOCUMENT_BYTES,
    "steps of a definition": MAX_STEPS,
    "edges of a definition": MAX_EDGES,
    "actions of one block of a compensation": compensation.MAX_INVERSES,
    "compensating actions of a definition": MAX_COMPENSATING_ACTIONS,
    "values of a YAML document, aliases expanded": yamltext.MAX_NODES,
    "characters of an expression": MAX_SOURCE_CHARS,
    "comprehensions inside each other": MAX_NESTING,
    "processor time of one evaluation with a loop": round(meter.BUDGET_S * 1000),
    "processor time of all expressions of a run in one tick": round(meter.DECISION_BUDGET_S * 1000),
    "rendered args of a run in one tick, together": LIMITS.inputs_max_bytes,
    "operations of one draft edit": draft_ops.MAX_OPERATIONS,
    "runs of one batch trigger": trigger.MAX_BATCH,
    "reports or heartbeats of one call": requests.MAX_BATCH,
    "labels of a run": asked.MAX_LABELS,
    "live releases of a tenant (T4)": admin.MAX_RELEASES,
    "a release's name, in bytes": admin.MAX_RELEASE_BYTES,
    "times of one backfill (T2)": MAX_BACKFILL,
    "times of one preview": spans.MAX_PREVIEW,
    "`retry_max_attempts`": words.MAX_ATTEMPTS,
    "a duration in a definition": words.MAX_DURATION_MS,
    "a moment to wait for": moments.LONGEST.days,
    "signals of a run that no step has taken": telling.MAX_KEPT,
    "words about one case, beside the one that closes it": human_loop.MOST,
    "requirements of an event set": waits.MAX_REQUIREMENTS,
    "events that an event set holds": event_set.MAX_EVENTS,
    "events of a digest's window": windows.MAX_EVENTS,
    "how long an event is kept, and its id dedupes": published.MAX_TTL_S,
    "children of one fan-out": MAX_CHILDREN,
    "inline children of a scatter that does not say": LIMITS.max_inline_children,
    "the items of one fan-out, together": LIMITS.aggregate_max_bytes,
    "what a gather, a for_each or a dataflow collects": LIMITS.aggregate_max_bytes,
    "elements of a dataflow step": MAX_CHILDREN,
    "fields of a projection": fans.MAX_FIELDS,
    "runs nested in each other": MAX_DEPTH,
    "a page of a list": paging.MAX_SIZE,
}


def _rules_of(text: str) -> set[str]:
    return {f"{letter}{number}" for letter, number in RULE.findall(text) if letter in SECTIONS}


def _entries() -> list[str]:
    """Rules with a heading of their own, and those that are named as not built."""
    return re.findall(r"^### ([A-Z]\d+) ", SEMANTICS, re.MULTILINE) + re.findall(r"\*\*([A-Z]\d+)\*\*", SEMANTICS)


def _words(path: Path) -> Iterator[str]:
    """The prose of a test: comments, docstrings and names of tests; of a story its comments."""
    text = path.read_text("utf-8")
    if path.suffix != ".py":
        yield from (line for line in text.splitlines() if line.lstrip().startswith("#"))
        return
    previous = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        begins = previous in (tokenize.NEWLINE, tokenize.INDENT, tokenize.NL, tokenize.DEDENT, tokenize.ENCODING)
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and begins):
            yield token.string
        elif token.type == tokenize.NAME and token.string.startswith("test_"):
            yield re.sub(r"_([a-z])([1-9])(?=_)", lambda m: f" {m[1].upper()}{m[2]} ", token.string)
        previous = token.type


def test_every_rule_has_one_entry() -> None:
    expected = [f"{letter}{number}" for letter, last in SECTIONS.items() for number in range(1, last + 1)]
    assert sorted(_entries()) == sorted(expected)


def test_every_rule_that_a_test_or_the_code_names_can_be_looked_up() -> None:
    known = set(_entries())
    named: dict[str, set[str]] = {}
    for folder, kinds in (("tests", ("*.py", "*.txt")), ("services", ("*.py", "*.sql"))):
        for kind in kinds:
            for path in (ROOT / folder).rglob(kind):
                for rule in _rules_of(" ".join(_words(path) if kind == "*.py" else [path.read_text("utf-8")])):
                    named.setdefault(rule, set()).add(str(path.relative_to(ROOT)))
    assert len(named) > 30, "the search itself finds something"
    assert {rule: paths for rule, paths in named.items() if rule not in known} == {}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for text, target in re.findall(r"\[([^\]]*)\]\(([^)\s]+)\)", path.read_text("utf-8")):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        file, _, anchor = target.partition("#")
        found = (path.parent / file).resolve() if file else path
        assert found.exists(), f"{path.name}: [{text}]({target})"
        if anchor and found.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", found.read_text("utf-8"), re.MULTILINE)
            assert anchor in {_anchor(heading) for heading in headings}, f"{path.name}: [{text}]({target})"


def test_where_to_start_reading_exists() -> None:
    section = README[README.index("## Where to start reading") :]
    assert len(re.findall(r"^\| \[", section, re.MULTILINE)) >= 8
    folder = ROOT / "services" / "ductord"
    for row in re.findall(r"^\| (\[.*?) \|", section, re.MULTILINE):
        [target] = re.findall(r"\]\(([^)]+)\)", row)
        assert (ROOT / target).exists(), row
        for name in re.findall(r"`([\w.]+)`", row):
            near = (ROOT / target).parent
            assert any((place / name).exists() for place in (near, folder / "db", folder)), f"{name} in {row}"


def test_the_options_are_those_of_the_code() -> None:
    """Names and defaults, and every option that any document mentions."""
    rows = re.findall(r"^\| `(DUCTOR_\w+)` \|(.*?)\|", OPERATIONS, re.MULTILINE)
    told = {option: default.strip() for option, default in rows}
    wanted = {f"DUCTOR_{name.upper()}": _written(field.default) for name, field in Settings.model_fields.items()}
    assert told == wanted
    outside = {"DUCTOR_TENANT_ID", "DUCTOR_TARGET", "DUCTOR_QUEUE", "DUCTOR_TEST_POSTGRES"}
    for path in DOCUMENTS:
        for option in re.findall(r"\bDUCTOR_[A-Z_]*[A-Z]\b", path.read_text("utf-8")):
            assert option in set(wanted) | outside, f"{option} in {path.name}"


def test_the_limits_are_those_of_the_code() -> None:
    """L7."""
    section = SEMANTICS[SEMANTICS.index("### L7") : SEMANTICS.index("### L8")]
    told = dict(re.findall(r"^\| (.+?) \| ([\d,]+(?: MiB| KiB)?)", section, re.MULTILINE))
    assert {what: _size(value) for what, value in told.items() if what in LIMITS_TABLE} == LIMITS_TABLE
    assert set(told) - set(LIMITS_TABLE) == {"iterations of one evaluation"}, "which the evaluator brings along"
    assert f"nesting deeper than {jsonvalue.MAX_DEPTH}" in SEMANTICS


def test_the_lists_of_codes_are_those_of_the_code() -> None:
    """A2, and every reason or code in capitals that the rule book mentions."""
    section = SEMANTICS[SEMANTICS.index("### A2") : SEMANTICS.index("### A3")]
    assert set(re.findall(r"`(\w+)`", section)) >= FINAL | REFUSED
    known = "\n".join(path.read_text("utf-8") for path in (ROOT / "services").rglob("*.py"))
    for word in set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", SEMANTICS)) - set(CODES):
        assert word in known or word.startswith("DUCTOR_"), word


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _written(default: Any) -> str:
    assert default is not PydanticUndefined
    text = str(default).lower() if isinstance(default, bool) else str(default)
    return f"`{text}`" if text else ""


def _size(text: str) -> int:
    number, _, unit = text.partition(" ")
    return int(number.replace(",", "")) * {"": 1, "KiB": 1 << 10, "MiB": 1 << 20}[unit]


def test_no_document_holds_half_a_merge() -> None:
    """Markers of a conflict; code that holds some does not parse, but nothing else looks at prose and manifests."""
    words = (
        *DOCUMENTS,
        *ROOT.glob("*.md"),
        *(ROOT / "clients").glob("*.md"),
        *(ROOT / "clients").glob("*/*.md"),
        ROOT / "Makefile",
    )
    for path in (*words, *(ROOT / "k8s").rglob("*.yaml"), *(ROOT / "ops").rglob("*.yaml")):
        assert not re.search(r"^(<{7}|>{7}) ", path.read_text("utf-8"), re.MULTILINE), path
