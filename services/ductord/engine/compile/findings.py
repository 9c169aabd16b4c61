"""Where the passes of compile put what they find: coded violations with path, step and place."""

import re
from typing import Any, Final

from ductord.engine.positions import Path, Place, Positions, dotted
from ductord.model.errors import Violation
from ductord.model.jsonvalue import storable_text

_DOTTED: Final = re.compile(r'\.?([A-Za-z_][A-Za-z0-9_-]*)|\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]')
_MAX_MESSAGE: Final = 500


class Findings:
    """Collects violations. `steps` gives the ref of a step by its number, so that a path under `steps[n]` also names the step."""

    def __init__(self, positions: Positions | None, definition: dict[str, Any]) -> None:
        self._positions = positions
        steps = definition.get("steps")
        self._steps: list[Any] = steps if isinstance(steps, list) else []
        self._found: list[Violation] = []
        self._order: list[tuple[int, int]] = []

    def add(self, code: str, message: str, path: Path, *, warning: bool = False, on_key: bool = False) -> None:
        """A violation of the value at `path`, or of its key."""
        place = None
        if self._positions is not None:
            place = self._positions.key(path) if on_key else self._positions.value(path)
        self._put(code, message, path, place, warning)

    def add_inside(self, code: str, message: str, path: Path, text: str, offset: int, *, warning: bool = False) -> None:
        """A violation at the character `offset` of the string `text` at `path`. Without a document's text, line and column count in the string."""
        if self._positions is not None:
            place = self._positions.inside(path, text, offset)
            self._put(code, message, path, place, warning)
            return
        before = text[:offset]
        self._put(
            code, message, path, Place(before.count("\n") + 1, offset - before.rfind("\n")), warning, ordered=False
        )

    def written(self, path: Path) -> str:
        """The value at `path` as the text spells it; empty where no text is known."""
        return self._positions.written(path)[:64] if self._positions is not None else ""

    @property
    def failed(self) -> bool:
        """Whether something that is no warning has been found."""
        return any(not violation.warning for violation in self._found)

    def violations(self) -> tuple[Violation, ...]:
        """In the order of the text where places are known, else in the order of finding."""
        ordered = sorted(range(len(self._found)), key=lambda number: (*self._order[number], number))
        return tuple(self._found[number] for number in ordered)

    def _put(
        self, code: str, message: str, path: Path, place: Place | None, warning: bool, *, ordered: bool = True
    ) -> None:
        self._order.append((place.line, place.column) if place is not None and ordered else (0, 0))
        self._found.append(
            Violation(
                code=code,
                message=storable_text(message, max_chars=_MAX_MESSAGE),
                path=dotted(path),
                line=place.line if place is not None else None,
                column=place.column if place is not None else None,
                step_ref=self._step_ref(path),
                warning=warning,
            )
        )

    def _step_ref(self, path: Path) -> str | None:
        if len(path) < 2 or path[0] != "steps" or not isinstance(path[1], int) or path[1] >= len(self._steps):
            return None
        step = self._steps[path[1]]
        ref = step.get("ref") if isinstance(step, dict) else None
        return storable_text(ref, max_chars=128) if isinstance(ref, str) else None


def path_of(text: str) -> Path:
    """The keys of a dotted path, as far as it can be read back."""
    keys: list[str | int] = []
    for name, index, quoted in _DOTTED.findall(text):
        keys.append(int(index) if index else name or quoted)
    return tuple(keys)
