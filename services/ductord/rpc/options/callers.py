"""Who may call, and the key that this process calls with (rulings N1, N3)."""

from typing import Literal, Self

from pydantic import BaseModel, Field, field_validator, model_validator

from ductord.model.keys import parse_token
from ductord.rpc.addresses import is_origin
from ductord.rpc.options.kinds import Count, Milliseconds, Secret, listed


class Callers(BaseModel):
    """Options of callers and credentials."""

    auth: Literal["off", "keys"] = Field(
        default="off", description="off: callers are taken at their word; keys: every call needs a key (N1)"
    )
    insecure: bool = Field(default=False, description="allow auth off on an address that other machines reach (N3)")
    key_cache_ms: Milliseconds = Field(
        default=2_000, description="how long a key that was looked up is taken as good: how soon a revocation counts"
    )
    key_attempts: Count = Field(
        default=20,
        description="failed attempts at keys that one host may make at once for one tenant, or for one key; then one a second",
    )
    api_key: Secret = Field(default="", description="the key that our own worker and the command line call with")
    api_key_file: str = Field(
        default="", description="a file that holds that key, read anew when it changes; instead of DUCTOR_API_KEY"
    )

    cors_origins: str = Field(
        default="", description="origins whose pages may call the HTTP port, comma-separated, or `*`; empty: none"
    )

    @field_validator("cors_origins")
    @classmethod
    def _cors_origins(cls, text: str) -> str:
        for origin in listed(text):
            if origin != "*" and not is_origin(origin):
                raise ValueError(
                    f"{origin!r} is no origin as browsers send it: scheme://host[:port] in lower case, without a path and the scheme's own port"
                )
        return text

    @field_validator("api_key")
    @classmethod
    def _key(cls, text: str) -> str:
        if text and parse_token(text) is None:
            raise ValueError("has not the form of a key, dk_<tenant>.<id>.<secret>")
        return text

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        if self.api_key and self.api_key_file:
            raise ValueError("DUCTOR_API_KEY and DUCTOR_API_KEY_FILE say the same: set one of them")
        return self

    @property
    def origins(self) -> frozenset[str]:
        """The origins whose pages may call; `*` stands for all, an empty set for none."""
        return frozenset(listed(self.cors_origins))
