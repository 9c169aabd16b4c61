"""The sagas of a chaos run: charges that a failure or a cancel must refund, in chains and side by side."""

import itertools
from collections.abc import Iterator
from typing import Any

from tests.chaos.graphs import edge, step

RUN = "${{ RUN.id }}"


def _charge(ref: str, url: str, path: str = "/charge", **fields: Any) -> dict[str, Any]:
    refund = {
        "action": "http:request",
        "args": {
            "method": "POST",
            "url": f"{url}/refund",
            "json": {"run": RUN, "charge": "${{ OUTPUT.body.charge }}"},
        },
        "retry_max_attempts": 50,
        "retry_backoff_ms": 50,
        "timeout_ms": 20_000,
    }
    note = {
        "action": "http:request",
        "args": {"method": "POST", "url": f"{url}/note", "json": {"run": RUN}},
        "retry_max_attempts": 50,
    }
    return step(ref, url, path) | {
        "args": {"method": "POST", "url": f"{url}{path}", "json": {"run": RUN}},
        "retry_max_attempts": 10,
        "compensation": {"on_failure": [refund], "on_cancel": [refund], "finally": [note]},
        **fields,
    }


def sagas(url: str) -> Iterator[dict[str, Any]]:
    """Definitions that end failed, failed with work in flight, slow enough to be cancelled, and completed."""
    yield {
        "family_slug": "trip",
        "steps": [
            _charge("flight", url),
            _charge("hotel", url, "/charge/flaky"),
            _charge("car", url),
            step("book", url, "/fail"),
        ],
        "edges": [edge("flight", "hotel"), edge("hotel", "car"), edge("car", "book")],
    }
    branches = [f"b{i}" for i in range(6)]
    yield {
        "family_slug": "basket",
        "steps": [
            _charge("first", url),
            *[_charge(b, url, "/charge/flaky") for b in branches],
            step("stop", url, "/fail"),
        ],
        "edges": [*[edge("first", b) for b in branches], edge("first", "stop")],
    }
    slow = [f"c{i}" for i in range(8)]
    yield {
        "family_slug": "cancelled",
        "steps": [_charge(ref, url) for ref in slow],
        "edges": [edge(a, b) for a, b in itertools.pairwise(slow)],
    }
    yield {
        "family_slug": "paid",
        "steps": [_charge("a", url), _charge("b", url, "/charge/flaky")],
        "edges": [edge("a", "b")],
    }
