"""What an option may be, and how it is named when it is refused."""

from typing import Annotated

from pydantic import AfterValidator, Field

from ductord.rpc.addresses import parse_address


def _address(text: str) -> str:
    if text != "off":
        parse_address(text)
    return text


Milliseconds = Annotated[int, Field(gt=0, le=86_400_000)]
Bytes = Annotated[int, Field(gt=0, le=64 << 20)]
Count = Annotated[int, Field(gt=0, le=1_000_000)]
Secret = Annotated[str, Field(json_schema_extra={"secret": True})]
ListenAddress = Annotated[str, AfterValidator(_address)]
"""An address (`rpc.addresses`), or `off`."""


class ConfigurationRefused(Exception):
    """The options contradict a rule; the message says which and what to set. The CLI prints it and exits with 2."""


def listed(text: str) -> list[str]:
    """The items of a comma-separated option."""
    return [item.strip() for item in text.split(",") if item.strip()]


def named(field: str) -> str:
    """The environment's name for a field."""
    return f"DUCTOR_{field.upper()}"
