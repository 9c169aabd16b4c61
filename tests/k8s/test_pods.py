"""How the pods run: nothing to gain by breaking in, probes that ask what they should, time to leave in order, more than one of everything."""

import re
from datetime import UTC, datetime

import pytest

from ductord.dispatch.measures import Measures
from ductord.dispatch.queues import QueueState
from ductord.rpc import health, host
from ductord.rpc.config import DATABASE_SERVICES, Settings
from ductord.rpc.metrics import Metrics
from tests.k8s.manifests import OVERLAYS, Object, environment, objects, pods, services

pytestmark = pytest.mark.xdist_group("k8s")

OURS = 65532


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_namespace_is_restricted(overlay: str) -> None:
    """The Pod Security standard `restricted` is enforced, not only warned of."""
    (ours,) = (n for n in objects(overlay, "Namespace") if n["metadata"]["name"] == "ductor")
    assert ours["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert {pod.owner["metadata"]["namespace"] for pod in pods(overlay)} == {"ductor"}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_nothing_to_gain(overlay: str) -> None:
    """Every container: a numeric user that is not root, no capability, a read-only file system, the runtime's seccomp profile, no token, limits."""
    accounts = {account["metadata"]["name"]: account for account in objects(overlay, "ServiceAccount")}
    for pod in pods(overlay):
        context = pod.spec["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["runAsUser"] > 0
        assert context["runAsGroup"] > 0
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod.spec["automountServiceAccountToken"] is False
        assert pod.spec["enableServiceLinks"] is False
        assert accounts[pod.spec["serviceAccountName"]]["automountServiceAccountToken"] is False
        assert pod.spec["serviceAccountName"] == pod.name
        for container in pod.containers:
            own = container["securityContext"]
            assert own["allowPrivilegeEscalation"] is False
            assert own["readOnlyRootFilesystem"] is True
            assert own["capabilities"] == {"drop": ["ALL"]}
            for kind in ("requests", "limits"):
                assert set(container["resources"][kind]) == {"cpu", "memory"}
                assert all(re.fullmatch(r"\d+(m|Mi|Gi)?", str(v)) for v in container["resources"][kind].values())


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_our_processes_write_to_tmp_alone(overlay: str) -> None:
    """One small folder that dies with the pod; whatever else is mounted is read."""
    for pod in pods(overlay):
        volumes = {volume["name"]: volume for volume in pod.spec["volumes"]}
        for container in pod.containers:
            if not container["image"].split(":")[0].endswith("ductor"):
                continue
            assert pod.spec["securityContext"]["runAsUser"] == OURS
            writable = [m for m in container["volumeMounts"] if not m.get("readOnly")]
            assert [m["mountPath"] for m in writable] == ["/tmp"]
            assert volumes[writable[0]["name"]]["emptyDir"]["sizeLimit"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_probes_ask_the_right_question(overlay: str) -> None:
    """KB-02: start and life ask the loops alone, readiness the whole process with its database; all by gRPC on the port that speaks it in plaintext."""
    for service, pod in services(overlay).items():
        settings = Settings.model_validate(
            {n.removeprefix("DUCTOR_").lower(): v for n, v in environment(overlay, pod.ductor).items()}
        )
        assert settings.health is not None
        port = settings.health.port
        container = pod.ductor
        assert {"name": "health", "containerPort": port} in container["ports"]
        for probe in ("startupProbe", "livenessProbe"):
            assert container[probe]["grpc"] == {"port": port, "service": health.LIVE}, service
        assert container["readinessProbe"]["grpc"] == {"port": port}, service
        start = container["startupProbe"]
        assert start["periodSeconds"] * start["failureThreshold"] * 1000 > settings.database_start_wait_ms
        assert container["readinessProbe"]["timeoutSeconds"] > health.CHECK_LIMIT_S


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_time_to_leave(overlay: str) -> None:
    """KB-01: a pod is killed only after everything that its stop may take; who is called goes on serving until callers know."""
    for service, pod in services(overlay).items():
        found = environment(overlay, pod.ductor)
        before = pod.ductor.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        assert (before > 0) == (service not in ("coordinator", "worker")), service
        drain = int(found["DUCTOR_DRAIN_MS"]) / 1000
        stop = drain + 2 + 2 * host.RPC_GRACE_S + host.CLOSE_LIMIT_S
        assert pod.spec["terminationGracePeriodSeconds"] >= before + stop + 5, service
        assert pod.owner["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_pods_wait_for_the_migration(overlay: str) -> None:
    """Who has a login asks, before it starts, whether the schema is its release's; the migration is of the same image."""
    (migrate,) = (pod for pod in pods(overlay, "Job") if pod.name == "migrate")
    for service, pod in services(overlay).items():
        if service in DATABASE_SERVICES:
            (schema,) = pod.spec["initContainers"]
            assert "ductor migrate --check" in schema["command"][-1]
            assert schema["image"] == migrate.ductor["image"] == pod.ductor["image"]
    assert migrate.ductor["args"] == ["migrate"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_pods_are_spread(overlay: str) -> None:
    """Over zones and nodes, each service and release for itself; never at the price of not running."""
    for pod in services(overlay).values():
        keys = [(c["topologyKey"], c["whenUnsatisfiable"]) for c in pod.spec["topologySpreadConstraints"]]
        assert keys == [("topology.kubernetes.io/zone", "ScheduleAnyway"), ("kubernetes.io/hostname", "ScheduleAnyway")]
        for constraint in pod.spec["topologySpreadConstraints"]:
            assert constraint["labelSelector"]["matchLabels"].items() <= pod.labels.items()
            assert constraint["matchLabelKeys"] == ["app.kubernetes.io/component", "pod-template-hash"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_selectors_select_their_own(overlay: str) -> None:
    """A Deployment's selector, and every budget's, means the pods of one owner."""
    for owner in [*objects(overlay, "Deployment"), *objects(overlay, "PodDisruptionBudget")]:
        wanted = owner["spec"]["selector"]["matchLabels"].items()
        assert [p.name for p in pods(overlay) if wanted <= p.labels.items()] == [owner["metadata"]["name"]]


def test_production_has_more_than_one_of_everything() -> None:
    """A budget and an autoscaler for every service; the number of pods is the autoscaler's alone."""
    names = {pod.name for pod in services("production").values()}
    scalers = {s["metadata"]["name"]: s["spec"] for s in objects("production", "HorizontalPodAutoscaler")}
    assert {b["metadata"]["name"] for b in objects("production", "PodDisruptionBudget")} == set(scalers) == names
    for name, scaler in scalers.items():
        assert scaler["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
        assert 2 <= scaler["minReplicas"] < scaler["maxReplicas"]
        assert {m["containerResource"]["container"] for m in scaler["metrics"] if "containerResource" in m} == {
            "ductor"
        }
    assert all("replicas" not in d["spec"] for d in objects("production", "Deployment"))


def test_workers_follow_what_waits() -> None:
    """The worker's autoscaler asks for a metric that dispatch has, by its name and label, for the queue that the worker polls."""
    (scaler,) = (s for s in objects("production", "HorizontalPodAutoscaler") if s["metadata"]["name"] == "worker")
    (metric,) = (m["external"]["metric"] for m in scaler["spec"]["metrics"] if m["type"] == "External")
    metrics = Metrics()
    queue = environment("production", services("production")["worker"].ductor).get(
        "DUCTOR_WORKER_QUEUES", Settings.model_fields["worker_queues"].default
    )
    due = datetime(2026, 1, 1, tzinfo=UTC)
    state = QueueState(queue=queue, tier="standard", ready=1, delayed=0, leased=0, oldest=due)
    Measures(metrics, lambda: 0).queues([state], due.timestamp() + 7)
    assert metric["selector"] == {"matchLabels": {"queue": queue}}
    assert f'{metric["name"]}{{queue="{queue}",tier="standard"}} 7.0' in metrics.exposition().decode()


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_metrics_are_scraped_where_they_are(overlay: str) -> None:
    """The annotations name the port and, where it speaks TLS, the scheme."""
    for pod in services(overlay).values():
        told = pod.owner["spec"]["template"]["metadata"]["annotations"]
        found = environment(overlay, pod.ductor)
        assert told["prometheus.io/scrape"] == "true"
        assert f":{told['prometheus.io/port']}" == found["DUCTOR_HTTP_ADDRESS"]
        assert told.get("prometheus.io/scheme") == ("https" if "DUCTOR_HTTP_TLS_CERT_FILE" in found else None)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_names_and_labels_are_names_and_labels(overlay: str) -> None:
    """What schemas do not say: names are DNS labels, label values are short words; no object is said twice."""
    seen = set()
    for thing in objects(overlay):
        meta = thing["metadata"]
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", meta["name"])
        assert all(re.fullmatch(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", v) for v in _labels(thing))
        key = (thing["kind"], meta.get("namespace"), meta["name"])
        assert key not in seen
        seen.add(key)
        assert meta.get("namespace") or thing["kind"] == "Namespace", key


def _labels(thing: Object) -> list[str]:
    return [*thing["metadata"].get("labels", {}).values()]
