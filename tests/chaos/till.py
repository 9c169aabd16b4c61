"""The outside ledger of a chaos run of sagas: a till that takes charges and gives refunds, each once per idempotency key, as a payment provider would.

It knows nothing of runs but what the calls tell it, and it never forgets. The books of the database are held against it.
"""

import zlib
from collections import defaultdict

import orjson

from tests.support.recorder import Recorder


class Till(Recorder):
    """`charges`: charge id → run. `refunds`: charge id → the keys under which it was refunded. `notes`: run → the keys of its final notes."""

    def __init__(self) -> None:
        super().__init__()
        self.charges: dict[str, str] = {}
        self.refunds: dict[str, set[str]] = defaultdict(set)
        self.notes: dict[str, set[str]] = defaultdict(set)

    def answer(self, path: str, key: str, body: bytes) -> tuple[int, bytes]:
        """`/charge` and `/refund` and `/note`; `/charge/flaky` refuses some keys for good, so that a retry under a new key is needed."""
        told = orjson.loads(body or b"{}")
        unwell = zlib.crc32(key.encode()) % 4 == 0
        match path:
            case "/charge/flaky" if unwell:
                return 503, b"{}"
            case "/charge" | "/charge/flaky":
                self.charges[key] = told["run"]
                return 200, orjson.dumps({"charge": key})
            case "/refund" if unwell:
                return 503, b"{}"
            case "/refund":
                self.refunds[told["charge"]].add(key)
                return 200, b"{}"
            case "/note":
                self.notes[told["run"]].add(key)
                return 200, b"{}"
        return super().answer(path, key, body)
