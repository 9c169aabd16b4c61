"""Reading a body as the gateway does, and what comes of it."""

from typing import Any, cast

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from ductor.workflow.v1 import workflow_definition_service_pb2 as definitions
from ductor.workflow.v1 import workflow_trigger_service_pb2 as triggers
from ductord.gateway.faults import Reading
from ductord.gateway.reading import Asked, Reader
from ductord.model.errors import Refusal
from ductord.rpc.vocabulary import Dialect

READERS = {dialect: Reader(dialect) for dialect in Dialect}
BOTH = pytest.mark.parametrize("dialect", list(Dialect), ids=lambda dialect: dialect.value)

Trigger = triggers.TriggerWorkflowRequest
Create = definitions.CreateWorkflowDefinitionRequest
Update = definitions.UpdateWorkflowDraftRequest


def asked(kind: type[Message], body: str | bytes, dialect: Dialect = Dialect.REST) -> Asked:
    """A body as a request."""
    text, reading = body.encode() if isinstance(body, str) else body, Reading()
    reader = READERS[dialect].of(cast(Descriptor, kind.DESCRIPTOR))
    return READERS[dialect].asked(reader, READERS[dialect].members(reader, text, reading), reading)


def read(kind: type[Message], body: str | bytes, dialect: Dialect = Dialect.REST) -> Any:
    """The message of a body."""
    return asked(kind, body, dialect).message


def refused(kind: type[Message], body: str | bytes, dialect: Dialect = Dialect.REST) -> Refusal:
    """The refusal of a body."""
    with pytest.raises(Refusal) as raised:
        asked(kind, body, dialect)
    assert raised.value.code == "INVALID_ARGUMENT"
    return raised.value


def reason(kind: type[Message], body: str | bytes, dialect: Dialect = Dialect.REST) -> tuple[str, str]:
    """(reason, field) of the refusal of a body."""
    refusal = refused(kind, body, dialect)
    return refusal.reason, refusal.metadata.get("field", "")
