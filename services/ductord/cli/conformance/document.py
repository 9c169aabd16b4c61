"""The definition that the checks run: a step for each thing that is asked of a worker, of which a run takes the one that its input names."""

from typing import Any, Final

ECHO, SLEEP, FAIL, BAD_OUTPUT = (f"conformance:{name}" for name in ("echo", "sleep", "fail", "bad_output"))
ACTIONS: Final = (ECHO, SLEEP, FAIL, BAD_OUTPUT)
"""What the worker under test must have (clients/README.md)."""

BEAT_TIMEOUT_MS: Final = 2_400
"""Of the step `beating`: it asks for a heartbeat three times as often."""
FLAKY: Final[dict[str, Any]] = {"code": "FLAKY", "message": "fails once — «says the conformance»", "times": 1}
FINAL: Final[dict[str, Any]] = {"code": "HOPELESS", "message": "another try is useless", "non_retryable": True}
LATER: Final[dict[str, Any]] = {"code": "BUSY", "message": "not now", "times": 1, "retry_after_ms": 600}
BACKOFF_MS: Final = 120_000
"""Of the step `later`, where the worker knows better."""


def document(family_slug: str, queue: str) -> dict[str, Any]:
    """The definition for a queue, in the form of a file."""
    ms = {"ms": "${{ TRIGGER.payload.ms }}"}
    retried = {"retry_max_attempts": 3, "retry_backoff_ms": 20}
    steps = [
        _step("echo", ECHO, {"value": "${{ TRIGGER.payload.value }}"}),
        _step("sleep", SLEEP, ms),
        _step("beating", SLEEP, ms, heartbeat_timeout_ms=BEAT_TIMEOUT_MS),
        _step("flaky", FAIL, FLAKY, **retried),
        _step("final", FAIL, FINAL, **retried),
        _step("later", FAIL, LATER, retry_max_attempts=2, retry_backoff_ms=BACKOFF_MS, retry_max_backoff_ms=BACKOFF_MS),
        _step("bad", BAD_OUTPUT, {}, **retried),
        {
            "ref": "items",
            "type": "scatter",
            "scatter": {"items_expr": "TRIGGER.payload.items", "action": SLEEP, "args": {"ms": "${{ ITEM }}"}},
        },
    ]
    for step in steps:
        step |= {"queue": queue, "run_if": f'TRIGGER.payload.step == "{step["ref"]}"'}
    return {
        "type": "workflow_definition",
        "definition": {
            "family_slug": family_slug,
            "title": "Worker conformance",
            "description": "Made by `ductor worker conformance`, which archives it when it has ended.",
            "tags": ["conformance"],
            "steps": steps,
        },
    }


def _step(ref: str, action: str, args: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"ref": ref, "type": "action", "action": action, "args": args, **more}
