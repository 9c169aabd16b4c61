"""The pipeline with authentication on: nobody is let in by default, and calls that go on end when their key does (N1)."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductor.workflow.v1 import workflow_service_pb2_grpc as reads_grpc
from ductord.model.keys import TENANT_SCOPES, Token, parse_token
from ductord.rpc import caller as who
from ductord.rpc.config import Settings
from ductord.rpc.errors import refused
from ductord.rpc.logs import fields_of
from ductord.rpc.metrics import Metrics
from ductord.rpc.pipeline import Pipeline
from ductord.rpc.server import _Recorder
from tests.rpc.echo import echoing, until

SERVICE = "ductor.workflow.v1.WorkflowService"


class Aborted(Exception):
    """What gRPC raises where a call is aborted."""


class Wire:
    """gRPC's side of one call."""

    def __init__(self, *metadata: tuple[str, str]) -> None:
        self._metadata = metadata
        self.ended: grpc.StatusCode | None = None

    def invocation_metadata(self) -> Any:
        return self._metadata

    def peer(self) -> str:
        return "ipv4:10.0.0.1:5"

    def time_remaining(self) -> float | None:
        return None

    async def abort(self, code: grpc.StatusCode, message: str, trailing: Any) -> None:
        self.ended = code
        raise Aborted


class Book:
    """An `Authenticator` that knows one key and can be told that it, or the database, is gone."""

    def __init__(self) -> None:
        self.gone = ""
        self.asked: list[tuple[str, str, str]] = []

    async def identify(self, service: str, method: str, metadata: Any, peer: str) -> who.Identity:
        self.asked.append((service, method, peer))
        return who.Identity(tenant_id="acme", actor="key:app", key_id="k", scopes=frozenset(TENANT_SCOPES))

    async def recheck(self, identity: who.Identity) -> None:
        assert identity.key_id == "k"
        if self.gone:
            raise refused(self.gone, "gone")


class Streams(reads_grpc.WorkflowServiceServicer):
    """Answers, then waits."""

    def __init__(self) -> None:
        self.let_go = asyncio.Event()
        self.callers: list[who.Caller] = []

    async def WatchRun(self, request: Any, context: Any) -> AsyncIterator[reads.WatchRunResponse]:  # noqa: N802
        self.callers.append(who.caller())
        for seq in range(3):
            yield reads.WatchRunResponse(seq=seq)
            if seq:
                await self.let_go.wait()


class Running:
    """A pipeline around `Streams`."""

    def __init__(self) -> None:
        self.book, self.streams = Book(), Streams()  # type: ignore[abstract]  # it answers what the tests call
        self.pipeline = Pipeline(Settings(auth="keys", access_log="off"), Metrics())
        self.pipeline.authenticator = self.book
        recorder = _Recorder()
        reads_grpc.add_WorkflowServiceServicer_to_server(self.streams, recorder)  # type: ignore[arg-type]
        self._rpc = recorder.methods["WatchRun"]

    def watch(self, wire: Wire) -> Any:
        """The answers of one WatchRun."""
        return self.pipeline.wrapped(SERVICE, "WatchRun", self._rpc, lambda error: None).unary_stream(b"", wire)


@pytest.fixture
async def running() -> Running:
    """A pipeline."""
    return Running()


async def test_a_process_that_cannot_look_at_keys_does_not_start_n1() -> None:
    with pytest.raises(RuntimeError, match="none of the services looks at credentials"):
        async with echoing(auth="keys"):
            pass


async def test_without_an_authenticator_nobody_is_let_in_n1(running: Running) -> None:
    running.pipeline.authenticator = None
    wire = Wire(("x-tenant-id", "acme"), ("x-ductor-inside", ""), ("x-ductor-scope", "platform"))
    with pytest.raises(Aborted):
        await anext(running.watch(wire))
    assert wire.ended is grpc.StatusCode.UNAUTHENTICATED
    assert not running.streams.callers


async def test_who_calls_is_who_the_key_says_n1(running: Running) -> None:
    answers = running.watch(Wire())
    await anext(answers)
    await answers.aclose()
    [call] = running.streams.callers
    assert (call.tenant_id, call.actor, call.key_id, call.authenticated) == ("acme", "key:app", "k", True)
    assert running.book.asked == [(SERVICE, "WatchRun", "ipv4:10.0.0.1:5")]
    assert not running.pipeline.going_on


async def test_a_process_knows_its_own_calls_n1(running: Running) -> None:
    """By a text that only it knows, for one tenant; a wrong one is no credential, and an empty one knows nobody."""
    running.pipeline.inside = "s3cret"
    own = running.watch(Wire(("x-ductor-inside", "s3cret"), ("x-tenant-id", "acme")))
    await anext(own)
    assert running.streams.callers[-1].actor == "system:boot"
    running.book.gone = "CREDENTIAL_INVALID"
    await running.pipeline.recheck()
    assert (await anext(own)).seq == 1, "it has no key that could end"
    await own.aclose()
    assert not running.book.asked
    await anext(running.watch(Wire(("x-ductor-inside", "guess"), ("x-tenant-id", "acme"))))
    assert running.streams.callers[-1].actor == "key:app"
    wire = Wire(("x-ductor-inside", "s3cret"))
    with pytest.raises(Aborted):
        await anext(running.watch(wire))
    assert wire.ended is grpc.StatusCode.INVALID_ARGUMENT


async def read(answers: Any, told: list[int]) -> None:
    """All of a stream, in one task, as gRPC does."""
    async for answer in answers:
        told.append(answer.seq)


async def test_a_stream_that_waits_ends_with_its_key_n1(running: Running) -> None:
    wire, told = Wire(), list[int]()
    reading = asyncio.ensure_future(read(running.watch(wire), told))
    await until(lambda: len(told) == 2)
    await running.pipeline.recheck()
    assert not reading.done()
    running.book.gone = "CREDENTIAL_INVALID"
    await running.pipeline.recheck()
    with pytest.raises(Aborted):
        await reading
    assert wire.ended is grpc.StatusCode.UNAUTHENTICATED
    assert not running.pipeline.going_on


async def test_a_stream_is_not_cancelled_in_grpcs_hands_n1(running: Running) -> None:
    """Where an answer is being sent the call ends when that is done: a cancellation there would lose the status."""
    wire = Wire()
    answers = running.watch(wire)
    await anext(answers)
    running.book.gone = "CREDENTIAL_INVALID"
    await running.pipeline.recheck()
    with pytest.raises(Aborted):
        await anext(answers)
    assert wire.ended is grpc.StatusCode.UNAUTHENTICATED
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_caller_that_leaves_at_that_moment_is_gone_n1(running: Running) -> None:
    wire, told = Wire(), list[int]()
    reading = asyncio.ensure_future(read(running.watch(wire), told))
    await until(lambda: len(told) == 2)
    [call] = running.pipeline.going_on
    call.end(refused("CREDENTIAL_INVALID", "gone"))
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert wire.ended is None


async def test_a_call_that_has_answered_is_left_alone_n1(running: Running) -> None:
    """A key that is looked up while its call ends: the answer is on its way, and a cancellation would take it from its caller."""
    reading = asyncio.ensure_future(read(running.watch(Wire()), []))
    await until(lambda: bool(running.pipeline.going_on))
    [call] = running.pipeline.going_on
    looked = asyncio.Event()

    async def slow(identity: who.Identity) -> None:
        await looked.wait()
        raise refused("CREDENTIAL_INVALID", "gone")

    running.book.recheck = slow  # type: ignore[method-assign]
    rechecking = asyncio.ensure_future(running.pipeline.recheck())
    await asyncio.sleep(0)
    running.streams.let_go.set()
    await until(lambda: not running.pipeline.going_on)
    looked.set()
    await rechecking
    assert call.ended is None
    await reading


async def test_what_waits_goes_on_while_the_database_is_away_but_not_for_ever_n1(running: Running) -> None:
    wire = Wire()
    answers = running.watch(wire)
    await anext(answers)
    running.book.gone = "DATABASE_UNAVAILABLE"
    await running.pipeline.recheck()
    assert (await anext(answers)).seq == 1
    [call] = running.pipeline.going_on
    call.verified -= 31
    await running.pipeline.recheck()
    with pytest.raises(Aborted):
        await anext(answers)
    assert wire.ended is grpc.StatusCode.UNAVAILABLE


def test_lines_of_a_call_name_the_key_and_never_the_token_n1() -> None:
    """The access log and all else that a call logs."""
    caller = who.Caller(
        tenant_id="acme", actor="key:app", key_id="0198", request_id="r", trace_id="t", traceparent="00-0-0-00"
    )
    token = who.set_caller(caller)
    try:
        fields = fields_of(logging.makeLogRecord({"msg": "x", "authorization": "Bearer dk_acme"}))
    finally:
        who.reset_caller(token)
    assert (fields["key_id"], fields["actor"], fields["tenant_id"]) == ("0198", "key:app", "acme")
    assert "dk_acme" not in str(fields)


@pytest.mark.parametrize(
    "text",
    [
        "", "dk_", "dk_acme", "dk_.0.x", f"dk_acme.{'0' * 31}.{'A' * 43}", f"dk_acme.{'0' * 32}.{'A' * 42}", f"dk_acme.{'0' * 32}.{'A' * 44}",
        f"dk_acme.{'G' * 32}.{'A' * 43}", f"dk_a b.{'0' * 32}.{'A' * 43}", f"dk_**.{'0' * 32}.{'A' * 43}", f"DK_acme.{'0' * 32}.{'A' * 43}",
        f"dk_acme.{'0' * 32}.{'A' * 43}\n", f" dk_acme.{'0' * 32}.{'A' * 43}", f"dk_{'a' * 65}.{'0' * 32}.{'A' * 43}", f"dk_acme.{'0' * 32}.{'Ä' * 43}",
    ],
)  # fmt: skip
def test_what_has_not_the_form_of_a_token_is_none(text: str) -> None:
    assert parse_token(text) is None


@pytest.mark.parametrize("tenant", ["acme", "*", "a-b_C9"])
def test_a_token_is_taken_apart_and_keeps_its_secret_to_itself(tenant: str) -> None:
    text = f"dk_{tenant}.{'0123456789abcdef' * 2}.{'A-_z' * 10}AAA"
    token = parse_token(text)
    assert isinstance(token, Token)
    assert (token.tenant_id, token.text, token.prefix) == (tenant, text, f"dk_{tenant}.01234567")
    assert token.secret not in repr(token)
    assert token.secret not in str(token)


@pytest.mark.parametrize(
    ("values", "credential"),
    [
        ([], None),
        (["Bearer x"], "x"),
        (["bearer x"], "x"),
        (["Bearer  x "], "x"),
        (["Bearer x", "Bearer x"], "x"),
        (["Bearer x", "Bearer y"], ""),
        (["Basic x"], ""),
        (["x"], ""),
        ([""], ""),
        (["Bearer"], ""),
    ],
)
def test_a_credential_is_one_bearer_token(values: list[str], credential: str | None) -> None:
    assert who.credential_of(values) == credential
