"""Every option of the suite: one model, filled from `DUCTOR_*`, printed by `ductor config`.

An option is here only if something reads it. Durations are milliseconds and end in `_ms`, sizes are bytes. The model never opens a connection.
"""

import difflib
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypedDict, get_args
from urllib.parse import urlsplit, urlunsplit

from pydantic import AliasChoices, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from ductord.model.fanout import MAX_CHILDREN
from ductord.model.keys import parse_token
from ductord.model.starting import ENVIRONMENT_PATTERN
from ductord.rpc.addresses import Address, AddressInvalid, is_origin, parse_address

DatabaseService = Literal[
    "definition", "trigger", "run_control", "signals", "reads", "admin", "coordinator", "dispatch"
]
"""A service with a login of its own, `ductor_<service>`."""
TargetService = Literal["definition", "trigger", "run_control", "signals", "reads", "admin", "dispatch"]
"""A service that others call."""

OTHERS: Final = frozenset({"DUCTOR_TENANT_ID", "DUCTOR_TARGET", "DUCTOR_TENANT"})
"""Names that the command line and the spec's examples use, and no server reads."""

DATABASE_SERVICES: Final[tuple[DatabaseService, ...]] = get_args(DatabaseService)

Milliseconds = Annotated[int, Field(gt=0, le=86_400_000)]
Bytes = Annotated[int, Field(gt=0, le=64 << 20)]
Count = Annotated[int, Field(gt=0, le=1_000_000)]
Secret = Annotated[str, Field(json_schema_extra={"secret": True})]


class ConfigurationRefused(Exception):
    """The options contradict a rule; the message says which and what to set. The CLI prints it and exits with 2."""


class PoolOptions(TypedDict):
    """The arguments of `db.pool.open_pool`."""

    dsn: str
    role: str
    min_size: int
    max_size: int
    notify: bool
    set_role: bool


class Settings(BaseSettings):
    """The configuration of a process. Field `x` is read from `DUCTOR_X`; arguments win over the environment."""

    model_config = SettingsConfigDict(env_prefix="DUCTOR_", frozen=True, extra="forbid", populate_by_name=True)

    # Where things are
    database_url: Secret = ""
    definition_database_url: Secret = ""
    trigger_database_url: Secret = ""
    run_control_database_url: Secret = ""
    signals_database_url: Secret = ""
    reads_database_url: Secret = ""
    admin_database_url: Secret = ""
    coordinator_database_url: Secret = ""
    dispatch_database_url: Secret = ""
    database_set_role: bool = Field(
        default=False, description="log in as DUCTOR_DATABASE_URL says and change into the service's role (trials only)"
    )
    database_start_wait_ms: Milliseconds = Field(
        default=30_000, description="how long a starting service waits for a database that cannot be reached"
    )
    pool_min_size: int = Field(default=1, ge=0, le=100)
    pool_max_size: int = Field(default=4, ge=1, le=100)
    grpc_address: str = ":9090"
    http_address: str = Field(
        default=":8080", description="REST, Connect, /livez, /readyz and /metrics; `off` for none"
    )
    definition_target: str = ""
    trigger_target: str = ""
    run_control_target: str = ""
    signals_target: str = ""
    reads_target: str = ""
    admin_target: str = ""
    dispatch_target: str = ""

    # Definitions at boot
    workflows_dir: str = ""
    workflows_tenant: str = ""
    workflow_runtime_enabled: bool = Field(
        default=True, description="off: definitions can be managed, no run is started or advanced"
    )
    environment: str = Field(
        default="",
        pattern=ENVIRONMENT_PATTERN,
        description="the deployment's name: on spans, and whose overrides of VARS a run starts with (L8)",
    )
    events_wildcards_enabled: bool = Field(
        default=False, description="event triggers may have patterns that end in `.*` (ductor.events.wildcards.enabled)"
    )

    # Who may call
    auth: Literal["off", "keys"] = Field(
        default="off", description="off: callers are taken at their word; keys: every call needs a key (N1)"
    )
    insecure: bool = Field(default=False, description="allow auth off on an address that other machines reach (N3)")
    key_cache_ms: Milliseconds = Field(
        default=2_000, description="how long a key that was looked up is taken as good: how soon a revocation counts"
    )
    key_attempts: Count = Field(
        default=20,
        description="failed attempts at keys that one host may make at once for one tenant, or for one key; then one a second",
    )
    api_key: Secret = Field(default="", description="the key that our own worker and the command line call with")
    api_key_file: str = Field(
        default="", description="a file that holds that key, read anew when it changes; instead of DUCTOR_API_KEY"
    )

    cors_origins: str = Field(
        default="", description="origins whose pages may call the HTTP port, comma-separated, or `*`; empty: none"
    )

    # TLS: of the gRPC port, of the HTTP port, and of calls to other services
    tls_cert_file: str = Field(default="", description="certificate chain of the gRPC port (PEM); empty: plaintext")
    tls_key_file: str = Field(default="", description="its private key (PEM)")
    tls_client_ca_file: str = Field(
        default="", description="callers of the gRPC port must have a certificate of this authority (mutual TLS)"
    )
    http_tls_cert_file: str = Field(default="", description="certificate chain of the HTTP port; empty: plaintext")
    http_tls_key_file: str = Field(default="", description="its private key (PEM)")
    http_tls_client_ca_file: str = Field(
        default="", description="callers of the HTTP port must have a certificate of this authority"
    )
    target_tls: bool = Field(default=False, description="call the DUCTOR_<SERVICE>_TARGETs and DUCTOR_TARGET over TLS")
    target_ca_file: str = Field(
        default="", description="the authority that those services' certificates are of; empty: the system's"
    )
    target_cert_file: str = Field(default="", description="our own certificate, where they ask for one (mutual TLS)")
    target_key_file: str = Field(default="", description="its private key (PEM)")
    target_server_name: str = Field(
        default="", description="the name that their certificates are for, if not the host of the target"
    )
    health_address: str = Field(
        default="off",
        description="grpc.health.v1 alone, in plaintext, for probes that speak no TLS (Kubernetes); off: on the gRPC port only",
    )

    # Time (ruling A4 unless said otherwise)
    lease_ms: Milliseconds = 15_000
    heartbeat_ms: Milliseconds = 5_000
    sweep_ms: Milliseconds = 5_000
    drain_ms: Milliseconds = 10_000
    cancel_grace_ms: Milliseconds = Field(
        default=30_000, description="how long attempts that were asked to stop may take (G5)"
    )
    poll_ms: Milliseconds = Field(default=1_000, description="how often a loop looks without being woken")
    poll_wait_max_ms: Milliseconds = Field(
        default=30_000, description="the longest that PollTasks waits for a first task"
    )
    liveness_ms: Milliseconds = Field(
        default=60_000, description="a loop that has not turned for so long is dead: /livez fails"
    )
    notify: bool = Field(default=True, description="send and hear NOTIFY; off: polling alone, the same results later")

    # How much at once
    coordinator_batch_size: Count = 500
    dispatch_batch_size: Count = 500
    worker_slots: Count = Field(default=500, description="how many attempts one worker runs at once")
    worker_queues: str = Field(default="default", description="the queues that the worker polls, comma-separated")
    max_calls: Count = Field(default=2_000, description="RPCs in flight in one process; more are refused as OVERLOADED")

    # Limits (ruling L7)
    payload_max_bytes: Bytes = 1 << 20
    payload_warn_bytes: Bytes = 256 << 10
    key_max_bytes: Bytes = 256
    request_max_bytes: Bytes = Field(default=4 << 20, description="one whole request")
    reply_max_bytes: Bytes = Field(
        default=3 << 20, description="the payloads of one reply; the rest is left out and flagged"
    )

    # Length of a run's history (ruling C6)
    history_soft: Count = Field(default=4_000, description="longer histories are told once")
    history_hard: Count = Field(default=8_000, description="longer ones continue as new, where the definition says so")
    history_terminate: Count = Field(default=12_000, description="a run whose history is longer is terminated")

    # Fan-outs (ruling F1)
    max_inline_children: int = Field(
        default=256, ge=1, le=MAX_CHILDREN, description="the widest inline scatter, where a definition does not say"
    )

    # Actions
    http_allow_private: bool = Field(
        default=False, description="let http:request reach loopback, private and metadata addresses (N4)"
    )

    # Looking inside
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "json", "text"] = Field(
        default="auto", description="auto: text on a terminal, else JSON lines"
    )
    access_log: Literal["all", "errors", "off"] = "all"
    otlp_endpoint: str = Field(
        default="",
        validation_alias=AliasChoices("otlp_endpoint", "DUCTOR_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"),
        description="where spans go, as http://host:4317; empty: nowhere, trace context is passed on all the same",
    )
    trace_sample_ratio: float = Field(default=1.0, ge=0, le=1)

    SECRET: ClassVar[str] = "***"

    @classmethod
    def load(cls, **given: Any) -> Self:
        """The settings, or `ConfigurationRefused` saying for every bad option what is wrong with it."""
        try:
            return cls(**given)
        except ValidationError as error:
            faults = [f"{_option(fault['loc'])}: {fault['msg']}" for fault in error.errors()]
            raise ConfigurationRefused("; ".join(faults)) from None

    @classmethod
    def unknown(cls, environ: Mapping[str, str]) -> list[str]:
        """`DUCTOR_*` names of an environment that no option has, each with the nearest one that is: a misspelt option must not go unnoticed."""
        known = {f"DUCTOR_{name.upper()}" for name in cls.model_fields} | OTHERS
        wrong = sorted(name for name in environ if name.startswith("DUCTOR_") and name not in known)
        near = {name: difflib.get_close_matches(name, known, 1) for name in wrong}
        return [f"{name} (did you mean {near[name][0]}?)" if near[name] else name for name in wrong]

    @field_validator("grpc_address", "http_address", "health_address")
    @classmethod
    def _address(cls, text: str) -> str:
        if text != "off":
            parse_address(text)
        return text

    @field_validator("http_address")
    @classmethod
    def _http_port(cls, text: str) -> str:
        if text.startswith("unix:"):
            raise ValueError("HTTP is served on a port: host:port, :port or off")
        return text

    @field_validator("grpc_address")
    @classmethod
    def _grpc_on(cls, text: str) -> str:
        if text == "off":
            raise ValueError("every process listens for gRPC; use 127.0.0.1:0 for a port that nobody needs to know")
        return text

    @field_validator("cors_origins")
    @classmethod
    def _cors_origins(cls, text: str) -> str:
        for origin in _listed(text):
            if origin != "*" and not is_origin(origin):
                raise ValueError(
                    f"{origin!r} is no origin as browsers send it: scheme://host[:port] in lower case, without a path and the scheme's own port"
                )
        return text

    @model_validator(mode="after")
    def _tiers(self) -> Self:
        if not self.history_soft <= self.history_hard <= self.history_terminate:
            raise ValueError("DUCTOR_HISTORY_SOFT, _HARD and _TERMINATE are in this order from the smallest on")
        return self

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        for kind in ("tls", "http_tls", "target"):
            pair = [f"{kind}_cert_file", f"{kind}_key_file"]
            for one, other in (pair, pair[::-1]):
                if getattr(self, one) and not getattr(self, other):
                    raise ValueError(f"{_named(one)} needs {_named(other)}: certificate and key go together")
        for kind in ("tls", "http_tls"):
            if getattr(self, f"{kind}_client_ca_file") and not getattr(self, f"{kind}_cert_file"):
                authority, certificate = _named(f"{kind}_client_ca_file"), _named(f"{kind}_cert_file")
                raise ValueError(f"{authority} needs {certificate}: without it the port is plaintext and asks nobody")
        if not self.target_tls:
            for name in ("target_ca_file", "target_cert_file", "target_server_name"):
                if getattr(self, name):
                    raise ValueError(f"{_named(name)} needs DUCTOR_TARGET_TLS=true: without it calls are plaintext")
        if self.api_key and self.api_key_file:
            raise ValueError("DUCTOR_API_KEY and DUCTOR_API_KEY_FILE say the same: set one of them")
        return self

    @field_validator("api_key")
    @classmethod
    def _key(cls, text: str) -> str:
        if text and parse_token(text) is None:
            raise ValueError("has not the form of a key, dk_<tenant>.<id>.<secret>")
        return text

    @property
    def engine_limits(self) -> dict[str, int]:
        """What the engine is told of these options, by its own names for them: for who decides and who records what was decided."""
        same = ("payload_max_bytes", "max_inline_children", "history_soft", "history_hard", "history_terminate")
        return {"stop_grace_ms": self.cancel_grace_ms, **{name: getattr(self, name) for name in same}}

    @property
    def grpc(self) -> Address:
        """The parsed gRPC address."""
        return parse_address(self.grpc_address)

    @property
    def health(self) -> Address | None:
        """The parsed address of the probes' health service; None when it is off."""
        return None if self.health_address == "off" else parse_address(self.health_address)

    @property
    def http(self) -> Address | None:
        """The parsed HTTP address; None when it is off."""
        return None if self.http_address == "off" else parse_address(self.http_address)

    @property
    def origins(self) -> frozenset[str]:
        """The origins whose pages may call; `*` stands for all, an empty set for none."""
        return frozenset(_listed(self.cors_origins))

    def database(self, service: DatabaseService) -> tuple[str, bool]:
        """(connection string, whether the role is taken on by SET ROLE) of a service.

        `DUCTOR_<SERVICE>_DATABASE_URL` as it stands, else `DUCTOR_DATABASE_URL` with the user replaced by `ductor_<service>`. Raises
        `ConfigurationRefused` when neither is set.
        """
        own: str = getattr(self, f"{service}_database_url")
        if own:
            return own, False
        if not self.database_url:
            raise ConfigurationRefused(f"{service} needs DUCTOR_{service.upper()}_DATABASE_URL or DUCTOR_DATABASE_URL")
        if self.database_set_role:
            return self.database_url, True
        return as_user(self.database_url, f"ductor_{service}"), False

    def pool(self, service: DatabaseService) -> PoolOptions:
        """The arguments of `open_pool` for a service. Raises as `database`."""
        dsn, set_role = self.database(service)
        return PoolOptions(
            dsn=dsn,
            role=service,
            min_size=min(self.pool_min_size, self.pool_max_size),
            max_size=self.pool_max_size,
            notify=self.notify,
            set_role=set_role,
        )

    def target(self, service: TargetService) -> str:
        """Where `service` was said to run apart; empty when nothing was said."""
        target: str = getattr(self, f"{service}_target")
        return target

    def refuse_insecure(self) -> None:
        """Ruling N3, before anything is bound. Raises `ConfigurationRefused`."""
        if self.auth == "keys" or self.insecure:
            return
        if "*" in self.origins:
            raise ConfigurationRefused(
                "DUCTOR_CORS_ORIGINS=* lets every page that a browser on this machine shows call, and authentication is off: "
                "name the origins, or set DUCTOR_INSECURE=1"
            )
        for name, address in (("DUCTOR_GRPC_ADDRESS", self.grpc), ("DUCTOR_HTTP_ADDRESS", self.http)):
            if address is not None and not address.loopback:
                raise ConfigurationRefused(
                    f"{name}={address} can be reached from other machines and authentication is off: "
                    f"bind 127.0.0.1:{address.port}, or set DUCTOR_INSECURE=1 if something in front of it authenticates"
                )

    @property
    def exposures(self) -> list[str]:
        """What is not forbidden and worth a warning: ports that other machines reach and over which keys travel as they are."""
        if self.auth != "keys":
            return []
        ports = (
            ("grpc_address", self.grpc, self.tls_cert_file),
            ("http_address", self.http, self.http_tls_cert_file),
        )
        return [
            f"{_named(name)}={address} can be reached from other machines and is plaintext: whoever listens reads keys; "
            f"set {_named(certificate)} unless what lies between encrypts"
            for (name, address, file), certificate in zip(ports, ("tls_cert_file", "http_tls_cert_file"), strict=True)
            if address is not None and not address.loopback and not file
        ]

    @classmethod
    def for_dev(cls, **given: Any) -> Self:
        """The settings of `ductor dev`: the same options, with both addresses on loopback where they name no host (N3)."""
        settings = cls.load(**given)
        local = {
            name: str(Address(host="127.0.0.1", port=address.port))
            for name, address in (("grpc_address", settings.grpc), ("http_address", settings.http))
            if address is not None and not address.host and not address.path
        }
        return settings.model_copy(update=local) if local else settings

    def printable(self) -> Mapping[str, str | int | float | bool]:
        """Environment name → value in force, passwords hidden; connection strings keep what is not secret."""
        shown: dict[str, str | int | float | bool] = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            secret = isinstance(field.json_schema_extra, dict) and field.json_schema_extra.get("secret")
            shown[f"DUCTOR_{name.upper()}"] = _masked(value) if secret else value
        return shown


def _listed(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _option(location: tuple[int | str, ...]) -> str:
    name = str(location[0]) if location else "options"
    return name if name.startswith(("DUCTOR_", "OTEL_")) else _named(name)


def _named(field: str) -> str:
    return f"DUCTOR_{field.upper()}"


def as_user(url: str, user: str) -> str:
    """`url` with another user and the same password, host and parameters."""
    parts = urlsplit(url)
    credentials, at, host = parts.netloc.rpartition("@")
    _, colon, password = credentials.partition(":")
    return urlunsplit(parts._replace(netloc=f"{user}{colon}{password}@{host}" if at else f"{user}@{host}"))


def _masked(url: str) -> str:
    if not url:
        return ""
    if (token := parse_token(url)) is not None:
        return f"{token.prefix}{Settings.SECRET}"
    if "://" not in url:
        return Settings.SECRET
    try:
        parts = urlsplit(url)
    except ValueError:
        return Settings.SECRET
    credentials, at, host = parts.netloc.rpartition("@")
    user, colon, _ = credentials.partition(":")
    query = "&".join(p for p in parts.query.split("&") if not p.lower().startswith("password="))
    return urlunsplit(parts._replace(netloc=f"{user}{colon and ':' + Settings.SECRET}{at}{host}", query=query))


__all__ = [
    "DATABASE_SERVICES",
    "AddressInvalid",
    "ConfigurationRefused",
    "DatabaseService",
    "PoolOptions",
    "Settings",
    "TargetService",
    "as_user",
]
