"""`ductor key …`: a tenant's API keys over AdminService, and over the database those that no service can give: the first ones, and the platform's own (N1).

A token is written to standard output or to a file that only its owner can read, and nowhere else.
"""

import contextlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from rich.text import Text

from ductor.workflow.v1 import admin_service_pb2 as api
from ductord.cli.client import Connection, is_id, pages
from ductord.cli.ending import DONE, MISUSED, CommandFailed
from ductord.cli.keepers import Keeper, keeping, over_database
from ductord.cli.output import facts, print_json, say, show, status_text, table
from ductord.cli.words import local, number, plain, time_after, word
from ductord.model.errors import Refusal
from ductord.model.keys import ADMIN, PLATFORM_TENANT, TASKS
from ductord.rpc import caller as who

FIRST_SCOPE: Final = {True: TASKS, False: ADMIN}
"""What a first key is for where nothing is said, by whether it is the platform's: our own worker's, and a tenant's to make others with."""
ALL: Final = 100_000


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """What a new key is to be. `expires`: a length from now or a time, empty for never."""

    name: str
    scopes: Sequence[str]
    groups: Sequence[str] = ()
    acts_for_others: bool = False
    expires: str = ""
    reason: str = ""
    request_id: str = ""


async def bootstrap(tenant: str, draft: Draft, *, platform: bool, out: str, as_json: bool) -> int:
    """Make a key that no key is needed for."""
    if platform == bool(tenant):
        raise CommandFailed("whose key? Give --tenant ID, or --platform", code=MISUSED)
    try:
        tenant_id = PLATFORM_TENANT if platform else who.checked_tenant(tenant)
    except Refusal as refusal:
        raise CommandFailed(refusal.message, code=MISUSED) from None
    if not draft.scopes:
        draft = msgspec.structs.replace(draft, scopes=[FIRST_SCOPE[platform]])
    async with over_database(tenant_id) as keeper:
        return await _created(keeper, draft, out, as_json)


async def create(connection: Connection, draft: Draft, *, out: str, as_json: bool) -> int:
    """Make a key of the tenant."""
    async with keeping(connection, platform=False) as keeper:
        return await _created(keeper, draft, out, as_json)


async def listing(connection: Connection, *, platform: bool, status: str, limit: int, as_json: bool) -> int:
    """The keys, newest first."""
    asked: Any = number(api.ApiKeyStatus.DESCRIPTOR, status, "--status")
    async with keeping(connection, platform=platform) as keeper:
        found = await _all(keeper, limit, asked)
    if as_json:
        print_json({"data": [plain(key) for key in found]})
        return DONE
    columns = ("KEY", "NAME", "STATUS", "TOKEN", "SCOPES", "USED", "EXPIRES")
    table(columns, [_row(key) for key in found])
    return DONE


async def show_key(connection: Connection, key: str, *, platform: bool, as_json: bool) -> int:
    """One key."""
    async with keeping(connection, platform=platform) as keeper:
        answer = await keeper.get(api.GetApiKeyRequest(key_id=await _key_id(keeper, key)))
    if as_json:
        print_json(plain(answer))
    else:
        facts(_facts(answer.data))
    return DONE


async def rotate(
    connection: Connection,
    key: str,
    *,
    platform: bool,
    overlap: str,
    expires: str,
    reason: str,
    request_id: str,
    out: str,
    as_json: bool,
) -> int:
    """Replace a key."""
    request = api.RotateApiKeyRequest(reason=reason, request_id=request_id)
    if overlap:
        request.overlap_seconds = _seconds(overlap)
    if expires:
        request.expire_time.CopyFrom(time_after(expires, "--expires"))
    async with keeping(connection, platform=platform) as keeper:
        request.key_id = await _key_id(keeper, key)
        with _Outlet(out) as outlet:
            answer = await keeper.rotate(request)
            outlet.write(answer.token)
    if as_json:
        print_json(_without_token(answer) if out else plain(answer))
        return DONE
    ends = local(answer.replaced.expire_time) if answer.replaced.HasField("expire_time") else "never"
    _tell(answer.data, answer.token, out)
    say(f"the old key {answer.replaced.token_prefix}… is good until {ends}", "dim")
    return DONE


async def revoke(
    connection: Connection, key: str, *, platform: bool, reason: str, request_id: str, as_json: bool
) -> int:
    """End a key."""
    async with keeping(connection, platform=platform) as keeper:
        request = api.RevokeApiKeyRequest(key_id=await _key_id(keeper, key), reason=reason, request_id=request_id)
        answer = await keeper.revoke(request)
        if as_json:
            print_json(plain(answer))
            return DONE
        show(f"{answer.data.name} {answer.data.token_prefix}… revoked")
        for other in await _all(keeper, ALL, api.API_KEY_STATUS_ACTIVE):
            if other.name == answer.data.name:  # a rotation leaves two for a while
                say(f"{other.name} {other.token_prefix}… is another key of this name, and still good", "yellow")
    return DONE


async def _created(keeper: Keeper, draft: Draft, out: str, as_json: bool) -> int:
    request = api.CreateApiKeyRequest(
        name=draft.name,
        scopes=draft.scopes,
        groups=draft.groups,
        acts_for_others=draft.acts_for_others,
        reason=draft.reason,
        request_id=draft.request_id,
    )
    if draft.expires:
        request.expire_time.CopyFrom(time_after(draft.expires, "--expires"))
    with _Outlet(out, new=True) as outlet:
        answer = await keeper.create(request)
        outlet.write(answer.token)
    if as_json:
        print_json(_without_token(answer) if out else plain(answer))
    else:
        _tell(answer.data, answer.token, out)
    return DONE


class _Outlet(contextlib.AbstractContextManager["_Outlet"]):
    """Where a token goes that cannot be read again: a file that is opened before the key is made, so that no token is lost to a folder that is not there."""

    def __init__(self, path: str, *, new: bool = False) -> None:
        """`new`: the file must not be there yet. Another token may be in it, which could not be read again: only a rotation replaces one."""
        self._path = Path(path) if path else None
        self._new = new
        self._descriptor = -1
        self._name = ""

    def __enter__(self) -> "_Outlet":
        if self._path is not None:
            if self._new and self._path.exists():
                raise CommandFailed(f"--out {self._path} is there already", way_out="name a new file", code=MISUSED)
            try:
                self._descriptor, self._name = tempfile.mkstemp(dir=self._path.parent, prefix=".key")  # 0600
            except OSError as error:
                message = f"--out {self._path}: {error.strerror}"
                raise CommandFailed(message, code=MISUSED) from None
        return self

    def write(self, token: str) -> None:
        """Put the token into the file, in one step for whoever reads it."""
        if self._path is not None:
            os.write(self._descriptor, token.encode() + b"\n")
            os.fsync(self._descriptor)
            os.replace(self._name, self._path)
            self._name = ""

    def __exit__(self, *error: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        if self._name:
            os.unlink(self._name)


def write_token(path: Path, token: str) -> None:
    """A token in a file that only its owner can read."""
    with _Outlet(str(path)) as outlet:
        outlet.write(token)


async def _all(keeper: Keeper, limit: int, status: Any = 0) -> Sequence[api.ApiKey]:
    async def fetch(token: str, size: int) -> api.ListApiKeysResponse:
        return await keeper.list(api.ListApiKeysRequest(page_size=size, page_token=token, status=status))

    return await pages(fetch, limit)


async def _key_id(keeper: Keeper, key: str) -> str:
    """The id of a key that is named by its id, its name (the one that is good, or the newest), or the begin of its token. Raises `CommandFailed`."""
    if is_id(key):
        return key
    if key.count(".") > 1 and key.startswith("dk_"):
        raise CommandFailed(
            "that is a whole token: name the key by the begin of it, dk_<tenant>.<8 digits>", code=MISUSED
        )
    found = [one for one in await _all(keeper, ALL) if key in (one.name, one.token_prefix, one.token_prefix + "…")]
    if not found:
        raise Refusal("NOT_FOUND", "API_KEY_NOT_FOUND", f"no key has the name or the token's begin {key!r}")
    good = [one for one in found if one.status == api.API_KEY_STATUS_ACTIVE and not one.rotated_to]
    if len(good) > 1:  # never the wrong one of two: what is asked for may be to end it
        ids = ", ".join(one.key_id for one in good)
        raise CommandFailed(f"{key} stands for several keys: name one of {ids}", code=MISUSED)
    return (good or found)[0].key_id


def _tell(key: api.ApiKey, token: str, out: str) -> None:
    """The token as the result; everything about it beside."""
    say(f"{key.name} {key.key_id}: {', '.join(key.scopes)}", "dim")
    if out:
        say(f"its token is in {out}", "dim")
    else:
        show(token)
        say("this is the only time that the token is shown", "yellow")


def _without_token(answer: Any) -> Any:
    told = plain(answer)
    del told["token"]
    return told


def _row(key: api.ApiKey) -> list[str | Text]:
    return [
        key.key_id,
        key.name,
        status_text(word(api.ApiKeyStatus.DESCRIPTOR, key.status)),
        f"{key.token_prefix}…",
        " ".join(key.scopes),
        local(key.last_use_time) if key.HasField("last_use_time") else "",
        local(key.expire_time) if key.HasField("expire_time") else "",
    ]


def _facts(key: api.ApiKey) -> list[tuple[str, str | Text]]:
    times = {name: local(getattr(key, name)) if key.HasField(name) else "" for name in _TIMES}
    return [
        ("key", key.key_id),
        ("name", key.name),
        ("status", status_text(word(api.ApiKeyStatus.DESCRIPTOR, key.status))),
        ("token", f"{key.token_prefix}…"),
        ("scopes", ", ".join(key.scopes)),
        ("groups", ", ".join(key.groups)),
        ("acts for others", "yes" if key.acts_for_others else ""),
        ("created", times["create_time"]),
        ("by", key.created_by),
        ("expires", times["expire_time"]),
        ("used", times["last_use_time"]),
        ("revoked", times["revoke_time"]),
        ("revoked by", key.revoked_by),
        ("took the place of", key.rotated_from),
        ("replaced by", key.rotated_to),
    ]


_TIMES: Final = ("create_time", "expire_time", "last_use_time", "revoke_time")


def _seconds(text: str) -> int:
    """`0`, `90s`, `15m`, `2h`, `7d` as seconds. Raises `CommandFailed`."""
    units = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
    if text == "0":
        return 0
    count = text[:-1]
    if text[-1:] not in units or not (count.isascii() and count.isdigit()) or len(count) > 7:
        raise CommandFailed(f"--overlap {text!r} is no length such as 0, 30m, 12h or 7d", code=MISUSED)
    return int(count) * units[text[-1]]
