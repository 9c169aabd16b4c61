"""The edits of a draft as values: operations in, the edited tree out, all or none (contract: UpdateWorkflowDraft).

Works on trees that need not be valid: a draft may be unfinished, and what it means is judged afterwards. Costs what is read and written, not
operations times steps: 6,000 operations on 500 steps are one pass. The tree that was given is never changed.
"""

from collections.abc import Callable
from typing import Any, Final, NoReturn

from ductord.model.errors import Refusal, Violation

MAX_OPERATIONS: Final = 6_000
CLEAR_FIELDS: Final = "clear_fields"
_SETTINGS: Final = (
    "output",
    "fail_policy",
    "run_timeout_ms",
    "tier",
    "response_checkpoint",
    "input_schema",
    "schedule",
    "auto_continue",
)

Tree = dict[str, Any]
_EdgeKey = tuple[str, str, str]


def apply_operations(tree: Tree, operations: list[Tree]) -> Tree:
    """The tree after all operations, in order. Each is a map of one name to its body, as in the contract:

    `add_step {…step}` the ref must be new · `update_step {ref, …fields, clear_fields?}` a merge patch; null clears too · `remove_step {ref}` and its
    edges · `add_edge {…edge}` of its ends and type the only one · `remove_edge {source_ref, target_ref, type}` · `set_triggers {triggers}` ·
    `set_checkpoints {checkpoints}` · `set_variables {variables}` · `set_settings {output?, fail_policy?, …, clear_fields?}` ·
    `replace {definition}`.

    Raises `Refusal` BATCH_TOO_LARGE or DRAFT_OPERATION_INVALID, its violation's path `operations[i].…`.
    """
    if len(operations) > MAX_OPERATIONS:
        message = f"{len(operations):,} operations, maximum is {MAX_OPERATIONS:,}"
        metadata = {"field": "operations", "limit": str(MAX_OPERATIONS)}
        raise Refusal("INVALID_ARGUMENT", "BATCH_TOO_LARGE", message, metadata=metadata)
    draft = _Draft(tree)
    for number, operation in enumerate(operations):
        try:
            draft.apply(operation)
        except _Impossible as impossible:
            _refuse(number, impossible)
    return draft.tree()


class _Impossible(Exception):
    """An operation that cannot be applied; `path` is below `operations[i]`."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path
        self.message = message


def _refuse(number: int, impossible: _Impossible) -> NoReturn:
    path = f"operations[{number}]{impossible.path}"
    raise Refusal(
        "INVALID_ARGUMENT",
        "DRAFT_OPERATION_INVALID",
        f"{path}: {impossible.message}",
        metadata={"field": path, "operation_index": str(number)},
        violations=[Violation(code="DRAFT_OPERATION_INVALID", message=impossible.message, path=path)],
    )


class _Draft:
    """A tree opened for editing: steps by ref, edges by ends and type, both in order. What has no key (a draft may hold it) keeps its place."""

    def __init__(self, tree: Tree) -> None:
        self._rest: Tree = {}
        self._written: frozenset[str] = frozenset()
        self._steps: dict[Any, Any] = {}
        self._edges: dict[Any, Any] = {}
        self._twins: dict[_EdgeKey, list[int]] = {}
        self._touching: dict[str, dict[_EdgeKey, None]] = {}
        self._load(tree)

    def tree(self) -> Tree:
        """The tree as it stands. Lists that are empty and were not written before stay unwritten."""
        tree = dict(self._rest)
        for name, items in (("steps", self._steps), ("edges", self._edges)):
            if items or name in self._written:
                tree[name] = list(items.values())
        return tree

    def apply(self, operation: Any) -> None:
        if not isinstance(operation, dict) or len(operation) != 1:
            raise _Impossible("", "an operation is a map with exactly one name")
        ((name, body),) = operation.items()
        act = _OPERATIONS.get(name)
        if act is None:
            raise _Impossible(f".{str(name)[:64]}", f"unknown operation; it is one of {', '.join(_OPERATIONS)}")
        if not isinstance(body, dict):
            raise _Impossible(f".{name}", "must be a map")
        act(self, body)

    def add_step(self, body: Tree) -> None:
        ref = _text(body, "ref", ".add_step")
        if ref in self._steps:
            raise _Impossible(".add_step.ref", f"the draft has a step `{ref[:128]}` already")
        self._steps[ref] = body

    def update_step(self, body: Tree) -> None:
        ref = _text(body, "ref", ".update_step")
        step = self._steps.get(ref)
        if not isinstance(step, dict):
            raise _Impossible(".update_step.ref", f"the draft has no step `{ref[:128]}`")
        self._steps[ref] = _patched(step, body, ".update_step", kept=("ref", "type"))

    def remove_step(self, body: Tree) -> None:
        ref = _text(body, "ref", ".remove_step")
        _only(body, ("ref",), ".remove_step")
        if ref not in self._steps:
            raise _Impossible(".remove_step.ref", f"the draft has no step `{ref[:128]}`")
        del self._steps[ref]
        for key in self._touching.pop(ref, {}):
            self._drop_edge(key)

    def add_edge(self, body: Tree) -> None:
        key = _edge_key(body, ".add_edge")
        if key in self._edges:
            raise _Impossible(
                ".add_edge", f"the draft has a {key[2]} edge from `{key[0][:128]}` to `{key[1][:128]}` already"
            )
        self._edges[key] = body
        self._touch(key)

    def remove_edge(self, body: Tree) -> None:
        key = _edge_key(body, ".remove_edge")
        _only(body, ("source_ref", "target_ref", "type"), ".remove_edge")
        if key not in self._edges:
            raise _Impossible(
                ".remove_edge", f"the draft has no {key[2]} edge from `{key[0][:128]}` to `{key[1][:128]}`"
            )
        self._drop_edge(key)

    def set_triggers(self, body: Tree) -> None:
        self._set(body, "triggers", list, ".set_triggers")

    def set_checkpoints(self, body: Tree) -> None:
        self._set(body, "checkpoints", list, ".set_checkpoints")

    def set_variables(self, body: Tree) -> None:
        self._set(body, "variables", dict, ".set_variables")

    def set_settings(self, body: Tree) -> None:
        _only(body, (*_SETTINGS, CLEAR_FIELDS), ".set_settings")
        for name in body.get(CLEAR_FIELDS) or ():
            if name not in _SETTINGS:
                raise _Impossible(f".set_settings.{CLEAR_FIELDS}", f"`{str(name)[:64]}` is no setting")
        self._rest = _patched(self._rest, body, ".set_settings", kept=())

    def replace(self, body: Tree) -> None:
        _only(body, ("definition",), ".replace")
        definition = body.get("definition")
        if not isinstance(definition, dict):
            raise _Impossible(".replace.definition", "must be a map")
        slug = self._rest.get("family_slug")
        if slug is not None and definition.get("family_slug") not in (None, slug):
            raise _Impossible(".replace.definition.family_slug", "names another family; the draft's own stays")
        self._load({**definition, "family_slug": slug} if slug is not None else definition)

    def _load(self, tree: Tree) -> None:
        self._rest = {key: value for key, value in tree.items() if key not in ("steps", "edges")}
        self._written = frozenset(key for key in ("steps", "edges") if tree.get(key) is not None)
        self._steps, self._edges, self._twins, self._touching = {}, {}, {}, {}
        for number, step in enumerate(_list(tree, "steps")):
            ref = step.get("ref") if isinstance(step, dict) else None
            self._steps[ref if isinstance(ref, str) and ref not in self._steps else number] = step
        for number, edge in enumerate(_list(tree, "edges")):
            self._load_edge(edge, number)

    def _load_edge(self, edge: Any, number: int) -> None:
        names = ("source_ref", "target_ref", "type")
        ends = [edge[name] for name in names if isinstance(edge.get(name), str)] if isinstance(edge, dict) else []
        if len(ends) < len(names):
            self._edges[number] = edge
            return
        key = (ends[0], ends[1], ends[2])
        if key in self._edges:  # legal in a choice group: same ends and type, other conditions
            self._edges[number] = edge
            self._twins.setdefault(key, []).append(number)
        else:
            self._edges[key] = edge
        self._touch(key)

    def _touch(self, key: _EdgeKey) -> None:
        for ref in key[:2]:
            self._touching.setdefault(ref, {})[key] = None

    def _drop_edge(self, key: _EdgeKey) -> None:
        self._edges.pop(key, None)
        for twin in self._twins.pop(key, ()):
            del self._edges[twin]

    def _set(self, body: Tree, name: str, kind: type, path: str) -> None:
        _only(body, (name,), path)
        value = body.get(name)
        if value is not None and not isinstance(value, kind):
            raise _Impossible(f"{path}.{name}", f"must be a {'list' if kind is list else 'map'}")
        self._rest = {key: item for key, item in self._rest.items() if key != name}
        if value:
            self._rest[name] = value


_OPERATIONS: Final[dict[str, Callable[[_Draft, Tree], None]]] = {
    "add_step": _Draft.add_step,
    "update_step": _Draft.update_step,
    "remove_step": _Draft.remove_step,
    "add_edge": _Draft.add_edge,
    "remove_edge": _Draft.remove_edge,
    "set_triggers": _Draft.set_triggers,
    "set_checkpoints": _Draft.set_checkpoints,
    "set_variables": _Draft.set_variables,
    "set_settings": _Draft.set_settings,
    "replace": _Draft.replace,
}


def _patched(target: Tree, patch: Tree, path: str, *, kept: tuple[str, ...]) -> Tree:
    """`target` with the fields of `patch`; a null and a name in `clear_fields` remove one. Fields in `kept` cannot be removed."""
    cleared = patch.get(CLEAR_FIELDS) or []
    if not isinstance(cleared, list) or not all(isinstance(name, str) for name in cleared):
        raise _Impossible(f"{path}.{CLEAR_FIELDS}", "must be a list of field names")
    given = {name: value for name, value in patch.items() if name != CLEAR_FIELDS}
    for name in cleared:
        if name in kept:
            raise _Impossible(f"{path}.{CLEAR_FIELDS}", f"`{name}` cannot be removed")
        if given.get(name) is not None:
            raise _Impossible(f"{path}.{CLEAR_FIELDS}", f"`{name[:64]}` is given and cleared at once")
    removed = {*cleared, *(name for name, value in given.items() if value is None)}
    merged = {name: value for name, value in target.items() if name not in removed}
    return merged | {name: value for name, value in given.items() if value is not None}


def _edge_key(body: Tree, path: str) -> _EdgeKey:
    return _text(body, "source_ref", path), _text(body, "target_ref", path), _text(body, "type", path)


def _text(body: Tree, name: str, path: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise _Impossible(f"{path}.{name}", "must be given, as a string")
    return value


def _only(body: Tree, names: tuple[str, ...], path: str) -> None:
    for name in body:
        if name not in names:
            raise _Impossible(f"{path}.{str(name)[:64]}", "unknown field")


def _list(tree: Tree, name: str) -> list[Any]:
    value = tree.get(name)
    return value if isinstance(value, list) else []
