"""The built-in actions as data: what a definition may call by name, and the JSON Schema its args must meet (contract: Actions).

Publish checks args against it, the worker implements it. An action of a remote worker is in no catalog: a step that names a `queue` says
that the worker of that queue brings the action.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ductord.model.authored.words import MAX_DURATION_MS


class ActionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One action. `args`: JSON Schema of its args after rendering."""

    description: str
    args: Mapping[str, Any]


ActionCatalog = Mapping[str, ActionInfo]
"""Actions by name."""


def _closed(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


BUILT_IN: Final[ActionCatalog] = {
    "noop:noop": ActionInfo(description="Does nothing and returns {}.", args={"type": "object"}),
    "core:echo": ActionInfo(description="Returns its args.", args={"type": "object"}),
    "core:sleep": ActionInfo(
        description="Waits `ms` milliseconds and returns {}.",
        args=_closed({"ms": {"type": "integer", "minimum": 0, "maximum": MAX_DURATION_MS}}, "ms"),
    ),
    "core:fail": ActionInfo(
        description="Fails with `code` and `message`; with `times`, only while the attempt number is at most that, then returns {}.",
        args=_closed(
            {
                "code": {"type": "string", "minLength": 1, "maxLength": 128},
                "message": {"type": "string"},
                "times": {"type": "integer", "minimum": 0},
            }
        ),
    ),
    "http:request": ActionInfo(
        description="Sends an HTTP request and returns {status, headers, body}; a status of 400 or more fails the attempt.",
        args=_closed(
            {
                "method": {"enum": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]},
                "url": {"type": "string", "minLength": 1},
                "headers": {
                    "type": "object",
                    "additionalProperties": {"type": ["string", "integer", "number", "boolean"]},
                },
                "query": {
                    "type": "object",
                    "additionalProperties": {
                        "type": ["string", "integer", "number", "boolean", "array"],
                        "items": {"type": ["string", "integer", "number", "boolean"]},
                    },
                },
                "json": {},
                "body": {"type": "string"},
            },
            "url",
        )
        | {"not": {"required": ["json", "body"]}},
    ),
}
