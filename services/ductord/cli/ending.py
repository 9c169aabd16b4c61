"""How a command ends: 0 done, 1 failed, 2 used or configured wrongly, 130 interrupted; and how a failure is told.

People get the message, its reason, the fields it is about and the way out; with `--json` the same is one JSON object on standard error.
"""

import asyncio
import os
import sys
from collections.abc import Coroutine
from typing import Any

import typer

from ductord.cli.output import clean, console, dumped
from ductord.model.errors import PayloadInvalid, Refusal, Violation

DONE, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130

WAYS_OUT = {
    "TENANT_REQUIRED": "name the tenant with --tenant or DUCTOR_TENANT_ID (`ductor dev` uses `dev`)",
    "TENANT_MISMATCH": "the key is of another tenant than --tenant or DUCTOR_TENANT_ID says; without them the key decides",
    "CREDENTIAL_REQUIRED": "keys are asked for there: --api-key-file, DUCTOR_API_KEY_FILE or DUCTOR_API_KEY",
    "CREDENTIAL_INVALID": "`ductor key list` (with a key that has the scope admin) shows which keys are good",
    "PERMISSION_MISSING": "call with a key that has the scope, or make one: `ductor key create`",
    "SERVICE_UNAVAILABLE": "is it running there? `ductor dev` starts everything; --target or DUCTOR_TARGET says where it is, DUCTOR_TARGET_TLS that it has TLS",
    "DATABASE_UNAVAILABLE": "the call may be repeated as it is",
    "DEFINITION_NOT_FOUND": "`ductor workflow list` shows what this tenant has",
    "DEFINITION_NOT_PUBLISHED": "publish it first: `ductor workflow publish`",
    "DRAFT_REVISION_MISMATCH": "read the draft again (`ductor workflow show`), then repeat",
    "ENV_OVERRIDE_NOT_FOUND": "`ductor env list` shows those that there are",
    "WILDCARDS_DISABLED": "`ductor.events.wildcards.enabled`: set DUCTOR_EVENTS_WILDCARDS_ENABLED=true on the services",
    "RUN_NOT_FOUND": "`ductor run list` shows what this tenant has",
    "SCHEDULE_NOT_FOUND": "`ductor schedule list` shows what this tenant has",
    "SCHEDULE_RETIRED": "a version that has the trigger again revives it: `ductor workflow publish`",
    "SCHEDULE_BROKEN": "`ductor schedule show` says why; a publish or a resume mends it",
    "RELEASE_MISMATCH": "`ductor release show` says which releases are live",
    "IDEMPOTENCY_MISMATCH": "the key belongs to another input: use a new key, or repeat the first call exactly",
    "RUN_COMPENSATED": "--force does it all the same",
    "RESET_POINT_INVALID": "`ductor run reset RUN --list-targets` shows the transitions that a run can be reset to",
    "INTERNAL": "the server's log has the cause",
}
"""What to do about a reason, where the message itself does not say it."""


class CommandFailed(Exception):
    """A failure that a command found itself. `way_out` says what to do; `code` is the exit code."""

    def __init__(self, message: str, *, way_out: str = "", code: int = FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.way_out = way_out
        self.code = code


def finish(work: Coroutine[Any, Any, int], *, as_json: bool = False, serving: bool = False) -> None:
    """Run `work` to its end and leave with its exit code. What it raises is told and becomes a code. `serving`: on the loop made for many sockets."""
    raise typer.Exit(_run(work, as_json, serving))


def _run(work: Coroutine[Any, Any, int], as_json: bool, serving: bool) -> int:
    try:
        if serving and sys.platform != "win32":
            import uvloop

            return uvloop.run(work)
        return asyncio.run(work)
    except CommandFailed as failure:
        tell(failure.message, way_out=failure.way_out, as_json=as_json)
        return failure.code
    except Refusal as refusal:
        tell_refusal(refusal, as_json=as_json)
        return FAILED
    except PayloadInvalid as error:
        tell(f"{error.path}: {error.message}" if error.path else error.message, as_json=as_json)
        return FAILED
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): nothing to say, and nobody to say it to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def tell(message: str, *, way_out: str = "", as_json: bool = False) -> None:
    """One failure without a reason of the contract."""
    if as_json:
        sys.stderr.write(dumped({"error": {"message": message, **({"way_out": way_out} if way_out else {})}}) + "\n")
        return
    _line("error", message)
    if way_out:
        _line("  →", way_out, "yellow")


def tell_refusal(refusal: Refusal, *, as_json: bool = False) -> None:
    """A coded refusal: reason, fields, way out."""
    way_out = WAYS_OUT.get(refusal.reason, "")
    message = _worded(refusal.message)
    if as_json:
        error = {
            "code": refusal.code,
            "reason": refusal.reason,
            "message": message,
            "metadata": refusal.metadata,
            "violations": [{"path": v.path, "code": v.code, "message": v.message} for v in refusal.violations],
        }
        sys.stderr.write(dumped({"error": error}) + "\n")
        return
    _line("error", f"{message} ({refusal.reason})")
    for violation in refusal.violations:
        if violation.message not in message:
            tell_violation(violation)
    if refusal.retry_after_ms:
        _line("  →", f"it may work again in {refusal.retry_after_ms / 1000:g} s", "yellow")
    if way_out:
        _line("  →", way_out, "yellow")


def _worded(message: str) -> str:
    """`message`, in better words where it is gRPC's own for a server that is not there."""
    _, found, cause = message.partition("last error: UNKNOWN: ")
    return f"no server answers: {cause}" if found else message


def tell_violation(violation: Violation) -> None:
    """One field of a refusal."""
    console(sys.stderr).print(
        f"  [bold]{_escape(violation.path)}[/]: {_escape(violation.message)} [dim]{_escape(violation.code)}[/]"
    )


def _line(head: str, text: str, style: str = "bold red") -> None:
    console(sys.stderr).print(f"[{style}]{head}[/] {_escape(text)}")


def _escape(text: str) -> str:
    return clean(text).replace("[", r"\[")
