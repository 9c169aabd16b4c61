"""Our worker as a deployable: the built-in actions behind `TaskService`, in the name of all tenants with the platform scope or of one with its key (N2)."""

from collections.abc import Mapping

from ductor.workflow.v1 import task_service_pb2_grpc as rpc
from ductord.rpc.channels import outage_of, outgoing
from ductord.rpc.config import ConfigurationRefused
from ductord.rpc.credentials import Credential, Metadata
from ductord.rpc.host import Scope, Service
from ductord.worker.actions import built_in
from ductord.worker.actions.guard import GuardedNetwork
from ductord.worker.actions.http import HttpRequest
from ductord.worker.context import Action
from ductord.worker.loop import Options, Worker
from ductord.worker.running import Actions


def service(extra: Mapping[str, Action] | None = None) -> Service:
    """A worker with the built-in actions and `extra` ones."""

    async def start(scope: Scope) -> None:
        settings = scope.settings
        scope.translate(outage_of)
        key = Credential(settings)
        if settings.auth == "keys" and key.token is None:
            raise ConfigurationRefused(
                "worker calls dispatch, which asks for a key: set DUCTOR_API_KEY_FILE or DUCTOR_API_KEY (`ductor key bootstrap --platform` makes one)"
            )
        platform = outgoing(platform=True)  # says nothing beside a key, whose own scopes count

        def signed() -> Metadata:
            return *platform, *key.metadata()

        http = HttpRequest(
            GuardedNetwork(allow_private=settings.http_allow_private), max_bytes=settings.payload_max_bytes
        )
        scope.at_stop(http.close)
        actions = Actions({**built_in(http), **(extra or {})}, payload_max_bytes=settings.payload_max_bytes)
        options = Options(
            queues=[queue.strip() for queue in settings.worker_queues.split(",") if queue.strip()],
            slots=settings.worker_slots,
            wait_ms=min(settings.poll_wait_max_ms, settings.liveness_ms // 2),
            drain_ms=settings.drain_ms,
        )
        stub = rpc.TaskServiceStub(scope.channel("dispatch"))
        worker = Worker(stub, signed, actions, options, scope.metrics)
        scope.ready_when("dispatch", worker.let_in)
        worker.wake = scope.loop("poll", worker.poll, interval_ms=settings.poll_ms).wake
        worker.reports.wake = scope.loop("report", worker.reports.turn, interval_ms=settings.poll_ms).wake
        worker.beats.wake = scope.loop("heartbeat", worker.beats.turn, interval_ms=settings.poll_ms).wake
        scope.on_drain(worker.drain)

    return Service(name="worker", start=start)


SERVICE = service()
