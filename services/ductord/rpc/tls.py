"""Certificates in files: judged at the start, read anew when they change, and what gRPC and the HTTP server make of them.

Whoever renews certificates replaces files; processes are not restarted for it. What was read last and is good stays in force while the files are being replaced
or hold something that is not: a server that was up never goes down for a certificate that came. It must never log what a key file holds.
"""

import logging
import math
import ssl
import threading
import time
from typing import Any

import grpc
import msgspec

from ductord.rpc.config import ConfigurationRefused, Settings
from ductord.rpc.expiry import end_of
from ductord.rpc.files import State, Unfit, content_of, state_of

_log = logging.getLogger("ductor.tls")


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """What the files held: PEM texts, empty where no file was named, and the same for Python's own TLS.

    `ends`: when the certificate does, in seconds since 1970; None without one.
    """

    certificate: bytes
    key: bytes
    authority: bytes
    context: ssl.SSLContext
    ends: float | None

    def __repr__(self) -> str:
        return "Material(…)"


class CertificateFiles:
    """The files of one purpose. `prefix` and `authority_option` are the names of the options, for messages; paths may be empty, certificate and key together.

    Raises `ConfigurationRefused` naming the option whose file is missing, is none, or does not fit.
    """

    def __init__(
        self, prefix: str, *, certificate: str, key: str, authority: str, authority_option: str, server: bool
    ) -> None:
        self._options = (f"{prefix}_CERT_FILE", f"{prefix}_KEY_FILE", authority_option)
        self._paths = (certificate, key, authority)
        self._server = server
        self._lock = threading.Lock()  # gRPC asks from threads of its own
        try:
            self._state = self._stat()
            self._material = self._read()
        except Unfit as unfit:
            raise ConfigurationRefused(str(unfit)) from None
        self._told: object = None

    @property
    def mutual(self) -> bool:
        """Whether the other side must show a certificate."""
        return bool(self._paths[2])

    def renewed(self) -> bool:
        """Look whether the files have changed; True when what is in force is new. Costs a few system calls when nothing has."""
        with self._lock:
            try:
                state = self._stat()
                if state == self._state:
                    return False
                material = self._read()
                if self._stat() != state:  # replaced while we were reading: the next look has all of it
                    return False
            except Unfit as unfit:
                self._tell(unfit)
                return False
            self._state, self._material = state, material
            self._told = None
        _log.info("%s and its like were renewed", self._options[0] if self._paths[0] else self._options[2])
        return True

    @property
    def material(self) -> Material:
        """What is in force."""
        return self._material

    def ends(self) -> float:
        """When the certificate in force does, in seconds since 1970; not a number where that is not known."""
        return math.nan if self._material.ends is None else self._material.ends

    def _stat(self) -> tuple[State, ...]:
        return tuple(state_of(option, path) for option, path in zip(self._options, self._paths, strict=True) if path)

    def _tell(self, unfit: Unfit) -> None:
        if str(unfit) != self._told:
            self._told = str(unfit)
            _log.warning("%s; what was read before stays in force", unfit)

    def _read(self) -> Material:
        texts = [
            content_of(option, path) if path else b"" for option, path in zip(self._options, self._paths, strict=True)
        ]
        certificate, key, authority = texts
        context = self._context(key)
        ends = end_of(self._paths[0], self._paths[1], server=self._server) if certificate else None
        if ends is not None and ends < time.time():
            _log.warning("%s=%s ended on %s", self._options[0], self._paths[0], time.strftime("%F", time.gmtime(ends)))
        return Material(certificate=certificate, key=key, authority=authority, context=context, ends=ends)

    def _context(self, key: bytes) -> ssl.SSLContext:
        """The files as Python's TLS takes them; its way to find out that they are fit for gRPC too."""
        (of_certificate, of_key, of_authority), (certificate_file, key_file, authority_file) = (
            self._options,
            self._paths,
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if self._server else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        if certificate_file:
            if b"ENCRYPTED" in key:
                raise Unfit(f"{of_key}={key_file} is encrypted: a server that starts by itself needs it as it is")
            try:
                context.load_cert_chain(certificate_file, key_file)
            except ssl.SSLError as error:
                if error.reason == "KEY_VALUES_MISMATCH":
                    raise Unfit(f"{of_key}={key_file} does not fit the certificate in {certificate_file}") from None
                raise Unfit(f"{of_certificate}={certificate_file} and {of_key}={key_file} are no pair in PEM") from None
        if authority_file:
            try:
                context.load_verify_locations(authority_file)
            except ssl.SSLError:
                raise Unfit(f"{of_authority}={authority_file} holds no certificate in PEM") from None
            context.verify_mode = ssl.CERT_REQUIRED
        return context


class RenewingContext(ssl.SSLContext):
    """What the HTTP server holds: every connection begins with the certificates that are in force then, the authority of its callers included."""

    _files: CertificateFiles

    @classmethod
    def of(cls, files: CertificateFiles) -> "RenewingContext":
        """A context over files."""
        context = cls(ssl.PROTOCOL_TLS_SERVER)
        context._files = files
        return context

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """A connection begins: asyncio and uvloop come here."""
        self._files.renewed()
        return self._files.material.context.wrap_bio(*args, **kwargs)


_given: list[grpc.ServerCredentials] = []
"""Every one that gRPC was given. Its core asks through a bare pointer to them, also for a connection that is at its handshake when the server and all that knew
of it are gone: a process that lets go of them can die of it. There is one per process."""


def server_credentials(files: CertificateFiles) -> grpc.ServerCredentials:
    """For a gRPC port, looked at again at every connection."""

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        return _configuration(files.material) if files.renewed() else None

    # None is «no change», which grpc's documentation knows and its types do not.
    credentials = grpc.dynamic_ssl_server_credentials(_configuration(files.material), fetch, files.mutual)  # type: ignore[arg-type]
    _given.append(credentials)
    return credentials


def channel_credentials(files: CertificateFiles) -> grpc.ChannelCredentials:
    """For a client, as the files are now. Without an authority the system's are trusted."""
    material = files.material
    return grpc.ssl_channel_credentials(material.authority or None, material.key or None, material.certificate or None)


def of_grpc_port(settings: Settings) -> CertificateFiles | None:
    """The certificates of the gRPC port; None: plaintext. Raises `ConfigurationRefused`."""
    if not settings.tls_cert_file:
        return None
    return CertificateFiles(
        "DUCTOR_TLS",
        certificate=settings.tls_cert_file,
        key=settings.tls_key_file,
        authority=settings.tls_client_ca_file,
        authority_option="DUCTOR_TLS_CLIENT_CA_FILE",
        server=True,
    )


def of_http_port(settings: Settings) -> CertificateFiles | None:
    """The certificates of the HTTP port; None: plaintext. Raises `ConfigurationRefused`."""
    if not settings.http_tls_cert_file:
        return None
    return CertificateFiles(
        "DUCTOR_HTTP_TLS",
        certificate=settings.http_tls_cert_file,
        key=settings.http_tls_key_file,
        authority=settings.http_tls_client_ca_file,
        authority_option="DUCTOR_HTTP_TLS_CLIENT_CA_FILE",
        server=True,
    )


def of_targets(settings: Settings) -> CertificateFiles | None:
    """Ours for calls to other services, and whom we trust there; None: plaintext. Raises `ConfigurationRefused`."""
    if not settings.target_tls:
        return None
    return CertificateFiles(
        "DUCTOR_TARGET",
        certificate=settings.target_cert_file,
        key=settings.target_key_file,
        authority=settings.target_ca_file,
        authority_option="DUCTOR_TARGET_CA_FILE",
        server=False,
    )


def _configuration(material: Material) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(material.key, material.certificate)], material.authority or None)
