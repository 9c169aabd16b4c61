"""What every control does to a run in every state, found out by doing it: the cells of docs/controls.md.

Each cell is a story of a few lines in the world in memory, so the documentation cannot tell another tale than the engine. The refusal that the service would
answer at once is asked for on the way, and has to be the tick's.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from ductord.engine.controls import admission
from ductord.model.control import Control, Rejection
from ductord.model.enums import Verb
from ductord.model.run import Run
from tests.support.memory_world import MemoryWorld
from tests.support.story import Command, Story, play

_RUN = """
run_timeout_ms 10000
fail_policy drain
step a
step b
step f
step s compensation={"on_failure": [{"action": "core:echo"}]}
"""
_BEGUN = "trigger; tick; lease"
_FAILED = f"{_BEGUN}; fail f; ok a; ok b"
OPEN: Mapping[str, str] = {
    "pending": "trigger",
    "running": _BEGUN,
    "paused": f"{_BEGUN}; pause; tick",
    "stopping after a failure": f"{_BEGUN}; fail f; tick",
    "paused while stopping": f"{_BEGUN}; fail f; tick; pause; tick",
    "in the grace of a cancel or of its time-out": f"{_BEGUN}; cancel; tick",
    "on its way to a successor": f"{_BEGUN}; continue_as_new; tick",
}
ENDED: Mapping[str, str] = {
    "completed": f"{_BEGUN}; ok a; ok b; ok f; ok s; tick",
    "failed": f"{_FAILED}; fail s; tick",
    "cancelled": f"{_BEGUN}; cancel; tick; ok a; ok b; ok f; fail s; tick",
    "timed out": f"{_BEGUN}; advance 10s; tick; ok a; ok b; ok f; fail s; tick",
    "terminated": f"{_BEGUN}; terminate; tick",
    "continued": f"{_BEGUN}; continue_as_new; tick; ok a; ok b; ok f; fail s; tick",
    "failed, inverses running": f"{_FAILED}; ok s; tick",
    "failed, inverses done": f"{_FAILED}; ok s; tick; ok s~undo; tick",
    "failed, manual repair": f"{_FAILED}; ok s; tick; fail s~undo non_retryable; tick",
}

_NODE = """
step a on_error=continue retry_max_attempts=2 retry_backoff_ms=60000
step b
step c
step f
a -success-> b
"""
NODES: Mapping[str, tuple[str, str]] = {
    "pending": ("b", "trigger; tick"),
    "running": ("a", "trigger; tick; lease a"),
    "running, in a back-off": ("a", "trigger; tick; fail a; tick"),
    "running, paused": ("a", "trigger; tick; pause_node a; tick"),
    "running, asked to stop": ("a", "trigger; tick; lease a; fail f; tick"),
    "succeeded": ("a", "trigger; tick; pause_node b; ok a; tick"),
    "succeeded, downstream started": ("a", "trigger; tick; ok a; tick"),
    "completed with error": ("a", "trigger; tick; fail a non_retryable; tick"),
    "failed, the run paused": ("c", "trigger; tick; lease c; pause; tick; fail c; tick"),
    "skipped": ("b", "trigger; tick; fail a non_retryable; tick"),
}

_POLICIES = {
    Verb.UPDATE_NODE_RETRY_POLICY: 'retry={"max_attempts": 9} fields=["max_attempts"]',
    Verb.UPDATE_NODE_TIMEOUT: 'timeouts={"timeout_ms": 9000} fields=["timeout_ms"]',
}
LEVERS = (Verb.PAUSE_NODE, Verb.RESUME_NODE, Verb.RESET_NODE, *_POLICIES)


class _Asking(MemoryWorld):
    """A world that remembers what the service would have answered to the last control, and what the run was then."""

    answer: Rejection | None = None
    run: Run | None = None

    async def control(self, control: Control) -> None:
        self.run = (await self.show()).run
        self.answer = admission.refusal(self.manifest, self.run, control)
        await super().control(control)


async def on_run(verb: Verb, setup: str) -> str:
    """The cell of a control in a run that was brought so far."""
    rest = {Verb.RESET: "seq=1", Verb.RESOLVE_REPAIR: "s resolution=done"}
    return await _cell(_RUN, setup, f"{verb} {rest.get(verb, _lever(verb, 'a') if verb in LEVERS else '')}")


async def on_node(verb: Verb, step_ref: str, setup: str) -> str:
    """The cell of a lever on a node that was brought so far."""
    return await _cell(_NODE, setup, f"{verb} {_lever(verb, step_ref)}")


def _lever(verb: Verb, step_ref: str) -> str:
    return f"{step_ref} {_POLICIES.get(verb, '')}"


async def _cell(definition: str, setup: str, control: str) -> str:
    define = Command(line="define", block=tuple(definition.strip().splitlines()))
    lines = [line.strip() for line in f"{setup}; {control} request_id=tried; tick".split(";")]
    world = _Asking()
    story = Story(path=Path("cell"), head="", commands=(define, *(Command(line=line) for line in lines)), expected="")
    told = (await play(story, world)).rpartition("> tick\n")[2].splitlines()
    settled = next((line.strip() for line in told if line.startswith("  = tried ")), None)
    if world.answer is not None:
        handed_on = settled is not None and "forwarded" in settled
        pending = world.run is None
        assert pending or handed_on or (settled is not None and f" rejected: {world.answer.reason} (" in settled), (
            settled
        )
        return world.answer.reason
    if settled is None:
        return "at the close" if control.startswith(Verb.CONTINUE_AS_NEW) else "handed on"
    assert " applied" in settled, settled
    changed = any(line.startswith("  #") for line in told) or control.startswith(Verb.RESET + " ")
    return "applied" if changed else "nothing to do"


async def document() -> str:
    """The whole text of docs/controls.md."""
    opened = [[verb, *[await on_run(verb, setup) for setup in OPEN.values()]] for verb in Verb]
    ended = [[verb, *[await on_run(verb, setup) for setup in ENDED.values()]] for verb in Verb]
    nodes = [[state, *[await on_node(verb, *node) for verb in LEVERS]] for state, node in NODES.items()]
    return "\n".join(
        [
            _HEAD,
            *("## On a run that is open", "", *_table(["", *OPEN], opened), ""),
            *("## On a run that has ended", "", *_table(["", *ENDED], ended), ""),
            *("## Levers on a node of a running run", "", *_table(["", *LEVERS], nodes), ""),
        ]
    )


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    columns = list(head)
    lines = [columns, ["---"] * len(columns), *([_code(cell) for cell in row] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def _code(cell: str) -> str:
    return f"`{cell}`" if cell.isupper() or cell in set(Verb) else cell


_HEAD = """\
# Controls

What a control does, by the state in which it finds the run or the node. Generated by trying each of them
(`pytest tests/engine/test_controls.py --rewrite`); the rules are in [semantics.md](semantics.md) under Controls.

A code is the reason of a refusal: the caller gets it at once, or, when the run moved on in between, the operation is `rejected` with it. *Applied* changes
the run; *nothing to do* is applied too and leaves the run as it is. *At the close*: the operation stays pending until the run has ended, and then tells its
successor. *Handed on*: it stays pending until then too, and goes to the successor under the same name; so does a control that was accepted just before the
run was continued.
"""
