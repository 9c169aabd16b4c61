"""Every option of the suite: one model, filled from `DUCTOR_*`, printed by `ductor config`. The options are in `rpc.options`, by topic.

An option is there only if something reads it. Durations are milliseconds and end in `_ms`, sizes are bytes. The model never opens a connection.
"""

import difflib
from collections.abc import Mapping
from typing import Any, Final, Self

from pydantic import ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from ductord.rpc.addresses import Address, AddressInvalid
from ductord.rpc.options.callers import Callers
from ductord.rpc.options.certificates import Certificates
from ductord.rpc.options.kinds import ConfigurationRefused, named
from ductord.rpc.options.limits import Limits
from ductord.rpc.options.looking import Looking
from ductord.rpc.options.pace import Pace
from ductord.rpc.options.places import DATABASE_SERVICES, DatabaseService, Places, PoolOptions, TargetService
from ductord.rpc.options.urls import as_user, masked
from ductord.rpc.options.workflows import Workflows

OTHERS: Final = frozenset({"DUCTOR_TENANT_ID", "DUCTOR_TARGET", "DUCTOR_TENANT"})
"""Names that the command line and the spec's examples use, and no server reads."""


class Settings(Looking, Limits, Pace, Certificates, Callers, Workflows, Places, BaseSettings):
    """The configuration of a process. Field `x` is read from `DUCTOR_X`; arguments win over the environment.

    The topics stand here from the last to the first: so the options are in the order in which they are read and printed.
    """

    model_config = SettingsConfigDict(env_prefix="DUCTOR_", frozen=True, extra="forbid", populate_by_name=True)

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

    @property
    def engine_limits(self) -> dict[str, int]:
        """What the engine is told of these options, by its own names for them: for who decides and who records what was decided."""
        same = ("payload_max_bytes", "max_inline_children", "history_soft", "history_hard", "history_terminate")
        return {"stop_grace_ms": self.cancel_grace_ms, **{name: getattr(self, name) for name in same}}

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
            f"{named(name)}={address} can be reached from other machines and is plaintext: whoever listens reads keys; "
            f"set {named(certificate)} unless what lies between encrypts"
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
            shown[f"DUCTOR_{name.upper()}"] = masked(value) if secret else value
        return shown


def _option(location: tuple[int | str, ...]) -> str:
    name = str(location[0]) if location else "options"
    return name if name.startswith(("DUCTOR_", "OTEL_")) else named(name)


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
