"""What the lines of a story say: values, fields, durations, and definitions. The language is in tests/scenarios/README.md."""

import json
import re
from typing import Any

from tests.support.world import Failure

_EDGE = re.compile(r"(\S+)\s+-(\w+)->\s+(\S+)\s*(.*)")
_DURATION = re.compile(r"(\d+)(ms|s|m|h)")
_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


def parse_definition(block: tuple[str, ...], slug: str) -> dict[str, Any]:
    """The definition that a `define` block spells: `step REF field=value…`, `A -type-> B field=value…`, `checkpoint NAME: a, b`, `FIELD VALUE`."""
    definition: dict[str, Any] = {"family_slug": slug, "steps": [], "edges": []}
    for line in block:
        word, _, rest = line.partition(" ")
        if edge := _EDGE.fullmatch(line):
            source, kind, target, fields = edge.groups()
            definition["edges"].append({"source_ref": source, "target_ref": target, "type": kind, **fields_of(fields)})
        elif word == "step":
            ref, _, fields = rest.strip().partition(" ")
            step = {"ref": ref, "type": "action", **fields_of(fields)}
            if step["type"] == "action":
                step.setdefault("action", "core:echo")
            definition["steps"].append(step)
        elif word == "checkpoint":
            name, _, refs = rest.partition(":")
            checkpoint = {"name": name.strip(), "step_refs": [ref.strip() for ref in refs.split(",")]}
            definition.setdefault("checkpoints", []).append(checkpoint)
        else:
            definition[word] = value_of(rest.strip())[0]
    return definition


def failure(options: dict[str, Any]) -> Failure:
    after = options.get("retry_after")
    return Failure(
        code=options.get("code", "UNKNOWN"),
        message=options.get("message", ""),
        non_retryable=options.get("non_retryable", False),
        retry_after_ms=None if after is None else milliseconds(after),
    )


def payload_and_options(text: str) -> tuple[Any, dict[str, Any]]:
    text = text.strip()
    if not text or (re.match(r"[a-z_]+(=|\s|$)", text) and not re.match(r"(null|true|false)\b", text)):
        return None, fields_of(text)
    payload, rest = value_of(text)
    return payload, fields_of(rest)


def fields_and_payload(text: str) -> tuple[dict[str, Any], Any]:
    """Fields, and one JSON value that stands before, between or behind them; None without one."""
    fields: dict[str, Any] = {}
    payload: Any = None
    text = text.strip()
    while text:
        match = re.match(r"([a-z_]+)=", text)
        if match is not None:
            fields[match.group(1)], text = value_of(text[match.end() :])
        else:
            payload, text = value_of(text)
        text = text.strip()
    return fields, payload


def fields_of(text: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    text = text.strip()
    while text:
        match = re.match(r"([a-z_]+)(=?)", text)
        if match is None:
            raise ValueError(f"not field=value: {text}")
        text = text[match.end() :]
        fields[match.group(1)], text = value_of(text) if match.group(2) else (True, text)
        text = text.strip()
    return fields


def value_of(text: str) -> tuple[Any, str]:
    """One value at the start of the text, and what follows: JSON if it can be, else a word."""
    try:
        value, end = json.JSONDecoder().raw_decode(text)
    except json.JSONDecodeError:
        end = 0
    if end and (end == len(text) or text[end].isspace()):
        return value, text[end:]
    word, _, rest = text.partition(" ")
    return word, rest


def milliseconds(text: str) -> int:
    parts = _DURATION.findall(text)
    if "".join(n + unit for n, unit in parts) != text.strip():
        raise ValueError(f"not a duration: {text}")
    return sum(int(n) * _UNITS[unit] for n, unit in parts)
