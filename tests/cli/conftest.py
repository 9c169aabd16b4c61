"""One stack for all tests of what operators do."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shop import WORKFLOWS, Shop
from tests.support.stack import running_stack


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A running stack with the shop's definitions published from files."""
    folder: Path = tmp_path_factory.mktemp("shop")
    for name, text in WORKFLOWS.items():
        (folder / f"{name}.yaml").write_text(text)
    with running_stack(durable=False) as stack:
        running = Shop(stack)
        done = running.ductor("workflow", "load", str(folder))
        assert done == (0, "".join(f"{name} v1 published\n" for name in sorted(WORKFLOWS)), ""), done
        yield running
