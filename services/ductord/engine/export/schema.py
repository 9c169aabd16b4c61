"""The JSON Schema of definition files, for editors: the model's own, narrowed to what this release accepts."""

from typing import Any, Final

from ductord.engine.compile.features import LATER
from ductord.engine.compile.fields import MUST_SAY
from ductord.engine.compile.triggers import FIELDS_OF
from ductord.engine.compile.triggers import MUST_SAY as OF_TRIGGER
from ductord.engine.compile.waits import WAITS_FOR
from ductord.engine.steps import SUPPORTED
from ductord.model.actions import BUILT_IN
from ductord.model.definition import TYPE_OBJECTS, Document

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_MODELS: Final = {"steps": "StepDefinition"}


def json_schema() -> dict[str, Any]:
    """The schema of a whole document. It accepts no field that compile would refuse by name; what only compile can judge it leaves open."""
    schema = Document.model_json_schema(by_alias=True)
    parts = schema["$defs"]
    others = parts["TriggerDefinition"]["properties"].keys() - {"id", "type"}
    for part, names in LATER.items():
        for name in names:
            parts[_MODELS[part]]["properties"].pop(name)
    parts["TriggerDefinition"]["allOf"] = [
        {
            "if": {"properties": {"type": {"const": kind}}},
            "then": {
                "required": [OF_TRIGGER[kind]] if kind in OF_TRIGGER else [],
                "properties": dict.fromkeys(sorted(others - set(names)), False),
            },
        }
        for kind, names in FIELDS_OF.items()
    ]
    step = parts["StepDefinition"]["properties"]
    step["type"] |= {"enum": [kind.value for kind in SUPPORTED]}
    step["action"] |= {"examples": sorted(BUILT_IN)}
    for name in TYPE_OBJECTS:
        if name not in SUPPORTED:
            step.pop(name)
    parts["StepDefinition"]["allOf"] = [
        {"if": {"properties": {"type": {"const": kind.value}}}, "then": {"required": [kind.value]}}
        for kind in MUST_SAY
        if kind in SUPPORTED
    ]
    parts["Scatter"]["oneOf"] = [{"required": ["action"]}, {"required": ["mode", "workflow"]}]
    parts["Wait"]["oneOf"] = [{"required": [name]} for name in WAITS_FOR]
    for part, name in (("Definition", "variables"), ("Dataflow", "fields")):
        parts[part]["properties"][name]["anyOf"][0]["additionalProperties"] = False
    tidy: dict[str, Any] = _tidied(schema)
    unused: set[str] | None = None
    while unused != set():
        used = _references(tidy)
        unused = {name for name in tidy["$defs"] if f"#/$defs/{name}" not in used}
        tidy["$defs"] = {name: part for name, part in tidy["$defs"].items() if name not in unused}
    return {"$schema": DIALECT, **tidy, "title": "Ductor workflow definition"}


def _tidied(node: Any) -> Any:
    """Without what pydantic says for itself: «or null» beside every optional field, null defaults, titles made of field names."""
    if isinstance(node, list):
        return [_tidied(item) for item in node]
    if not isinstance(node, dict):
        return node
    tidy = {key: _tidied(value) for key, value in node.items() if not (key == "default" and value is None)}
    if isinstance(tidy.get("title"), str):
        del tidy["title"]
    options = tidy.get("anyOf")
    if isinstance(options, list) and {"type": "null"} in options and len(options) == 2:
        del tidy["anyOf"]
        tidy |= next(option for option in options if option != {"type": "null"})
    return tidy


def _references(node: Any) -> set[str]:
    if isinstance(node, list):
        return set().union(*map(_references, node))
    if isinstance(node, dict):
        own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return own.union(*map(_references, node.values()))
    return set()
