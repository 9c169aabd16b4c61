"""Log lines: one per record, bounded, with the ids of what is at hand, and not to be forged."""

import io
import json
import logging
from collections.abc import Callable, Iterator

import pytest

from ductord.rpc import caller as who
from ductord.rpc.logs import JsonLines, Text, configure, log_fields
from tests.rpc.echo import loopback

Capture = Callable[[logging.Formatter], tuple[logging.Logger, io.StringIO]]


@pytest.fixture
def capture() -> Iterator[Capture]:
    """A logger that writes with a formatter into a buffer."""
    logger = logging.getLogger("ductor.test")

    def with_(formatter: logging.Formatter) -> tuple[logging.Logger, io.StringIO]:
        buffer = io.StringIO()
        handler = logging.StreamHandler(buffer)
        handler.setFormatter(formatter)
        logger.handlers = [handler]
        logger.setLevel(logging.DEBUG)
        return logger, buffer

    yield with_
    logger.handlers = []


def test_a_json_line_has_the_ids_of_what_is_at_hand(capture: Capture) -> None:
    logger, buffer = capture(JsonLines())
    token = who.set_caller(who.Caller(tenant_id="acme", request_id="r1", trace_id="t" * 32, traceparent=""))
    try:
        with log_fields(run_id="run-1", step_ref="pay"):
            logger.info("attempt %d ended", 2, extra={"attempt": 2, "password": "no"})
    finally:
        who.reset_caller(token)
    line = json.loads(buffer.getvalue())
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info", "logger": "ductor.test", "message": "attempt 2 ended", "tenant_id": "acme", "run_id": "run-1", "step_ref": "pay",
        "attempt": 2, "request_id": "r1", "trace_id": "t" * 32,
    }  # fmt: skip


def test_fields_are_bound_and_released(capture: Capture) -> None:
    logger, buffer = capture(JsonLines())
    with log_fields(run_id="a"):
        with log_fields(run_id="b", attempt=None):
            logger.info("x")
        logger.info("y")
    logger.info("z")
    assert [json.loads(line).get("run_id") for line in buffer.getvalue().splitlines()] == ["b", "a", None]


def test_pl_01_nothing_that_is_logged_breaks_or_forges_a_line(capture: Capture) -> None:
    evil = "a\nlevel=error \x1b[31m\0\ud800" + "x" * 10_000
    for formatter in (JsonLines(), Text()):
        logger, buffer = capture(formatter)
        logger.info("%s", evil, extra={"run_id": evil})
        (line,) = buffer.getvalue().splitlines()
        assert len(line) < 5_000
        assert line.encode().isascii() or "…" in line


def test_a_traceback_is_kept_and_bounded(capture: Capture) -> None:
    logger, buffer = capture(JsonLines())
    try:
        raise ValueError("x" * 50_000)
    except ValueError:
        logger.exception("it raised")
    line = json.loads(buffer.getvalue())
    assert line["message"] == "it raised"
    assert len(line["exception"]) < 17_000


def test_configure_chooses_form_and_level(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    before, level, ours = root.handlers[:], root.level, logging.getLogger("ductor").level
    try:
        configure(loopback(log_format="text", log_level="warning"))
        assert [type(handler.formatter) for handler in root.handlers] == [Text]
        assert not logging.getLogger("ductor.tick").isEnabledFor(logging.INFO)
        configure(loopback(log_level="debug"))
        assert [type(handler.formatter) for handler in root.handlers] == [JsonLines], "not a terminal"
        assert logging.getLogger("ductor.tick").isEnabledFor(logging.DEBUG)
        assert not logging.getLogger("asyncio").isEnabledFor(logging.INFO)
    finally:
        root.handlers, root.level = before, level
        logging.getLogger("ductor").setLevel(ours)
