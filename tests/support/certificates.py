"""An authority of the tests and the files of its certificates, as whoever renews certificates leaves them."""

import os
import ssl
from datetime import UTC, datetime
from pathlib import Path

import trustme

HOST = "127.0.0.1"


class Authority:
    """An authority and a folder for what it signs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folder.mkdir(parents=True, exist_ok=True)
        self._authority = trustme.CA()
        self.file = str(folder / "ca.pem")
        Path(self.file).write_bytes(self._authority.cert_pem.bytes())

    def issue(self, name: str, *identities: str, ends: datetime | None = None) -> tuple[str, str]:
        """A certificate in `<name>.pem` and its key in `<name>.key`; both are replaced in one step each, as they are in a mounted secret."""
        begins = None if ends is None else datetime(2000, 1, 1, tzinfo=UTC)
        names = identities or (HOST, "localhost")
        made = self._authority.issue_cert(*names, not_before=begins, not_after=ends)
        texts = {
            "pem": b"".join(blob.bytes() for blob in made.cert_chain_pems),
            "key": made.private_key_pem.bytes(),
        }
        for ending, text in texts.items():
            fresh = self._folder / f"{name}.{ending}.new"
            fresh.write_bytes(text)
            os.replace(fresh, self._folder / f"{name}.{ending}")
        return str(self._folder / f"{name}.pem"), str(self._folder / f"{name}.key")

    def server(self, kind: str, *, mutual: bool = False, name: str = "server") -> dict[str, str]:
        """Options of a port that shows a certificate of this authority: `kind` is `tls` or `http_tls`."""
        certificate, key = self.issue(name)
        options = {f"{kind}_cert_file": certificate, f"{kind}_key_file": key}
        return {**options, f"{kind}_client_ca_file": self.file} if mutual else options

    def client(self, *, own: bool = True, name: str = "client") -> dict[str, str]:
        """Options of a client that trusts this authority, with a certificate of its own where asked."""
        options = {"target_tls": "true", "target_ca_file": self.file}
        if own:
            options["target_cert_file"], options["target_key_file"] = self.issue(name, "client.ductor.test")
        return options

    def context(self, certificate: tuple[str, str] | None = None) -> ssl.SSLContext:
        """What a client in Python trusts, and shows."""
        context = ssl.create_default_context(cafile=self.file)
        if certificate is not None:
            context.load_cert_chain(*certificate)
        return context


def as_environment(options: dict[str, str]) -> dict[str, str]:
    """Options as environment variables."""
    return {f"DUCTOR_{name.upper()}": value for name, value in options.items()}
