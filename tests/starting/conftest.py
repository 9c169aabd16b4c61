"""What the tests of starts share."""

from tests.coordinator.conftest import books
from tests.coordinator.timetables import timetables

__all__ = ["books", "timetables"]
