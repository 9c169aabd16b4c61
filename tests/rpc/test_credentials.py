"""The key that a process calls with: where it comes from, how it changes, and that nothing shows it."""

import logging
import os
from pathlib import Path

import pytest

from ductord.model.keys import Token
from ductord.rpc.config import ConfigurationRefused, Settings
from ductord.rpc.credentials import Credential

FIRST = Token(tenant_id="acme", key_id="1" * 32, secret="a" * 43).text
SECOND = Token(tenant_id="acme", key_id="2" * 32, secret="b" * 43).text


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a key."""
    path = tmp_path / "key"
    path.write_text(FIRST + "\n")
    return path


def test_a_call_carries_the_key_of_the_option_or_none() -> None:
    assert Credential(Settings()).metadata() == ()
    assert Credential(Settings(api_key=FIRST)).metadata() == (("authorization", f"Bearer {FIRST}"),)


def test_the_file_is_followed(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Replaced, rewritten, half-written, gone: every call carries the last good key."""
    caplog.set_level(logging.INFO)
    credential = Credential(Settings(api_key_file=str(file)))
    assert credential.metadata() == (("authorization", f"Bearer {FIRST}"),)
    fresh = file.with_suffix(".new")
    fresh.write_text(SECOND)
    os.replace(fresh, file)
    assert credential.metadata() == (("authorization", f"Bearer {SECOND}"),)
    file.write_text(SECOND[:20])
    assert [credential.metadata() for _ in range(3)] == [(("authorization", f"Bearer {SECOND}"),)] * 3
    file.unlink()
    assert credential.metadata() == (("authorization", f"Bearer {SECOND}"),)
    file.write_text(FIRST)
    assert credential.metadata() == (("authorization", f"Bearer {FIRST}"),)
    said = [record.getMessage() for record in caplog.records]
    assert [line.split(" ")[-1] for line in said if "stays in force" in line] == ["force", "force"], "each once"
    assert not any("a" * 43 in line or "b" * 43 in line for line in said)


@pytest.mark.parametrize("content", [None, "", "password", f"{FIRST}\n{SECOND}\n", "dk_acme.ä"])
def test_a_file_without_a_key_keeps_the_process_from_starting(file: Path, content: str | None) -> None:
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    with pytest.raises(ConfigurationRefused, match=f"DUCTOR_API_KEY_FILE={file}") as refused:
        Credential(Settings(api_key_file=str(file)))
    assert "password" not in str(refused.value)
