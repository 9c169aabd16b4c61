"""The README's lines in other languages are lines of the clients, which `make clients` builds and runs: none of them is prose."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {"python": "python", "go": "go", "ts": "typescript", "java": "java", "bash": "shell"}
"""The folder of clients/ by the word at a block's fence."""
KINDS = ("start a run", "worker")
MADE = ("bin", "dist", "gen", "node_modules", "target")
"""Folders that a build makes."""
MOST_LINES = 12


def blocks() -> list[tuple[str, str]]:
    """(language, text) of every block in the section, in its order."""
    text = (ROOT / "README.md").read_text("utf-8")
    section = text.split("## In other languages\n")[1].split("\n## ")[0]
    return re.findall(r"^```(\w+)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def test_each_language_shows_how_a_run_is_started_and_a_worker_is_made() -> None:
    """Once each, in the order of the table, and short."""
    assert [language for language, _ in blocks()] == [*FOLDERS] * len(KINDS)
    assert max(len(text.splitlines()) for _, text in blocks()) <= MOST_LINES


@pytest.mark.parametrize(("language", "text"), blocks())
def test_the_lines_are_a_clients(language: str, text: str) -> None:
    """One file of the client has all of them, in this order; what stands between them there is left out here."""
    wanted = [line.strip() for line in text.splitlines() if line.strip()]
    folder = ROOT / "clients" / FOLDERS[language]
    files = [path for path in folder.rglob("*") if path.is_file() and not set(path.parts) & set(MADE)]
    assert any(_follow(wanted, path.read_text("utf-8", "replace")) for path in files), text


def _follow(wanted: list[str], text: str) -> bool:
    lines = iter(line.strip() for line in text.splitlines())
    return all(any(line == each for line in lines) for each in wanted)
