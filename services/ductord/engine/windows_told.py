"""What a transition was told of digests' windows, read off what came of it: a place is in the wait of its step, what was collected in the step's output.

For replay. Windows are shared by runs, so no recording of one run could hold them.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final

from ductord.engine import moments
from ductord.engine.graph import graph_of
from ductord.model.enums import DigestPlace, NodeStatus, WaitingType
from ductord.model.events import Event, NodeEnded, RunStopping, WaitChanged
from ductord.model.inbox import Arrival, DigestFact
from ductord.model.manifest import Manifest
from ductord.model.run import Run, Waiting

_WENT_ON: Final = (NodeStatus.SUCCEEDED, NodeStatus.COMPLETED_WITH_ERROR, NodeStatus.FAILED)
_MORE_THAN_ANYTHING: Final = 1 << 62
"""Bytes of what a window had collected where that was more than an output can carry."""


def read(
    manifest: Manifest, run: Run, events: tuple[Event, ...], output_of: Callable[[str, int], Any]
) -> tuple[tuple[DigestFact, ...], dict[str, Any]]:
    """The facts, and the payloads of what had arrived, by name. `run`: before the transition. `output_of(ref, attempt)` raises KeyError for an output that is
    not known."""
    parked = {
        step.ref: node.attempt
        for step, node in zip(manifest.steps, run.nodes, strict=True)
        if node.waiting is not None and node.waiting.type is WaitingType.DIGEST
    }
    payloads: dict[str, Any] = {}
    facts: list[DigestFact] = []
    for event in events:
        match event:
            case WaitChanged(step_ref=ref, waiting=Waiting() as wait) if ref in parked:
                place = DigestPlace.LEADS if wait.leads else DigestPlace.FOLLOWS
                facts.append(_fact(ref, parked[ref], place, window_id=wait.window_id, due_time=wait.due_time))
            case NodeEnded(step_ref=ref, status=status) if ref in parked and status in _WENT_ON:
                arrivals = []
                for arrival, payload in _collected(run, event, output_of):
                    arrivals.append(arrival)
                    payloads[arrival.key] = payload
                facts.append(_fact(ref, parked[ref], DigestPlace.CLOSED, arrivals=tuple(arrivals)))
            case RunStopping(stop=stop) if stop.merged_into_run_id:
                ref = min(parked, key=graph_of(manifest).index.__getitem__)
                leader = stop.merged_into_run_id
                facts.append(_fact(ref, parked[ref], DigestPlace.MERGED, leader_run_id=leader))
    return tuple(facts), payloads


def _fact(ref: str, attempt: int, place: DigestPlace, **told: Any) -> DigestFact:
    return DigestFact(step_ref=ref, attempt=attempt, place=place, **told)


def _collected(run: Run, event: NodeEnded, output_of: Callable[[str, int], Any]) -> Iterator[tuple[Arrival, Any]]:
    if event.output is None:
        yield Arrival(run_id=run.run_id, time=_begun(run), size=_MORE_THAN_ANYTHING), None
        return
    for shown in output_of(event.step_ref, event.output.attempt)["events"]:
        yield Arrival(run_id=shown["run_id"], time=moments.instant(shown["arrived_at"])), shown["payload"]


def _begun(run: Run) -> datetime:
    assert run.start_time is not None
    return run.start_time
