"""What the demo triggers, and how each run must end. Every kind of run takes another path through the graph of `examples/order.yaml`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SUCCEEDED, SKIPPED = "succeeded", "skipped"
ALWAYS = {"check": SUCCEEDED}
PAID = {
    **ALWAYS,
    "refuse": SKIPPED,
    "reserve": SUCCEEDED,
    "charge": SUCCEEDED,
    "release": SKIPPED,
    "tell_declined": SKIPPED,
    "audit": SUCCEEDED,
}
PACKED = {**PAID, "pack": SUCCEEDED}
SHIPPED = {**PACKED, "receipt": SUCCEEDED, "ship": SUCCEEDED, "close": SUCCEEDED}


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Runs that share a fate. `nodes`: the status that each step must end in, those left out may end as they like."""

    name: str
    workflow: str = "order"
    count: int
    input: Mapping[str, Any] = field(default_factory=dict)
    status: str = "completed"
    has_errors: bool = False
    outcome: str | None = None
    nodes: Mapping[str, str]


KINDS = (
    Kind(name="hello world", workflow="hello_world", count=6, nodes={"a": SUCCEEDED, "b": SUCCEEDED}),
    Kind(
        name="sent by parcel",
        count=12,
        input={"amount": 4_900},
        outcome="shipped",
        nodes={**SHIPPED, "parcel": SUCCEEDED, "express": SKIPPED, "counter": SKIPPED},
    ),
    Kind(
        name="sent by express",
        count=6,
        input={"amount": 25_000},
        outcome="shipped",
        nodes={**SHIPPED, "express": SUCCEEDED, "counter": SKIPPED, "parcel": SKIPPED},
    ),
    Kind(
        name="picked up",
        count=6,
        input={"amount": 1_200, "pickup": True},
        outcome="shipped",
        nodes={**SHIPPED, "counter": SUCCEEDED, "express": SKIPPED, "parcel": SKIPPED},
    ),
    Kind(
        name="card retried",
        count=8,
        input={"amount": 3_000, "declines": 2},
        outcome="shipped",
        nodes={**SHIPPED, "parcel": SUCCEEDED},
    ),
    Kind(
        name="card declined",
        count=6,
        input={"amount": 3_000, "declines": 1_000},
        has_errors=True,
        outcome="declined",
        nodes={
            **ALWAYS,
            "refuse": SKIPPED,
            "reserve": SUCCEEDED,
            "charge": "completed_with_error",
            "release": SUCCEEDED,
            "tell_declined": SUCCEEDED,
            "audit": SUCCEEDED,
            "pack": SKIPPED,
            "receipt": SKIPPED,
            "ship": SKIPPED,
            "close": SKIPPED,
        },
    ),
    Kind(
        name="refused",
        count=4,
        input={"amount": 0},
        outcome="refused",
        nodes={
            **ALWAYS,
            "refuse": SUCCEEDED,
            "reserve": SKIPPED,
            "charge": SKIPPED,
            "audit": SKIPPED,
            "close": SKIPPED,
        },
    ),
    Kind(
        name="bad address",
        count=6,
        input={"amount": 700, "bad_address": True},
        status="failed",
        has_errors=True,
        nodes={**PACKED, "parcel": "failed", "ship": SKIPPED, "close": SKIPPED},
    ),
)


@dataclass(frozen=True, kw_only=True)
class Order:
    """One run to start. `key` is its idempotency key."""

    key: str
    kind: Kind
    input: Mapping[str, Any]


def orders() -> list[Order]:
    """All runs of the demo, the kinds mixed."""
    found = []
    for kind in KINDS:
        for number in range(kind.count):
            key = f"{kind.name.replace(' ', '-')}-{number + 1}"
            found.append((number / kind.count, Order(key=key, kind=kind, input={**kind.input, "order_id": key})))
    return [order for _, order in sorted(found, key=lambda pair: pair[0])]
