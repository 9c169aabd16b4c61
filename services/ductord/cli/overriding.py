"""`ductor env set`, `list`, `delete`: what VARS hold in an environment (L8)."""

import json

from ductor.workflow.v1 import workflow_definition_service_pb2 as api
from ductord.cli.authoring import EXACT
from ductord.cli.client import Connection, connected, pages
from ductord.cli.ending import DONE, MISUSED, CommandFailed
from ductord.cli.output import print_json, show, table
from ductord.cli.triggering import given
from ductord.cli.words import local, plain


async def set_(
    connection: Connection,
    name: str,
    environment: str,
    assignments: tuple[str, ...],
    *,
    values: str,
    reason: str,
    as_json: bool,
) -> int:
    """Replace an override. Values go as the text that they are: the server judges them, exactly (L5)."""
    if bool(assignments) == bool(values):
        raise CommandFailed("which values? Give NAME=JSON …, or --values, and not both", code=MISUSED)
    text = given(values, "--values") if values else _object(assignments)
    async with connected(connection) as client:
        request = api.UpsertWorkflowEnvOverrideRequest(
            workflow_id=await client.definition_id(name),
            environment=environment,
            variables_json=text,
            reason=reason,
            payload_format=EXACT,
        )
        answer = await client.call(client.definitions.UpsertWorkflowEnvOverride, request)
    if as_json:
        print_json(plain(answer))
    else:
        show(f"{name} in {environment}: {', '.join(json.loads(answer.data.variables_json)) or 'nothing'} set")
    return DONE


async def listing(connection: Connection, name: str, *, limit: int, as_json: bool) -> int:
    """The overrides of a workflow, one value a line."""
    async with connected(connection) as client:
        workflow_id = await client.definition_id(name)

        async def fetch(token: str, size: int) -> api.ListWorkflowEnvOverridesResponse:
            request = api.ListWorkflowEnvOverridesRequest(
                workflow_id=workflow_id, page_token=token, page_size=size, payload_format=EXACT
            )
            return await client.call(client.definitions.ListWorkflowEnvOverrides, request)

        found = await pages(fetch, limit)
    if as_json:
        print_json({"data": [plain(entry) for entry in found]})
        return DONE
    rows = []
    for entry in found:
        told = (entry.updated_by, local(entry.update_time))
        values = json.loads(entry.variables_json) or {"": None}
        rows += [(entry.environment, variable, _value(variable, value), *told) for variable, value in values.items()]
    table(("ENVIRONMENT", "VARIABLE", "VALUE", "SET BY", "SET"), rows)
    return DONE


async def delete(connection: Connection, name: str, environment: str, *, reason: str, as_json: bool) -> int:
    """Remove an override: the environment has the defaults again."""
    async with connected(connection) as client:
        request = api.DeleteWorkflowEnvOverrideRequest(
            workflow_id=await client.definition_id(name), environment=environment, reason=reason
        )
        answer = await client.call(client.definitions.DeleteWorkflowEnvOverride, request)
    if as_json:
        print_json(plain(answer))
    else:
        show(f"{name} in {environment}: the defaults again")
    return DONE


def _object(assignments: tuple[str, ...]) -> str:
    """The JSON object of `NAME=JSON` texts, each value as it was typed. Raises `CommandFailed`."""
    members: dict[str, str] = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise CommandFailed(f"a value is written as NAME=JSON or NAME=@FILE, not {text!r}", code=MISUSED)
        if name in members:
            raise CommandFailed(f"{name} is given twice", code=MISUSED)
        value = given(value, name)
        try:
            json.loads(value)  # a piece of a text that, as a whole, the server would tell nobody the place of
        except ValueError:
            way_out = f"a text needs quotes: {name}='\"…\"'"
            raise CommandFailed(f"{name}={value[:64]} is not JSON", way_out=way_out, code=MISUSED) from None
        members[name] = value
    return "{" + ",".join(f"{json.dumps(name)}:{value}" for name, value in members.items()) + "}"


def _value(variable: str, value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if variable else ""
