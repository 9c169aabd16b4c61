"""The publish-time judgement of one expression: syntax, types, names, reads, limits (rulings L3, CE-04, CE-05).

Takes a source and the place it stands in, gives the manifest's `Expression` or everything that is wrong with it, each fault with its
offset in the source. Never evaluates.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from cel_expr_python import cel

from ductord.engine.expressions import wire
from ductord.engine.expressions.environment import MEMBERS, OF_ELEMENT, ORIGIN_MEMBERS, STEP_MEMBERS, Site
from ductord.engine.expressions.program import compile_source
from ductord.engine.expressions.reads import Facts, Read
from ductord.engine.suggest import suggestion
from ductord.model.jsonvalue import storable
from ductord.model.specs import Expression

MAX_SOURCE_CHARS: Final = 4_096
MAX_NESTING: Final = 3
"""Comprehensions inside comprehensions. The parser itself stops at 32 nested operators."""

_COMPILE_ERROR: Final = re.compile(
    r"^(?:[A-Z_]+: )?ERROR: <input>:(-?\d+):(-?\d+): (.*?)(?: \[[A-Z_]+\])?$", re.MULTILINE
)
_UNDECLARED: Final = re.compile(r"undeclared reference to '([^']*)'(?: \(in container ''\))?")
_TOKENS_EXPECTED: Final = re.compile(r",? expecting \{.*")
_MIXED_COMPARISON: Final = re.compile(
    r"no matching overload for '_(?:<|>|<=|>=|==|!=)_' applied to '\((?:int, double|double, int)\)'"
)

_ELSEWHERE: Final = {
    "ITEM": "; it has one in the `args` and the `input` of children and, per element, in a dataflow",
    "INDEX": "; it has one in the `args` and the `input` of children and, per element, in a dataflow",
    "ACC": "; it has one in the `expr` of a `reduce`",
    "OUTPUT": "; it has one in `result_expr`, in a compensation and in the `output` of a subworkflow",
    "EVENT": "; it has one in the filters of events and in the `input` of an event trigger",
}
"""The way out for a name that stands where it means nothing."""


class Scope(NamedTuple):
    """What a place may read. `reachable`: the step's ancestors (all steps for the run's output); `steps`: every step of the definition;
    `variables`: the names that `VARS` declares."""

    site: Site
    reachable: frozenset[str]
    steps: frozenset[str]
    variables: frozenset[str]


class Fault(NamedTuple):
    """One thing wrong with an expression. `offset` counts code points from its start."""

    code: str
    message: str
    offset: int
    warning: bool = False


class Checked(NamedTuple):
    """`expression` is None exactly when a fault is no warning. `variables`: the names it reads of `VARS`; none beside a read of `VARS` means that
    it may read any. `reads_origin`: it reads a member of `TRIGGER` that older levels of behaviour do not have."""

    expression: Expression | None
    faults: tuple[Fault, ...]
    variables: frozenset[str] = frozenset()
    reads_origin: bool = False


def check(source: str, scope: Scope, *, boolean: bool = False, collections: tuple[str, ...] = ()) -> Checked:
    """Judge `source` in its place. `boolean`: it is a condition, and must be a bool as far as its type is known. `collections`: it gives items, which are
    one of these (`list`, `map`); of what is known to be something else is warned, since whether it is reached is not known."""
    if len(source) > MAX_SOURCE_CHARS:
        message = f"expression has {len(source):,} characters, maximum is {MAX_SOURCE_CHARS:,}"
        return _refused(Fault("EXPRESSION_TOO_LONG", message, 0))
    if not storable(source):
        message = "expression holds a NUL character or a lone surrogate"
        return _refused(Fault("EXPRESSION_SYNTAX", message, max(source.find("\0"), 0)))
    try:
        compiled = compile_source(source, per_element=not scope.site.value.isdisjoint(OF_ELEMENT))
    except wire.Nested:
        return _refused(Fault("EXPRESSION_TOO_DEEP", "expression is nested too deep", 0))
    except RuntimeError as error:
        return _refused(*_compile_faults(str(error), source))
    offsets = {node: _past_dot(source, offset) for node, offset in compiled.offsets.items()}
    found = compiled.facts
    faults = [
        *_language_faults(found, offsets, compiled.type if boolean else None),
        *_name_faults(found.reads, offsets, scope),
        *_collection_faults(compiled.type, collections),
    ]
    if any(not fault.warning for fault in faults):
        return Checked(None, tuple(faults))
    names = tuple(sorted({read.root for read in found.reads}))
    expression = Expression(source=source, names=names, steps=_steps_read(found.reads, scope))
    return Checked(expression, tuple(faults), _variables_read(found.reads), _reads_origin(found.reads))


def _refused(*faults: Fault) -> Checked:
    return Checked(None, faults)


def _past_dot(source: str, offset: int) -> int:
    """A selected field stands behind the dot that the parser remembers."""
    return offset + 1 if source[offset : offset + 1] == "." else offset


def _compile_faults(report: str, source: str) -> list[Fault]:
    if "recursion" in report:
        return [Fault("EXPRESSION_TOO_DEEP", "expression is nested deeper than 32 operators", 0)]
    faults = []
    for line, column, message in _COMPILE_ERROR.findall(report):
        offset = _offset(source, int(line), int(column))
        undeclared = _UNDECLARED.match(message)
        if undeclared is not None:
            name = undeclared.group(1)
            hint = suggestion(name.split(".")[0], MEMBERS)
            faults.append(
                Fault("UNKNOWN_NAME", f"`{name[:100]}` is not declared{hint}", _start_of(name, source, offset))
            )
        elif "Syntax error" in message or "Invalid" in message:
            text = _TOKENS_EXPECTED.sub("", message.removeprefix("Syntax error: "))
            faults.append(Fault("EXPRESSION_SYNTAX", text, offset))
        else:
            hint = "; wrap one side in double(…)" if _MIXED_COMPARISON.search(message) else ""
            faults.append(Fault("EXPRESSION_TYPE", message + hint, offset))
    return faults or [Fault("EXPRESSION_SYNTAX", report.splitlines()[0][:300], 0)]


def _offset(source: str, line: int, column: int) -> int:
    """Code points before a 1-based line and column; 0 where the compiler knows no place."""
    if line < 1 or column < 1:
        return 0
    lines = source.split("\n")
    return min(sum(len(text) + 1 for text in lines[: line - 1]) + column - 1, len(source))


def _start_of(name: str, source: str, offset: int) -> int:
    """The compiler points at a call's parenthesis and at a path's last dot: go back to where the name begins."""
    start = source.rfind(name, 0, offset + len(name))
    return start if start >= 0 else offset


def _language_faults(found: Facts, offsets: Mapping[int, int], condition: Any) -> Iterable[Fault]:
    for node, message in found.faults:
        yield Fault("EXPRESSION_SYNTAX", message, offsets.get(node, 0))
    if found.nesting > MAX_NESTING:
        message = f"comprehensions are nested {found.nesting} deep, maximum is {MAX_NESTING}"
        yield Fault("EXPRESSION_TOO_DEEP", message, 0)
    if condition is not None and condition != cel.Type.BOOL and condition != cel.Type.DYN:
        yield Fault("NOT_BOOLEAN", f"a condition must be a bool, this is {condition.name().lower()}", 0)


def _collection_faults(given: Any, collections: tuple[str, ...]) -> Iterable[Fault]:
    name = given.name().lower()
    if collections and given != cel.Type.DYN and not name.startswith(collections):
        message = f"the step will fail: its items must be a {' or a '.join(collections)}, this is {name}"
        yield Fault("NOT_A_LIST", message, 0, warning=True)


def _name_faults(reads: Iterable[Read], offsets: Mapping[int, int], scope: Scope) -> Iterable[Fault]:
    for read in reads:
        if read.root not in scope.site.value:
            message = f"{read.root} has no value here{_ELSEWHERE.get(read.root, '')}"
            yield Fault("NAME_NOT_AVAILABLE", message, offsets.get(read.ids[0], 0))
        elif read.keys:
            yield from _member_faults(read, offsets, scope)


def _member_faults(read: Read, offsets: Mapping[int, int], scope: Scope) -> Iterable[Fault]:
    key = read.keys[0]
    offset = offsets.get(read.ids[1], 0)
    if read.root == "STEPS":
        if key not in scope.steps:
            yield Fault("UNKNOWN_STEP_REF", f"no step is named `{key}`{suggestion(str(key), scope.steps)}", offset)
        elif key not in scope.reachable:
            message = f"step `{key}` does not run before this place; an expression reads ancestors only"
            yield Fault("STEP_NOT_ANCESTOR", message, offset)
        elif len(read.keys) > 1 and read.keys[1] not in STEP_MEMBERS:
            member = read.keys[1]
            message = f'STEPS["{key}"] has no `{member}`{suggestion(str(member), STEP_MEMBERS)}'
            yield Fault("UNKNOWN_NAME", message, offsets.get(read.ids[2], offset))
    elif read.root == "VARS":
        if key not in scope.variables:
            hint = suggestion(str(key), scope.variables)
            message = f"variable `{key}` is not declared: no environment can give it a value{hint}"
            yield Fault("UNDECLARED_VARIABLE", message, offset, warning=True)
    else:
        members = scope.site.members(read.root)
        if members is not None and key not in members:
            message = f"{read.root} has no `{key}`{suggestion(str(key), members)}"
            yield Fault("UNKNOWN_NAME", message, offset)


def _variables_read(reads: Iterable[Read]) -> frozenset[str]:
    mentions = [read.keys for read in reads if read.root == "VARS"]
    return frozenset(str(keys[0]) for keys in mentions) if all(mentions) else frozenset()


def _reads_origin(reads: Iterable[Read]) -> bool:
    return any(read.root == "TRIGGER" and read.keys and read.keys[0] in ORIGIN_MEMBERS for read in reads)


def _steps_read(reads: Iterable[Read], scope: Scope) -> tuple[str, ...]:
    """Refs in sorted order; a computed `STEPS[x]` may read any step that may be read here."""
    refs: set[str] = set()
    for read in reads:
        if read.root == "STEPS":
            refs |= {str(read.keys[0])} if read.keys else scope.reachable
    return tuple(sorted(refs))
