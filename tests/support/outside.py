"""What the outside world has said to one run, in memory: signals, external events, the waits that listen and their receipts.

Holds the promises of the real rows: a signal is there once per request id, an event is published once, a receipt is there once per wait, event and
requirement, a wait for one event gets one, and whoever opens a wait finds the events that are kept for it.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec

from ductord.engine.filters import lets_through
from ductord.model.effects import CloseWait, OpenWait, SettleSignal, Subscription, TakeReceipts
from ductord.model.enums import SignalStatus
from ductord.model.inbox import External, Receipt, Signal

DEDUPE = timedelta(hours=24)


class Published(msgspec.Struct, kw_only=True):
    """An event that did something or is kept."""

    event: External
    keep_until: datetime | None = None


class Outside:
    """The rows about one run, and the events that are kept for whoever listens."""

    def __init__(self) -> None:
        self.signals: dict[str, tuple[Signal, Any]] = {}
        self.settled: dict[str, SettleSignal] = {}
        self.waits: dict[tuple[str, int], tuple[Subscription, ...]] = {}
        self.events: dict[tuple[str, str], Published] = {}
        self.receipts: dict[Receipt, bool] = {}
        """Whether it was applied."""
        self.payloads: dict[str, Any] = {}
        """Of events that were received, as they came: a day later the id may name another one."""

    # What is said

    def tell(self, signal: Signal, payload: Any) -> None:
        """A signal; the first one of its name counts."""
        self.signals.setdefault(signal.request_id, (signal, payload))

    def publish(
        self, event: External, keep_until: datetime | None, others: "Iterable[Outside]" = ()
    ) -> tuple[int, bool]:
        """How many waits the event matched, of this run and of the others in the story, and whether it was there before."""
        name = (event.event_name, event.event_id)
        known = self.events.get(name)
        if known is not None and known.event.time + DEDUPE > event.time:
            return 0, True
        matched = sum(
            of._receive(ref, attempt, event, event.time) for of in (self, *others) for ref, attempt in of.waits
        )
        if matched or keep_until is not None:
            self.events[name] = Published(event=event, keep_until=None if matched else keep_until)
        return matched, False

    def _receive(self, ref: str, attempt: int, event: External, at: datetime) -> bool:
        matched = False
        for wanted in self.waits[ref, attempt]:
            key = wanted.any_key or wanted.correlation_key == event.correlation_key
            over = not wanted.requirement and any((r.step_ref, r.attempt) == (ref, attempt) for r in self.receipts)
            if wanted.event_name == event.event_name and key and not over and lets_through(wanted.filter, event):
                matched = True
                receipt = Receipt(
                    step_ref=ref,
                    attempt=attempt,
                    event_id=event.event_id,
                    event_name=event.event_name,
                    time=at,
                    requirement=wanted.requirement,
                )
                self.receipts.setdefault(receipt, False)
                self.payloads.setdefault(receipt.key, event.payload)
        return matched

    # What a tick is shown

    def kept(self) -> Iterator[Signal]:
        """Signals that nobody has consumed, in the order in which they came."""
        return (signal for name, (signal, _) in self.signals.items() if name not in self.settled)

    def unapplied(self) -> list[Receipt]:
        """In order of time and id."""
        new = (receipt for receipt, applied in self.receipts.items() if not applied)
        return sorted(new, key=in_order)

    def payload(self, key: str) -> Any:
        """The payload that a tick asks for."""
        for signal, payload in self.signals.values():
            if signal.key == key:
                return payload
        return self.payloads[key]

    # What a commit does

    def open(self, effect: OpenWait, now: datetime) -> None:
        """A wait listens, and gets what is kept for it."""
        place = (effect.step_ref, effect.attempt)
        assert place not in self.waits, f"{place} is opened twice"
        self.waits[place] = effect.subscriptions
        for published in self.events.values():
            if published.keep_until is not None and published.keep_until > now:
                self._receive(*place, published.event, now)

    def close(self, effect: CloseWait) -> None:
        """It listens no longer; what it has received and its end left over is put away with it."""
        del self.waits[effect.step_ref, effect.attempt]
        for receipt in self.receipts:
            if (receipt.step_ref, receipt.attempt) == (effect.step_ref, effect.attempt):
                self.receipts[receipt] = True

    def take(self, effect: TakeReceipts) -> None:
        """Receipts were applied."""
        for receipt in self.receipts:
            if (receipt.step_ref, receipt.attempt) == (effect.step_ref, effect.attempt):
                self.receipts[receipt] |= receipt.event_id in effect.event_ids

    def settle(self, effect: SettleSignal) -> None:
        """What became of a signal."""
        assert effect.request_id in self.signals
        assert effect.request_id not in self.settled, f"{effect.request_id} is settled twice"
        assert effect.status is not SignalStatus.KEPT
        self.settled[effect.request_id] = effect


def in_order(of: Receipt) -> tuple[datetime, str, str, str, int, str]:
    """The order in which receipts are shown: of time and id."""
    return of.time, of.event_id, of.event_name, of.step_ref, of.attempt, of.requirement
