"""Small files that whoever runs the process replaces while it runs: certificates, keys. What they are, and whether they are still what they were.

It keeps nothing and logs nothing: whose files they are says what is in force, and what is told.
"""

import os
import stat
from typing import Final

LARGEST: Final = 4 << 20
"""Bytes of one file: a bundle of all public authorities has a quarter of a megabyte."""

State = tuple[int, ...]
"""What tells two contents of one path apart, also behind a link that was turned to another file."""


class Unfit(Exception):
    """A file that cannot be used; the message names the option."""


def state_of(option: str, path: str, *, once: bool = False) -> State:
    """The state of the file that an option names. `once`: it may be a pipe, which is read once and then never changes; else a pipe could hold up whoever looks.

    Raises `Unfit`.
    """
    try:
        found = os.stat(path)
    except OSError as error:
        raise Unfit(f"{option}={path} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(found.st_mode):
        if not once:
            raise Unfit(f"{option}={path} cannot be read: it is no regular file")
        return found.st_dev, found.st_ino
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def content_of(option: str, path: str) -> bytes:
    """What the file holds. Raises `Unfit`."""
    try:
        with open(path, "rb") as file:
            text = file.read(LARGEST + 1)
    except OSError as error:
        raise Unfit(f"{option}={path} cannot be read: {error.strerror}") from None
    if len(text) > LARGEST:
        raise Unfit(f"{option}={path} is larger than such files are")
    return text
