"""Rulings A1 and A2 as tables and properties; field case RT-01."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ductord.engine.retry import delay_ms, retryable
from ductord.model.fault import Fault
from ductord.model.specs import RetryPolicy

HOUR = 3_600_000


def _delays(policy: RetryPolicy, attempts: int) -> list[int]:
    return [delay_ms(policy, n, "run", "step", n) for n in range(1, attempts + 1)]


@pytest.mark.parametrize("coefficient", [1.0, 1.5, 2.0, 1_000.0, 1e300])
def test_rt_01_a_back_off_never_overflows(coefficient: float) -> None:
    """RT-01: after 35 to 65 attempts the delays of others wrapped to zero or to 292 years."""
    delays = _delays(RetryPolicy(max_attempts=1_000, backoff_ms=1_000, coefficient=coefficient), 1_000)
    assert delays[0] == 1_000
    assert delays == sorted(delays)
    assert delays[-1] == (1_000 if coefficient == 1.0 else HOUR)
    assert all(type(delay) is int for delay in delays)


def test_a1_constant_growing_and_capped() -> None:
    assert _delays(RetryPolicy(backoff_ms=700), 3) == [700, 700, 700]
    assert _delays(RetryPolicy(backoff_ms=100, coefficient=3.0, max_backoff_ms=1_000), 4) == [100, 300, 900, 1_000]
    assert _delays(RetryPolicy(backoff_ms=5_000, max_backoff_ms=1_000), 2) == [1_000, 1_000]
    assert _delays(RetryPolicy(), 2) == [0, 0]


@settings(deadline=None, derandomize=True, max_examples=200)
@given(
    backoff=st.integers(0, 10**15),
    coefficient=st.floats(1.0, 1e308),
    cap=st.integers(0, 10**12),
    failures=st.integers(1, 10_000),
    jitter=st.booleans(),
)
def test_a1_a_delay_is_never_negative_and_never_above_its_cap(
    backoff: int, coefficient: float, cap: int, failures: int, jitter: bool
) -> None:
    policy = RetryPolicy(backoff_ms=backoff, coefficient=coefficient, max_backoff_ms=cap, jitter=jitter)
    assert 0 <= delay_ms(policy, failures, "run", "step", failures) <= cap


def test_a1_jitter_is_full_and_derived() -> None:
    """The same run, step and attempt give the same delay everywhere; over many of them the whole range is used."""
    policy = RetryPolicy(backoff_ms=1_000, jitter=True)
    delays = [delay_ms(policy, 1, f"run-{i}", "step", 1) for i in range(1_000)]
    assert delays == [delay_ms(policy, 1, f"run-{i}", "step", 1) for i in range(1_000)]
    assert min(delays) < 20
    assert max(delays) > 980
    assert 450 < sum(delays) / len(delays) < 550


_AGAIN = "UNAVAILABLE RESOURCE_EXHAUSTED ABORTED DEADLINE_EXCEEDED UNKNOWN INTERNAL HTTP_408 HTTP_429 HTTP_500 HTTP_503 HTTP_599"
_NEVER = (
    "INVALID_ARGUMENT NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED UNAUTHENTICATED FAILED_PRECONDITION OUT_OF_RANGE "
    "UNIMPLEMENTED HTTP_400 HTTP_404 HTTP_409"
)
_FINAL = "payload_invalid payload_too_large expression_error worker_lost total_timeout queue_timeout"


@pytest.mark.parametrize(
    ("code", "again"),
    [
        *((code, True) for code in _AGAIN.split()),
        *((code, False) for code in (_NEVER + " " + _FINAL).split()),
        ("attempt_timeout", True),
        ("heartbeat_timeout", True),
        ("CARD_DECLINED", True),
    ],
)
def test_a2_which_errors_are_tried_again(code: str, again: bool) -> None:
    assert retryable(RetryPolicy(), Fault(code=code)) is again
    assert not retryable(RetryPolicy(), Fault(code=code), non_retryable=True)
    assert not retryable(RetryPolicy(non_retryable=(code,)), Fault(code=code))
    assert not retryable(RetryPolicy(retry_on=("SOMETHING_ELSE",)), Fault(code=code))
    assert retryable(RetryPolicy(retry_on=(code,)), Fault(code=code)) is (code not in _FINAL.split())
