"""Whether a failure is tried again, and when: rulings A1 and A2 as pure functions. Knows nothing of runs and ticks."""

import re
from hashlib import blake2b

from ductord.model.fault import Fault
from ductord.model.specs import RetryPolicy

FINAL = frozenset(
    {
        # Trying again cannot help, whatever a policy says.
        "payload_invalid",
        "payload_too_large",
        "expression_error",
        "expression_budget_exceeded",
        "CHOICE_NO_MATCH",
        "worker_lost",
        "queue_timeout",
        "total_timeout",
    }
)

REFUSED = frozenset(
    {
        # The callee understood and said no (A2). A policy's retry_on may still name one of them.
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "UNAUTHENTICATED",
        "FAILED_PRECONDITION",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
    }
)

_AT_ONCE = 5
_HTTP = re.compile(r"HTTP_(\d{3})", re.IGNORECASE)
_HTTP_AGAIN = frozenset({408, 429})


def retryable(policy: RetryPolicy, fault: Fault, non_retryable: bool = False) -> bool:
    """Whether a failure with this fault may be tried again at all (A2), budget aside.

    The worker's own `non_retryable` and the codes in FINAL always end it; then the policy's lists decide; then the code's meaning. A code that
    is in no list counts as UNKNOWN and is tried again: retries are opt-in by `retry_max_attempts`.
    """
    code = fault.code
    if non_retryable or code in FINAL or code in policy.non_retryable:
        return False
    if policy.retry_on:
        return code in policy.retry_on
    if code in REFUSED:
        return False
    http = _HTTP.fullmatch(code)
    if http is None:
        return True
    status = int(http.group(1))
    return status >= 500 or status in _HTTP_AGAIN


def delay_ms(policy: RetryPolicy, failures: int, run_id: str, step_ref: str, attempt: int) -> int:
    """Milliseconds before the next attempt after the `failures`-th failure (1, 2, …). Rising, capped, never negative (A1, field case RT-01).

    With `jitter` it is full jitter, derived from run, step and attempt: the same on every machine and at every replay.
    """
    ceiling = max(policy.max_backoff_ms, 0)
    delay = min(max(policy.backoff_ms, 0), ceiling)
    if policy.coefficient > 1.0 and delay:
        try:
            grown = policy.backoff_ms * policy.coefficient ** (failures - 1)
        except OverflowError:
            grown = float(ceiling)
        delay = ceiling if grown >= ceiling else int(grown)
    if policy.jitter:
        delay = int(delay * _fraction(run_id, step_ref, attempt))
    return delay


def pause_ms(given_back: int) -> int:
    """Milliseconds before a task is offered again that workers gave back so often. At once the first times, as a rolling deploy needs it;
    then up to ten seconds, so that a worker which gives back all it gets does not turn in circles (A4)."""
    return 0 if given_back <= _AT_ONCE else min(100 << min(given_back - _AT_ONCE - 1, 7), 10_000)


def _fraction(*parts: str | int) -> float:
    """A number in [0, 1) that depends on `parts` alone."""
    digest = blake2b("\x1f".join(map(str, parts)).encode(), digest_size=7).digest()
    return (int.from_bytes(digest) >> 3) / (1 << 53)
