"""The network policies draw the picture in README.md, edge by edge, and nothing else."""

import pytest

from tests.k8s.manifests import OVERLAYS, objects, pods
from tests.k8s.reach import End, reaches

pytestmark = pytest.mark.xdist_group("k8s")

GRPC, HTTP, HEALTH, POSTGRES, DNS, OTHER = 9090, 8080, 9091, 5432, 53, 443
PORTS = (GRPC, HTTP, HEALTH, POSTGRES, DNS, OTHER)

EDGES = ("definition", "trigger", "run-control", "signals", "reads", "admin")
WITH_DATABASE = (*EDGES, "dispatch", "coordinator")
ALL = (*WITH_DATABASE, "gateway", "worker")
PICTURE = {
    # ductor, grpcurl, your stubs, workers of yours
    *(("callers", service, GRPC) for service in (*EDGES, "dispatch")),
    # curl, browsers, Connect clients
    ("callers", "gateway", HTTP),
    *(("gateway", service, GRPC) for service in (*EDGES, "dispatch")),
    ("worker", "dispatch", GRPC),
    *((service, "postgres", POSTGRES) for service in (*WITH_DATABASE, "migrate")),
    # not drawn there: scraping, names, and what http:request is for (N4)
    *(("monitoring", service, HTTP) for service in ALL),
    *((name, "names", DNS) for name in (*ALL, "migrate")),
    *(("worker", "internet", port) for port in PORTS),
}
LOCAL = {("logins", "postgres", POSTGRES), ("logins", "names", DNS), ("postgres", "names", DNS)}


def outside() -> list[End]:
    """Who is there besides our pods."""
    return [
        End(name="callers", namespace="shop", namespace_labels={"ductor/caller": "yes"}),
        End(name="monitoring", namespace="monitoring", namespace_labels={"kubernetes.io/metadata.name": "monitoring"}),
        End(
            name="names",
            namespace="kube-system",
            namespace_labels={"kubernetes.io/metadata.name": "kube-system"},
            labels={"k8s-app": "kube-dns"},
        ),
        End(name="stranger", namespace="other", namespace_labels={"kubernetes.io/metadata.name": "other"}),
        End(
            name="impostor",
            namespace="other",
            labels={"app.kubernetes.io/name": "ductor", "app.kubernetes.io/component": "gateway"},
        ),
        End(
            name="api server", namespace="kube-system", namespace_labels={"kubernetes.io/metadata.name": "kube-system"}
        ),
        End(name="internet", address="93.184.215.14"),
        End(name="internet", address="2606:2800:21f:cb07:6820:80da:af6b:8b2c"),
        End(name="metadata", address="169.254.169.254"),
        End(name="private", address="10.1.2.3"),
        End(name="private", address="192.168.7.7"),
        End(name="private", address="fd00::1"),
    ]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_picture_and_nothing_else(overlay: str) -> None:
    """Every pair of ends and every port: open exactly where the picture has an edge. Probes come from the node, which no policy keeps out."""
    policies = objects(overlay, "NetworkPolicy")
    ours = {"kubernetes.io/metadata.name": "ductor"}
    ends = [End(name=p.name, namespace="ductor", labels=p.labels, namespace_labels=ours) for p in pods(overlay)]
    others = outside()
    if overlay == "production":
        others.append(End(name="postgres", address="10.20.0.5"))
    found = {
        (source.name, target.name, port)
        for source in [*ends, *others]
        for target in [*ends, *others]
        for port in PORTS
        if (source in ends or target in ends)
        and reaches(policies, source, target, port, "UDP" if port == DNS and target.name == "names" else "TCP")
    }
    assert found == PICTURE | (LOCAL if overlay == "local" else set())


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_default_is_nothing(overlay: str) -> None:
    """One policy selects every pod, in both directions, and allows nothing."""
    (nothing,) = (p["spec"] for p in objects(overlay, "NetworkPolicy") if p["metadata"]["name"] == "nothing")
    assert nothing == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


def test_the_gateways_proxies_may_call() -> None:
    """The namespace that production makes for its Gateway has the label of callers."""
    (gateway,) = objects("production", "Gateway")
    labels = {n["metadata"]["name"]: n["metadata"].get("labels", {}) for n in objects("production", "Namespace")}
    assert labels[gateway["metadata"]["namespace"]]["ductor/caller"] == "yes"
