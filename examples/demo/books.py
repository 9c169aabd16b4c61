"""What the API says about the runs, and whether it adds up: nothing lost, nothing doubled, every run where its input leads."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ductor.workflow.v1 import run_pb2 as model
from ductor.workflow.v1 import workflow_service_pb2 as api
from ductord.cli.client import Client
from ductord.cli.runs import EXACT, attempts_of, entries, node_status, run_status, steps_of
from ductord.cli.words import plain, word
from examples.demo.orders import Order

Done = frozenset[tuple[str, str, int]]
"""Run, step and attempt of every success."""


@dataclass(frozen=True, kw_only=True)
class Book:
    """One run as the API tells it."""

    run: model.RunDetail
    steps: Sequence[model.StepState]
    attempts: Sequence[model.Attempt]
    history: Sequence[model.TimelineEntry]


async def book(client: Client, run_id: str) -> Book:
    """Everything about one run."""
    request = api.GetRunRequest(run_id=run_id, payload_format=EXACT)
    return Book(
        run=(await client.call(client.runs.GetRun, request)).data,
        steps=await steps_of(client, run_id),
        attempts=await attempts_of(client, run_id),
        history=await entries(client, run_id),
    )


async def successes(client: Client, run_ids: Iterable[str]) -> Done:
    """The attempts of these runs that have succeeded by now."""
    ids = list(run_ids)
    found = await asyncio.gather(*(attempts_of(client, run_id) for run_id in ids))
    return frozenset(
        (run_id, attempt.step_ref, attempt.attempt)
        for run_id, attempts in zip(ids, found, strict=True)
        for attempt in attempts
        if attempt.status == model.ATTEMPT_STATUS_SUCCEEDED
    )


def discrepancies(order: Order, book: Book) -> list[str]:
    """What is wrong with one run; empty when nothing is."""
    kind, run = order.kind, book.run
    wrong: list[str] = []

    def expect(what: str, found: object, meant: object) -> None:
        if found != meant:
            wrong.append(f"{order.key}: {what} is {found!r}, not {meant!r}")

    expect("status", run_status(run), kind.status)
    expect("has_errors", run.summary.has_errors, kind.has_errors)
    if kind.outcome is not None:
        expect("outcome", (plain(run)["result"] or {}).get("outcome"), kind.outcome)
    nodes = {step.step_ref: node_status(step) for step in book.steps}
    for ref, status in kind.nodes.items():
        expect(f"step {ref}", nodes.get(ref), status)
    tries = Counter((a.step_ref, attempt_status(a)) for a in book.attempts)
    for ref, status in nodes.items():
        expect(f"successes of {ref}", tries[ref, "succeeded"], 1 if status == "succeeded" else 0)
        numbers = sorted(a.attempt for a in book.attempts if a.step_ref == ref)
        expect(f"attempts of {ref}", numbers, list(range(1, len(numbers) + 1)))
    for attempt in book.attempts:
        if attempt.status == model.ATTEMPT_STATUS_OPEN:
            wrong.append(f"{order.key}: attempt {attempt.attempt} of {attempt.step_ref} is still open")
    seqs = sorted({entry.seq for entry in book.history})
    expect("transitions", seqs, list(range(1, run.transition_count + 1)))
    ends = Counter(entry.step_ref for entry in book.history if entry.type == "node_ended")
    expect("ends of nodes", ends, Counter(list(nodes)))
    expect("ends of the run", sum(entry.type == "run_ended" for entry in book.history), 1)
    return wrong


def attempt_status(attempt: model.Attempt) -> str:
    """The verdict over an attempt."""
    return word(model.AttemptStatus.DESCRIPTOR, attempt.status)


@dataclass(frozen=True, kw_only=True)
class Sums:
    """What all runs together come to."""

    runs: Mapping[str, int]
    nodes: Mapping[str, int]
    attempts: Mapping[str, int]
    transitions: int


def sums(books: Sequence[Book]) -> Sums:
    """Count."""
    return Sums(
        runs=Counter(
            run_status(b.run)
            + (" with errors" if b.run.summary.has_errors and run_status(b.run) == "completed" else "")
            for b in books
        ),
        nodes=Counter(node_status(step) for b in books for step in b.steps),
        attempts=Counter(attempt_status(attempt) for b in books for attempt in b.attempts),
        transitions=sum(b.run.transition_count for b in books),
    )
