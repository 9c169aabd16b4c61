"""Where things are: databases and their logins, the addresses that this process listens on, where other services are."""

from typing import Final, Literal, TypedDict, get_args

from pydantic import BaseModel, Field, field_validator

from ductord.rpc.addresses import Address, parse_address
from ductord.rpc.options.kinds import ConfigurationRefused, ListenAddress, Milliseconds, Secret
from ductord.rpc.options.urls import as_user

DatabaseService = Literal[
    "definition", "trigger", "run_control", "signals", "reads", "admin", "coordinator", "dispatch"
]
"""A service with a login of its own, `ductor_<service>`."""
TargetService = Literal["definition", "trigger", "run_control", "signals", "reads", "admin", "dispatch"]
"""A service that others call."""

DATABASE_SERVICES: Final[tuple[DatabaseService, ...]] = get_args(DatabaseService)


class PoolOptions(TypedDict):
    """The arguments of `db.pool.open_pool`."""

    dsn: str
    role: str
    min_size: int
    max_size: int
    notify: bool
    set_role: bool


class Places(BaseModel):
    """Options of where things are."""

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
    grpc_address: ListenAddress = ":9090"
    http_address: ListenAddress = Field(
        default=":8080", description="REST, Connect, /livez, /readyz and /metrics; `off` for none"
    )
    definition_target: str = ""
    trigger_target: str = ""
    run_control_target: str = ""
    signals_target: str = ""
    reads_target: str = ""
    admin_target: str = ""
    dispatch_target: str = ""

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

    @property
    def grpc(self) -> Address:
        """The parsed gRPC address."""
        return parse_address(self.grpc_address)

    @property
    def http(self) -> Address | None:
        """The parsed HTTP address; None when it is off."""
        return None if self.http_address == "off" else parse_address(self.http_address)

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

    def target(self, service: TargetService) -> str:
        """Where `service` was said to run apart; empty when nothing was said."""
        target: str = getattr(self, f"{service}_target")
        return target
