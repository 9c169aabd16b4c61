"""Buckets of failed attempts, and whose they are, on a clock that the test moves (N1)."""

import pytest

from ductord.access.limits import Attempts, buckets
from ductord.rpc.addresses import host_of


class Clock:
    """Seconds."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_fills_again_one_a_second() -> None:
    clock = Clock()
    attempts = Attempts(clock, 3)
    names = buckets("10.0.0.1", "acme", "k")
    assert [attempts.take(names) for _ in range(3)] == [0, 0, 0]
    assert attempts.take(names) == attempts.wait_s(names) == 1.0
    clock.now = 0.75
    assert attempts.wait_s(names) == 0.25
    clock.now = 1.0
    assert attempts.take(names) == 0
    assert attempts.take(names) > 0
    clock.now = 1_000.0
    assert [attempts.take(names) for _ in range(4)] == [0, 0, 0, 1.0], "no fuller than it was"


def test_one_tenants_failures_are_not_anothers_until_they_are_many() -> None:
    attempts = Attempts(Clock(), 3)
    for _ in range(50):
        attempts.take(buckets("10.0.0.1", "acme"))
    assert attempts.wait_s(buckets("10.0.0.1", "other")) == 0, "what an empty bucket has refused took from no other"
    assert attempts.wait_s(buckets("10.0.0.2", "acme")) == 0
    for number in range(27):
        assert attempts.take(buckets("10.0.0.1", f"t{number}")) == 0
    assert attempts.wait_s(buckets("10.0.0.1", "another")) == pytest.approx(0.1), "thirty from one host"


def test_a_keys_failures_count_from_everywhere() -> None:
    attempts = Attempts(Clock(), 3)
    for number in range(3):
        assert attempts.take(buckets(f"10.0.0.{number}", "acme", "k")) == 0
    assert attempts.wait_s(buckets("10.0.0.9", "acme", "k")) == 1.0
    assert attempts.wait_s(buckets("10.0.0.9", "acme", "other")) == 0


def test_what_nobody_has_taken_from_is_not_kept() -> None:
    attempts = Attempts(Clock(), 3)
    for number in range(20_000):
        attempts.take(buckets("10.0.0.1", f"t{number}"))
        attempts.wait_s(buckets(f"h{number}", "acme"))
    assert len(attempts._left) <= 10_000


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.1.2.3:5555", "10.1.2.3"),
        ("ipv6:%5B2001:db8:1:2:3:4:5:6%5D:5555", "2001:db8:1:2::/64"),
        ("ipv6:%5B::1%5D:5555", "::/64"),
        ("ipv6:%5B::ffff:10.1.2.3%5D:5555", "10.1.2.3"),
        ("ipv6:%5Bfe80::1%25eth0%5D:5555", "fe80::/64"),
        ("unix:", "unix"),
        ("unix:/run/x.sock", "unix"),
        ("10.1.2.3", "10.1.2.3"),
        ("2001:db8::7", "2001:db8::/64"),
        ("::1", "::/64"),
        ("", ""),
        ("a-name", "a-name"),
    ],
)
def test_a_host_is_an_address_or_a_customers_network(peer: str, host: str) -> None:
    assert host_of(peer) == host
