"""Looking inside: logs and spans."""

from typing import Literal

from pydantic import AliasChoices, BaseModel, Field


class Looking(BaseModel):
    """Options of logs and spans."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "json", "text"] = Field(
        default="auto", description="auto: text on a terminal, else JSON lines"
    )
    access_log: Literal["all", "errors", "off"] = "all"
    otlp_endpoint: str = Field(
        default="",
        validation_alias=AliasChoices("otlp_endpoint", "DUCTOR_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"),
        description="where spans go, as http://host:4317; empty: nowhere, trace context is passed on all the same",
    )
    trace_sample_ratio: float = Field(default=1.0, ge=0, le=1)
