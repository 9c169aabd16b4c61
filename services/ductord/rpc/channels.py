"""Client channels to services of ours, and the metadata that travels with a call.

Open a channel inside the running event loop and keep it. A call that may be repeated (by its idempotency level in the contract) is retried while
the service is unavailable; any other is repeated only by who knows that it may be. Replicas behind one DNS name are used in turn.
"""

import importlib
import json
import pkgutil
from functools import cache
from typing import Any, Final

import grpc
from google.protobuf.descriptor_pb2 import MethodOptions

import ductor.workflow.v1 as api
from ductord.model.errors import Refusal
from ductord.rpc import caller as who
from ductord.rpc import errors, tls
from ductord.rpc.addresses import AddressInvalid, parse_address
from ductord.rpc.config import Settings
from ductord.rpc.renewal import RenewingChannel
from ductord.rpc.tracing import current_traceparent

METADATA_MAX_BYTES: Final = 1 << 20
PASSING: Final = frozenset(
    {"UNAVAILABLE", "ABORTED", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "UNAUTHENTICATED", "PERMISSION_DENIED"}
)
"""Codes that the same call may not get when it is made again: a key that is no good may be replaced meanwhile."""

_REPEATABLE: Final = (MethodOptions.NO_SIDE_EFFECTS, MethodOptions.IDEMPOTENT)


def open_channel(
    target: str, settings: Settings, *, inside: bool = False, files: tls.CertificateFiles | None = None
) -> grpc.aio.Channel:
    """A channel to `host:port`, `dns:///name:port` or `unix:/path`, over TLS where the settings say so. Connects when first used, and again by itself for ever.

    `inside`: it leads to this very process, and TLS is not asked for. `files`: the certificates, where they were read already. Raises
    `ConfigurationRefused` for certificates that are not there or no good.
    """
    options = [
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        ("grpc.max_receive_message_length", 2 * settings.request_max_bytes),
        ("grpc.max_metadata_size", METADATA_MAX_BYTES),
        ("grpc.absolute_max_metadata_size", METADATA_MAX_BYTES),
        ("grpc.service_config", _service_config()),
        ("grpc.use_local_subchannel_pool", 1),  # another channel's dead connection and back-off are not ours
    ]
    files = None if inside else files or tls.of_targets(settings)
    if files is None:
        return grpc.aio.insecure_channel(target, options=options)
    if settings.target_server_name:
        options.append(("grpc.ssl_target_name_override", settings.target_server_name))
    return RenewingChannel(
        lambda: grpc.aio.secure_channel(target, tls.channel_credentials(files), options=options), files
    )


def exposed(target: str, settings: Settings) -> str:
    """The warning that keys travel to `target` in plaintext; empty when they do not, or no further than this machine."""
    keys = settings.auth == "keys" or settings.api_key or settings.api_key_file
    if not keys or settings.target_tls or _local(target):
        return ""
    return f"keys travel to {target} in plaintext: whoever listens reads them; set DUCTOR_TARGET_TLS unless what lies between encrypts"


def _local(target: str) -> bool:
    try:
        return parse_address(
            target.removeprefix("dns:").removeprefix("ipv4:").removeprefix("ipv6:").lstrip("/")
        ).loopback
    except AddressInvalid:
        return False


def outgoing(
    *,
    tenant_id: str | None = None,
    platform: bool = False,
    request_id: str = "",
    traceparent: str = "",
) -> tuple[tuple[str, str], ...]:
    """The metadata of a call, in the name of a tenant or (`platform`) of all.

    Request id and trace context are those of the call and the span at hand where none are given.
    """
    pairs = [(errors.BUDGET_KEY, str(errors.LARGEST_BUDGET))]
    if tenant_id is not None:
        pairs.append((who.TENANT_KEY, tenant_id))
    if platform:
        pairs.append((who.SCOPE_KEY, who.PLATFORM))
    current = who.caller_or_none()
    if request_id := request_id or (current.request_id if current else ""):
        pairs.append((who.REQUEST_ID_KEY, request_id))
    if traceparent := traceparent or current_traceparent():
        pairs.append((who.TRACEPARENT_KEY, traceparent))
    return tuple(pairs)


def outage_of(error: BaseException) -> Refusal | None:
    """What a failed call to a service of ours says if it passes with time (`Scope.translate`, for services without a database); else None."""
    if not isinstance(error, grpc.aio.AioRpcError):
        return None
    refusal = errors.refusal_from(error)
    return refusal if refusal.code in PASSING else None


@cache
def _service_config() -> str:
    """Round robin over the addresses of a name; retries for the RPCs of the contract that may be repeated."""
    config: dict[str, Any] = {"loadBalancingConfig": [{"round_robin": {}}]}
    names = [
        {"service": service.full_name, "method": method.name}
        for service in _services()
        for method in service.methods
        if method.GetOptions().idempotency_level in _REPEATABLE
    ]
    if names:
        policy = {
            "maxAttempts": 4,
            "initialBackoff": "0.1s",
            "maxBackoff": "1s",
            "backoffMultiplier": 2,
            "retryableStatusCodes": ["UNAVAILABLE", "CANCELLED"],  # see `errors.status_from`
        }
        config["methodConfig"] = [{"name": names, "retryPolicy": policy}]
    return json.dumps(config)


def _services() -> list[Any]:
    """The descriptors of every service of the contract."""
    modules = [
        f"{api.__name__}.{m.name}" for m in pkgutil.iter_modules(api.__path__) if m.name.endswith("_service_pb2")
    ]
    return [s for m in modules for s in importlib.import_module(m).DESCRIPTOR.services_by_name.values()]
