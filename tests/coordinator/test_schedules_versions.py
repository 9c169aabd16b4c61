"""What a fire is of: one version, that its coordinator understands, and one environment (rulings D3, L8)."""

import asyncio
from typing import Any

from msgspec.structs import replace

from ductord.coordinator.schedules import turn
from ductord.model.manifest import FORMAT_VERSION
from tests.coordinator.conftest import Ticker
from tests.coordinator.timetables import Timetables, at, fires, firing, template, timetables
from tests.support.books import Books

__all__ = ["timetables"]


async def test_l8_the_environment_of_who_fires_is_frozen_with_the_run(timetables: Timetables, ticker: Ticker) -> None:
    """L8: the template reads VARS as the environment has them, and the run keeps what the override said."""
    input_ = template({"to": "${{ VARS.to }}"}, "VARS")
    manifest = replace(firing("* * * * *", input_=input_, overlap_policy="allow_all"), variables={"to": "nobody"})
    schedule = await timetables.publish(manifest)
    override = (
        "insert into eec_workflow_env_override (tenant_id, definition_id, environment, variables)"
        " select tenant_id, definition_id, 'prod', '{\"to\": \"ann\"}' from eec_workflow_schedule"
    )
    await timetables.owner.execute(override)
    await timetables.set(at("10:01"))
    await turn(ticker.connection, fires())
    await timetables.set(at("10:02"))
    await turn(ticker.connection, fires(environment="prod"))
    runs = [(run["input"], run["environment"], run["variables"]) for run in await timetables.runs(schedule)]
    assert runs == [('{"to":"nobody"}', "", "{}"), ('{"to":"ann"}', "prod", '{"to": "ann"}')]


async def test_a_version_of_a_newer_engine_is_left_to_a_newer_coordinator(
    timetables: Timetables, ticker: Ticker
) -> None:
    """In a rolling upgrade an old coordinator neither fires nor breaks what it may not understand, and does not turn round for it."""
    manifest = firing("* * * * *")
    newer = await timetables.publish(manifest, format_version=FORMAT_VERSION + 1)
    schedule = await timetables.publish(manifest)
    turned = await timetables.at(ticker.connection, at("10:01"))
    assert [of.schedule_id for of, _ in turned.fired] == [schedule]
    row = await timetables.row(newer)
    assert (row["next_time"], row["error_code"], turned.left, turned.next_s) == (at("10:01"), "", False, 60)


async def test_a_fire_beside_a_publish_is_of_one_version(
    timetables: Timetables, ticker: Ticker, books: Books, other_books: Books
) -> None:
    """D3: while a publish holds the row nobody fires it; whatever comes first, a run has the version that its input says."""

    def manifest(n: int) -> Any:
        return replace(
            firing("* * * * *", input_=template({"version": n}), overlap_policy="allow_all"), family_slug="published"
        )

    schedule = await timetables.follow(await books.release(manifest(1)), manifest(1))
    follow = "update eec_workflow_schedule set version_id = $2, version = $3 where schedule_id = $1"
    async with other_books.owner.transaction():
        await other_books.owner.execute(follow, schedule, await other_books.release(manifest(2)), 2)
        turned = await timetables.at(ticker.connection, at("10:01"))
        assert (turned.fired, turned.left) == ([], False)
    await timetables.at(ticker.connection, at("10:01"))

    async def publish() -> None:
        for n in range(3, 30):
            async with other_books.owner.transaction():
                await other_books.owner.execute(follow, schedule, await other_books.release(manifest(n)), n)

    async def fire() -> None:
        for minute in range(2, 60):
            await timetables.at(ticker.connection, at(f"10:{minute:02}"))

    await asyncio.gather(publish(), fire())
    await timetables.at(ticker.connection, at("11:00"))
    runs = await timetables.runs(schedule)
    assert len(runs) == 60
    assert all(run["input"] == f'{{"version":{run["version"]}}}' for run in runs)
    assert [runs[0]["version"], runs[-1]["version"]] == [2, 29]
    version_of = "select version from eec_workflow_version where version_id = $1"
    for run in runs:
        assert await books.owner.fetchval(version_of, run["version_id"]) == run["version"]
