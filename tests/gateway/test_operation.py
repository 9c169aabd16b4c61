"""Probes, metrics and a service that is away (KB-02, AP-06, OB-01)."""

import asyncio
import time
from typing import Any

import httpx
import pytest

from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductord.gateway.backends import BACKENDS
from ductord.gateway.exchange import Exchange
from ductord.gateway.service import SERVICE as GATEWAY
from ductord.gateway.traffic import Traffic
from ductord.rpc.config import Settings
from ductord.rpc.host import hosting
from ductord.rpc.metrics import Metrics
from tests.gateway.peers import Peers, Running, fault, loopback, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

AWAY = "127.0.0.1:1"


async def test_kb_02_ready_when_every_service_serves(gateway: Running) -> None:
    assert (await gateway.http.get("/readyz")).text == "ok\n"
    assert (await gateway.http.get("/livez")).text == "ok\n"


async def test_kb_02_not_ready_but_alive_while_a_service_is_away() -> None:
    async with running(reads_target=AWAY) as gateway:
        ready = await gateway.http.get("/readyz")
        assert (ready.status_code, ready.text) == (503, "gateway.reads\n")
        assert (await gateway.http.get("/livez")).status_code == 200
        response = await gateway.http.post("/api/v2/workflow-definitions/d1:trigger")
        assert response.status_code == 200


async def test_ap_06_a_service_that_cannot_be_reached_is_503_and_no_address_is_told() -> None:
    async with running(reads_target=AWAY, trigger_target=AWAY) as gateway:
        response = await gateway.http.get("/api/workflows/runs/r1")
        assert fault(response) == (503, "UNAVAILABLE", "SERVICE_UNAVAILABLE", {"service": "reads"})
        assert response.headers["retry-after"] == "1"
        assert "127.0.0.1" not in response.text
        response = await gateway.connect("WorkflowTriggerService/TriggerWorkflow", {})
        assert (response.status_code, response.json()["code"]) == (503, "unavailable")
        assert "127.0.0.1" not in response.text


async def test_the_gateway_runs_apart_from_its_services() -> None:
    peers = Peers()
    async with hosting(peers.services, loopback(http_address="off")) as behind:
        target = behind.grpc_address.reachable
        targets = {f"{backend.target}_target": target for backend in BACKENDS}
        async with hosting([GATEWAY], loopback(**targets)) as front:
            assert front.http_address is not None
            async with httpx.AsyncClient(base_url=f"http://{front.http_address.reachable}") as http:
                assert (await http.get("/readyz")).status_code == 200
                assert (await http.get("/api/workflows/runs", headers={"x-tenant-id": "acme"})).status_code == 200


async def test_ob_01_requests_are_counted_by_door_rpc_and_code_only(gateway: Running) -> None:
    await gateway.http.get("/api/workflows/runs/r1")
    await gateway.http.get("/api/workflows/runs/r2")
    await gateway.connect("WorkflowService/GetRun", {})
    for path in ("/nope/1", "/nope/2", "/ductor.workflow.v1.Nope/Nope"):
        await gateway.http.get(path)
    text = (await gateway.http.get("/metrics")).text
    lines = {line for line in text.splitlines() if line.startswith("ductor_gateway_requests_total")}
    assert lines == {
        'ductor_gateway_requests_total{code="OK",door="rest",method="WorkflowService/GetRun"} 2.0',
        'ductor_gateway_requests_total{code="OK",door="connect",method="WorkflowService/GetRun"} 1.0',
        'ductor_gateway_requests_total{code="NOT_FOUND",door="rest",method="unknown"} 2.0',
        'ductor_gateway_requests_total{code="UNIMPLEMENTED",door="connect",method="unknown"} 1.0',
    }
    assert "ductor_gateway_requests_in_flight 0.0" in text


async def test_n1_only_the_gateway_knows_where_a_bad_key_came_from(caplog: pytest.LogCaptureFixture) -> None:
    """A call is logged once, by the service that served it; who was refused for a credential here as well, with the address."""
    traffic = Traffic(Metrics(), Settings())
    with caplog.at_level("INFO", "ductor.access"):
        for code in ("OK", "NOT_FOUND", "UNAUTHENTICATED", "PERMISSION_DENIED"):
            exchange = Exchange([], "203.0.113.7")
            with traffic.counted(exchange):
                exchange.forwarded = True
                exchange.ended(code, "")
    told = [(line.__dict__["code"], line.__dict__["peer"]) for line in caplog.records]
    assert told == [("UNAUTHENTICATED", "203.0.113.7"), ("PERMISSION_DENIED", "203.0.113.7")]


async def test_more_requests_than_the_process_takes_are_refused() -> None:
    async def wait(request: Any) -> Any:
        entered.set()
        await leave.wait()
        return reads.GetRunResponse()

    entered, leave = asyncio.Event(), asyncio.Event()
    async with running(max_calls=1) as gateway, asyncio.timeout(60):
        gateway.peers.answers["GetRun"] = wait
        first = asyncio.create_task(gateway.http.get("/api/workflows/runs/r1"))
        await entered.wait()
        response = await gateway.http.get("/api/workflows/runs/r1")
        assert fault(response)[:3] == (429, "RESOURCE_EXHAUSTED", "OVERLOADED")
        assert (await gateway.connect("WorkflowService/GetRun", {})).json()["code"] == "resource_exhausted"
        assert (await gateway.http.get("/livez")).status_code == 200
        leave.set()
        assert (await first).status_code == 200


async def test_answers_on_a_connection_that_is_kept_do_not_wait_for_each_other(gateway: Running) -> None:
    """An answer is two packets; were the second held back for the caller's acknowledgement, each would take 40 ms."""
    times = []
    for _ in range(15):
        begin = time.perf_counter()
        await gateway.http.get("/livez")
        times.append(time.perf_counter() - begin)
    assert min(times) < 0.035
