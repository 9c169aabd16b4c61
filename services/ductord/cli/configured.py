"""The configuration for a command: what the environment says, or a failure that names the options at fault."""

from typing import Any

from ductord.cli.ending import MISUSED, CommandFailed
from ductord.rpc.config import ConfigurationRefused, Settings


def configured(**given: Any) -> Settings:
    """The settings; what is given wins over the environment. Raises `CommandFailed`."""
    try:
        return Settings.load(**given)
    except ConfigurationRefused as refused:
        raise misconfigured(refused) from None


def misconfigured(refused: ConfigurationRefused) -> CommandFailed:
    """The failure of a command whose options contradict a rule."""
    return CommandFailed(str(refused), way_out="`ductor config` shows every option", code=MISUSED)
