"""D5: a directory of definition files is published at the service's start, only what changed, and a broken file stops no other."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ductor.workflow.v1 import definition_pb2 as pb
from ductord.db.ids import new_id
from ductord.definition.loading import Loaded, load_directory
from ductord.definition.service import SERVICE
from ductord.model.errors import Refusal
from ductord.rpc.config import ConfigurationRefused
from tests.conftest import Database
from tests.definition.client import Definitions, order, refused
from tests.definition.conftest import Rows
from tests.support.edges import serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

STEP = "{ref: a, type: action, action: noop:noop}"


def write(folder: Path, name: str, definition: dict[str, Any] | str) -> Path:
    """A definition file (JSON is YAML too), or a file of any text."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    text = (
        definition
        if isinstance(definition, str)
        else json.dumps({"type": "workflow_definition", "definition": definition}, indent=1)
    )
    path.write_text(text)
    return path


async def load(definitions: Definitions, folder: Path) -> dict[str, Loaded]:
    """Load into the test's tenant; by path."""
    loaded = await load_directory(folder, definitions.tenant, definitions.stub)
    return {one.path: one for one in loaded}


async def test_only_what_changed_is_published(definitions: Definitions, rows: Rows, tmp_path: Path) -> None:
    """By hash: another order of keys and another door are no change; a change is the next version."""
    write(tmp_path, "order.yaml", order())
    write(tmp_path, "sub/other.json", order("other"))
    first = await load(definitions, tmp_path)
    assert [(p, one.action, one.family_slug, one.version) for p, one in first.items()] == [
        ("order.yaml", "published", "order", 1),
        ("sub/other.json", "published", "other", 1),
    ]
    before = await rows.everything()
    assert {one.action for one in (await load(definitions, tmp_path)).values()} == {"unchanged"}
    write(tmp_path, "order.yaml", dict(reversed(order().items())))
    assert {one.action for one in (await load(definitions, tmp_path)).values()} == {"unchanged"}
    assert await rows.everything() == before

    write(tmp_path, "order.yaml", order(run_timeout_ms=1))
    changed = (await load(definitions, tmp_path))["order.yaml"]
    assert (changed.action, changed.version, changed.overwrote_draft) == ("published", 2, False)
    assert changed.manifest_hash == (await rows.versions("version, manifest_hash"))[1][1]
    assert (await rows.audit("reason"))[-1] == "loaded from a directory: order.yaml"


async def test_a_broken_file_is_reported_and_the_others_load(definitions: Definitions, tmp_path: Path) -> None:
    """Every kind of broken, told with line and column where there are some."""
    write(tmp_path, "a-good.yaml", order("good"))
    write(tmp_path, "b-syntax.yaml", "type: [")
    write(
        tmp_path, "c-cycle.yaml", order("cycle", edges=[{"source_ref": "pay", "target_ref": "pay", "type": "success"}])
    )
    write(
        tmp_path,
        "d-unknown.yaml",
        f"type: workflow_definition\ndefinition:\n  family_slug: unknown\n  stepps: []\n  steps: [{STEP}]\n",
    )
    write(tmp_path, "e-never.yaml", order("never", schedule={"cron_expression": "0 0 30 2 *"}))
    write(tmp_path, "e-wild.yaml", order("wild", triggers=[{"id": "e", "type": "event", "patterns": ["order.*"]}]))
    write(tmp_path, "f-long.yaml", order("long", run_timeout_ms=3_000_000_000))
    write(tmp_path, "g-large.yaml", "# " + "x" * (1 << 20))
    (tmp_path / "h-bytes.yaml").write_bytes(b"\xff\xfe")
    write(tmp_path, "i-no-slug.yaml", f"type: workflow_definition\ndefinition:\n  steps: [{STEP}]\n")
    write(tmp_path, "j-twin-1.yaml", order("twin"))
    write(tmp_path, "j-twin-2.yaml", order("twin", title="Other"))
    (tmp_path / "k-dangling.yaml").symlink_to(tmp_path / "nowhere")
    write(tmp_path, "readme.md", "not a definition")
    write(tmp_path, ".hidden.yaml", order("hidden"))
    write(tmp_path, "..data/mounted.yaml", order("mounted"))
    (tmp_path / "linked.yaml").symlink_to(tmp_path / "..data" / "mounted.yaml")
    (tmp_path / "loop").symlink_to(tmp_path)
    write(tmp_path, "z-good.json", order("fine"))

    loaded = await load(definitions, tmp_path)
    actions = {path: one.action for path, one in loaded.items()}
    good = {"a-good.yaml", "linked.yaml", "z-good.json"}
    assert {path for path, action in actions.items() if action == "published"} == good
    failed = {path for path, action in actions.items() if action == "failed"}
    assert failed == {path.name for path in tmp_path.iterdir() if path.name[1] == "-"} - good - {"k-dangling.yaml"}
    assert loaded["b-syntax.yaml"].violations[0].line == 1
    assert [v.code for v in loaded["c-cycle.yaml"].violations] == ["CYCLE"]
    assert (loaded["d-unknown.yaml"].violations[0].code, loaded["d-unknown.yaml"].violations[0].line) == (
        "UNKNOWN_FIELD",
        4,
    )
    assert [v.code for v in loaded["e-never.yaml"].violations] == ["CRON_INVALID"]
    (wild,) = loaded["e-wild.yaml"].violations
    assert (wild.code, wild.path) == ("WILDCARDS_DISABLED", "triggers[0].patterns[0]")
    assert (tmp_path / "e-wild.yaml").read_text().splitlines()[(wild.line or 0) - 1][
        (wild.column or 0) - 1 :
    ].strip() == '"order.*"'
    assert "run_timeout_ms" in loaded["f-long.yaml"].message or loaded["f-long.yaml"].violations
    assert "family_slug" in [v.path for v in loaded["i-no-slug.yaml"].violations]
    assert "j-twin-2.yaml" in loaded["j-twin-1.yaml"].message
    assert {entry.family_slug for entry in (await definitions.list(status=pb.DEFINITION_STATUS_PUBLISHED)).data} == {
        "good",
        "mounted",
        "fine",
    }


async def test_people_are_heard(definitions: Definitions, tmp_path: Path) -> None:
    """A version that somebody archived is not revived, a draft's unpublished edits that the file replaces are told, a deleted draft is reopened."""
    write(tmp_path, "order.yaml", order())
    await load(definitions, tmp_path)
    definition_id = (await definitions.list()).data[0].definition_id
    await definitions.update(definition_id, 2, {"removeStep": {"ref": "ship"}})
    assert (await load(definitions, tmp_path))["order.yaml"].action == "unchanged"
    write(tmp_path, "order.yaml", order(title="New"))
    loaded = (await load(definitions, tmp_path))["order.yaml"]
    assert (loaded.action, loaded.version, loaded.overwrote_draft) == ("published", 2, True)
    await definitions.archive(definition_id)
    loaded = (await load(definitions, tmp_path))["order.yaml"]
    assert (loaded.action, loaded.version) == ("archived", 2)
    await definitions.delete_draft(definition_id)
    write(tmp_path, "order.yaml", order(title="Newest"))
    loaded = (await load(definitions, tmp_path))["order.yaml"]
    assert (loaded.action, loaded.version, loaded.overwrote_draft) == ("published", 3, False)


async def test_a_draft_left_by_a_lost_load_is_published(definitions: Definitions, tmp_path: Path) -> None:
    """Killed between the edit and the publish: the next load goes on where it was."""
    write(tmp_path, "order.yaml", order())
    await definitions.create()
    loaded = (await load(definitions, tmp_path))["order.yaml"]
    assert (loaded.action, loaded.version, loaded.overwrote_draft) == ("published", 1, False)


async def test_replicas_that_load_at_once_publish_once(definitions: Definitions, rows: Rows, tmp_path: Path) -> None:
    """Rolling deploys: whoever is second finds its own hash."""
    for number in range(3):
        write(tmp_path, f"{number}.yaml", order(f"family-{number}"))
    for title in ("Order", "Order 2"):
        for number in range(3):
            write(tmp_path, f"{number}.yaml", order(f"family-{number}", title=title))
        replicas = await asyncio.gather(*(load(definitions, tmp_path) for _ in range(4)))
        for number in range(3):
            outcomes = sorted(replica[f"{number}.yaml"].action for replica in replicas)
            assert outcomes == ["published", "unchanged", "unchanged", "unchanged"]
    assert await rows.versions("version") == [1, 2] * 3


@asynccontextmanager
async def booted(database: Database, folder: Path, tenant: str) -> AsyncIterator[Definitions]:
    """The service with a definitions directory, once it is ready."""
    async with serving(database, [SERVICE], workflows_dir=str(folder), workflows_tenant=tenant) as running:
        stub = health_pb2_grpc.HealthStub(running.channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=90)
        async for answer in watch:
            if answer.status == health_pb2.HealthCheckResponse.SERVING:
                break
        watch.cancel()
        yield Definitions(running.channel, tenant)


async def test_the_directory_is_loaded_at_boot(
    module_database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Who waits for the service to be ready finds what the directory holds; a broken file is in the log; a restart changes nothing."""
    tenant = f"boot-{new_id()[-12:]}"
    write(tmp_path, "order.yaml", order())
    write(tmp_path, "broken.yaml", "type: [")
    caplog.set_level(logging.INFO, "ductor.workflows")
    for versions in (1, 1):
        async with booted(module_database, tmp_path, tenant) as definitions:
            page = await definitions.list(status=pb.DEFINITION_STATUS_PUBLISHED)
            assert [entry.version for entry in page.data] == [versions]
    told = [record.getMessage() for record in caplog.records if record.name == "ductor.workflows"]
    assert any("order.yaml: order: published as version 1" in line for line in told)
    assert any(line.startswith("broken.yaml: not loaded") and "line 1" in line for line in told)
    write(tmp_path, "order.yaml", order(title="Changed"))
    async with booted(module_database, tmp_path, tenant) as definitions:
        assert (await definitions.get((await definitions.list()).data[0].definition_id)).version == 3


@pytest.mark.parametrize(("folder", "tenant"), [("nowhere", "acme"), (".", ""), (".", "a b")])
async def test_a_directory_that_cannot_be_meant_stops_the_start(
    module_database: Database, tmp_path: Path, folder: str, tenant: str
) -> None:
    """A wrong path or no tenant is a mistake of the operator, told before anything serves."""
    with pytest.raises(ConfigurationRefused, match="DUCTOR_WORKFLOWS_"):
        async with serving(module_database, [SERVICE], workflows_dir=str(tmp_path / folder), workflows_tenant=tenant):
            raise AssertionError("it must not start")


async def test_what_is_not_about_a_file_ends_the_loading(definitions: Definitions, tmp_path: Path) -> None:
    """No service, no directory: an error, not a list of failed files."""
    write(tmp_path, "order.yaml", order())
    assert (await refusal_of(load_directory(tmp_path, "not a tenant", definitions.stub))).reason == "TENANT_INVALID"
    with pytest.raises(FileNotFoundError):
        await load_directory(tmp_path / "nowhere", definitions.tenant, definitions.stub)
    async with grpc.aio.insecure_channel("127.0.0.1:1") as nobody:
        assert (await refusal_of(load_directory(tmp_path, "acme", Definitions(nobody).stub))).code == "UNAVAILABLE"
    assert (await refused(definitions.export("order"))).code == "NOT_FOUND"


async def refusal_of(call: Any) -> Refusal:
    """Await a call that raises a refusal."""
    with pytest.raises(Refusal) as caught:
        await call
    return caught.value
