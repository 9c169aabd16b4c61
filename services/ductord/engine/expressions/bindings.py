"""The values that expressions read, and binding as little of them as possible.

Binding converts a value into the evaluator's own form, at a cost per element: an output of 5,000 items takes milliseconds. So an
expression gets the branches that its constant paths name, and nothing beside them.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from ductord.engine.expressions.reads import Key, Read
from ductord.model.jsonvalue import JSON


class Bindings(msgspec.Struct, frozen=True, kw_only=True):
    """The values behind the root names. A field left unset has no value here; reading it raises `LookupError`.

    `trigger`: `{payload, event, subject: {type, id}, type, id, scheduled_time}`.
    `steps`: per ref `{output, status, error, attempt}`; refs that the expression does not read may be missing.
    `run`: `{id, version, started_at, labels}`, `started_at` an RFC 3339 text. All are checked JSON.
    """

    trigger: Mapping[str, JSON] | msgspec.UnsetType = msgspec.UNSET
    variables: Mapping[str, JSON] | msgspec.UnsetType = msgspec.UNSET
    steps: Mapping[str, JSON] | msgspec.UnsetType = msgspec.UNSET
    run: Mapping[str, JSON] | msgspec.UnsetType = msgspec.UNSET
    context: Mapping[str, JSON] | msgspec.UnsetType = msgspec.UNSET
    output: JSON = msgspec.UNSET
    item: JSON = msgspec.UNSET
    index: int | msgspec.UnsetType = msgspec.UNSET
    accumulated: JSON = msgspec.UNSET
    event: Mapping[str, JSON] | msgspec.UnsetType = msgspec.UNSET


_FIELDS: Final = {
    "TRIGGER": "trigger",
    "VARS": "variables",
    "STEPS": "steps",
    "RUN": "run",
    "CONTEXT": "context",
    "OUTPUT": "output",
    "ITEM": "item",
    "INDEX": "index",
    "ACC": "accumulated",
    "EVENT": "event",
}

Branches = dict[Key, Any]
"""Keys that are read, each with the branches below it; an empty one is read whole."""


def branches(reads: Iterable[Read]) -> dict[str, Branches]:
    """What an expression reads below each root name. A list index counts as reading the list."""
    roots: dict[str, Branches] = {}
    whole: list[Branches] = []
    for read in reads:
        branch: Branches = roots.setdefault(read.root, {})
        for key in read.keys:
            if isinstance(key, int):
                break
            branch = branch.setdefault(key, {})
        whole.append(branch)
    for branch in whole:
        branch.clear()
    return roots


def bound(roots: dict[str, Branches], bindings: Bindings, steps: tuple[str, ...]) -> dict[str, Any]:
    """The activation of an expression. `steps`: what a computed `STEPS[x]` may read. Raises `LookupError` for a value not given."""
    data = {name: pruned(_root(name, bindings), below) for name, below in roots.items() if name != "STEPS"}
    below = roots.get("STEPS")
    if below is not None:
        values = _root("STEPS", bindings)
        data["STEPS"] = {ref: pruned(_step(ref, values), below.get(ref, {})) for ref in (below or steps)}
    return data


def followed(root: str, keys: tuple[Key, ...], bindings: Bindings) -> tuple[bool, JSON]:
    """The value at a constant path, or False where CEL shall say what is wrong with it. Raises `LookupError` for a value not given."""
    value = _root(root, bindings)
    if root == "STEPS" and keys:
        value, keys = _step(keys[0], value), keys[1:]
    return followed_in(value, keys)


def followed_in(value: JSON, keys: tuple[Key, ...]) -> tuple[bool, JSON]:
    """The value at a constant path below `value`, or False where CEL shall say what is wrong with it."""
    for key in keys:
        if isinstance(key, str):
            if not isinstance(value, Mapping) or key not in value:
                return False, None
        elif not isinstance(value, list) or not 0 <= key < len(value):
            return False, None
        value = value[key]
    return True, value


def _root(name: str, bindings: Bindings) -> Any:
    value = getattr(bindings, _FIELDS[name])
    if value is msgspec.UNSET:
        raise LookupError(f"{name} was not given to an expression that reads it")
    return value


def _step(ref: Key, values: Any) -> Any:
    if ref not in values:
        raise LookupError(f"step {ref!r} was not given to an expression that reads it")
    return values[ref]


def pruned(value: Any, below: Branches) -> Any:
    """What of a value stands on the branches."""
    if not below or not isinstance(value, Mapping):
        return value
    return {key: pruned(value[key], deeper) for key, deeper in below.items() if key in value}
