"""One source, compiled: the checked expression as it will run, and what it reads.

Publish and run time go through the same function, so that what was published compiles in every process that runs it.
"""

from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from ductord.engine.expressions import wire
from ductord.engine.expressions.environment import environment
from ductord.engine.expressions.reads import Facts, facts
from ductord.engine.expressions.rewrite import rewrite


class Compiled(NamedTuple):
    """`runnable`: the evaluator's expression. `loops`: it must run on an open account of `meter` (loops, matches). `offsets`: by node, code points from the
    start. `type`: the checked type of its value."""

    runnable: Any
    loops: bool
    facts: Facts
    offsets: dict[int, int]
    type: Any


def compile_source(source: str) -> Compiled:
    """Compile a CEL source. Raises `RuntimeError` with the compiler's report, and `wire.Nested` for one that is nested too deep to be rewritten."""
    compiled = environment().compile(source)
    checked = wire.read(compiled.serialize())
    found = facts(checked.expr)
    offsets = {entry.key: entry.value for entry in checked.source_info.positions}
    try:
        loops = rewrite(checked)
        runnable = environment().deserialize(wire.write(checked))
    except (DecodeError, RuntimeError):  # what rewriting adds makes it deeper than messages may be
        raise wire.Nested from None
    return Compiled(runnable, loops, found, offsets, compiled.return_type())
