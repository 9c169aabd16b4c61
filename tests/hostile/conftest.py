"""Fixtures of the parts that are attacked: a coordinator ticked by hand, a dispatch process, a suite in one process."""

from tests.coordinator.conftest import books, ticker
from tests.dispatch.conftest import client, dispatching, queue

__all__ = ["books", "client", "dispatching", "queue", "ticker"]
