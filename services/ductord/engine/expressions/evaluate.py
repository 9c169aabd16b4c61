"""Evaluating a manifest's expressions and templates: compiled once per process, from then on values to values.

`Programs` belongs to one manifest and is kept by the caller under the manifest's hash. Only what an expression reads is bound, since
binding converts; a plain path (`TRIGGER.payload.id`) is followed in Python without binding anything. Whatever goes wrong with an
expression is an `ExpressionError`, never a wrong value and never another exception (rulings L3, L4, L5; CE-02, CE-05, CE-07). An input that
the caller did not load is the caller's mistake and raises `LookupError`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial

import orjson

from ductord.engine import templates
from ductord.engine.expressions import meter, wire
from ductord.engine.expressions.bindings import Bindings, bound, branches, followed
from ductord.engine.expressions.elements import PerElement, once, per_element
from ductord.engine.expressions.environment import OF_ELEMENT
from ductord.engine.expressions.errors import BUDGET_EXCEEDED, ExpressionError
from ductord.engine.expressions.outcome import MAX_CAUSE, given_up, outcome
from ductord.engine.expressions.program import Compiled, compile_source
from ductord.engine.expressions.reads import Key
from ductord.engine.expressions.results import MAX_RESULT_BYTES
from ductord.model.jsonvalue import JSON
from ductord.model.manifest import Manifest
from ductord.model.specs import Expression, Template

_Evaluate = Callable[[str], JSON]
_Fill = Callable[[_Evaluate], JSON]


def programs_for(manifest: Manifest) -> "Programs":
    """The programs of one manifest. Sources are compiled when first needed, so this costs nothing; keep the result."""
    return Programs(manifest)


class Programs:
    """The compiled expressions and scanned templates of one manifest. Evaluation changes nothing that a caller can see."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._programs: dict[str, _Program] = {}
        self._of_elements: dict[str, Compiled] = {}
        self._strings: dict[str, tuple[templates.Part, ...] | None] = {}
        self._plans: dict[int, tuple[JSON, _Fill | None]] = {}

    def condition(self, expr: Expression, bindings: Bindings) -> bool:
        """The truth of a condition. Raises `ExpressionError`, also for any value but a bool (ruling L4)."""
        value = self.value(expr, bindings)
        if value is True or value is False:
            return value
        raise ExpressionError(expr.source, f"a condition must be a bool, this is {described(value)}")

    def value(self, expr: Expression, bindings: Bindings) -> JSON:
        """The JSON value of an expression, shared with the bindings where it is a part of them. Raises `ExpressionError`."""
        return self._program(expr.source).run(bindings, expr.steps)

    def render(self, template: Template, bindings: Bindings) -> JSON:
        """The tree with every `${{ }}` filled; static parts are shared with the template. Raises `ExpressionError`, its source the string."""
        if template.static:
            return template.tree
        tree = template.tree
        plan = self._plans.get(id(tree))
        if plan is None:
            plan = self._plans[id(tree)] = tree, self._plan(tree)  # with the tree, so that no other gets its identity
        fill = plan[1]
        if fill is None:
            return tree
        return fill(lambda source: self._program(source).run(bindings, template.steps))

    def per_element(self, text: Expression | Template, bindings: Bindings) -> PerElement:
        """A way to evaluate or render `text` for one element after the other, as fast as it can be done. `bindings`: what it reads beside the element.

        The answer is called `(item, index)`, of a reduce also with what it came to so far, and raises `ExpressionError` where an element has no value; the
        next may have one. Nothing is evaluated before the first call. It belongs to one decision and one thread."""
        if isinstance(text, Expression):
            return self._per_element(text.source, bindings, text.steps)
        fill = self._plan(text.tree)
        if fill is None:
            return lambda item, index, accumulated=None: text.tree
        ways: dict[str, PerElement] = {}

        def rendered(item: JSON, index: int, accumulated: JSON = None, /) -> JSON:
            def evaluate(source: str) -> JSON:
                way = ways.get(source)
                if way is None:
                    way = ways[source] = self._per_element(source, bindings, text.steps)
                return way(item, index, accumulated)

            return fill(evaluate)

        return rendered

    def _per_element(self, source: str, bindings: Bindings, steps: tuple[str, ...]) -> PerElement:
        if not self._program(source).of_element:
            return once(lambda: self._program(source).run(bindings, steps))
        compiled = self._of_elements.get(source)
        if compiled is None:
            compiled = self._of_elements[source] = _compile(source, per_element=True)
        return per_element(source, compiled, bindings, steps)

    def _plan(self, tree: JSON) -> "_Fill | None":
        """How to fill a tree; None where there is nothing to fill."""
        if isinstance(tree, str):
            return partial(self._text, tree) if templates.OPEN in tree else None
        if isinstance(tree, dict):
            fields = {key: fill for key, value in tree.items() if (fill := self._plan(value)) is not None}
            return partial(_fill_map, tree, fields) if fields else None
        if isinstance(tree, list):
            places = {place: fill for place, value in enumerate(tree) if (fill := self._plan(value)) is not None}
            return partial(_fill_list, tree, places) if places else None
        return None

    def _text(self, string: str, evaluate: "_Evaluate") -> JSON:
        parts = self._strings.get(string)
        if parts is None:
            parts = self._strings[string] = templates.scan(string)
            assert parts is not None  # the caller saw the opening
        if len(parts) == 1 and parts[0].source is not None:
            return evaluate(parts[0].source)
        pieces: list[str] = []
        room = MAX_RESULT_BYTES
        for part in parts:
            piece = part.text
            if part.source is not None:
                piece = _printed(evaluate(part.source), part.source)
            pieces.append(piece)
            room -= len(piece)
            if room < 0:
                raise ExpressionError(
                    string, f"its text is longer than {MAX_RESULT_BYTES:,} bytes", code=BUDGET_EXCEEDED
                )
        return "".join(pieces)

    def _program(self, source: str) -> "_Program":
        program = self._programs.get(source)
        if program is None:
            if (
                meter.decision_over()
            ):  # compiling costs more than most evaluations, and an input may hold thousands of sources
                raise given_up(source)
            program = self._programs[source] = _Program(source)
        return program


class _Shared(Programs):
    """For one rendering: its expressions are those that the process keeps for all manifests."""

    def __init__(self) -> None:
        self._programs = {}
        self._of_elements = {}
        self._strings = {}
        self._plans = {}

    def _program(self, source: str) -> "_Program":
        return _compiled(source)


def holds(source: str, bindings: Bindings) -> bool:
    """The truth of a condition of a manifest that is not at hand: the filter of an open wait. Raises `ExpressionError`, as `Programs.condition` does."""
    value = _compiled(source).run(bindings, ())
    if value is True or value is False:
        return value
    raise ExpressionError(source, f"a condition must be a bool, this is {described(value)}")


def filled(template: Template, bindings: Bindings) -> JSON:
    """A template of a manifest that is not at hand, as `Programs.render` fills it: the input of a trigger. Raises `ExpressionError`."""
    return _Shared().render(template, bindings)


@lru_cache(maxsize=1_024)
def _compiled(source: str) -> "_Program":
    return _Program(source)


class _Program:
    """One compiled source. `path`: root and keys where the whole expression is a constant path. `of_element`: it reads something of an element."""

    __slots__ = ("_loops", "_may_share", "_path", "_roots", "_runnable", "_source", "of_element")

    def __init__(self, source: str) -> None:
        self._source = source
        compiled = _compile(source)
        path = compiled.facts.path
        self._path: tuple[str, tuple[Key, ...]] | None = (path.root, path.keys) if path is not None else None
        self._roots = branches(compiled.facts.reads)
        self._runnable = compiled.runnable
        self._loops = compiled.loops
        self._may_share = compiled.may_share
        self.of_element = not self._roots.keys().isdisjoint(OF_ELEMENT)

    def run(self, bindings: Bindings, steps: tuple[str, ...]) -> JSON:
        if self._path is not None:
            found, value = followed(*self._path, bindings)
            if found:
                return value
        if meter.decision_over():
            raise given_up(self._source)
        data = bound(self._roots, bindings, steps)
        if self._loops:
            meter.open_account()
        return outcome(
            self._source, lambda: self._runnable.eval(data=data), may_share=self._may_share, metered=self._loops
        )


def _compile(source: str, *, per_element: bool = False) -> Compiled:
    try:
        return compile_source(source, per_element=per_element)
    except (RuntimeError, wire.Nested) as error:
        # publish has compiled it: only another engine's language lets this happen
        raise ExpressionError(source, f"does not compile: {str(error)[:MAX_CAUSE]}") from None


def _fill_map(tree: Mapping[str, JSON], fields: Mapping[str, "_Fill"], evaluate: "_Evaluate") -> JSON:
    return {key: fields[key](evaluate) if key in fields else value for key, value in tree.items()}


def _fill_list(tree: Sequence[JSON], places: Mapping[int, "_Fill"], evaluate: "_Evaluate") -> JSON:
    return [places[place](evaluate) if place in places else value for place, value in enumerate(tree)]


def _printed(value: JSON, source: str) -> str:
    """A value inside text (ruling L3)."""
    if isinstance(value, str):
        return value
    if value is None:
        raise ExpressionError(source, 'is null inside text; default(…, "") says what stands for it')
    return orjson.dumps(value).decode()


def described(value: JSON) -> str:
    """What kind of value it is, in words: «a list»."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a bool"
    return {str: "a string", int: "an int", float: "a double", list: "a list", dict: "a map"}[type(value)]
