"""Which filters an event passes (E3): each is judged once, whoever has how many waits with it, outside of every transaction and between other work.

A filter has a budget of its own, so that neither a bad expression nor a dear one stops any other wait.
"""

import asyncio
from collections.abc import Iterable

from ductord.engine.expressions import ExpressionError
from ductord.engine.filters import passes
from ductord.model.inbox import External


class Verdicts:
    """What is known of the filters for one event. An empty filter lets all through."""

    def __init__(self) -> None:
        self._known: dict[str, bool | None] = {"": True}

    def unknown(self, sources: Iterable[str]) -> set[str]:
        """Those that have not been judged."""
        return set(sources) - self._known.keys()

    def of(self, source: str) -> bool | None:
        """The verdict; None for an expression that fails. Raises KeyError for one that was not judged."""
        return self._known[source]

    async def judge(self, sources: Iterable[str], event: External) -> None:
        """Judge them."""
        for source in sorted(sources):
            self._known[source] = _verdict(source, event)
            await asyncio.sleep(0)


def _verdict(source: str, event: External) -> bool | None:
    try:
        return passes(source, event)
    except ExpressionError:
        return None
