"""The command: the checks one after the other, each with a worker started anew, and what they found."""

import asyncio
import contextlib
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec
from rich.text import Text

from ductord.cli.client import Client, Connection, connected
from ductord.cli.conformance import draining, holding, manners, reporting
from ductord.cli.conformance.stage import Abandoned, Stage, Trial, staged
from ductord.cli.ending import DONE, FAILED, MISUSED, CommandFailed
from ductord.cli.output import counted, print_json, say, table

Check = Callable[[Stage], Awaitable[None]]

CHECKS: Final[Mapping[str, Check]] = {
    "lease": holding.lease,
    "heartbeat": holding.heartbeat,
    "cancel": holding.cancel,
    "lease-loss": holding.lease_loss,
    "retry": reporting.retry,
    "transport": reporting.transport,
    "bad-output": reporting.bad_output,
    "drain": draining.drain,
}


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found. `output`: the end of what the worker printed, where it found anything."""

    check: str
    faults: tuple[str, ...]
    seconds: float
    output: str = ""

    @property
    def passed(self) -> bool:
        """Whether nothing was wrong."""
        return not self.faults


async def conformance(
    connection: Connection, command: str, only: Sequence[str], *, patience_s: float, as_json: bool
) -> int:
    """Run the checks (all for none) and tell; 1 if one found something. Raises `CommandFailed`, `Refusal`."""
    if unknown := sorted(set(only) - set(CHECKS)):
        raise CommandFailed(f"there is no check {unknown[0]!r}", way_out=f"there are {', '.join(CHECKS)}", code=MISUSED)
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise CommandFailed(f"--command is no command line: {error}", code=MISUSED) from None
    if not words:
        raise CommandFailed("--command is empty: how is the worker started?", code=MISUSED)
    results: list[Result] = []
    async with connected(connection) as client:
        key = client.credential.token
        tenant = connection.tenant or (key.tenant_id if key is not None else "")
        trial = Trial(command=words, tenant=tenant, api_key=key.text if key is not None else "", patience_s=patience_s)
        for name in CHECKS:
            if not only or name in only:
                if not as_json:
                    say(f"{name} …", "dim")
                results.append(await tried(name, trial, client))
    _tell(results, as_json)
    return DONE if all(result.passed for result in results) else FAILED


async def tried(name: str, trial: Trial, client: Client) -> Result:
    """One check. Raises `Refusal` where the engine does not do what it is asked, `CommandFailed` where there is no such command."""
    begin = asyncio.get_running_loop().time()
    async with staged(trial, client, name) as stage:
        with contextlib.suppress(Abandoned):
            await CHECKS[name](stage)
        manners.judge(stage)
        return Result(
            check=name,
            faults=tuple(stage.faults),
            seconds=round(stage.clock() - begin, 1),
            output=stage.output() if stage.faults else "",
        )


def _tell(results: Sequence[Result], as_json: bool) -> None:
    failed = [result for result in results if not result.passed]
    if as_json:
        data = [{"check": r.check, "passed": r.passed, "faults": r.faults, "seconds": r.seconds} for r in results]
        outputs = {result.check: result.output for result in failed}
        print_json({"data": data, "passed": not failed, "outputs": outputs})
        return
    rows: list[tuple[str | Text, ...]] = []
    for result in results:
        word = Text("ok", style="green") if result.passed else Text("failed", style="red")
        rows.append((result.check, word, f"{result.seconds:.1f} s", result.faults[0] if result.faults else ""))
        rows += [("", "", "", fault) for fault in result.faults[1:]]
    table(("CHECK", "RESULT", "TIME", "WHAT WAS WRONG"), rows)
    for result in failed:
        if result.output:
            say(f"the worker in {result.check}:", "bold")
            for line in result.output.splitlines():
                say(f"  {line}", "dim")
    say(f"{len(results) - len(failed)} of {counted(len(results), 'check')} passed", "red" if failed else "green")
