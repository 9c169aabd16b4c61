"""A page of attempts as the contract lists them: ListRunEvents, ListRunAttempts. Outputs come along as long as they fit."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from ductor.workflow.v1 import run_pb2
from ductord.rpc.paging import Key, Page
from ductord.rpc.payloads import fill_payload
from ductord.rpc.room import fitting
from ductord.rpc.runs import Row, attempt

FIRST: Final = (None, "", -(1 << 31), "", 0)
"""The position before every attempt, in the order of the list."""


def attempts_page(
    rows: Sequence[Row], page: Page, payload_format: int, max_bytes: int
) -> tuple[Sequence[run_pb2.Attempt], str]:
    """The attempts of `rows` (in the order of `position_of`, one more than a page where there is one more), and the next page's token.

    A row whose output was not read though it has one would not have fitted: it begins the next page, and only alone it is shown without it.
    """

    def entries() -> Iterator[tuple[tuple[Key, ...], run_pb2.Attempt | None]]:
        for number, row in enumerate(rows):
            left_out = row["output"] is None and row["output_size"] is not None
            if left_out and number:
                yield position_of(row), None
                return
            shown = attempt(row)
            shown.output_truncated = left_out
            fill_payload(shown, "output", row["output"], payload_format, max_bytes=max_bytes - shown.ByteSize())
            yield position_of(row), shown

    shown, last = fitting(entries(), page.size, max_bytes)
    return shown, "" if last is None else page.next_token(last)


def position_of(row: Row) -> tuple[Key, ...]:
    """The columns that order the list."""
    created: datetime = row["create_time"]
    return created, row["step_ref"], row["item_index"], row["kind"], row["attempt"]
