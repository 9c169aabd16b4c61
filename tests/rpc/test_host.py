"""One process, one or many services: start, what they share, and the order of the stop (KB-01)."""

import asyncio
import functools
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from grpc.aio import EOF  # type: ignore[attr-defined]  # not in the stubs
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ductor.workflow.v1 import workflow_trigger_service_pb2 as trigger_pb2
from ductor.workflow.v1 import workflow_trigger_service_pb2_grpc as trigger_grpc
from ductord.rpc.caller import caller
from ductord.rpc.channels import outgoing
from ductord.rpc.config import ConfigurationRefused
from ductord.rpc.errors import draining
from ductord.rpc.host import Scope, Service, hosting
from tests.rpc.echo import Echo, clean, echoing, loopback, refusal_of, until


async def nothing(scope: Scope) -> None:
    """The start of a service that needs nothing."""


async def test_services_of_one_process_find_each_other_on_its_one_port() -> None:
    echo = Echo()
    answers: list[str] = []
    asked = asyncio.Event()

    async def start_worker(scope: Scope) -> None:
        stub = trigger_grpc.WorkflowTriggerServiceStub(scope.channel("trigger"))

        async def turn() -> None:
            answer = await stub.TriggerWorkflow(
                trigger_pb2.TriggerWorkflowRequest(), metadata=outgoing(tenant_id="acme")
            )
            answers.append(answer.run_id)
            asked.set()

        scope.loop("ask", turn, interval_ms=1_000)

    worker = Service(name="worker", start=start_worker)
    for services in ([worker, echo.service], [echo.service, worker]):
        asked.clear()
        async with hosting(services, loopback()), asyncio.timeout(60):
            await asked.wait()
    assert set(answers) == {"acme"}
    with pytest.raises(
        ConfigurationRefused, match="worker calls trigger, which is not in this process: set DUCTOR_TRIGGER_TARGET"
    ):
        async with hosting([worker], loopback()):
            pass


async def test_a_named_target_wins_over_the_process_itself() -> None:
    async with hosting([Echo().service], loopback(trigger_target="elsewhere:1")) as host:
        assert host.target("trigger", "worker") == "elsewhere:1"


async def test_insecure_addresses_are_refused_before_anything_is_bound_n3() -> None:
    with pytest.raises(ConfigurationRefused):
        async with hosting([Service(name="trigger", start=nothing)], loopback(grpc_address="0.0.0.0:0")):
            pass


async def test_a_port_that_is_taken_is_named() -> None:
    async with hosting([], loopback()) as host:
        for taken in ({"grpc_address": str(host.grpc_address)}, {"http_address": str(host.http_address)}):
            with pytest.raises(OSError, match=next(iter(taken.values()))):
                async with hosting([], loopback(**taken)):
                    pass


async def test_a_start_that_fails_undoes_those_before_it() -> None:
    seen: list[str] = []

    async def good(scope: Scope) -> None:
        async def close() -> None:
            seen.append("good closed")

        scope.at_stop(close)

    async def bad(scope: Scope) -> None:
        async def close() -> None:
            seen.append("bad closed")

        scope.at_stop(close)
        raise RuntimeError("no database")

    with pytest.raises(RuntimeError, match="no database"):
        async with hosting([Service(name="trigger", start=good), Service(name="reads", start=bad)], loopback()):
            pass
    assert seen == ["bad closed", "good closed"]


async def test_kb_01_the_order_of_a_stop() -> None:
    """Not ready; drains in reverse order of start, while RPCs still work; loops; RPCs; closes in reverse."""
    seen: list[str] = []
    echo = Echo()
    ready: list[int] = []

    def service(name: str) -> Service:
        async def start(scope: Scope) -> None:
            async def drain() -> None:
                seen.append(f"{name} drains")
                ready.append((await get(host.http_address, "/readyz")).status_code)
                assert (await echo.call()).run_id == "acme", "RPCs of the process still work"

            async def turn() -> None:
                seen.append(f"{name} turns")

            async def close() -> None:
                assert all(loop.stopping for loop in scope.loops)
                seen.append(f"{name} closes")

            scope.on_drain(drain)
            scope.at_stop(close)
            scope.loop("loop", turn, interval_ms=3_600_000)

        return Service(name=name, start=start)

    async with hosting([echo.service, service("dispatch"), service("worker")], loopback()) as host:
        echo.channel = grpc.aio.insecure_channel(host.grpc_address.reachable)
        assert (await get(host.http_address, "/readyz")).status_code == 200
        await until(lambda: len(seen) >= 2)
    await echo.channel.close(None)
    assert seen == [
        "dispatch turns",
        "worker turns",
        "worker drains",
        "dispatch drains",
        "worker closes",
        "dispatch closes",
    ]
    assert set(ready) == {503}


async def test_kb_01_nothing_that_hangs_or_raises_keeps_a_process_from_ending() -> None:
    closed = asyncio.Event()

    async def start(scope: Scope) -> None:
        async def hangs() -> None:
            await asyncio.Event().wait()

        async def raises() -> None:
            raise ValueError("in a drain")

        async def deaf() -> None:
            while True:
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    if closed.is_set():
                        raise

        async def close() -> None:
            closed.set()

        scope.at_stop(close)
        scope.on_drain(raises)
        scope.on_drain(hangs)
        scope.loop("hangs", hangs, interval_ms=1)
        scope.loop("deaf", deaf, interval_ms=1)

    async with asyncio.timeout(30):
        async with hosting([Service(name="worker", start=start)], loopback(drain_ms=200)):
            pass
    assert closed.is_set()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


async def test_a_long_wait_ends_when_the_process_drains() -> None:
    class Waits(trigger_grpc.WorkflowTriggerServiceServicer):
        def __init__(self, scope: Scope) -> None:
            self._scope = scope

        async def TriggerWorkflow(self, request: Any, context: Any) -> Any:  # noqa: N802
            assert caller().tenant == "acme"
            entered.set()
            await self._scope.draining.wait()
            raise draining()

    async def start(scope: Scope) -> None:
        scope.rpcs(trigger_grpc.add_WorkflowTriggerServiceServicer_to_server, Waits(scope))  # type: ignore[abstract]

    entered = asyncio.Event()
    async with hosting([Service(name="trigger", start=start)], loopback()) as host:
        channel = grpc.aio.insecure_channel(host.grpc_address.reachable)
        stub = trigger_grpc.WorkflowTriggerServiceStub(channel)
        call = asyncio.ensure_future(
            refusal_of(
                lambda: stub.TriggerWorkflow(trigger_pb2.TriggerWorkflowRequest(), metadata=outgoing(tenant_id="acme"))
            )
        )
        await entered.wait()
    assert (await call).reason == "SERVICE_DRAINING"
    await channel.close(None)


async def test_one_http_port_serves_probes_and_what_a_service_mounts() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": scope["path"].encode()})

    async def start(scope: Scope) -> None:
        scope.http(app)

    async with hosting([Service(name="gateway", start=start)], loopback()) as host:
        assert (await get(host.http_address, "/livez")).text == "ok\n"
        assert "ductor_grpc_calls_in_flight" in (await get(host.http_address, "/metrics")).text
        assert (await get(host.http_address, "/api/workflows/runs")).text == "/api/workflows/runs"
    async with hosting([], loopback()) as host:
        assert (await get(host.http_address, "/api/workflows/runs")).status_code == 404
    async with hosting([], loopback(http_address="off")) as host:
        assert host.http_address is None


async def test_a_second_signal_leaves_no_turn_behind() -> None:
    turns: list[str] = []
    begun = asyncio.Event()

    async def start(scope: Scope) -> None:
        async def turn() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                turns.append("cancelled")
                raise

        scope.loop("long", turn, interval_ms=1)

    async with asyncio.timeout(30), hosting([Service(name="worker", start=start)], loopback(drain_ms=60_000)) as host:
        await begun.wait()
        host.hurry.set()
    assert turns == ["cancelled"]
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("loop ")]


async def test_a_stop_during_the_start_gives_the_start_up() -> None:
    """A process that waits for its database goes when it is told to."""
    seen: list[str] = []
    stop = asyncio.Event()

    async def start(scope: Scope) -> None:
        async def close() -> None:
            seen.append("closed")

        scope.at_stop(close)
        stop.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(30):
        with quiet_logs():
            await Service(name="trigger", start=start).serve(loopback(), stop=stop)
    assert seen == ["closed"]


async def test_a_watch_of_health_does_not_hold_a_stop_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ductord.rpc.host.RPC_GRACE_S", 100.0)
    async with hosting([], loopback()) as host:
        channel = grpc.aio.insecure_channel(host.grpc_address.reachable)
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        begin = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - begin < 50
    # A stop this quick may end the stream before the last word is out: to a watcher the end says the same.
    last = await watch.read()
    assert last is EOF or last.status == health_pb2.HealthCheckResponse.NOT_SERVING
    await channel.close(None)


MAIN = """
import asyncio, sys
from ductord.rpc.config import Settings
from ductord.rpc.host import Service, serve

async def start(scope):
    async def hang():
        print("draining", flush=True)
        await asyncio.Event().wait()
    scope.on_drain(hang)

settings = Settings(grpc_address="127.0.0.1:0", http_address="off", drain_ms=int(sys.argv[1]))
asyncio.run(serve([Service(name="worker", start=start)], settings, started=lambda host: print("started", flush=True)))
"""


@pytest.mark.parametrize(("drain_ms", "signals"), [(300, 1), (600_000, 2)])
async def test_kb_01_sigterm_drains_and_a_second_one_does_not_hang(drain_ms: int, signals: int) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        "-c",
        MAIN,
        str(drain_ms),
        cwd=Path(__file__).parents[2],
        env=clean(),
        stdout=-1,
        stderr=-1,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            for number in range(signals):
                assert (await process.stdout.readline()).strip() == [b"started", b"draining"][number]
                process.send_signal(signal.SIGTERM)
            _, errors = await process.communicate()
        assert process.returncode == 0, errors
        assert b"cut short" in errors
        assert b"Traceback" not in errors
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_child_of_a_process_that_serves_lives() -> None:
    """gRPC's fork handlers are off: with them every third child crashed while calls were in flight."""
    user: dict[str, Any] = {"user": os.getuid(), "group": os.getgid(), "extra_groups": []} if os.getuid() == 0 else {}
    async with echoing() as echo:
        run = functools.partial(subprocess.run, check=False, **user)
        calls = [asyncio.ensure_future(calling(echo)) for _ in range(4)]
        codes = [(await asyncio.to_thread(run, ["/bin/true"])).returncode for _ in range(60)]
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
    assert set(codes) == {0}


async def calling(echo: Echo) -> None:
    """Call without end."""
    while True:
        await echo.call()


@contextmanager
def quiet_logs() -> Iterator[None]:
    """`serve` sets the process's logs up; here they are put back."""
    root, ours = logging.getLogger(), logging.getLogger("ductor")
    before, level, our_level = root.handlers[:], root.level, ours.level
    try:
        yield
    finally:
        root.handlers, root.level = before, level
        ours.setLevel(our_level)


async def get(address: Any, path: str) -> httpx.Response:
    """One GET over the process's HTTP port."""
    async with httpx.AsyncClient(base_url=f"http://{address}") as client:
        return await client.get(path)
