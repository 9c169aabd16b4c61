"""Derived identities: UUIDv5 of what makes a thing unique, so that doing it twice makes it once."""

import uuid

_NAMESPACE = uuid.UUID("6f1f4b7e-2d7e-5c1b-9a53-0d1c70c0ffee")


def derived(*parts: str | int) -> str:
    """The UUIDv5 of `parts`, joined unambiguously. Same parts, same id, on every machine and in every release."""
    return str(uuid.uuid5(_NAMESPACE, "\x1f".join(str(p) for p in parts)))


def idempotency_key(run_id: str, step_ref: str, item_index: int, logical: int, kind: str = "step") -> str:
    """The key an attempt shows to the outside world (ruling A6): the same while the outcome of the logical attempt is unknown."""
    return derived("attempt", run_id, kind, step_ref, item_index, logical)
