"""`python -m bench.peers [--absurd PYTHON] [--dbos PYTHON] [--json FILE]`: peers and ourselves in one sitting, on the same Postgres with fsync on.

PYTHON is the interpreter of an environment with `requirements-absurd.txt` or `requirements-dbos.txt` installed (bench/README.md). A peer's best figure
over the numbers of processes that are tried counts.
"""

import argparse
import asyncio
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from bench import load
from bench.environment import environment
from ductord.db.embedded import EmbeddedPostgres
from tests.support.stack import running_stack

HERE = Path(__file__).parent
PROCESSES = {"absurd": (1, 2, 4), "dbos": (1, 2)}
COUNTS = {"absurd": {1: 3_000, 10: 600}, "dbos": {1: 600, 10: 200}}
"""Runs by peer and steps: some seconds each."""


def peer(name: str, python: str) -> dict[str, Any]:
    """All figures of a peer, on a fresh server."""
    folder = Path(tempfile.mkdtemp(prefix="ductor-peer-"))
    folder.chmod(0o711)
    postgres = EmbeddedPostgres(folder / "pg")
    postgres.start()
    try:
        dsn = postgres.dsn("ductor")
        found: dict[str, Any] = {}
        for steps in (1, 10):
            rates = []
            for processes in PROCESSES[name]:
                postgres.sql("drop database if exists ductor with (force)")
                postgres.sql("create database ductor")
                count = COUNTS[name][steps]
                rates.append(_figure(name, python, "throughput", dsn, steps=steps, count=count, processes=processes))
            found[f"{steps}_step_runs"] = max(rates, key=lambda rate: float(rate["steps_per_s"]))
            found[f"{steps}_step_runs_by_processes"] = {rate["processes"]: rate["steps_per_s"] for rate in rates}
            found[f"latency_{steps}_ms"] = _figure(name, python, "latency", dsn, steps=steps, count=100)
        return found
    finally:
        postgres.stop(immediate=True)


def _figure(name: str, python: str, what: str, dsn: str, **options: int) -> dict[str, Any]:
    words = [python, str(HERE / f"{name}_peer.py"), what, "--dsn", dsn]
    for option, value in options.items():
        words += [f"--{option}", str(value)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise RuntimeError(f"{' '.join(words)} failed:\n{done.stderr[-2000:]}")
    print(name, lines[-1], flush=True)
    figures: dict[str, Any] = json.loads(lines[-1])
    return figures


async def ours() -> dict[str, Any]:
    """Ourselves, as in the benchmark."""
    with running_stack(forked=False) as stack:
        found: dict[str, Any] = {"environment": await environment(stack.postgres.dsn("postgres"))}
        await load.throughput(stack, slug="warm", steps=10, runs=500)
        found["10_step_runs"] = await load.throughput(stack, slug="ten", steps=10, runs=3_000)
        found["1_step_runs"] = await load.throughput(stack, slug="one", steps=1, runs=6_000)
        for steps, count in ((1, 200), (10, 60)):
            found[f"latency_{steps}_ms"] = await load.latency(stack, slug=f"lat{steps}", steps=steps, count=count)
    return found


def table(found: dict[str, dict[str, Any]]) -> str:
    """As Markdown: everybody's figures, and ours as multiples."""
    lines = ["| | 1-step runs/s | 10-step steps/s | latency 1 / 10 steps, p50 ms | we are |", "|---|---|---|---|---|"]
    mine = found["ductor"]
    for name, figures in found.items():
        one, ten = figures["1_step_runs"]["runs_per_s"], figures["10_step_runs"]["steps_per_s"]
        times = f"{mine['1_step_runs']['runs_per_s'] / one:.1f} × and {mine['10_step_runs']['steps_per_s'] / ten:.1f} ×"
        latency = f"{figures['latency_1_ms']['p50']} / {figures['latency_10_ms']['p50']}"
        lines.append(f"| {name} | {one:,.0f} | {ten:,.0f} | {latency} | {'' if name == 'ductor' else times} |")
    return "\n".join(lines)


def main() -> None:
    """Parse, measure everybody, print."""
    parser = argparse.ArgumentParser(prog="bench.peers", description=__doc__)
    for name in PROCESSES:
        parser.add_argument(f"--{name}", help=f"the Python of an environment with requirements-{name}.txt")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found = {"ductor": asyncio.run(ours())}
    for name in PROCESSES:
        if python := getattr(arguments, name):
            found[name] = peer(name, python)
    print(table(found))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
