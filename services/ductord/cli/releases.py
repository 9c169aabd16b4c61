"""`ductor release show` and `set`: the tenant's release policy (T4)."""

from collections.abc import Sequence
from typing import Any

from ductor.workflow.v1 import admin_service_pb2 as api
from ductord.cli.client import Connection, connected
from ductord.cli.ending import DONE
from ductord.cli.output import facts, print_json
from ductord.cli.words import local, number, plain, word


async def show_policy(connection: Connection, *, as_json: bool) -> int:
    """What counts now."""
    async with connected(connection) as client:
        answer = await client.call(client.admin.GetReleasePolicy, api.GetReleasePolicyRequest())
    _told(answer, as_json)
    return DONE


async def set_policy(
    connection: Connection, *, mode: str, live: Sequence[str], reason: str, request_id: str, as_json: bool
) -> int:
    """Replace it; what counts now. Said twice it is the same, so it may be repeated."""
    asked: Any = number(api.ReleaseMode.DESCRIPTOR, mode, "MODE")
    request = api.SetReleasePolicyRequest(
        mode=asked,
        live_release_ids=live,
        reason=reason,
        request_id=request_id,
    )
    async with connected(connection) as client:
        answer = await client.call(client.admin.SetReleasePolicy, request)
    _told(answer, as_json)
    return DONE


def _told(answer: api.GetReleasePolicyResponse | api.SetReleasePolicyResponse, as_json: bool) -> None:
    if as_json:
        print_json(plain(answer))
        return
    policy = answer.data
    facts(
        [
            ("mode", word(api.ReleaseMode.DESCRIPTOR, policy.mode)),
            ("live releases", ", ".join(policy.live_release_ids)),
            ("set", local(policy.update_time) if policy.HasField("update_time") else ""),
            ("by", policy.updated_by),
        ]
    )
