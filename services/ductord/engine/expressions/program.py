"""One source, compiled: the checked expression as it will run, and what it reads.

Publish and run time go through the same function, so that what was published compiles in every process that runs it.
"""

from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError

from ductord.engine.expressions import wire
from ductord.engine.expressions.environment import environment
from ductord.engine.expressions.reads import Facts, facts
from ductord.engine.expressions.rewrite import rewrite

_FEW_READS: Final = 8


class Compiled(NamedTuple):
    """`runnable`: the evaluator's expression. `loops`: it must run on an open account of `meter` (loops, matches). `offsets`: by node, code points from the
    start. `type`: the checked type of its value."""

    runnable: Any
    loops: bool
    facts: Facts
    offsets: dict[int, int]
    type: Any

    @property
    def may_share(self) -> bool:
        """Whether its value may be larger than what is read for it, written out. Without a loop it is not, each time that something is named."""
        return self.loops or len(self.facts.reads) > _FEW_READS


def compile_source(source: str, *, per_element: bool = False) -> Compiled:
    """Compile a CEL source. `per_element`: what is `OF_ELEMENT` comes by way of `element`, and not by binding.

    Raises `RuntimeError` with the compiler's report, and `wire.Nested` for one that is nested too deep to be rewritten."""
    compiled = environment().compile(source)
    checked = wire.read(compiled.serialize())
    found = facts(checked.expr)
    offsets = {entry.key: entry.value for entry in checked.source_info.positions}
    try:
        loops = rewrite(checked, per_element=per_element)
        runnable = environment().deserialize(wire.write(checked))
    except (DecodeError, RuntimeError):  # what rewriting adds makes it deeper than messages may be
        raise wire.Nested from None
    return Compiled(runnable, loops, found, offsets, compiled.return_type())
