"""The rendered manifests as the tests look at them: pods by the name of what they run, and what a process of theirs would find in its environment.

Rendered once per test process. Where kustomize is not installed, tests that ask are skipped. It judges nothing.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pytest

from k8s import check

OVERLAYS: Final = check.OVERLAYS
URL: Final = "postgresql://{user}:secret@postgres:5432/ductor"
"""What stands for the value of a Secret, with the name of the Secret as the user."""

Object = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Pod:
    """The template of a Deployment, StatefulSet or Job."""

    name: str
    kind: str
    owner: Object
    labels: Mapping[str, str]
    spec: Object

    @property
    def containers(self) -> list[Object]:
        """Init containers too."""
        return [*self.spec.get("initContainers", ()), *self.spec["containers"]]

    @property
    def ductor(self) -> Object:
        """The container that runs the suite's process."""
        return next(c for c in self.containers if c["name"] == "ductor")

    @property
    def secrets(self) -> set[str]:
        """The Secrets that its containers see."""
        refs = (v["valueFrom"] for c in self.containers for v in c.get("env", ()) if "valueFrom" in v)
        mounted = {v["secret"]["secretName"] for v in self.spec.get("volumes", ()) if "secret" in v}
        return {base(ref["secretKeyRef"]["name"]) for ref in refs if "secretKeyRef" in ref} | mounted


def objects(overlay: str, kind: str = "") -> list[Object]:
    """The objects of an overlay, all or of one kind."""
    try:
        rendered = check.render(overlay)
    except check.Missing as missing:
        pytest.skip(str(missing))
    return [thing for thing in rendered if not kind or thing["kind"] == kind]


def pods(overlay: str, kind: str = "") -> list[Pod]:
    """All pods, or those of one kind of owner."""
    return [
        Pod(
            name=owner["metadata"]["name"],
            kind=owner["kind"],
            owner=owner,
            labels=owner["spec"]["template"]["metadata"]["labels"],
            spec=owner["spec"]["template"]["spec"],
        )
        for owner in objects(overlay)
        if owner["kind"] in ((kind,) if kind else ("Deployment", "StatefulSet", "Job"))
    ]


def services(overlay: str) -> dict[str, Pod]:
    """The Deployments by the name of the service that they run."""
    return {pod.name.replace("-", "_"): pod for pod in pods(overlay, "Deployment")}


def environment(overlay: str, container: Object) -> dict[str, str]:
    """Name → value, as a container finds it: what the manifest says first wins over what a ConfigMap says, as in Kubernetes."""
    shared = {thing["metadata"]["name"]: thing.get("data", {}) for thing in objects(overlay, "ConfigMap")}
    found: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        found |= shared[source["configMapRef"]["name"]]
    return found | dict(_own(container))


def _own(container: Object) -> Iterator[tuple[str, str]]:
    for variable in container.get("env", ()):
        if "value" in variable:
            yield variable["name"], variable["value"]
        else:
            yield variable["name"], URL.format(user=base(variable["valueFrom"]["secretKeyRef"]["name"]))


def base(name: str) -> str:
    """A generated name without the hash that kustomize adds."""
    return re.sub(r"-[2456789bcdfghkmt]{10}$", "", name)
