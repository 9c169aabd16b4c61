"""`python k8s/check.py`: do the manifests and compose.yaml say what Kubernetes, the Gateway API and the compose specification understand?

Every overlay is rendered by kustomize and each object compared with the schema of its kind; a field that the schema does not have is refused, as a
misspelt one would otherwise be dropped without a word. The schemas come in Go modules, pinned by version and hash: `kubectl-validate` carries those of the
Kubernetes API (the tool itself takes minutes to build, its files take none). Where kubectl or Go is missing, or a module cannot be had, it says so and
checks the rest. It never asks a cluster anything.
"""

import base64
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
from ruamel.yaml import YAML

ROOT: Final = Path(__file__).resolve().parents[1]
OVERLAYS: Final = ("local", "production")
KUBERNETES: Final = "1.30"
DOWNLOAD_LIMIT_S: Final = 60
KUSTOMIZE: Final = "sigs.k8s.io/kustomize/kustomize/v5@v5.7.1"
KUSTOMIZE_LIMIT_S: Final = 100
"""Less than a test may take."""

Object = Mapping[str, Any]


class Missing(Exception):
    """A tool or a module that this machine has not; the message says which."""


@dataclass(frozen=True, kw_only=True)
class Module:
    """A Go module of which we read files."""

    path: str
    version: str
    sum: str
    """The hash that go.sum would pin."""


KUBERNETES_SCHEMAS: Final = Module(
    path="sigs.k8s.io/kubectl-validate", version="v0.0.4", sum="h1:tGKuv0awYHn11Cb6KPsZKxUmHgavF46K3NvVH0Nse9U="
)
GATEWAY_SCHEMAS: Final = Module(
    path="sigs.k8s.io/gateway-api", version="v1.5.1", sum="h1:RqVRIlkhLhUO8wOHKTLnTJA6o/1un4po4/6M1nRzdd0="
)
COMPOSE_SCHEMA: Final = Module(
    path="github.com/compose-spec/compose-go/v2",
    version="v2.16.2",
    sum="h1:pTp1DqQwJzFd85GzlWsSszKA1ABrV/ySqsClujIcWA8=",
)


@cache
def folder(module: Module) -> Path:
    """Where the files of a module are; it is downloaded when it is not there yet. Raises `Missing`."""
    go = shutil.which("go")
    if go is None:
        raise Missing("go is not installed")
    with tempfile.TemporaryDirectory() as nowhere:  # outside of any module, so that nothing of ours is resolved
        try:
            done = subprocess.run(
                [go, "mod", "download", "-json", f"{module.path}@{module.version}"],
                cwd=nowhere,
                capture_output=True,
                text=True,
                timeout=DOWNLOAD_LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            raise Missing(f"{module.path} did not arrive within {DOWNLOAD_LIMIT_S} s") from None
    told = json.loads(done.stdout or "{}")
    if done.returncode or "Dir" not in told:
        raise Missing(f"{module.path} cannot be had: {told.get('Error') or done.stderr.strip()}")
    if told["Sum"] != module.sum:
        raise SystemExit(f"{module.path} {module.version} is not what it was: {told['Sum']} instead of {module.sum}")
    return Path(told["Dir"])


@cache
def render(overlay: str) -> tuple[Object, ...]:
    """The objects of `k8s/overlays/<overlay>`. Raises `Missing` without kustomize in any of its forms."""
    try:
        done = subprocess.run(
            [*_kustomize(), str(ROOT / "k8s/overlays" / overlay)],
            cwd=tempfile.gettempdir(),
            capture_output=True,
            text=True,
            timeout=KUSTOMIZE_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        raise Missing(f"kustomize took more than {KUSTOMIZE_LIMIT_S} s") from None
    if done.returncode and done.stderr.startswith("go: "):  # of go itself: kustomize could not be had or built
        raise Missing(done.stderr.strip().splitlines()[-1])
    if done.returncode:
        raise SystemExit(f"k8s/overlays/{overlay}: {done.stderr.strip()}")
    return tuple(document for document in YAML(typ="safe", pure=True).load_all(done.stdout) if document)


def _kustomize() -> list[str]:
    """The command that renders a folder. kubectl has it built in; Go builds it, once, in about a minute of processor time."""
    for tool, command in (("kubectl", ["kustomize"]), ("kustomize", ["build"]), ("go", ["run", KUSTOMIZE, "build"])):
        if found := shutil.which(tool):
            return [found, *command]
    raise Missing("kubectl, kustomize and Go are not installed")


def closed(schema: Any) -> Any:
    """The schema with every object closed to fields that it does not name."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    # Alternatives repeat parts of an object that is closed where it is declared.
    made = {k: v if k in ("anyOf", "oneOf", "not", "enum", "default") else closed(v) for k, v in schema.items()}
    open_to_all = "additionalProperties" in schema or schema.get("x-kubernetes-preserve-unknown-fields")
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object" and not open_to_all:
        made["additionalProperties"] = False
    return made


class Schemas:
    """The validators of the kinds, made when they are first asked for. Raises `Missing` where the modules cannot be had."""

    def __init__(self) -> None:
        self._built_in = folder(KUBERNETES_SCHEMAS) / "pkg/openapiclient/builtins" / KUBERNETES
        self._gateway = folder(GATEWAY_SCHEMAS) / "config/crd/standard"
        self._known: dict[tuple[str, str], jsonschema_rs.Validator | None] = {}

    def faults(self, thing: Object) -> Iterator[str]:
        """What is wrong with an object, as path and message."""
        kind = (thing["apiVersion"], thing["kind"])
        if kind not in self._known:
            self._known[kind] = self._validator(*kind)
        validator = self._known[kind]
        if validator is None:
            yield f"there is no {kind[1]} in {kind[0]}"
            return
        for error in validator.iter_errors(thing):
            yield f"{'.'.join(map(str, error.instance_path))}: {error.message}"

    def _validator(self, version: str, kind: str) -> jsonschema_rs.Validator | None:
        schema = self._custom(version, kind) if version.startswith("gateway.networking") else self._built(version, kind)
        return schema and jsonschema_rs.validator_for(schema, validate_formats=True, formats=_FORMATS)

    def _built(self, version: str, kind: str) -> Any:
        path = self._built_in / ("apis" if "/" in version else "api") / f"{version}.json"
        if not path.exists():
            return None
        components = json.loads(path.read_text("utf-8"))["components"]
        group, _, number = version.rpartition("/")
        wanted = {"group": group, "version": number, "kind": kind}
        for name, schema in components["schemas"].items():
            if wanted in schema.get("x-kubernetes-group-version-kind", ()):
                return {"$ref": f"#/components/schemas/{name}", "components": closed(components)}
        return None

    def _custom(self, version: str, kind: str) -> Any:
        for path in sorted(self._gateway.glob("*.yaml")):
            if f"\n    kind: {kind}\n" not in (text := path.read_text("utf-8")):
                continue
            for served in YAML(typ="safe", pure=True).load(text)["spec"]["versions"]:
                if served["served"] and version.endswith(f"/{served['name']}"):
                    return closed(served["schema"]["openAPIV3Schema"])
        return None


def _byte(text: str) -> bool:
    with contextlib.suppress(ValueError):  # kustomize breaks long values into lines, which Kubernetes reads
        base64.b64decode("".join(text.split()), validate=True)
        return True
    return False


_FORMATS: Final = {"byte": _byte}


def compose_faults() -> Iterator[str]:
    """What the compose specification does not understand of compose.yaml. Raises `Missing`."""
    schema = json.loads((folder(COMPOSE_SCHEMA) / "schema/compose-spec.json").read_text("utf-8"))
    document = YAML(typ="safe", pure=True).load((ROOT / "compose.yaml").read_text("utf-8"))
    for error in jsonschema_rs.validator_for(schema).iter_errors(json.loads(json.dumps(document))):
        yield f"compose.yaml: {'.'.join(map(str, error.instance_path))}: {error.message}"


def main() -> None:
    """Check everything that can be checked here; exit code 1 if something is wrong."""
    faults: list[str] = []
    try:
        schemas = Schemas()
        for overlay in OVERLAYS:
            objects = render(overlay)
            for thing in objects:
                where = f"k8s/overlays/{overlay}: {thing['kind']} {thing['metadata']['name']}"
                faults.extend(f"{where}: {fault}" for fault in schemas.faults(thing))
            print(f"k8s/overlays/{overlay}: {len(objects)} objects, Kubernetes {KUBERNETES}")
    except Missing as missing:
        print(f"manifests are not checked against the Kubernetes API: {missing}")
    try:
        faults.extend(compose_faults())
        print("compose.yaml: the compose specification")
    except Missing as missing:
        print(f"compose.yaml is not checked against its specification: {missing}")
    for fault in faults:
        print(fault, file=sys.stderr)
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
