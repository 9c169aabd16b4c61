"""How large, how long, how wide, how far: sizes of payloads (L7), of histories (C6) and fan-outs (F1), and the reach of actions (N4)."""

from typing import Self

from pydantic import BaseModel, Field, model_validator

from ductord.model.fanout import MAX_CHILDREN
from ductord.rpc.options.kinds import Bytes, Count


class Limits(BaseModel):
    """Options of what runs and requests may be."""

    # Sizes (ruling L7)
    payload_max_bytes: Bytes = 1 << 20
    payload_warn_bytes: Bytes = 256 << 10
    key_max_bytes: Bytes = 256
    request_max_bytes: Bytes = Field(default=4 << 20, description="one whole request")
    reply_max_bytes: Bytes = Field(
        default=3 << 20, description="the payloads of one reply; the rest is left out and flagged"
    )

    # Length of a run's history (ruling C6)
    history_soft: Count = Field(default=4_000, description="longer histories are told once")
    history_hard: Count = Field(default=8_000, description="longer ones continue as new, where the definition says so")
    history_terminate: Count = Field(default=12_000, description="a run whose history is longer is terminated")

    # Fan-outs (ruling F1)
    max_inline_children: int = Field(
        default=256, ge=1, le=MAX_CHILDREN, description="the widest inline scatter, where a definition does not say"
    )

    # Actions
    http_allow_private: bool = Field(
        default=False, description="let http:request reach loopback, private and metadata addresses (N4)"
    )

    @model_validator(mode="after")
    def _tiers(self) -> Self:
        if not self.history_soft <= self.history_hard <= self.history_terminate:
            raise ValueError("DUCTOR_HISTORY_SOFT, _HARD and _TERMINATE are in this order from the smallest on")
        return self
