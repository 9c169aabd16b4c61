"""Operating a run over REST, on real processes: every control is accepted while the coordinator is dead, and applied once there is one again."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.support.api import Api, chain
from tests.support.stack import running_stack

pytestmark = [pytest.mark.xdist_group("stack"), pytest.mark.timeout(300)]


class Rest:
    """A tenant at the gateway."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._asked = 0

    async def get(self, path: str) -> Any:
        """The answer of a GET."""
        response = await self._http.get(path)
        assert response.status_code == 200, response.text
        return response.json()

    async def ask(self, run_id: str, verb: str, **body: Any) -> tuple[str, Any]:
        """A control; its name and its answer."""
        self._asked += 1
        name = f"op/{self._asked}"
        given = {"request_id": name, "reason": f"because of {verb}", **body}
        response = await self._http.post(f"/api/v2/workflow-runs/{run_id}{verb}", json=given)
        assert response.status_code == 200, response.text
        assert response.json()["status"] == "accepted"
        return name, response.json()

    async def outcome(self, run_id: str, name: str) -> Any:
        """What becomes of a control."""
        path = f"/api/v2/workflow-runs/{run_id}/operations/{name.replace('/', '%2F')}:wait?timeout_seconds=60"
        return (await self.get(path))["data"]

    async def applied(self, run_id: str, verb: str, **body: Any) -> Any:
        """A control that is applied; its answer."""
        name, answer = await self.ask(run_id, verb, **body)
        outcome = await self.outcome(run_id, name)
        assert outcome["status"] == "applied", outcome
        return answer

    async def status(self, run_id: str) -> str:
        """Where a run stands."""
        return str((await self.get(f"/api/workflows/runs/{run_id}"))["data"]["summary"]["status"])


async def test_operating_a_run() -> None:
    """Pause, cancel, redrive, node levers, reset, continue-as-new, terminate; a dead coordinator holds up the outcome and never the acceptance."""
    with running_stack(gateway=True, durable=False) as stack:
        tree = chain("operated", 3)
        tree["steps"][1]["queue"] = "nobody"
        async with (
            Api(stack["edges"].target, "ops") as api,
            httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{stack['gateway'].http_port}", headers={"x-tenant-id": "ops"}, timeout=90
            ) as http,
        ):
            rest = Rest(http)
            [run_id] = await api.start_many(await api.publish(tree), 1)
            await rest.applied(run_id, ":pause")
            assert await rest.status(run_id) == "paused"

            stack["coordinator0"].kill()
            resumed, _ = await rest.ask(run_id, ":resume")
            cancelled, _ = await rest.ask(run_id, ":cancel")
            path = f"/api/v2/workflow-runs/{run_id}/operations/{resumed.replace('/', '%2F')}"
            assert (await rest.get(path))["data"]["status"] == "pending"
            waiting = asyncio.create_task(rest.outcome(run_id, cancelled))
            stack["coordinator0"].start()
            assert (await waiting)["status"] == "applied"
            assert (await rest.outcome(run_id, resumed))["status"] == "applied"
            await _until(rest, run_id, "cancelled")

            await rest.applied(run_id, ":redrive")
            await rest.applied(run_id, "/nodes/s1:pause")
            await rest.applied(
                run_id, "/nodes/s1:updateTimeout", timeouts={"timeout_ms": 900}, update_mask="timeout_ms"
            )
            node = (await rest.get(f"/api/v2/workflow-runs/{run_id}/snapshot"))["data"]["nodes"][1]
            assert (node["paused"], node["timeouts"]["timeout_ms"], node["timeouts_changed"]) == (True, 900, True)

            targets = (await rest.get(f"/api/v2/workflow-runs/{run_id}/reset-targets"))["data"]
            answer = await rest.applied(run_id, ":reset", transition_seq=targets[0]["transition_seq"])
            forked = answer["new_run_id"]
            answer = await rest.applied(forked, ":continueAsNew", seed_run_context={"n": 9007199254740993})
            successor = answer["new_run_id"]
            shown = await http.get(f"/api/v2/workflow-runs/{successor}/snapshot")
            assert b'"run_context":{"n":9007199254740993}' in shown.content.replace(b": ", b":")
            for each in (run_id, successor):
                await rest.applied(each, ":terminate", skip_finally=True)
                assert await rest.status(each) == "terminated"
            refused = await http.post(f"/api/v2/workflow-runs/{forked}:pause", json={})
            assert refused.status_code == 400
            assert successor in refused.text


async def _until(rest: Rest, run_id: str, status: str) -> None:
    async with asyncio.timeout(60):
        while await rest.status(run_id) != status:  # noqa: ASYNC110  # a run's end has no call that waits for it
            await asyncio.sleep(0.05)
