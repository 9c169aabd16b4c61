"""The stored form of a run: which column holds what, and the way there and back.

`node_states` maps step refs to nodes and leaves pending ones out; `edge_states` is `Run.edges`; `run_state` holds the rest. The coordinator writes it, reads
shows it; both go through here, so that an old row is read by one decoder.
"""

from datetime import datetime

import msgspec

from ductord.model.enums import RunStatus
from ductord.model.fault import Fault
from ductord.model.manifest import Manifest
from ductord.model.run import NO_SAGA, CheckpointState, Node, Run, Saga, Stop


class RunState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What of a run has no column of its own."""

    checkpoints: tuple[CheckpointState, ...] = ()
    stop: Stop | None = None
    fault: Fault | None = None
    output_fault: Fault | None = None
    saga: Saga = NO_SAGA
    close_reason: str = ""
    continued_to_run_id: str = ""
    merged_into_run_id: str = ""
    moves: int = 0
    warned: bool = False


_encoder = msgspec.json.Encoder()
_nodes = msgspec.json.Decoder(dict[str, Node])
_state = msgspec.json.Decoder(RunState)
_PENDING = Node()


def decode_nodes(text: str) -> dict[str, Node]:
    """Nodes by step ref of a stored `node_states`; a ref that is not there is pending."""
    return _nodes.decode(text)


def decode_state(text: str) -> RunState:
    """The stored `run_state`."""
    return _state.decode(text)


def encode_nodes(manifest: Manifest, run: Run) -> str:
    """`node_states` of a run, without its pending nodes."""
    return _encoder.encode(
        {step.ref: node for step, node in zip(manifest.steps, run.nodes, strict=True) if node != _PENDING}
    ).decode()


def encode_state(run: Run) -> str:
    """`run_state` of a run."""
    return _encoder.encode(
        RunState(
            checkpoints=run.checkpoints,
            stop=run.stop,
            fault=run.fault,
            output_fault=run.output_fault,
            saga=run.saga,
            close_reason=run.close_reason,
            continued_to_run_id=run.continued_to_run_id,
            merged_into_run_id=run.merged_into_run_id,
            moves=run.moves,
            warned=run.warned,
        )
    ).decode()


def decode_run(
    manifest: Manifest,
    *,
    run_id: str,
    status: str,
    record_version: int,
    node_states: str,
    edge_states: str,
    run_state: str,
    has_errors: bool,
    start_time: datetime | None,
    end_time: datetime | None,
) -> Run:
    """The run value of a run row. Raises `msgspec.ValidationError` for a row of a newer format."""
    nodes = _nodes.decode(node_states)
    state = _state.decode(run_state)
    ended = sum(1 for node in nodes.values() if node.status.terminal)
    return Run(
        run_id=run_id,
        status=RunStatus(status),
        seq=record_version,
        nodes=tuple(nodes.get(step.ref, _PENDING) for step in manifest.steps),
        edges=edge_states,
        checkpoints=state.checkpoints,
        open_nodes=len(manifest.steps) - ended,
        stop=state.stop,
        fault=state.fault,
        output_fault=state.output_fault,
        has_errors=has_errors,
        start_time=start_time,
        end_time=end_time,
        saga=state.saga,
        close_reason=state.close_reason,
        continued_to_run_id=state.continued_to_run_id,
        merged_into_run_id=state.merged_into_run_id,
        moves=state.moves,
        warned=state.warned,
    )
