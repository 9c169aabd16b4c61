"""The engine's own settings, as one value that the caller may pass. Defaults are the rulings'."""

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """`stop_grace_ms`: how long in-flight attempts that were asked to stop may still report (G5). `max_worker_delay_ms`: the longest next
    delay that a worker may ask for (A1); a longer wish is cut, so that a bad Retry-After cannot park a run for years.
    `payload_max_bytes`: a rendered input (L7). `inputs_max_bytes`: the rendered inputs of the steps that begin in one tick, together: they
    are one statement of the commit. `aggregate_max_bytes`: a run's output expression, and a run context. `continue_grace_ms`: the longest that a
    continue-as-new waits for what is at work (C6). `max_inline_children`: of a scatter that does not say (F1). `children_per_tick`: how many begin in one
    tick, `children_max_bytes`: and of their inputs about so much. `history_soft`, `history_hard`, `history_terminate`: the tiers
    of a history's length (`Run.moves`)."""

    stop_grace_ms: int = 30_000
    max_worker_delay_ms: int = 7 * 24 * 3_600_000
    payload_max_bytes: int = 1 << 20
    inputs_max_bytes: int = 16 << 20
    aggregate_max_bytes: int = 2 << 20
    continue_grace_ms: int = 60_000
    max_inline_children: int = 256
    children_per_tick: int = 500
    children_max_bytes: int = 4 << 20
    history_soft: int = 4_000
    history_hard: int = 8_000
    history_terminate: int = 12_000


LIMITS = Limits()
