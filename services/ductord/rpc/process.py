"""What the services of one process share. It starts and stops nothing: that is the host's business."""

import asyncio
from collections.abc import Set

from ductord.rpc import tls
from ductord.rpc.addresses import Address
from ductord.rpc.config import ConfigurationRefused, Settings, TargetService
from ductord.rpc.health import Health
from ductord.rpc.metrics import Metrics
from ductord.rpc.operations import Operations
from ductord.rpc.server import RpcServer


class Process:
    """Settings, servers, health and metrics of a process that runs the services called `names`."""

    def __init__(self, settings: Settings, names: Set[str]) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.health = Health()
        self.draining = asyncio.Event()
        self.server: RpcServer
        """There before the first service starts, as `certificates` are."""
        self.certificates: dict[str, tls.CertificateFiles | None]
        """Of the gRPC port, the HTTP port, and of calls to other processes; None: plaintext."""
        self.operations = Operations(self.health, self.metrics)
        self.grpc_address: Address
        self.http_address: Address | None = None
        self.health_address: Address | None = None
        self._names = names

    def target(self, service: TargetService, caller: str) -> str:
        """Where `service` is called from this process."""
        if target := self.settings.target(service):
            return target
        if service in self._names:
            return self.server.inside()
        raise ConfigurationRefused(
            f"{caller} calls {service}, which is not in this process: set DUCTOR_{service.upper()}_TARGET"
        )
