"""docs/tour.md does what it says (acceptance 2): its commands are run as they stand against `ductor dev`, its outputs are compared."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.demo.engine import Engine
from tests.support.dev import dev_folder, running_dev
from tests.tour.blocks import Block, matches, sections
from tests.tour.grpcurl import grpcurl_folder

pytestmark = [pytest.mark.xdist_group("tour"), pytest.mark.timeout(900)]

MARK = "--- block {} ---"


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """One engine for all parts, as a reader would have it."""
    with dev_folder() as folder, running_dev(folder) as running:
        yield running


def test_the_tour_with_curl(engine: Engine, tmp_path: Path) -> None:
    """The spec's calls with its paths and field names: create, get, list, edit, publish, duplicate, archive, trigger, poll, steps, timeline."""
    for tool in ("curl", "jq"):
        if shutil.which(tool) is None:
            pytest.skip(f"the tour needs {tool}")
    _tour(sections()["With curl"], engine, tmp_path, [])


def test_the_tour_with_grpcurl(engine: Engine, tmp_path: Path) -> None:
    """The same with nothing but reflection and grpcurl, which is then a worker too."""
    if shutil.which("jq") is None:
        pytest.skip("the tour needs jq")
    _tour(sections()["With grpcurl"], engine, tmp_path, [grpcurl_folder()])


def test_the_tour_of_an_operator(engine: Engine, tmp_path: Path) -> None:
    """Pause, cancel with compensation, redrive, reset and the audit trail, with curl, grpcurl and the command line (C1 to C8)."""
    for tool in ("curl", "jq"):
        if shutil.which(tool) is None:
            pytest.skip(f"the tour needs {tool}")
    _tour(sections()["Operating a run"], engine, tmp_path, [grpcurl_folder()])


def test_the_tour_of_waiting(engine: Engine, tmp_path: Path) -> None:
    """The three examples of waiting: people who decide or stay silent, events of one order, news that are collected (E1 to E5)."""
    for tool in ("curl", "jq"):
        if shutil.which(tool) is None:
            pytest.skip(f"the tour needs {tool}")
    (tmp_path / "examples").symlink_to(Path(__file__).resolve().parents[2] / "examples")
    _tour(sections()["Waiting"], engine, tmp_path, [grpcurl_folder()])


def test_the_tour_of_fan_outs(engine: Engine, tmp_path: Path) -> None:
    """The example with pages and a child, children that are listed, redriven by index and cancelled with their parent (F1 to F6)."""
    for tool in ("curl", "jq"):
        if shutil.which(tool) is None:
            pytest.skip(f"the tour needs {tool}")
    (tmp_path / "examples").symlink_to(Path(__file__).resolve().parents[2] / "examples")
    _tour(sections()["Fanning out"], engine, tmp_path, [grpcurl_folder()])


def test_the_tour_of_starts(engine: Engine, tmp_path: Path) -> None:
    """The two examples that nobody triggers: a timetable that is previewed, fired and backfilled, and events that start runs (T2, T3, L8)."""
    if shutil.which("jq") is None:
        pytest.skip("the tour needs jq")
    (tmp_path / "examples").symlink_to(Path(__file__).resolve().parents[2] / "examples")
    _tour(sections()["Starting by itself"], engine, tmp_path, [])


def _tour(blocks: list[Block], engine: Engine, folder: Path, tools: list[Path]) -> None:
    """Run the blocks in one shell, as a reader would, and compare block by block."""
    script = ["set -euo pipefail"]
    for number, block in enumerate(blocks):
        commands = block.commands.replace("localhost:8080", engine.http).replace("localhost:9090", engine.grpc)
        script += [f"echo '{MARK.format(number)}'", commands]
    path = os.pathsep.join([*map(str, tools), str(Path(sys.executable).parent), os.environ["PATH"]])
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DUCTOR_")}
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=folder,
        env={**clean, "PATH": path, "DUCTOR_TARGET": engine.grpc},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    printed = done.stdout
    for number, block in enumerate(blocks):
        _, found, rest = printed.partition(MARK.format(number) + "\n")
        assert found, f"the tour ended before line {block.line}: {done.stderr[-2000:]}\n{printed[-2000:]}"
        output, _, _ = rest.partition(MARK.format(number + 1) + "\n")
        wanted = block.output if block.output is not None else "" if number + 1 < len(blocks) else output
        assert matches(wanted, output), f"docs/tour.md line {block.line} printed\n{output}\n{done.stderr[-2000:]}"
        printed = rest
    assert done.returncode == 0, done.stderr
