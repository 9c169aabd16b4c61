"""grpcurl, built once from Go's module proxy into a folder that git ignores."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

VERSION = "v1.9.3"
PACKAGE = "github.com/fullstorydev/grpcurl/cmd/grpcurl"
CACHE = Path(__file__).resolve().parents[2] / ".tools" / f"grpcurl-{VERSION}"
OFFLINE = ("dial tcp", "i/o timeout", "no such host", "proxyconnect", "connection refused")


def grpcurl_folder() -> Path:
    """The folder that holds the binary. Skips the test, saying why, where there is no Go or no network to build it with."""
    if (CACHE / "grpcurl").exists():
        return CACHE
    go = shutil.which("go", path=f"{os.environ.get('PATH', '')}:/usr/local/go/bin")
    if go is None:
        if (installed := shutil.which("grpcurl")) is not None:
            return Path(installed).parent
        pytest.skip("the grpcurl half of the tour needs Go (to build grpcurl) or grpcurl itself")
    CACHE.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE.parent) as folder:
        environment = {**os.environ, "GOBIN": folder, "GOFLAGS": "-mod=mod -buildvcs=false"}
        done = subprocess.run(
            [go, "install", f"{PACKAGE}@{VERSION}"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if done.returncode and any(words in done.stderr for words in OFFLINE):
            pytest.skip(f"grpcurl cannot be built here: {done.stderr.strip().splitlines()[-1]}")
        assert done.returncode == 0, done.stderr
        CACHE.mkdir(exist_ok=True)
        (Path(folder) / "grpcurl").replace(CACHE / "grpcurl")
    return CACHE
