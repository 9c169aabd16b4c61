"""A page that fits a reply (L7, PL-06): generated clients stop at 4 MiB, so a page ends where the next entry would be too much.

The next page begins there, and nothing is lost.
"""

from collections.abc import Iterable
from typing import Final, TypeVar

from google.protobuf.message import Message

M = TypeVar("M", bound=Message)
K = TypeVar("K")

_HEAD: Final = 8
"""More than the tag and length of an entry take."""


def fitting(entries: Iterable[tuple[K, M | None]], size: int, max_bytes: int) -> tuple[list[M], K | None]:
    """The first entries, at most `size` and `max_bytes` together, though never none while there is one; and the key to go on after.

    `entries` holds one more than a page where there is one more; each comes with the key that a page token holds. An entry that is None would
    not fit and was not even made; the first never is. The key is None on the last page.
    """
    page: list[M] = []
    last: K | None = None
    left = max_bytes
    for key, entry in entries:
        if entry is None or len(page) == size:
            return page, last
        left -= entry.ByteSize() + _HEAD
        if left < 0 and page:
            return page, last
        page.append(entry)
        last = key
    return page, None
