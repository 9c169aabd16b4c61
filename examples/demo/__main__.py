"""The story: start, publish, trigger, kill -9, start again, see every run end, add up. Exit code 0 only when everything adds up."""

import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.text import Text

from ductor.workflow.v1 import run_pb2 as model
from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductor.workflow.v1 import workflow_trigger_service_pb2 as triggers
from ductord.cli.client import Client, Connection, connected
from ductord.cli.output import compact
from ductord.cli.runs import run_status, summaries
from ductord.model.enums import RunStatus
from ductord.model.errors import Refusal
from examples.demo.books import Book, Done, book, discrepancies, successes, sums
from examples.demo.engine import LEASE_MS, TENANT, Engine, Failed
from examples.demo.orders import Order, orders
from examples.demo.picture import Picture, console

HERE = Path(__file__).resolve().parent.parent
WAVES, WAVE_PAUSE_S = 6, 0.25
KILL_AFTER = 0.25
"""The share of runs that have ended when the engine is killed: the others are in the middle."""
END_LIMIT_S = 40.0

Runs = Mapping[str, model.RunSummary]


async def main() -> int:
    """Tell the story in a folder of its own, and leave nothing behind."""
    folder = Path(tempfile.mkdtemp(prefix="ductor-demo-"))
    folder.chmod(0o711)  # as root, Postgres runs as another user, who must get in
    engine = Engine(folder)
    try:
        return await _story(engine)
    except (Failed, Refusal) as failure:
        console.print(Text(f"\nThe demo failed: {failure}", style="bold red"))
        console.print(Text(engine.tail(), style="dim"))
        return 1
    finally:
        engine.stop()
        shutil.rmtree(folder, ignore_errors=True)


async def _story(engine: Engine) -> int:
    todo = orders()
    with Picture(todo) as picture:
        picture.say("Starting `ductor dev`: Postgres, all services and a worker …")
        picture.say(f"It can serve after {engine.start():.1f} s, as process {engine.pid}.")
        for file in ("hello_world.yaml", "order.yaml"):
            picture.say(engine.command("workflow", "publish", str(HERE / file)))
        async with connected(Connection(target=engine.grpc, tenant=TENANT)) as client:
            started = await _trigger(client, todo, picture)
            before = await _until(client, started, picture, KILL_AFTER)
            done = await successes(client, started.values())
        engine.kill()
        moving = sum(run_status(run) not in ("completed", "failed") for run in before.values())
        picture.runs(before, alive=False)
        picture.say(
            f"kill -9 {engine.pid}, with {moving} of {len(todo)} runs in the middle and {len(done)} steps done.",
            "bold red",
        )
        picture.say(f"It is back after {engine.start():.1f} s, as process {engine.pid}.", "bold")
        picture.say(f"What it was doing is found dead when the leases of {LEASE_MS // 1000} s have run out.")
        async with connected(Connection(target=engine.grpc, tenant=TENANT)) as client:
            await _until(client, started, picture, 1.0)
            picture.say("Every run has ended.", "bold green")
            found = await asyncio.gather(*(book(client, run_id) for run_id in started.values()))
            books = dict(zip(started, found, strict=True))
            wrong = [text for order in todo for text in discrepancies(order, books[order.key])]
            gone = done - await successes(client, started.values())
            wrong += [f"run {run}: the success of {step} from before the kill is gone" for run, step, _ in gone]
            wrong += await _nothing_more(client, todo, started)
    return _verdict(list(books.values()), done, wrong, engine)


async def _trigger(client: Client, todo: Sequence[Order], picture: Picture) -> dict[str, str]:
    """Start everything in waves, so that runs are in different places when the engine dies: run ids by key."""
    picture.say(f"Triggering {len(todo)} runs.")
    ids = {slug: await client.definition_id(slug) for slug in {order.kind.workflow for order in todo}}
    started: dict[str, str] = {}
    for wave in range(WAVES):
        for order in todo[wave::WAVES]:
            request = request_of(order, ids)
            started[order.key] = (await client.call(client.triggers.TriggerWorkflow, request)).run_id
        picture.runs(await _look(client, started))
        await asyncio.sleep(WAVE_PAUSE_S)
    return started


def request_of(order: Order, ids: Mapping[str, str]) -> triggers.TriggerWorkflowRequest:
    """The trigger of one run; the same order gives the same request."""
    return triggers.TriggerWorkflowRequest(
        definition_id=ids[order.kind.workflow],
        subject_type="order",
        subject_id=order.key,
        input_json=compact(dict(order.input)),
        idempotency_key=order.key,
    )


async def _until(client: Client, started: Mapping[str, str], picture: Picture, share: float) -> Runs:
    """Show the runs until so many have ended. Raises `Failed` when that takes too long."""
    begin = time.monotonic()
    while True:
        found = await _look(client, started)
        picture.runs(found)
        ended = sum(RunStatus(run_status(run)).terminal for run in found.values())
        if ended >= share * len(started):
            return found
        if time.monotonic() - begin > END_LIMIT_S:
            raise Failed(f"after {END_LIMIT_S:.0f} s only {ended} of {len(started)} runs have ended")
        await asyncio.sleep(0.1)


async def _look(client: Client, started: Mapping[str, str]) -> Runs:
    """Where every run stands, by key."""
    keys = {run_id: key for key, run_id in started.items()}
    found = await summaries(client, reads.ListRunsRequest(), 10_000)
    return {keys[run.run_id]: run for run in found if run.run_id in keys}


async def _nothing_more(client: Client, todo: Sequence[Order], started: Mapping[str, str]) -> list[str]:
    """Trigger everything again with the same keys: the same runs answer, and no other run exists."""
    ids = {slug: await client.definition_id(slug) for slug in {order.kind.workflow for order in todo}}
    wrong = []
    for order in todo:
        again = await client.call(client.triggers.TriggerWorkflow, request_of(order, ids))
        if again.run_id != started[order.key] or not again.duplicate:
            wrong.append(f"{order.key}: triggered again it is run {again.run_id}, not {started[order.key]}")
    existing = [run.run_id for run in await summaries(client, reads.ListRunsRequest(), 10_000)]
    if sorted(existing) != sorted(started.values()):
        wrong.append(f"{len(existing)} runs exist, {len(started)} were triggered")
    return wrong


def _verdict(books: Sequence[Book], done: Done, wrong: list[str], engine: Engine) -> int:
    total = sums(books)
    if not total.attempts.get("lost"):
        wrong.append("the kill hit no attempt in flight, so it has proved nothing")
    code = engine.stop()
    if code:
        wrong.append(f"the engine ended with {code} on Ctrl-C")
    for name, counts in (("runs", total.runs), ("steps", total.nodes), ("attempts", total.attempts)):
        parts = ", ".join(f"{count} {status}" for status, count in sorted(counts.items(), key=lambda item: -item[1]))
        console.print(f"  {name:<12} [bold]{sum(counts.values()):>5}[/]  {parts}")
    console.print(
        f"  transitions  [bold]{total.transitions:>5}[/]  each run's numbered from 1, none missing, none twice"
    )
    if wrong:
        console.print(f"\n[bold red]{len(wrong)} things do not add up:[/]")
        for text in wrong[:20]:
            console.print(Text(f"  {text}"))
        return 1
    lost = total.attempts["lost"]
    for text in (
        "every run ended as its input says, the failing ones included",
        f"the {len(done)} steps that were done before the kill were not done again",
        f"the {lost} attempts that died with the engine were found and tried again, and spent no retry",
        "every trigger, sent once more with its key, answered with the same run",
    ):
        console.print(f"  [green]✓[/] {text}")
    console.print("\n[bold green]Nothing was lost, nothing was done twice.[/]")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
