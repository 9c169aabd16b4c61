"""The base of what is stored as JSON with its class name in snake case under `type`."""

import msgspec


def _tag(name: str) -> str:
    return "".join(("_" if i and c.isupper() else "") + c.lower() for i, c in enumerate(name))


class Tagged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=_tag, tag_field="type", gc=False):
    """A value that says what it is. It has no cycles, so the collector of garbage passes it by."""
