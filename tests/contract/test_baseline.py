"""The contract at rest: `make protos` holds proto/ against proto/baseline.binpb, the contract of the last release, and refuses what breaks its callers.

The gate itself runs `buf breaking`; here it is shown that it would speak, and what it does not look at is held besides: REST paths.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from google.api import annotations_pb2
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import ServiceDescriptor

from ductord.gateway.backends import BACKENDS
from ductord.gateway.routing import Routes

ROOT = Path(__file__).resolve().parents[2]
BASELINE = ROOT / "proto" / "baseline.binpb"
V1 = Path("proto/ductor/workflow/v1")
GATE = ["buf", "breaking", "proto", "--against", "proto/baseline.binpb"]

BREAKING = {
    "a field with another name": (
        "run.proto",
        r"string run_id = ",
        "string id_of_run = ",
        "changed name from",
    ),
    "a field with another type": ("workflow_signal_service.proto", r"int32 ttl_seconds = ", "string ttl_seconds = ", "changed type"),
    "a field that is gone": ("workflow_signal_service.proto", r"  int32 ttl_seconds = 6;\n", "", "was deleted"),
    "a value with another number": ("common.proto", r"TIER_BULK = 3", "TIER_BULK = 4", "TIER_BULK"),
    "an RPC that is gone": ("task_service.proto", r"  // HeartbeatTasks.*?rpc HeartbeatTasks.*?;\n", "", "HeartbeatTasks"),
    "a stream that is none": ("workflow_service.proto", r"returns \(stream WatchRunResponse\)", "returns (WatchRunResponse)", "WatchRun"),
}  # fmt: skip


@pytest.fixture
def contract(tmp_path: Path) -> Path:
    """A copy of the contract, to be changed."""
    shutil.copytree(ROOT / "proto", tmp_path / "proto")
    imports = (
        tmp_path / ".buf-deps" / "google" / "api"
    )  # as proto/gen.sh brings them; the tree's own may be being written just now
    imports.mkdir(parents=True)
    for name in ("annotations.proto", "http.proto"):
        shutil.copy(Path(annotations_pb2.__file__).with_name(name), imports)
    shutil.copy(ROOT / "buf.yaml", tmp_path)
    return tmp_path


def _gate(folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(GATE, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def _change(folder: Path, file: str, pattern: str, to: str) -> None:
    path = folder / V1 / file
    text, count = re.subn(pattern, to, path.read_text("utf-8"), count=1, flags=re.DOTALL)
    assert count == 1, pattern
    path.write_text(text, "utf-8")


@pytest.mark.parametrize("change", BREAKING)
def test_what_breaks_callers_fails_the_gate(contract: Path, change: str) -> None:
    """The gate names what was broken."""
    file, pattern, to, said = BREAKING[change]
    _change(contract, file, pattern, to)
    done = _gate(contract)
    assert (done.returncode, said in done.stdout) == (100, True), done


def test_what_is_added_passes_the_gate(contract: Path) -> None:
    """A field, a value, an RPC, and a comment that says it better."""
    _change(contract, "common.proto", r"  TIER_BULK = 3;\n", "  TIER_BULK = 3;\n  // More.\n  TIER_MORE = 4;\n")
    _change(contract, "task_service.proto", r"  rpc PollTasks", "  // More.\n  rpc More(MoreRequest) returns (MoreResponse);\n  rpc PollTasks")  # fmt: skip
    more = "\n// More.\nmessage MoreRequest {\n  // More.\n  string more = 1;\n}\n\n// More.\nmessage MoreResponse {}\n"
    _change(contract, "task_service.proto", r"\Z", more)
    _change(contract, "common.proto", r"// Fault is", "// A Fault is")
    done = _gate(contract)
    assert done.returncode == 0, done


def test_the_make_target_asks_the_same() -> None:
    """`make check` has the gate in it."""
    text = (ROOT / "Makefile").read_text("utf-8")
    assert " ".join(GATE) in text
    assert re.search(r"^check:.* protos", text, re.MULTILINE)


def test_every_rest_path_of_the_baseline_is_still_served() -> None:
    """Paths stand in options, at which buf does not look: each method and path leads to the RPC that it led to."""
    now = {(route.http_method, route.template): route for route in Routes(b.service for b in BACKENDS).all}
    before = Routes(_released())
    assert before.all
    for route in before.all:
        kept = now.get((route.http_method, route.template))
        assert kept is not None, (route.http_method, route.template)
        assert (kept.rpc.full_name, kept.takes_body) == (route.rpc.full_name, route.takes_body)


def _released() -> list[ServiceDescriptor]:
    """The services of the baseline."""
    assert annotations_pb2.http  # else the paths would be unknown fields
    files = descriptor_pb2.FileDescriptorSet.FromString(BASELINE.read_bytes()).file
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.Add(file)
    return [
        pool.FindServiceByName(f"{file.package}.{service.name}")
        for file in files
        for service in file.service
        if file.package.startswith("ductor.")
    ]
