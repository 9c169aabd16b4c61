"""`make clients`: builds each client, runs its tour against a live engine with keys, and puts its worker through `ductor worker conformance`.

It knows nothing of any language: a client is a folder with `needs`, `build`, `tour` and `worker` (clients/README.md). What this machine has no tools for
is skipped, aloud. Exit code 1 if anything failed.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ductord.db.embedded import EmbeddedPostgres
from examples.demo.engine import Engine

ROOT = Path(__file__).resolve().parent
TENANT = "dev"
OPTIONS = {
    "DUCTOR_AUTH": "keys",
    "DUCTOR_CORS_ORIGINS": "*",  # pages in a browser; allowed because every call needs a key
    "DUCTOR_TENANT_ID": TENANT,
    "DUCTOR_LEASE_MS": "8000",
    "DUCTOR_HEARTBEAT_MS": "2000",
    "DUCTOR_SWEEP_MS": "500",
}
"""How the engine runs. Short leases, so that losing one does not take long."""
BUILD_S, TOUR_S, CHECK_S, CONFORMANCE_S = 1_200, 120, 300, 600
PATIENCE_S = 30
"""Of the conformance: this may be one of many things that the machine does."""
SKIPPED = "skipped:"
"""How a client's `check` begins a line that says what it could not check here."""


@dataclass(frozen=True, kw_only=True)
class Client:
    """A folder here."""

    folder: Path

    @property
    def name(self) -> str:
        """The language."""
        return self.folder.name

    def missing(self, path: str) -> list[str]:
        """The tools that it needs and `path` has not."""
        needs = (self.folder / "needs").read_text().split()
        return [tool for tool in needs if shutil.which(tool, path=path) is None]

    def steps(self) -> Iterator[tuple[str, list[str], int]]:
        """What is run, how, and for how many seconds at most."""
        yield "build", [str(self.folder / "build")], BUILD_S
        yield "tour", [str(self.folder / "tour")], TOUR_S
        if (self.folder / "check").exists():
            yield "check", [str(self.folder / "check")], CHECK_S
        command = [sys.executable, "-m", "ductord.cli", "worker", "conformance", "--patience", str(PATIENCE_S)]
        yield "conformance", [*command, "--command", str(self.folder / "worker")], CONFORMANCE_S


def clients(names: Sequence[str]) -> list[Client]:
    """The named clients, all for none, in the order of their names."""
    found = {path.parent.name: Client(folder=path.parent) for path in sorted(ROOT.glob("*/needs"))}
    if unknown := set(names) - set(found):
        sys.exit(f"there is no client {', '.join(sorted(unknown))}; there are {', '.join(found)}")
    return [client for name, client in found.items() if not names or name in names]


@contextmanager
def engine() -> Iterator[Mapping[str, str]]:
    """A live engine with keys; the environment of those who call it."""
    folder = Path(tempfile.mkdtemp(prefix="ductor-clients-"))
    folder.chmod(0o711)
    running = Engine(folder)
    running.environment |= OPTIONS
    try:
        took = running.start()
        print(f"an engine with keys runs on {running.grpc} and {running.http}, ready in {took:.1f} s", flush=True)
        yield {
            "DUCTOR_TARGET": running.grpc,
            "DUCTOR_HTTP": f"http://{running.http}",
            "DUCTOR_TENANT_ID": TENANT,
            "DUCTOR_API_KEY": (folder / "keys" / f"tenant-{TENANT}").read_text().strip(),
        }
    finally:
        running.stop()
        EmbeddedPostgres(folder).stop(immediate=True)
        shutil.rmtree(folder, ignore_errors=True)


def passes(client: Client, environment: Mapping[str, str]) -> bool:
    """Whether every step of a client does; says so as it goes."""
    for step, command, limit_s in client.steps():
        begin = time.monotonic()
        print(f"\n{client.name}: {step}", flush=True)
        quiet = subprocess.PIPE if step == "build" else None
        try:
            done = subprocess.run(
                command, env=environment, stdout=quiet, stderr=quiet, text=True, timeout=limit_s, check=False
            )
        except subprocess.TimeoutExpired:
            print(f"{client.name}: {step} took more than {limit_s} s", flush=True)
            return False
        if done.returncode:
            if quiet:
                print(done.stdout, done.stderr, sep="\n", flush=True)
            print(f"{client.name}: {step} failed with exit code {done.returncode}", flush=True)
            return False
        print(f"{client.name}: {step} done in {time.monotonic() - begin:.1f} s", flush=True)
    return True


def main() -> int:
    """Run the clients that are named, all for none."""
    parser = argparse.ArgumentParser(description="Build, tour and conformance of the clients.")
    parser.add_argument("name", nargs="*", help="a folder of clients/; all for none")
    chosen = clients(parser.parse_args().name)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DUCTOR_")}
    clean["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), clean["PATH"], "/usr/local/go/bin"])
    lacking = {client: missing for client in chosen if (missing := client.missing(clean["PATH"]))}
    for client, missing in lacking.items():
        print(f"{client.name}: {SKIPPED} this machine has no {', '.join(missing)}", flush=True)
    failed = []
    able = [client for client in chosen if client not in lacking]
    if able:
        with engine() as given:
            failed = [client.name for client in able if not passes(client, {**clean, **given})]
    passed = len(able) - len(failed)
    print(
        f"\n{passed} passed, {len(failed)} failed, {len(lacking)} skipped"
        + "".join(f"; {name} failed" for name in failed)
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
