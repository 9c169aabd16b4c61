"""TLS under attack: files that are half there, pipes where files should be, callers who speak nothing or something else."""

import asyncio
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from ductord.rpc import tls
from ductord.rpc.config import ConfigurationRefused
from ductord.rpc.credentials import Credential
from ductord.rpc.host import Scope, Service, hosting
from ductord.rpc.server import SOCKET_PATH_MAX
from tests.rpc.echo import Echo, loopback
from tests.support.certificates import Authority

KEY = f"dk_acme.{'0' * 32}.{'A' * 43}"


@pytest.fixture
def ours(tmp_path: Path) -> Authority:
    """The authority that everybody trusts."""
    return Authority(tmp_path / "ours")


def test_whatever_stands_in_the_place_of_files_what_was_good_stays(
    ours: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """Cut off, empty, of another pair, gone, a folder, a pipe that nobody writes into: each is told once and holds nobody up; what is good at last is taken."""
    options = ours.server("tls", mutual=True)
    other = ours.issue("other")
    certificate, key = Path(options["tls_cert_file"]), Path(options["tls_key_file"])
    files = tls.of_grpc_port(loopback(**options))
    assert files is not None
    good = files.material
    held = certificate.read_bytes(), key.read_bytes()
    told: set[str] = set()

    def none() -> None:
        certificate.unlink()

    def folder() -> None:
        certificate.mkdir()

    def pipe() -> None:
        certificate.rmdir()
        os.mkfifo(certificate)

    def back() -> None:
        certificate.unlink()
        certificate.write_bytes(held[0])

    for harm in (
        lambda: certificate.write_bytes(held[0][:200]),
        lambda: certificate.write_bytes(b""),
        lambda: certificate.write_bytes(Path(other[0]).read_bytes()),
        none,
        folder,
        pipe,
        back,
        lambda: key.write_bytes(b"\0\xff" * 2_000),
        lambda: key.write_bytes(held[1][:-60]),
    ):
        caplog.clear()
        harm()
        renewed = [files.renewed() for _ in range(3)]
        if harm is back:
            assert renewed == [True, False, False]
            good = files.material
            continue
        assert renewed == [False] * 3
        assert files.material is good
        lines = [record.getMessage() for record in caplog.records if record.name == "ductor.tls"]
        assert len(lines) <= 1, "not with every look"
        told.update(lines)
        assert held[1].decode().splitlines()[1] not in caplog.text
    assert len(told) == 4
    certificate.write_bytes(Path(other[0]).read_bytes())
    assert not files.renewed()
    key.write_bytes(Path(other[1]).read_bytes())
    assert files.renewed()


async def test_callers_who_say_nothing_or_something_else_hold_nobody_up(ours: Authority) -> None:
    """Half a handshake, plain HTTP, noise: on both ports, a hundred at once, and the next caller is answered."""
    options = {**ours.server("tls"), **ours.server("http_tls", name="http")}
    async with hosting([Echo().service], loopback(**options)) as host:
        assert host.http_address is not None
        writers = []
        for port in (host.grpc_address.port, host.http_address.port):
            for text in (b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", b"\0" * 64) * 17:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(text)
                writers.append(writer)
        async with httpx.AsyncClient(verify=ours.context()) as client:
            assert (await client.get(f"https://{host.http_address}/livez", timeout=20)).status_code == 200
        for writer in writers:
            writer.transport.abort()


async def test_a_folder_too_deep_for_a_socket_is_told(
    ours: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("x" * (SOCKET_PATH_MAX - len(str(tmp_path)) - 8))
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))

    async def start(scope: Scope) -> None:
        scope.target("trigger")

    settings: Any = loopback(**ours.server("tls"))
    with pytest.raises(ConfigurationRefused, match="TMPDIR"):
        async with hosting([Echo().service, Service(name="gateway", start=start)], settings):
            pass
    assert list(deep.iterdir()) == []


async def test_a_key_from_a_pipe_is_read_once(tmp_path: Path) -> None:
    """`--api-key-file <(…)`: nobody writes a second time, and nobody waits for it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writing = asyncio.create_task(asyncio.to_thread(pipe.write_text, KEY + "\n"))
    credential = await asyncio.to_thread(Credential, loopback(api_key_file=str(pipe)))
    await writing
    assert {credential.token.text if credential.token else "" for _ in range(3)} == {KEY}
