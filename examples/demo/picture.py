"""The runs while they move: a mark per run on a terminal, a line per change elsewhere."""

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from types import TracebackType

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ductor.workflow.v1 import run_pb2 as model
from ductord.cli import output
from ductord.cli.runs import run_status
from examples.demo.orders import KINDS, Order

MARKS = {"pending": ("·", "dim"), "running": ("▶", "cyan"), "completed": ("✓", "green"), "failed": ("✗", "red")}
LEGEND = Text(
    "        ▶ running  ✓ completed  ! completed by the error path  ✗ failed  ▮ its engine is dead", style="dim"
)
LINE_S = 0.5
"""Not on a terminal: at most one line in this time."""

console = output.console(sys.stdout)


class Picture:
    """`say` adds a sentence to the story, `runs` replaces the picture below it."""

    def __init__(self, orders: Sequence[Order]) -> None:
        self._orders = orders
        self._begin = time.monotonic()
        self._live = Live(console=console, auto_refresh=False) if sys.stdout.isatty() else None
        self._line = ""
        self._lined = 0.0

    def __enter__(self) -> "Picture":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str, style: str = "") -> None:
        """A sentence of the story, with the seconds since it began."""
        at = f"{time.monotonic() - self._begin:5.1f} s  "
        console.print(Text.assemble((at, "dim"), (text, style)))

    def runs(self, found: Mapping[str, model.RunSummary], *, alive: bool = True) -> None:
        """Where every run stands, by idempotency key. `alive`: whether the engine runs."""
        if self._live is not None:
            self._live.update(self._drawn(found, alive), refresh=True)
            return
        counts = Counter(run_status(run) for run in found.values())
        line = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
        if line != self._line and time.monotonic() - self._lined > LINE_S:
            self.say(line)
            self._line, self._lined = line, time.monotonic()

    def _drawn(self, found: Mapping[str, model.RunSummary], alive: bool) -> Group:
        grid = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
        for kind in KINDS:
            row = Text()
            for order in self._orders:
                if order.kind is kind:
                    row.append(*self._mark(found.get(order.key), alive))
            grid.add_row(Text(f"        {kind.workflow}", style="dim"), kind.name, row)
        return Group("", grid, LEGEND, "")

    def _mark(self, run: model.RunSummary | None, alive: bool) -> tuple[str, str]:
        if run is None:
            return " ", ""
        status = run_status(run)
        mark, style = MARKS.get(status, ("?", ""))
        if status == "completed" and run.has_errors:
            mark, style = "!", "yellow"
        if status == "running" and not alive:
            mark, style = "▮", "dim red"
        return f"{mark} ", style
