"""What the manifests put into the environment is what the configuration model reads: names, values, logins, targets."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from ductord.cli.roster import NAMES
from ductord.rpc.config import DATABASE_SERVICES, ConfigurationRefused, Settings, TargetService
from tests.k8s.manifests import OVERLAYS, URL, environment, objects, pods, services

pytestmark = pytest.mark.xdist_group("k8s")


@pytest.fixture(autouse=True)
def _nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("DUCTOR_", "OTEL_"))]:
        monkeypatch.delenv(name)


def every() -> Iterator[tuple[str, str, dict[str, str]]]:
    """(overlay, service, environment) of every Deployment."""
    for overlay in OVERLAYS:
        for service, pod in services(overlay).items():
            yield overlay, service, environment(overlay, pod.ductor)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_each_service_has_a_deployment(overlay: str) -> None:
    """One per service of the roster, and each serves that service and no other."""
    found = services(overlay)
    assert set(found) == set(NAMES)
    assert {name: pod.ductor["args"] for name, pod in found.items()} == {name: ["serve", name] for name in NAMES}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_name_is_an_option(overlay: str) -> None:
    """A misspelt option would have no effect; a process only warns of it."""
    for pod in pods(overlay):
        for container in pod.containers:
            if container["image"].split(":")[0].endswith("ductor"):
                found = environment(overlay, container)
                assert Settings.unknown(found) == [], pod.name
                assert all(name.startswith("DUCTOR_") for name in found), pod.name


def test_every_value_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process's environment loads, and may be served on the addresses it names (N3)."""
    for overlay, service, found in every():
        with monkeypatch.context() as patch:
            for name, value in found.items():
                patch.setenv(name, value)
            settings = Settings.load()
            settings.refuse_insecure()
            assert settings.auth == ("off" if overlay == "local" else "keys"), (overlay, service)
            assert settings.health is not None
            assert settings.health.port == 9091
            assert settings.http is not None
            assert settings.http.port == 8080


def test_bad_values_fail_and_name_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """For every option in the manifests that is not free text: nonsense is refused, by the option's name."""
    options = {name for _, _, found in every() for name in found}
    free = {f"DUCTOR_{name.upper()}" for name, field in Settings.model_fields.items() if field.annotation is str}
    checked = options - (free - {"DUCTOR_GRPC_ADDRESS", "DUCTOR_HTTP_ADDRESS", "DUCTOR_HEALTH_ADDRESS"})
    assert len(checked) >= 10
    for option in sorted(checked):
        with monkeypatch.context() as patch:
            patch.setenv(option, "no such value!")
            with pytest.raises(ConfigurationRefused, match=option):
                Settings.load()


def test_a_bad_value_ends_the_process() -> None:
    """`ductor serve` with a pod's environment and one bad value in it: exit 2, before it connects to anything, and the setting's name."""
    found = environment("production", services("production")["trigger"].ductor)
    done = subprocess.run(
        [sys.executable, "-m", "ductord.cli", "serve", "trigger"],
        env=os.environ | found | {"DUCTOR_DRAIN_MS": "20s"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "DUCTOR_DRAIN_MS" in done.stderr


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_each_service_has_its_own_login(overlay: str) -> None:
    """The URL of its own login in the environment, that Secret and no other service's anywhere in the pod; gateway and worker have no database."""
    for service, pod in services(overlay).items():
        secret = f"{pod.name}-database"
        has = {name for name in environment(overlay, pod.ductor) if name.endswith("DATABASE_URL")}
        if service in DATABASE_SERVICES:
            assert has == {f"DUCTOR_{service.upper()}_DATABASE_URL"}
            assert environment(overlay, pod.ductor)[has.pop()] == URL.format(user=secret)
            (schema,) = pod.spec["initContainers"]
            assert environment(overlay, schema) == {"DUCTOR_DATABASE_URL": URL.format(user=secret)}
            assert pod.secrets - {secret} <= {f"{pod.name}-tls"}
        else:
            assert not has
            assert "initContainers" not in pod.spec
            assert pod.secrets <= {f"{pod.name}-tls"} | ({"worker-key"} if service == "worker" else set())


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_only_the_migration_is_the_owner(overlay: str) -> None:
    """The owner's login is in the migration's pod; the local trial's Postgres and the giver of passwords have it too."""
    owners = {pod.name for pod in pods(overlay) if "owner-database" in pod.secrets}
    assert owners == {"migrate"} | ({"postgres", "logins"} if overlay == "local" else set())


def test_local_logins() -> None:
    """The Secrets of the local overlay log each service in as itself, and the passwords are the ones that are set."""
    import base64

    def value(thing: dict[str, dict[str, str]], key: str) -> str:
        return base64.b64decode(thing["data"][key]).decode()

    found = {t["metadata"]["name"].rpartition("-")[0]: t for t in objects("local", "Secret")}
    for service in DATABASE_SERVICES:
        secret = dict(found[f"{service.replace('_', '-')}-database"])
        password = value(secret, "password")
        assert value(secret, "url") == f"postgresql://ductor_{service}:{password}@postgres:5432/ductor"
    (logins,) = (pod for pod in pods("local", "Job") if pod.name == "logins")
    names = {v["name"] for v in logins.containers[0]["env"]} - {"OWNER_URL"}
    (sql,) = (t["data"]["logins.sql"] for t in objects("local", "ConfigMap") if "logins.sql" in t["data"])
    for service in DATABASE_SERVICES:
        assert (
            f"\\getenv {service} {service.upper()}_PASSWORD\nalter role ductor_{service} password :'{service}';" in sql
        )
    assert names == {f"{service.upper()}_PASSWORD" for service in DATABASE_SERVICES}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_targets_lead_to_pods(overlay: str) -> None:
    """What a process calls is a headless Service whose port is the one that the pods behind it listen on, so that callers see every pod."""
    found = services(overlay)
    named = {thing["metadata"]["name"]: thing["spec"] for thing in objects(overlay, "Service")}
    calls = {
        service: {
            n.removeprefix("DUCTOR_").removesuffix("_TARGET").lower(): v
            for n, v in env.items()
            if n.endswith("_TARGET")
        }
        for where, service, env in every()
        if where == overlay
    }
    assert set(calls.pop("gateway")) == set(get_args(TargetService))
    assert set(calls.pop("worker")) == {"dispatch"}
    assert not any(calls.values())
    for service in get_args(TargetService):
        name = service.replace("_", "-")
        for caller in ("gateway", "worker"):
            target = environment(overlay, found[caller].ductor).get(f"DUCTOR_{service.upper()}_TARGET")
            assert target in (f"dns:///{name}:9090", None)
        (port,) = named[name]["ports"]
        assert named[name]["clusterIP"] == "None"
        assert port["port"] == 9090
        assert named[name]["selector"].items() <= found[service].labels.items()
        ports = {p["name"]: p["containerPort"] for p in found[service].ductor["ports"]}
        assert environment(overlay, found[service].ductor)["DUCTOR_GRPC_ADDRESS"] == f":{ports[port['targetPort']]}"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_who_is_not_called_listens_to_itself(overlay: str) -> None:
    """Coordinator and worker offer nothing: no Service, no port, gRPC on loopback."""
    named = {thing["metadata"]["name"] for thing in objects(overlay, "Service")}
    for service in ("coordinator", "worker"):
        pod = services(overlay)[service]
        assert pod.name not in named
        assert environment(overlay, pod.ductor)["DUCTOR_GRPC_ADDRESS"] == "127.0.0.1:0"
        assert "grpc" not in {port["name"] for port in pod.ductor["ports"]}


def test_production_keeps_secrets_out() -> None:
    """No Secret is in the overlay, the worker's key and every certificate come from a mounted file."""
    assert objects("production", "Secret") == []
    for service, pod in services("production").items():
        found = environment("production", pod.ductor)
        paths = {name: value for name, value in found.items() if name.endswith("_FILE")}
        mounts = {m["mountPath"] for m in pod.ductor["volumeMounts"]}
        assert all(path.rpartition("/")[0] in mounts for path in paths.values()), service
        assert "DUCTOR_API_KEY" not in found
        assert ("DUCTOR_API_KEY_FILE" in found) == (service == "worker")
        assert ("DUCTOR_TLS_CERT_FILE" in found) == (service in get_args(TargetService))
        assert ("DUCTOR_HTTP_TLS_CERT_FILE" in found) == (service == "gateway")
        assert ("DUCTOR_TARGET_TLS" in found) == (service in ("gateway", "worker"))


def test_operations_names_what_must_be_there() -> None:
    """Every Secret and ConfigMap that production mounts and does not make is in the table of docs/operations.md."""
    told = (Path(__file__).resolve().parents[2] / "docs/operations.md").read_text("utf-8")
    section = told.split("### First install")[1].split("### Upgrades")[0]
    wanted = {secret for pod in pods("production") for secret in pod.secrets}
    wanted |= {v["configMap"]["name"] for pod in pods("production") for v in pod.spec["volumes"] if "configMap" in v}
    wanted |= {
        ref["name"]
        for gateway in objects("production", "Gateway")
        for listener in gateway["spec"]["listeners"]
        for ref in listener["tls"]["certificateRefs"]
    }
    named = set(re.findall(r"`([a-z<>-]+)`", section))
    for kind, services_of_it in (("database", DATABASE_SERVICES), ("tls", get_args(TargetService))):
        assert f"<service>-{kind}" in named
        named |= {f"{service.replace('_', '-')}-{kind}" for service in services_of_it}
    assert wanted <= named
