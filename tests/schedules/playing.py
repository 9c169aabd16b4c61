"""How stories of schedules are played: the commands, over any `World`. The language is in README.md."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import msgspec

from ductord.engine import moments, timetable
from ductord.model.starting import DEFAULT_CATCHUP_MS, OVERLAP_POLICIES, ScheduleSpec
from tests.support.story import Story

_SPAN = re.compile(r"\((\S+), (\S+)\](?: overlap=(\w+))?")


class Fire(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a time, or of the times of a gap, as it stands in the books."""

    nominal_time: datetime
    kind: str
    outcome: str
    source: str
    count: int = 1
    until_time: datetime | None = None
    run_id: str = ""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Where the schedule stands."""

    next_time: datetime | None
    paused: bool
    started: int
    skipped: int
    missed: int
    dropped: int


class World(Protocol):
    """Whom the commands move."""

    async def at(self, moment: datetime) -> None:
        """Set the clock."""

    async def publish(self, spec: ScheduleSpec) -> None:
        """The next version of the definition, with this schedule as its own."""

    async def watch(self) -> None:
        """Deal with all that is due."""

    async def end(self) -> None:
        """End all runs."""

    async def pause(self) -> None: ...

    async def resume(self) -> None: ...

    async def now(self, request_id: str) -> None:
        """Fire by hand."""

    async def backfill(self, begin: datetime, end: datetime, overlap_policy: str) -> tuple[int, int, int]:
        """Fire the times of a span; how many were started, started before, skipped."""

    async def fires(self) -> list[Fire]:
        """What has become of times, by time and kind."""

    async def state(self) -> State: ...


async def play(story: Story, world: World) -> str:
    """Play a story in a world; the transcript."""
    stage = _Stage(world)
    lines: list[str] = []
    for command in story.commands:
        lines.append(f"> {command.line}")
        lines += [f"  {line}" for line in await stage.play(command.line)]
    return "".join(f"{line}\n" for line in lines)


class _Stage:
    def __init__(self, world: World) -> None:
        self._world = world
        self._now = datetime(1970, 1, 1, tzinfo=UTC)
        self._spec = ScheduleSpec(cron_expression="")
        self._told: dict[tuple[datetime, str], Fire] = {}
        self._runs: dict[str, int] = {}

    async def play(self, line: str) -> list[str]:
        verb, _, rest = line.partition(" ")
        lines: list[str] = []
        match verb:
            case "at":
                await self._set(self._moment(rest))
            case "schedule":
                self._spec = _spec(rest)
                await self._world.publish(self._spec)
            case "live":
                until, _, ending = rest.partition(" ")
                lines += await self._live(self._moment(until), ending == "ending")
            case "now":
                await self._world.now(rest)
            case "backfill":
                lines += await self._backfill(rest)
            case "preview":
                lines += self._preview(int(rest))
            case "show":
                return [self._shown(await self._world.state())]
            case "watch" | "end" | "pause" | "resume":
                await getattr(self._world, verb)()
            case _:
                raise AssertionError(f"no such command: {line}")
        return lines + await self._news()

    async def _set(self, moment: datetime) -> None:
        assert moment >= self._now, "the clock goes forward"
        self._now = moment
        await self._world.at(moment)

    async def _live(self, until: datetime, ending: bool) -> list[str]:
        lines: list[str] = []
        while (next_time := (await self._world.state()).next_time) is not None and next_time <= until:
            await self._set(max(next_time, self._now))
            await self._world.watch()
            lines += await self._news()
            if ending:
                await self._world.end()
        await self._set(until)
        return lines

    async def _backfill(self, rest: str) -> list[str]:
        found = _SPAN.fullmatch(rest)
        assert found is not None, rest
        begin, end, policy = found.groups()
        started, before, skipped = await self._world.backfill(
            self._moment(begin), self._moment(end), policy or "allow_all"
        )
        return [f"started {started}, before {before}, skipped {skipped}"]

    def _preview(self, count: int) -> list[str]:
        found = timetable.preview(self._spec.cron_expression, self._spec.timezone, self._now, count)
        return [f"{self._spelled(tick.time)} {tick.change}".rstrip() for tick in found]

    async def _news(self) -> list[str]:
        lines: list[str] = []
        for fire in await self._world.fires():
            if self._told.get((fire.nominal_time, fire.kind)) != fire:
                self._told[fire.nominal_time, fire.kind] = fire
                lines.append(self._line(fire))
        return lines

    def _line(self, fire: Fire) -> str:
        told = f"{self._spelled(fire.nominal_time)}: {fire.outcome}"
        if fire.kind == "gap":
            assert fire.until_time is not None
            return (
                f"{self._spelled(fire.nominal_time)} to {self._spelled(fire.until_time)}: {fire.outcome} {fire.count}"
            )
        if fire.run_id:
            told += f" run {self._runs.setdefault(fire.run_id, len(self._runs) + 1)}"
        return told if fire.source == "timetable" else f"{told}, {fire.source}"

    def _shown(self, state: State) -> str:
        stands = (
            "paused" if state.paused else f"next {self._spelled(state.next_time)}" if state.next_time else "at rest"
        )
        counts = [
            f"{name} {getattr(state, name)}"
            for name in ("started", "skipped", "missed", "dropped")
            if getattr(state, name)
        ]
        return ", ".join([stands, *counts])

    def _spelled(self, moment: datetime) -> str:
        text = moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
        if self._spec.timezone == "UTC":
            return text
        return f"{text} ({moment.astimezone(moments.time_zone(self._spec.timezone)):%a %H:%M %z})"

    def _moment(self, text: str) -> datetime:
        if "T" not in text:
            text = f"{self._now:%Y-%m-%d}T{text}{':00' if text.count(':') == 1 else ''}Z"
        return moments.instant(text)


def _spec(rest: str) -> ScheduleSpec:
    cron, _, options = rest.partition("|")
    given: dict[str, Any] = dict(option.split("=", 1) for option in options.split())
    window = given.pop("window", None)
    milliseconds = DEFAULT_CATCHUP_MS if window is None else moments.duration(window) // timedelta(milliseconds=1)
    spec = ScheduleSpec(
        cron_expression=cron.strip(),
        timezone=given.pop("zone", "UTC"),
        catchup_window_ms=milliseconds,
        overlap_policy=given.pop("overlap", OVERLAP_POLICIES[0]),
    )
    assert not given, given
    return spec
