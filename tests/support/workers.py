"""The workers of a story: what they lease, and how they report. Part of the stage (`stage.Stage`)."""

from typing import Any

from tests.support import transcript
from tests.support.naming import Target, in_story_order, target
from tests.support.saying import Names
from tests.support.words import failure, payload_and_options
from tests.support.world import Success, Task, World


class Workers:
    """Remembers which attempts are leased, and with what input, per run."""

    def __init__(self, world: World, names: Names) -> None:
        self._world = world
        self._names = names
        self._leased: dict[str, dict[str, int]] = {}
        self._inputs: dict[tuple[str, str, int], Any] = {}
        self._keys: dict[str, tuple[str, int]] = {}

    @property
    def _attempts(self) -> dict[str, int]:
        """The last leased attempt by task, of the run that the story is about."""
        return self._leased.setdefault(self._world.run_id, {})

    async def lease(self, wanted: str) -> list[str]:
        """`lease [REF]`: one line per task."""
        lines = []
        for task in await self._world.lease(target(wanted) if wanted else None):
            lines.append(transcript.task(task, self._take(task)))
        return self._names.told(lines, self._world.run_id) or ["no task"]

    def _take(self, task: Task) -> str:
        """Remember a leased task; a short name of its idempotency key: its number among the step's keys."""
        self._attempts[task.step_ref] = task.attempt
        self._inputs[self._world.run_id, task.step_ref, task.attempt] = task.input
        fresh = 1 + sum(1 for ref, _ in self._keys.values() if ref == task.step_ref)
        ref, number = self._keys.setdefault(task.idempotency_key, (task.step_ref, fresh))
        return f"key {number}" if ref == task.step_ref else f"key {number} of {ref}"

    async def work(self, verb: str, rest: str) -> list[str]:
        """A worker's verb. It is about the last leased attempts of the tasks that are meant, or the one given as `ref#n`; what is only queued is leased
        first."""
        meant, _, rest = rest.strip().partition(" ")
        text, _, number = meant.partition("#")
        wanted = target(text)
        if not number and verb != "beat":
            for task in await self._world.lease(wanted):
                self._take(task)
        names = [text] if number else self._meant(wanted)
        answers: list[str] = []
        for name in names:
            attempt = int(number) if number else self._attempts.get(name)
            answer = "no task" if attempt is None else await self._say(verb, name, attempt, rest)
            if answer not in ("ok", "continue"):
                answers.append(answer if len(names) == 1 else f"{name}: {answer}")
        return answers

    def _meant(self, wanted: Target) -> list[str]:
        """The tasks that are meant: all leased ones of a step, where it does not tell which."""
        leased = sorted((name for name in self._attempts if wanted.covers(name)), key=in_story_order)
        return wanted.names if wanted.first >= 0 or not leased else leased

    async def _say(self, verb: str, name: str, attempt: int, rest: str) -> str:
        payload, options = payload_and_options(rest)
        answer = "ok"
        match verb:
            case "ok":
                output = payload if rest.strip() else {}
                answer = await self._world.complete(name, attempt, Success(output=output))
            case "echo":
                output = self._inputs[self._world.run_id, name, attempt]
                answer = await self._world.complete(name, attempt, Success(output=output))
            case "fail":
                answer = await self._world.complete(name, attempt, failure(options))
            case "release":
                answer = await self._world.release(name, attempt)
            case "beat":
                return await self._world.beat(name, attempt, payload)
            case "die":
                await self._world.die(name, attempt)
                return answer  # whoever is gone may still be heard
            case _:
                raise ValueError(f"unknown verb: {verb}")
        if self._attempts.get(name) == attempt:
            del self._attempts[name]  # its worker is through with it
        return answer
