"""Where a benchmark was run: what a figure cannot be compared without."""

import datetime
import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import asyncpg
import psutil

_ROOT = Path(__file__).resolve().parents[1]
_PACKAGES = ("asyncpg", "grpcio", "msgspec", "orjson", "uvloop", "protobuf")


async def environment(dsn: str) -> dict[str, Any]:
    """Cores, memory, versions and commit; settings of the server that decide what a commit costs."""
    connection = await asyncpg.connect(dsn)
    try:
        names = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers")
        server = {name: await connection.fetchval("select current_setting($1)", name) for name in names}
    finally:
        await connection.close()
    return {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "processor": _processor(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "postgres": server.pop("server_version"),
        "packages": {name: version(name) for name in _PACKAGES},
        "commit": commit(),
        **server,
    }


def commit() -> str:
    """The commit of this tree, with a `+` where something is not committed; empty where there is no git."""
    try:
        head, changed = (
            subprocess.run(["git", "-C", str(_ROOT), *words], check=True, capture_output=True, text=True).stdout.strip()
            for words in (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f"{head}+" if changed else head


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
