"""`ductor key …` and calls with keys over TLS: services, worker and gateway as processes of their own, as they run where others can reach them."""

import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ductord.cli.client import Connection, connected
from ductord.cli.firsts import keyed
from ductord.model.keys import PLATFORM_TENANT, parse_token
from ductord.rpc.config import ConfigurationRefused, Settings
from ductord.rpc.host import hosting
from ductord.worker.service import SERVICE as WORKER
from tests.conftest import Cluster, Database
from tests.support.certificates import Authority, as_environment
from tests.support.dev import EXAMPLES, invoke
from tests.support.keys import as_owner
from tests.support.mother import mother
from tests.support.stack import Member

pytestmark = pytest.mark.xdist_group("keys")

SERVED = ("definition", "trigger", "run_control", "signals", "reads", "admin", "coordinator", "dispatch")
CALLED = ("definition", "trigger", "run_control", "signals", "reads", "admin", "dispatch")


class Secured:
    """Three processes that speak mutual TLS among themselves, a gateway that speaks HTTPS, and what their operator has: a database login and files."""

    def __init__(self, folder: Path, database: Database) -> None:
        self.folder = folder
        self.authority = Authority(folder / "ca")
        self.database = {"DUCTOR_DATABASE_URL": database.owner}
        self.client = as_environment(self.authority.client())
        server = as_environment(self.authority.server("tls", mutual=True))
        common = {
            "DUCTOR_AUTH": "keys",
            "DUCTOR_KEY_CACHE_MS": "100",
            "DUCTOR_LOG_FORMAT": "text",
            **server,
            **self.client,
        }
        self.services = Member("services", SERVED, {**common, **self.database}, folder, mother=mother())
        targets = {f"DUCTOR_{name.upper()}_TARGET": self.services.target for name in CALLED}
        worker = {"DUCTOR_API_KEY_FILE": str(self.file("worker")), "DUCTOR_POLL_WAIT_MAX_MS": "500"}
        self.worker = Member("worker", ("worker",), {**common, **targets, **worker}, folder, mother=mother())
        https = as_environment(self.authority.server("http_tls", name="gateway"))
        self.gateway = Member(
            "gateway", ("gateway",), {**common, **targets, **https}, folder, http=True, mother=mother()
        )

    @property
    def members(self) -> tuple[Member, ...]:
        """In the order of their start."""
        return self.services, self.worker, self.gateway

    def file(self, name: str) -> Path:
        """Where a key is kept."""
        return self.folder / f"{name}.key"

    def ductor(self, *arguments: str, key: str = "acme", **environment: str) -> tuple[int, str, str]:
        """A command of somebody with a client certificate and this key."""
        caller = {"DUCTOR_API_KEY_FILE": str(self.file(key))} if key else {}
        return invoke(*arguments, **{"DUCTOR_TARGET": self.services.target, **self.client, **caller, **environment})

    def json(self, *arguments: str, key: str = "acme") -> Any:
        """What such a command says; it must go well."""
        code, output, errors = self.ductor(*arguments, "--json", key=key)
        assert code == 0, errors
        return json.loads(output)

    def operator(self, *arguments: str) -> str:
        """A command of who has admin's database login; what it prints."""
        code, output, errors = invoke(*arguments, **self.database)
        assert code == 0, errors
        return output


@pytest.fixture(scope="module")
def secured(postgres: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Everything as it would be deployed: the first keys over the database, then the processes."""
    with postgres.database() as database:
        running = Secured(tmp_path_factory.mktemp("secured"), database)
        running.operator("key", "bootstrap", "--platform", "--name", "worker", "--out", str(running.file("worker")))
        scopes = ("admin", "workflow_definition:read", "workflow_definition:write", "workflow:read", "workflow:write")
        given = [part for scope in scopes for part in ("--scope", scope)]
        out = ("--out", str(running.file("acme")))
        running.operator("key", "bootstrap", "--tenant", "acme", *given, *out)
        try:
            for member in running.members:
                member.start()
            for member in running.members:
                member.wait_ready()
            yield running
        finally:
            for member in reversed(running.members):
                member.terminate()


def test_a_run_goes_through_services_worker_and_command_line(secured: Secured) -> None:
    """Mutual TLS everywhere, nobody names a tenant: the keys do."""
    assert secured.ductor("workflow", "publish", str(EXAMPLES / "hello_world.yaml"))[0] == 0
    assert _status(secured.json("trigger", "hello_world", "--wait")) == "completed"


def _status(run: Any) -> str:
    status: str = run["data"]["summary"]["status"]
    return status


def test_who_has_no_certificate_of_ours_does_not_get_in(secured: Secured, tmp_path: Path) -> None:
    foreign = Authority(tmp_path)
    certificate, key = foreign.issue("client", "client.ductor.test")
    for change in (
        {"DUCTOR_TARGET_CERT_FILE": certificate, "DUCTOR_TARGET_KEY_FILE": key},
        {"DUCTOR_TARGET_CERT_FILE": "", "DUCTOR_TARGET_KEY_FILE": ""},
        {"DUCTOR_TARGET_CA_FILE": foreign.file},
    ):
        code, _, errors = secured.ductor("run", "list", **change)
        assert (code, "SERVICE_UNAVAILABLE" in errors, "DUCTOR_TARGET_TLS" in errors) == (1, True, True), errors


def test_the_gateway_speaks_https_and_passes_keys_on(secured: Secured) -> None:
    trusted: ssl.SSLContext = secured.authority.context()
    with httpx.Client(base_url=f"https://127.0.0.1:{secured.gateway.http_port}", verify=trusted) as client:
        assert client.get("/readyz").status_code == 200
        refused = client.get("/api/workflows/runs")
        assert (refused.status_code, refused.headers["www-authenticate"].split()[0]) == (401, "Bearer")
        bearer = {"authorization": f"Bearer {secured.file('acme').read_text().strip()}"}
        assert client.get("/api/workflows/runs", headers=bearer).status_code == 200
        assert client.get("/api/workflows/runs", headers={**bearer, "x-tenant-id": "umbrella"}).status_code == 403


def test_the_key_of_a_worker_is_rotated_under_it(secured: Secured) -> None:
    """The drill of docs/operations.md: the file gets the new key, the old one ends at once, the worker goes on."""
    before = secured.worker.pid
    out = ("--overlap", "0", "--out", str(secured.file("worker")), "--reason", "drill")
    old = secured.file("worker").read_text()
    assert secured.operator("key", "rotate", "worker", "--platform", *out) == ""
    assert secured.file("worker").read_text() != old
    assert _status(secured.json("trigger", "hello_world", "--wait")) == "completed"
    assert (secured.worker.alive, secured.worker.pid) == (True, before)
    found = json.loads(secured.operator("key", "list", "--platform", "--json"))["data"]
    assert [(key["name"], key["status"]) for key in found] == [("worker", "active"), ("worker", "expired")]
    assert found[0]["created_by"].startswith("cli:")


def test_a_key_lives_from_create_to_revoke(secured: Secured) -> None:
    made = secured.json("key", "create", "ci", "--scope", "workflow:read", "--group", "ops", "--expires", "30d")
    token = parse_token(made["token"])
    assert token is not None
    assert (token.tenant_id, made["data"]["groups"]) == ("acme", ["ops"])
    secured.file("ci").write_text(made["token"])
    assert secured.ductor("run", "list", key="ci")[0] == 0
    code, _, errors = secured.ductor("workflow", "list", key="ci")
    assert (code, "workflow_definition:read" in errors, "PERMISSION_MISSING" in errors) == (1, True, True)
    code, _, errors = secured.ductor("run", "list", key="ci", DUCTOR_TENANT_ID="umbrella")
    assert (code, "TENANT_MISMATCH" in errors) == (1, True)

    fresh = secured.json("key", "rotate", "ci", "--overlap", "1h", "--out", str(secured.file("ci")))
    assert "token" not in fresh
    assert secured.file("ci").stat().st_mode & 0o777 == 0o600
    assert secured.ductor("run", "list", key="ci")[0] == 0
    code, output, errors = secured.ductor("key", "revoke", token.prefix, "--reason", "leaked")
    assert (code, output) == (0, f"ci {token.prefix}… revoked\n")
    assert "still good" in errors, "the one that took its place"
    code, output, _ = secured.ductor("key", "revoke", "ci")
    assert code == 0
    shown = secured.json("key", "show", fresh["data"]["key_id"])["data"]
    assert (shown["status"], shown["revoked_by"]) == ("revoked", "key:bootstrap")
    code, output, _ = secured.ductor("key", "list", "--status", "active")
    assert [line.split()[1:3] for line in output.splitlines()[1:]] == [["bootstrap", "active"]]
    code, _, errors = secured.ductor("run", "list", key="ci")
    assert (code, "CREDENTIAL_INVALID" in errors) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "key", "code", "said"),
    [
        (["run", "list"], "", 2, "--api-key-file"),
        (["run", "list", "--tenant", "acme"], "", 1, "CREDENTIAL_REQUIRED"),
        (["run", "list", "--api-key-file", "/nowhere"], "", 2, "DUCTOR_API_KEY_FILE=/nowhere"),
        (["key", "create", "x", "--scope", "everything"], "acme", 1, "scopes[0]"),
        (["key", "create", "x"], "acme", 1, "scopes"),
        (["key", "create", "x", "--scope", "admin", "--expires", "soon"], "acme", 2, "--expires"),
        (["key", "create", "x", "--scope", "admin", "--out", "/nowhere/x"], "acme", 2, "--out /nowhere/x"),
        (["key", "create", "x", "--scope", "admin", "--out", __file__], "acme", 2, "is there already"),
        (["key", "create", "bootstrap", "--scope", "admin"], "acme", 1, "API_KEY_NAME_TAKEN"),
        (["key", "rotate", "bootstrap", "--overlap", "long"], "acme", 2, "--overlap"),
        (["key", "show", "nobody"], "acme", 1, "API_KEY_NOT_FOUND"),
        (["key", "show", "dk_acme." + "0" * 32 + "." + "s" * 43], "acme", 2, "whole token"),
        (["key", "bootstrap"], "", 2, "--platform"),
        (["key", "bootstrap", "--tenant", "no tenant"], "", 2, "x-tenant-id"),
        (["key", "bootstrap", "--platform"], "", 2, "DUCTOR_ADMIN_DATABASE_URL"),
    ],
)
def test_what_goes_wrong_is_told(secured: Secured, arguments: list[str], key: str, code: int, said: str) -> None:
    got, output, errors = secured.ductor(*arguments, key=key)
    assert (got, output) == (code, "")
    assert said in errors
    assert "s" * 43 not in errors


async def test_a_key_that_would_travel_in_plaintext_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond this machine; nothing is called yet."""
    key = tmp_path / "key"
    key.write_text("dk_acme." + "0" * 32 + "." + "s" * 43)
    for target, tls, warned in (
        ("dispatch:9090", "0", True),
        ("127.0.0.1:1", "0", False),
        ("dispatch:9090", "1", False),
    ):
        monkeypatch.setenv("DUCTOR_TARGET_TLS", tls)
        async with connected(Connection(target=target, tenant="", key_file=str(key))) as client:
            assert client.credential.token is not None
        assert ("in plaintext" in capsys.readouterr().err) is warned, target


async def test_a_worker_without_a_key_does_not_start_where_keys_are_asked_for() -> None:
    settings = Settings(auth="keys", dispatch_target="127.0.0.1:1", grpc_address="127.0.0.1:0", http_address="off")
    with pytest.raises(ConfigurationRefused, match="DUCTOR_API_KEY_FILE"):
        async with hosting([WORKER], settings):
            pass


async def test_dev_makes_its_keys_once_and_anew_where_they_are_lost(database: Database, tmp_path: Path) -> None:
    settings = Settings(auth="keys", admin_database_url=database.dsn("admin"), workflows_tenant="dev")
    files = [tmp_path / "keys" / name for name in ("platform", "tenant-dev")]
    assert (await keyed(tmp_path, Settings())) == Settings()
    assert (await keyed(tmp_path, settings)).api_key_file == str(files[0])
    before = [file.read_text() for file in files]
    assert [file.stat().st_mode & 0o777 for file in (*files, files[0].parent)] == [0o600, 0o600, 0o700]
    await keyed(tmp_path, settings)
    assert [file.read_text() for file in files] == before
    files[0].unlink()
    files[1].write_text("nonsense")
    await keyed(tmp_path, settings)
    after = [file.read_text() for file in files]
    assert not set(before) & set(after)
    rows = await as_owner(
        database, "select tenant_id, revoke_time is null as good from eec_workflow_api_key order by 1, 2"
    )
    assert [tuple(row) for row in rows] == [(t, good) for t in (PLATFORM_TENANT, "dev") for good in (False, True)]
