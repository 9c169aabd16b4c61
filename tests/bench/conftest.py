"""One stack for all tests of the benchmark: they are in one xdist group, and what they measure in small is not spoilt by what ran before."""

from collections.abc import Iterator

import pytest

from tests.support.stack import Stack, running_stack


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """A ready stack whose Postgres does not sync: times are no test here."""
    with running_stack(durable=False) as stack:
        yield stack
