"""Runs with children, for the coordinator's tests: families of definitions spelled as stories spell them, and what their rows say."""

from collections.abc import Sequence

import asyncpg

from ductord.engine.compile import compile_definition
from ductord.model import ids
from ductord.model.manifest import Manifest
from tests.coordinator.conftest import Ticker
from tests.support.books import Books
from tests.support.story import parse_definition

PAGE = ("step work action=noop:noop",)


def family(slug: str, *lines: str) -> Manifest:
    """The manifest of a definition of this family."""
    compiled = compile_definition(parse_definition(lines, slug))
    assert compiled.manifest is not None, compiled.errors
    return compiled.manifest


def over(kind: str, fields: str = "", *, settings: str = "") -> str:
    """A step `s` with children over TRIGGER.payload.xs: `inline` tasks, `runs` or `each` of family page."""
    items = '"items_expr": "TRIGGER.payload.xs"'
    more = f", {fields}" if fields else ""
    page = '"workflow": {"family_slug": "page"}'
    return {
        "inline": f'step s type=scatter {settings} scatter={{{items}, "action": "noop:noop", "args": {{"x": "${{{{ ITEM }}}}"}}{more}}}',
        "runs": f'step s type=scatter {settings} scatter={{{items}, "mode": "child_workflow", {page}{more}}}',
        "each": f"step s type=for_each {settings} for_each={{{items}, {page}{more}}}",
        "one": f"step s type=subworkflow {settings} subworkflow={{{page}{more}}}",
    }[kind]


async def begun(books: Books, ticker: Ticker, *lines: str, width: int = 3, child: Sequence[str] = PAGE) -> str:
    """A run of these lines over `width` items whose first tick is committed, and nothing else; its id."""
    await books.release(family("page", *child))
    run_id = await books.start(await books.release(family("parent", *lines)), input_=f'{{"xs": {list(range(width))}}}')
    assert (await ticker.tick(1)).claimed == 1
    return run_id


def child_of(run_id: str, index: int = 0, *, ref: str = "s", attempt: int = 1) -> str:
    """The id that a child has been born with."""
    return ids.derived("child", run_id, ref, attempt, index)


async def child_rows(books: Books, run_id: str) -> list[asyncpg.Record]:
    """What is known of a run's children."""
    return list(
        await books.owner.fetch(
            "select *, child_run_id::text as run_id from eec_workflow_child where parent_run_id = $1 order by item_index, attempt",
            run_id,
        )
    )


async def end(books: Books, ticker: Ticker, *children: str, output: str = "{}", code: str | None = None) -> None:
    """These children's work is reported, and their ticks are made, but none of their parent's."""
    for child in children:
        await books.report(child, outcome="failed" if code else "succeeded", output=output, code=code, wake=False)
    for child in children:
        assert await ticker.commit(await ticker.decide("t", child)) == set()


async def pending(books: Books, run_id: str) -> int:
    """How many wake-ups a run has."""
    count: int = await books.owner.fetchval("select count(*) from eec_workflow_wakeup where run_id = $1", run_id)
    return count
