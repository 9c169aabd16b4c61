"""«Did you mean»: the known name nearest to an unknown one."""

import difflib
from collections.abc import Iterable
from itertools import islice
from typing import Final

_MANY: Final = 64
"""Comparing with each of 500 steps for each of 5,000 dangling edges would take minutes: of many names only the likeliest are compared."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """« — did you mean `x`?» where a known name is close, also in another case; else nothing."""
    folded = name[:128].lower()
    by_folded = {candidate.lower(): candidate for candidate in sorted(known)}
    candidates: Iterable[str] = by_folded
    if len(by_folded) > _MANY:
        likely = (other for other in by_folded if other[:2] == folded[:2] and abs(len(other) - len(folded)) <= 2)
        candidates = list(islice(likely, _MANY))
    close = difflib.get_close_matches(folded, candidates, n=1, cutoff=0.6)
    return f" — did you mean `{by_folded[close[0]]}`?" if close else ""
