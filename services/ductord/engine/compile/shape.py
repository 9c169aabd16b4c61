"""From a plain tree to the definition model, with every fault of shape as a coded violation (ruling L1).

A fault in one place must not hide those in others. So what is wrong is reported and cut out, and the rest goes on to the rules about the
graph: a wrong optional field is dropped, a part without what it cannot do without is dropped whole. What a cut definition compiles to is never
published.
"""

from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ValidationError

from ductord.engine.compile.features import without_later_features
from ductord.engine.compile.findings import Findings, path_of
from ductord.engine.positions import Path
from ductord.engine.steps import SUPPORTED
from ductord.engine.suggest import suggestion
from ductord.model import jsonvalue
from ductord.model.definition import (
    PARTS,
    TYPE_OBJECTS,
    CheckpointDefinition,
    Definition,
    EdgeDefinition,
    StepDefinition,
    TriggerDefinition,
)
from ductord.model.enums import StepType
from ductord.model.errors import PayloadInvalid

MAX_STEPS: Final = 500
MAX_EDGES: Final = 5_000

_LISTS: Final[dict[str, type[BaseModel]]] = {
    "steps": StepDefinition,
    "edges": EdgeDefinition,
    "triggers": TriggerDefinition,
    "checkpoints": CheckpointDefinition,
}
_PATTERNED: Final = {
    "family_slug": "lower-case letters, digits, - and _, beginning with a letter or digit, at most 128",
    "ref": "letters, digits, _ . and -, beginning with a letter or _, at most 128",
    "action": "`provider:action` or `provider.resource.action`",
    "wait_for": "`terminal`, or `checkpoint:` and the name of one of the child's",
}
_PLACEHOLDER: Final = "unnamed"
_COMMON: Final = StepDefinition.model_fields.keys() - set(TYPE_OBJECTS)


class Shaped(NamedTuple):
    """`definition`: the model of what could be read, None when nothing could. `numbers`: per part list, the original index of each kept part.
    `lost_refs`: refs of steps that were cut out, which therefore are no dangling refs. `whole`: nothing was cut out."""

    definition: Definition | None
    numbers: dict[str, list[int]]
    lost_refs: frozenset[str]
    whole: bool


_NOTHING: Final = Shaped(None, {}, frozenset(), whole=False)


def shape(tree: dict[str, Any], findings: Findings) -> Shaped:
    """Judge the shape of a checked tree. Limits come first and alone (spec: Definition size limits)."""
    if _over_limit(tree, findings):
        return _NOTHING
    cut = without_later_features({key: value for key, value in tree.items() if value is not None}, findings)
    _judge_step_types(cut, findings)
    try:
        return Shaped(Definition.model_validate(cut), _all_numbers(cut), frozenset(), whole=not findings.failed)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=True)
    for fault in faults:
        _report(fault, findings)
    return _cut_out(cut, [tuple(fault["loc"]) for fault in faults])


def checked_tree(tree: Any, findings: Findings) -> dict[str, Any] | None:
    """The tree with its numbers in one spelling (L5), or None for one that holds what JSON cannot (L6)."""
    if not isinstance(tree, dict):
        findings.add("WRONG_TYPE", "a definition is a map", ())
        return None
    try:
        # Checked inside its envelope, so that a definition is as deep at every door.
        checked: dict[str, Any] = jsonvalue.normalise({"definition": tree})["definition"]
    except PayloadInvalid as refused:
        path = path_of(refused.path)[1:]
        findings.add(f"PAYLOAD_{refused.reason.upper()}", refused.message.replace("definition.", "", 1), path)
        return None
    return checked


def _over_limit(tree: dict[str, Any], findings: Findings) -> bool:
    for part, code, maximum in (
        ("steps", "MAX_STEP_COUNT_EXCEEDED", MAX_STEPS),
        ("edges", "MAX_EDGE_COUNT_EXCEEDED", MAX_EDGES),
    ):
        items = tree.get(part)
        if isinstance(items, list) and len(items) > maximum:
            findings.add(code, f"definition has {len(items)} {part}, maximum is {maximum}", (part,), on_key=True)
            return True
    return False


def _judge_step_types(cut: dict[str, Any], findings: Findings) -> None:
    """Types come before fields: a step of a type that cannot run keeps only the common fields, so its own object is no unknown field."""
    steps = cut.get("steps")
    if not isinstance(steps, list):
        return
    supported = {kind.value for kind in SUPPORTED}
    kept: list[Any] = []
    for number, step in enumerate(steps):
        kind = step.get("type") if isinstance(step, dict) else None
        if not isinstance(kind, str) or kind in supported:
            kept.append(step)
            continue
        path = ("steps", number, "type")
        if kind in {known.value for known in StepType}:
            findings.add("STEP_TYPE_NOT_SUPPORTED", f"this release cannot run steps of type `{kind}`", path)
        else:
            hint = suggestion(kind, [known.value for known in StepType])
            findings.add("UNKNOWN_STEP_TYPE", f"`{kind[:64]}` is no step type{hint}", path)
        kept.append({key: value for key, value in step.items() if key in _COMMON} | {"type": kind[:64] or "?"})
    cut["steps"] = kept


def _report(fault: Any, findings: Findings) -> None:
    loc: Path = tuple(fault["loc"])
    kind: str = fault["type"]
    context = fault.get("ctx") or {}
    if loc[-1] == "[key]":
        findings.add(
            "INVALID_NAME", f"`{str(loc[-2])[:64]}` is not a name: letters, digits and _", loc[:-1], on_key=True
        )
    elif kind == "extra_forbidden":
        name = str(loc[-1])
        hint = suggestion(name, _fields_at(loc[:-1]))
        findings.add("UNKNOWN_FIELD", f"unknown field `{name[:64]}`{hint}", loc, on_key=True)
    elif kind == "missing" or (fault["input"] is None and loc[-1] in _fields_at(loc[:-1])):  # null is not written
        findings.add("MISSING_FIELD", f"`{loc[-1]}` is missing", loc)
    elif kind in ("enum", "literal_error"):
        _report_word(loc, fault["input"], str(context.get("expected", "")), findings)
    elif kind == "string_pattern_mismatch":
        rule = _PATTERNED.get(
            "ref" if str(loc[-1]).endswith("_ref") else str(loc[-1]), "letters, digits, _ . and -, at most 128"
        )
        findings.add("INVALID_NAME", f"`{str(fault['input'])[:64]}` is not a valid {_field(loc)}: {rule}", loc)
    elif kind in ("greater_than_equal", "less_than_equal"):
        bound = "at least" if "ge" in context else "at most"
        findings.add("OUT_OF_RANGE", f"`{_field(loc)}` must be {bound} {context.get('ge', context.get('le')):,}", loc)
    elif kind.isupper():  # a validator of the model's own names the code itself
        findings.add(kind, fault["msg"], loc)
    elif kind in ("string_too_long", "string_too_short", "too_long", "too_short"):
        findings.add("INVALID_LENGTH", f"`{_field(loc)}` {_length_rule(context)}", loc)
    else:
        findings.add("WRONG_TYPE", _type_message(loc, kind, fault["input"], findings), loc)


def _report_word(loc: Path, given: Any, expected: str, findings: Findings) -> None:
    code = "UNKNOWN_VALUE"
    if loc[-1] == "type" and loc[0] in ("edges", "triggers"):
        code = "UNKNOWN_EDGE_TYPE" if loc[0] == "edges" else "UNKNOWN_TRIGGER_TYPE"
    words = expected.replace("'", "").replace(" or ", ", ").split(", ")
    if not isinstance(given, str):
        findings.add("WRONG_TYPE", _type_message(loc, "string_type", given, findings), loc)
        return
    findings.add(
        code,
        f"`{_field(loc)}` cannot be `{given[:64]}`; it is one of {', '.join(words)}{suggestion(given, words)}",
        loc,
    )


def _type_message(loc: Path, kind: str, given: Any, findings: Findings) -> str:
    wanted = {
        "string_type": "a string",
        "int_type": "an integer",
        "float_type": "a number",
        "bool_type": "true or false",
        "list_type": "a list",
        "dict_type": "a map",
        "model_type": "a map",
    }.get(kind, "another value")
    message = f"`{_field(loc)}` must be {wanted}"
    if wanted == "a string" and isinstance(given, bool | int | float):
        shown = findings.written(loc) or jsonvalue.dumps(given)
        return f"{message}, and {shown} is a {'boolean' if isinstance(given, bool) else 'number'}: quote it"  # YM-01
    return message


def _length_rule(context: dict[str, Any]) -> str:
    if "max_length" in context:
        return f"is too long, maximum is {context['max_length']:,}"
    return "must not be empty"


def _field(loc: Path) -> str:
    names = [key for key in loc if isinstance(key, str)]
    return names[-1] if names else "definition"


def _fields_at(loc: Path) -> list[str]:
    """The fields that the part at `loc` may have."""
    part: type[BaseModel] = Definition
    for key in loc:
        if isinstance(key, str):
            part = PARTS.get(part, {}).get(key, part)
    return _names(part)


def _names(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _cut_out(cut: dict[str, Any], locs: list[Path]) -> Shaped:
    """The model of what is left when everything at `locs` is gone."""
    doomed: dict[str, set[int]] = {part: set() for part in _LISTS}
    fields: dict[Path, set[str]] = {}
    for loc in locs:
        part = loc[0] if loc else None
        if isinstance(part, str) and part in _LISTS and len(loc) > 1 and isinstance(loc[1], int):
            name = loc[2] if len(loc) > 2 else None
            if isinstance(name, str) and not _is_required(_LISTS[part], name):
                fields.setdefault((part, loc[1]), set()).add(name)
            else:
                doomed[part].add(loc[1])
        elif isinstance(part, str):
            fields.setdefault((), set()).add(part)
    rest = {key: value for key, value in cut.items() if key not in fields.get((), ())}
    rest.setdefault("family_slug", _PLACEHOLDER)
    numbers = _all_numbers(rest)
    for part, indexes in doomed.items():
        items = rest.get(part)
        if isinstance(items, list):
            numbers[part] = [number for number in range(len(items)) if number not in indexes]
            rest[part] = [_without(items[number], fields.get((part, number), set())) for number in numbers[part]]
    lost = (
        step.get("ref")
        for number, step in enumerate(cut.get("steps") or ())
        if number in doomed["steps"] and isinstance(step, dict)
    )
    try:
        lost_refs = frozenset(ref for ref in lost if isinstance(ref, str))
        return Shaped(Definition.model_validate(rest), numbers, lost_refs, whole=False)
    except ValidationError:  # no step is left, or the definition is no map of lists at all: there is no graph to judge
        return _NOTHING


def _without(item: Any, names: set[str]) -> Any:
    return {key: value for key, value in item.items() if key not in names} if names else item


def _is_required(model: type[BaseModel], name: str) -> bool:
    field = model.model_fields.get(name)
    return field is not None and field.is_required()


def _all_numbers(tree: dict[str, Any]) -> dict[str, list[int]]:
    return {part: list(range(len(tree[part]))) if isinstance(tree.get(part), list) else [] for part in _LISTS}
