"""TLS of the gRPC port, of the HTTP port and of calls to other services; and the port of the probes, which speak none."""

from typing import Self

from pydantic import BaseModel, Field, model_validator

from ductord.rpc.addresses import Address, parse_address
from ductord.rpc.options.kinds import ListenAddress, named


class Certificates(BaseModel):
    """Options of certificates: files in PEM, read anew when they change."""

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
    health_address: ListenAddress = Field(
        default="off",
        description="grpc.health.v1 alone, in plaintext, for probes that speak no TLS (Kubernetes); off: on the gRPC port only",
    )

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        for kind in ("tls", "http_tls", "target"):
            pair = [f"{kind}_cert_file", f"{kind}_key_file"]
            for one, other in (pair, pair[::-1]):
                if getattr(self, one) and not getattr(self, other):
                    raise ValueError(f"{named(one)} needs {named(other)}: certificate and key go together")
        for kind in ("tls", "http_tls"):
            if getattr(self, f"{kind}_client_ca_file") and not getattr(self, f"{kind}_cert_file"):
                authority, certificate = named(f"{kind}_client_ca_file"), named(f"{kind}_cert_file")
                raise ValueError(f"{authority} needs {certificate}: without it the port is plaintext and asks nobody")
        if not self.target_tls:
            for name in ("target_ca_file", "target_cert_file", "target_server_name"):
                if getattr(self, name):
                    raise ValueError(f"{named(name)} needs DUCTOR_TARGET_TLS=true: without it calls are plaintext")
        return self

    @property
    def health(self) -> Address | None:
        """The parsed address of the probes' health service; None when it is off."""
        return None if self.health_address == "off" else parse_address(self.health_address)
