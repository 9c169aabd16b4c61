"""The built-in actions, and what becomes of an action that fails, misbehaves or returns what cannot be carried."""

import asyncio
import json
from typing import Any

import pytest

from ductord.model.actions import BUILT_IN
from ductord.worker.actions import built_in
from ductord.worker.actions.guard import GuardedNetwork
from ductord.worker.actions.http import HttpRequest
from ductord.worker.context import ActionContext, ActionError
from tests.support.queue import Queue
from tests.worker.conftest import Working


class Unprintable(Exception):
    """Even its text fails."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


async def leaves(args: Any, context: ActionContext) -> Any:
    """Tries to take the process along."""
    raise SystemExit(3)


async def cancels_itself(args: Any, context: ActionContext) -> Any:
    """Raises what only the worker should."""
    raise asyncio.CancelledError


def raises(args: Any, context: ActionContext) -> Any:
    """Raises what it is told to."""
    error: BaseException = {
        "value": ValueError("\0boom \ud800"),
        "unprintable": Unprintable(),
        "exit": SystemExit(3),
        "coded": ActionError("RATE\0LIMITED", "later", retry_after_ms=70),
        "final": ActionError("BROKEN", "never", non_retryable=True),
    }[args["what"]]
    raise error


def returns(args: Any, context: ActionContext) -> Any:
    """Returns what JSON does not have."""
    return {
        "nan": {"x": float("nan")},
        "infinite": [float("inf")],
        "nul": {"k\0": 1},
        "surrogate": "\ud800",
        "big": {"big": 2**64},
        "object": object(),
        "large": "x" * 20_000_000,
        "int64": {"id": 9007199254740993, "n": 5.0},
        "nothing": None,
    }[args["what"]]


EXTRA = {"t:raises": raises, "t:returns": returns, "t:leaves": leaves, "t:cancels": cancels_itself}


def test_the_table_and_the_schemas_name_the_same_actions() -> None:
    """An action is its file, its line in the table and its schema."""
    assert set(built_in(HttpRequest(GuardedNetwork(allow_private=False), max_bytes=1))) == set(BUILT_IN)


async def _run(queue: Queue, action: str, args: Any, **columns: Any) -> Any:
    """Queue one task and wait for its report."""
    [run] = await queue.put(1, action=action, args=args, **columns)

    async def reported() -> bool:
        return (await queue.row(run))["report_time"] is not None

    await queue.wait_for(reported)
    return await queue.row(run)


async def test_noop_echo_and_sleep(working: Working, queue: Queue) -> None:
    """What they return; echo carries int64 exactly (PL-03)."""
    args = {"id": 9007199254740993, "nested": [None, {"é": "\u2028"}], "f": 0.1}
    async with working():
        assert (await _run(queue, "noop:noop", {"any": "thing"}))["output"] == "{}"
        assert json.loads((await _run(queue, "core:echo", args))["output"]) == args
        slept = await _run(queue, "core:sleep", {"ms": 30})
        assert (slept["outcome"], slept["output"]) == ("succeeded", "{}")
        assert (slept["report_time"] - slept["start_time"]).total_seconds() >= 0.03


async def test_fail_as_told(working: Working, queue: Queue) -> None:
    """Code and message; `times` counts attempts."""
    async with working():
        row = await _run(queue, "core:fail", {})
        assert (row["outcome"], row["error_code"]) == ("failed", "UNKNOWN")
        row = await _run(queue, "core:fail", {"code": "NOT_FOUND", "message": "gone"})
        assert (row["error_code"], row["error_message"], row["non_retryable"]) == ("NOT_FOUND", "gone", False)
        assert (await _run(queue, "core:fail", {"times": 1}))["outcome"] == "failed"
        assert (await _run(queue, "core:fail", {"times": 0}))["output"] == "{}"


@pytest.mark.parametrize(
    ("action", "args", "path"),
    [
        ("core:sleep", {"ms": "long"}, "args.ms"),
        ("core:sleep", {}, "args"),
        ("core:fail", {"code": 7}, "args.code"),
        ("http:request", {"method": "GET"}, "args"),
        ("http:request", {"url": "http://x", "json": 1, "body": "x"}, "args"),
    ],
)
async def test_args_that_do_not_meet_the_schema(
    working: Working, queue: Queue, action: str, args: Any, path: str
) -> None:
    """What publish cannot judge, since it was rendered later, is judged here: INVALID_ARGUMENT with the path."""
    async with working():
        row = await _run(queue, action, args)
    assert (row["outcome"], row["error_code"]) == ("failed", "INVALID_ARGUMENT")
    assert row["error_message"].startswith(path)


@pytest.mark.parametrize(
    ("action", "what", "code", "text"),
    [
        ("t:raises", "value", "UNKNOWN", "ValueError: \\u0000boom \\ud800"),
        ("t:raises", "unprintable", "UNKNOWN", "Unprintable"),
        ("t:raises", "exit", "UNKNOWN", "SystemExit: 3"),
        ("t:raises", "coded", "RATE\\u0000LIMITED", "later"),
        ("t:raises", "final", "BROKEN", "never"),
        ("t:leaves", "", "UNKNOWN", "SystemExit: 3"),
        ("t:cancels", "", "UNKNOWN", "the action cancelled itself"),
    ],
)
async def test_pl_01_what_an_action_raises(
    working: Working, queue: Queue, action: str, what: str, code: str, text: str
) -> None:
    """PL-01: a failure of its attempt, its text fit to be stored; the worker goes on."""
    async with working(EXTRA):
        row = await _run(queue, action, {"what": what})
        assert (row["outcome"], row["error_code"], row["error_message"]) == ("failed", code, text)
        assert (row["retry_after_ms"], row["non_retryable"]) == (70 if what == "coded" else None, what == "final")
        assert (await _run(queue, "noop:noop", {}))["outcome"] == "succeeded"


@pytest.mark.parametrize(
    ("what", "code", "text"),
    [
        ("nan", "payload_invalid", "output.x"),
        ("infinite", "payload_invalid", "output[0]"),
        ("nul", "payload_invalid", 'output["k\\u0000"]'),
        ("surrogate", "payload_invalid", "output"),
        ("big", "payload_invalid", "output.big"),
        ("object", "payload_invalid", "output is a object"),
        ("large", "payload_too_large", "20,000,002 bytes"),
    ],
)
async def test_pl_what_an_action_may_not_return(
    working: Working, queue: Queue, what: str, code: str, text: str
) -> None:
    """PL-01, PL-03, PL-04, PL-06: the attempt fails for good, with the place or the size; nothing of it is sent."""
    async with working(EXTRA):
        row = await _run(queue, "t:returns", {"what": what})
    assert (row["outcome"], row["error_code"], row["non_retryable"], row["output"]) == ("failed", code, True, None)
    assert text in row["error_message"]


async def test_pl_03_int64_and_null_are_fine(working: Working, queue: Queue) -> None:
    """PL-03, L5: 64 bits exactly, 5.0 is 5; nothing returned is null."""
    async with working(EXTRA):
        assert (await _run(queue, "t:returns", {"what": "int64"}))["output"] == '{"id":9007199254740993,"n":5}'
        assert (await _run(queue, "t:returns", {"what": "nothing"}))["output"] == "null"
