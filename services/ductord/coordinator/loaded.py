"""A claimed run as a tick holds it between loading and committing."""

from datetime import datetime

import msgspec

from ductord.coordinator.cache import Compiled, Known
from ductord.model.inbox import Inbox


class Loaded(msgspec.Struct, kw_only=True):
    """One claimed run: everything that `decide` takes. `error` is set instead where the stored state cannot be read. `looked`: the inbox says which attempts
    have been taken (`started`). `more`: it has more controls than this tick is shown; `crowded`: it has received more events than that; `beyond`: it may have
    more reports or ended children than that."""

    known: Known
    compiled: Compiled | None = None
    inbox: Inbox
    quarantined: bool = False
    looked: bool = False
    more: bool = False
    crowded: bool = False
    beyond: bool = False
    error: Exception | None = None


class Batch(msgspec.Struct, kw_only=True):
    """The claimed runs of one tick. `now`: the one clock reading, by the database. `left`: for the next tick, this one has enough to carry."""

    now: datetime
    runs: list[Loaded]
    foreign: list[tuple[str, str]]
    left: list[tuple[str, str]]
