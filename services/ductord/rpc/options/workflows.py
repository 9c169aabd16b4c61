"""Definitions at boot, and what is run at all."""

from pydantic import BaseModel, Field

from ductord.model.starting import ENVIRONMENT_PATTERN


class Workflows(BaseModel):
    """Options of definitions and of the deployment that runs them."""

    workflows_dir: str = ""
    workflows_tenant: str = ""
    workflow_runtime_enabled: bool = Field(
        default=True, description="off: definitions can be managed, no run is started or advanced"
    )
    environment: str = Field(
        default="",
        pattern=ENVIRONMENT_PATTERN,
        description="the deployment's name: on spans, and whose overrides of VARS a run starts with (L8)",
    )
    events_wildcards_enabled: bool = Field(
        default=False, description="event triggers may have patterns that end in `.*` (ductor.events.wildcards.enabled)"
    )
