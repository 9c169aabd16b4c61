"""Structured logs: one line per record on stderr, JSON for machines or text for people, with the ids of what is at hand.

Code logs as everybody does: `logging.getLogger("ductor.tick").info("…", extra={"run_id": …})`. Only the fields named here are written, each cut,
so that a line stays bounded; inside `log_fields(run_id=…)` and inside an RPC the ids are added by themselves. Never log a payload or a
credential.
"""

import datetime
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import orjson

from ductord.model.jsonvalue import storable_text
from ductord.rpc.caller import caller_or_none
from ductord.rpc.config import Settings
from ductord.rpc.tracing import current_traceparent

FIELDS: Final = (
    "tenant_id", "definition_id", "version", "run_id", "step_ref", "item_index", "attempt", "action", "queue", "worker_id",
    "request_id", "trace_id", "method", "code", "reason", "peer", "duration_ms", "count", "seq", "actor", "schedule_id", "trigger_id", "nominal_time",
    "event_name", "event_id", "key_id",
)  # fmt: skip
MAX_VALUE: Final = 256
MAX_MESSAGE: Final = 4_000
MAX_TRACE: Final = 16_000

_bound: ContextVar[dict[str, Any]] = ContextVar("ductor_log_fields", default={})  # noqa: B039  # never changed in place


@contextmanager
def log_fields(**fields: str | int | None) -> Iterator[None]:
    """Add ids to every record that is logged inside."""
    token = _bound.set({**_bound.get(), **fields})
    try:
        yield
    finally:
        _bound.reset(token)


def configure(settings: Settings) -> None:
    """Send the logs of this process to stderr. The last call counts."""
    as_json = settings.log_format == "json" or (settings.log_format == "auto" and not sys.stderr.isatty())
    output = logging.StreamHandler()
    output.setFormatter(JsonLines() if as_json else Text())
    output.addFilter(_quotes_no_header)
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(output)
    root.setLevel(logging.WARNING)  # libraries speak up only when something is wrong
    logging.getLogger("ductor").setLevel(settings.log_level.upper())


def _quotes_no_header(record: logging.LogRecord) -> bool:
    """Not what gRPC says, twice and with a traceback, of a header that is no UTF-8: it writes down all of it, be it a credential, for whoever sends it."""
    return not (record.name.startswith("grpc") and str(record.msg).startswith("Invalid encoding"))


class JsonLines(logging.Formatter):
    """A JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": storable_text(record.getMessage(), max_chars=MAX_MESSAGE),
            **fields_of(record),
        }
        if record.exc_info:
            line["exception"] = storable_text(self.formatException(record.exc_info)[-MAX_TRACE:], max_chars=MAX_TRACE)
        return orjson.dumps(line).decode()


class Text(logging.Formatter):
    """A line for people; control characters are escaped, so that nothing logged can forge a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, and a traceback below it."""
        fields = " ".join(f"{name}={value}" for name, value in fields_of(record).items())
        message = storable_text(record.getMessage(), max_chars=MAX_MESSAGE)
        line = _escaped(
            f"{_time(record)} {record.levelname.lower():7} {record.name} {message}{fields and '  ' + fields}"
        )
        if record.exc_info:
            line += "\n" + storable_text(self.formatException(record.exc_info)[-MAX_TRACE:], max_chars=MAX_TRACE)
        return line


def fields_of(record: logging.LogRecord) -> dict[str, str | int | float]:
    """The fields of a record, in their order: its own, those bound around it, those of the call at hand."""
    found: dict[str, Any] = {}
    if (trace := current_traceparent()) != "":
        found["trace_id"] = trace[3:35]
    if (caller := caller_or_none()) is not None:
        found |= {"tenant_id": caller.tenant_id, "request_id": caller.request_id, "trace_id": caller.trace_id}
        if caller.authenticated:
            found |= {"actor": caller.actor, "key_id": caller.key_id}
    found |= _bound.get()
    own = record.__dict__
    found |= {name: own[name] for name in FIELDS if name in own}
    return {name: _bounded(value) for name in FIELDS if (value := found.get(name)) not in (None, "")}


def _bounded(value: object) -> str | int | float:
    if isinstance(value, int | float):
        return value
    return storable_text(str(value), max_chars=MAX_VALUE)


def _time(record: logging.LogRecord) -> str:
    return (
        datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def _escaped(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)
