"""VARS: what a run was started with is what it has (L8): of its environment, whatever is published or overridden since; for children, successors and resets."""

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import orjson
import pytest
from msgspec import structs

from ductord.model.control import ControlBody
from ductord.model.enums import Verb
from ductord.model.ids import derived
from ductord.model.manifest import Manifest
from ductord.reads.service import SERVICE as READS
from ductord.trigger.service import SERVICE as TRIGGER
from tests.conftest import Database
from tests.coordinator.conftest import Ticker
from tests.coordinator.parents import child_of, family
from tests.support.books import TENANT, Books
from tests.support.edges import Catalogue, Edges, serving

READING = 'step work action=noop:noop args={"who": "${{ VARS.who }}", "n": "${{ VARS.n }}"}'
CHILD = 'step s type=subworkflow subworkflow={"workflow": {"family_slug": "page"}}'


@pytest.fixture
async def edges(database: Database) -> AsyncIterator[Edges]:
    """A door in an environment."""
    async with serving(database, [TRIGGER, READS], environment="production") as running:
        yield running


def _reading(slug: str, *more: str, who: Any = "default") -> Manifest:
    return structs.replace(family(slug, READING, *more), variables={"who": who, "n": 1})


class Overrides:
    """Values of VARS per environment, as the definition service writes them; and what runs were given."""

    def __init__(self, owner: asyncpg.Connection) -> None:
        self.owner = owner

    async def set(self, definition_id: str, environment: str, **variables: Any) -> None:
        """Replace an override."""
        await self.owner.execute(
            "insert into eec_workflow_env_override (tenant_id, definition_id, environment, variables) values ($1, $2, $3, $4)"
            " on conflict (tenant_id, definition_id, environment) do update set variables = excluded.variables",
            TENANT, definition_id, environment, orjson.dumps(variables).decode(),
        )  # fmt: skip

    async def given(self, run_id: str) -> tuple[Any, Any]:
        """What the run's first step was given: who, n."""
        text = await self.owner.fetchval(
            "select input::text from eec_workflow_step_attempt where run_id = $1 and step_ref = 'work' order by attempt limit 1",
            run_id,
        )
        args = orjson.loads(text)
        return args["who"], args["n"]


@pytest.fixture
def overrides(owner: asyncpg.Connection) -> Overrides:
    """The overrides of a test."""
    return Overrides(owner)


async def test_l8_the_override_of_the_environment_frozen_at_the_start(
    edges: Edges, catalogue: Catalogue, ticker: Ticker, overrides: Overrides
) -> None:
    """L8: the values of the door's environment lie over the defaults, those of others and of names that the version does not declare do not; what is overridden
    after a start counts for the next."""
    definition_id = await catalogue.published(_reading("parent"), slug="parent")
    first = (await edges.start(definition_id)).run_id
    await overrides.set(definition_id, "production", who="ops", undeclared="x")
    await overrides.set(definition_id, "staging", n=7)
    second = (await edges.start(definition_id)).run_id
    await overrides.set(definition_id, "production", who={"a": [1]}, n=None)
    third = (await edges.start(definition_id)).run_id
    await overrides.owner.execute("delete from eec_workflow_env_override")
    fourth = (await edges.start(definition_id)).run_id
    await ticker.drain()
    assert [await overrides.given(run) for run in (first, second, third, fourth)] == [
        ("default", 1),
        ("ops", 1),
        ({"a": [1]}, None),
        ("default", 1),
    ]


async def test_l8_a_version_and_its_override_belong_together(
    edges: Edges, catalogue: Catalogue, ticker: Ticker, overrides: Overrides
) -> None:
    """L8, D1: the override is the definition's, over the defaults of whichever version is started; one started by its version id has it too."""
    definition_id = await catalogue.define("parent")
    old = await catalogue.publish(definition_id, _reading("parent", who="v1"))
    await overrides.set(definition_id, "production", n=2)
    await catalogue.publish(definition_id, _reading("parent", who="v2"))
    runs = [(await edges.start(one)).run_id for one in (old, definition_id)]
    await ticker.drain()
    assert [await overrides.given(run) for run in runs] == [("v1", 2), ("v2", 2)]


async def test_l8_children_successors_and_resets(
    edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker, overrides: Overrides
) -> None:
    """L8: a child has its own definition's values in its parent's environment, as they are when it is born; a successor and a reset run have those of the run
    that they go on from; all are of the same environment."""
    parent_id = await catalogue.published(_reading("parent", CHILD), slug="parent")
    page_id = await catalogue.published(_reading("page"), slug="page")
    await overrides.set(parent_id, "production", who="ops", n=2)
    await overrides.set(page_id, "production", who="printer")
    await overrides.set(page_id, "staging", who="nobody")
    run_id = (await edges.start(parent_id)).run_id
    await overrides.set(parent_id, "production", who="too late")
    await ticker.drain()
    child = child_of(run_id)
    assert await overrides.given(run_id) == ("ops", 2)
    assert await overrides.given(child) == ("printer", 1)
    await overrides.set(page_id, "production", who="plotter", n=3)
    reset = derived("reset", run_id, "r")
    await books.control(run_id, Verb.RESET, request_id="r", body=ControlBody(new_run_id=reset, seq=1))
    await ticker.drain()
    assert (await books.operation(run_id, "r"))["status"] == "applied"
    successor = derived("continue", run_id, "c")
    await books.control(
        run_id, Verb.CONTINUE_AS_NEW, request_id="c", body=ControlBody(new_run_id=successor, seed={})
    )  # fmt: skip
    await ticker.drain()
    await books.report(run_id)
    await books.report(child)
    await ticker.drain()
    rows = await books.owner.fetch(
        "select run_id::text, variables::text, environment, origin::text from eec_workflow_run_start where run_id = any($1)",
        [run_id, child, reset, successor],
    )
    frozen = {row["run_id"]: (orjson.loads(row["variables"]), row["environment"], row["origin"]) for row in rows}
    mine = ({"who": "ops", "n": 2}, "production", "{}")
    assert frozen == {
        run_id: mine, reset: mine, successor: mine, child: ({"who": "printer"}, "production", "{}")
    }  # fmt: skip
    assert await overrides.given(successor) == ("ops", 2)
    assert await overrides.given(child_of(successor)) == ("plotter", 3)


async def test_l8_large_values_are_read_where_they_are_read(
    edges: Edges, catalogue: Catalogue, ticker: Ticker, overrides: Overrides
) -> None:
    """L7, L8: values too large to be sent along with every tick are there where an expression reads them."""
    definition_id = await catalogue.published(_reading("parent"), slug="parent")
    large = "x" * 200_000
    await overrides.set(definition_id, "production", who=large)
    run_id = (await edges.start(definition_id)).run_id
    await ticker.drain()
    assert await overrides.given(run_id) == (large, 1)
