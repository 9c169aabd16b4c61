"""What a database error means to a caller, by its SQLSTATE, without a word of it (PG-01, PG-07)."""

import asyncpg
import pytest

from ductord.db.outage import is_outage, passes, refusal_of


@pytest.mark.parametrize("state", ["40001", "40P01", "55P03", "25P02"])
def test_conflicts_are_aborted(state: str) -> None:
    refusal = refusal_of(error(state))
    assert refusal is not None
    assert (refusal.code, refusal.reason) == ("ABORTED", "TRANSACTION_CONFLICT")
    assert refusal.retry_after_ms
    assert passes(error(state))


@pytest.mark.parametrize("state", ["57P01", "57P02", "57P03", "08006", "08003", "53300", "25006", "57014"])
def test_outages_are_unavailable(state: str) -> None:
    failure = error(state)
    refusal = refusal_of(failure)
    assert refusal is not None
    assert (refusal.code, refusal.reason) == ("UNAVAILABLE", "DATABASE_UNAVAILABLE")
    assert "secret" not in refusal.message
    assert is_outage(failure)


@pytest.mark.parametrize("state", ["42501", "42P01", "23505", "22021", "28P01", "3D000"])
def test_faults_of_ours_are_unexpected(state: str) -> None:
    assert refusal_of(error(state)) is None
    assert not passes(error(state)), "nothing is tried again that cannot get better"


def test_a_lost_connection_passes_and_a_wrong_argument_does_not() -> None:
    for passing in (
        ConnectionResetError(),
        OSError("unreachable"),
        TimeoutError(),
        asyncpg.InterfaceError("connection is closed"),
        asyncpg.InternalClientError("cannot switch to state 12"),
    ):
        assert is_outage(passing)
    for wrong in (asyncpg.exceptions.DataError("invalid input for query argument $1"), ValueError(), KeyError()):
        assert refusal_of(wrong) is None


def error(state: str) -> BaseException:
    """The server's error with this SQLSTATE."""
    failure: BaseException = asyncpg.PostgresError.new({"C": state, "M": "insert into secret failed"})
    return failure
