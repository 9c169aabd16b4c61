"""Derived identities: UUIDv5 of what makes a thing unique, so that doing it twice makes it once. And what an id looks like."""

import re
import uuid
from hashlib import sha1

NAMESPACE = uuid.UUID("6f1f4b7e-2d7e-5c1b-9a53-0d1c70c0ffee")
_BEGUN = sha1(NAMESPACE.bytes, usedforsecurity=False)
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
"""The two bits that every UUID has (RFC 9562), in the digit that holds them."""

_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def canonical(text: str) -> str | None:
    """`text` as ids are written (lower case); None if it is no id. A caller answers that as it answers an unknown id (N1)."""
    return text.lower() if _ID.fullmatch(text) else None


def derived(*parts: str | int) -> str:
    """The UUIDv5 of `parts`, joined unambiguously. Same parts, same id, on every machine and in every release."""
    return _named("\x1f".join([str(part) for part in parts]))


def idempotency_key(run_id: str, step_ref: str, item_index: int, logical: int, kind: str = "step") -> str:
    """The key an attempt shows to the outside world (ruling A6): the same while the outcome of the logical attempt is unknown. It is what `derived` says of
    "attempt" and these, spelled out: one is made for every attempt."""
    return _named(f"attempt\x1f{run_id}\x1f{kind}\x1f{step_ref}\x1f{item_index}\x1f{logical}")


def control_id(parent_run_id: str, step_ref: str, verb: str, key: str) -> str:
    """The request id of a control that a run sends to its children: one decision sends it once, however often it is carried out (F5)."""
    return derived("child", "control", parent_run_id, step_ref, verb, key)


def _named(name: str) -> str:
    digest = _BEGUN.copy()
    digest.update(name.encode())
    text = digest.hexdigest()
    return f"{text[:8]}-{text[8:12]}-5{text[13:16]}-{_VARIANT[text[16]]}{text[17:20]}-{text[20:32]}"
