"""Evaluating a manifest's expressions and templates: compiled once per process, from then on values to values.

`Programs` belongs to one manifest and is kept by the caller under the manifest's hash. Only what an expression reads is bound, since
binding converts; a plain path (`TRIGGER.payload.id`) is followed in Python without binding anything. Whatever goes wrong with an
expression is an `ExpressionError`, never a wrong value and never another exception (rulings L3, L4, L5; CE-02, CE-05, CE-07). An input that
the caller did not load is the caller's mistake and raises `LookupError`.
"""

from functools import lru_cache
from typing import Final

import orjson
from cel_expr_python import cel

from ductord.engine import templates
from ductord.engine.expressions import meter, wire
from ductord.engine.expressions.bindings import Bindings, bound, branches, followed
from ductord.engine.expressions.errors import BUDGET_EXCEEDED, ExpressionError
from ductord.engine.expressions.program import compile_source
from ductord.engine.expressions.reads import Key
from ductord.engine.expressions.results import MAX_RESULT_BYTES, ResultTooLarge, json_of
from ductord.model.errors import PayloadInvalid
from ductord.model.jsonvalue import JSON
from ductord.model.manifest import Manifest
from ductord.model.specs import Expression, Template

_GIVEN_UP: Final = "Iteration budget exceeded"
_MAX_CAUSE: Final = 300
_FEW_READS: Final = 8
"""Without a loop a value is no larger than what is read for it, each time that it is named."""


def programs_for(manifest: Manifest) -> "Programs":
    """The programs of one manifest. Sources are compiled when first needed, so this costs nothing; keep the result."""
    return Programs(manifest)


class Programs:
    """The compiled expressions and scanned templates of one manifest. Evaluation changes nothing that a caller can see."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._programs: dict[str, _Program] = {}
        self._strings: dict[str, tuple[templates.Part, ...] | None] = {}

    def condition(self, expr: Expression, bindings: Bindings) -> bool:
        """The truth of a condition. Raises `ExpressionError`, also for any value but a bool (ruling L4)."""
        value = self.value(expr, bindings)
        if value is True or value is False:
            return value
        raise ExpressionError(expr.source, f"a condition must be a bool, this is {_kind(value)}")

    def value(self, expr: Expression, bindings: Bindings) -> JSON:
        """The JSON value of an expression, shared with the bindings where it is a part of them. Raises `ExpressionError`."""
        return self._program(expr.source).run(bindings, expr.steps)

    def render(self, template: Template, bindings: Bindings) -> JSON:
        """The tree with every `${{ }}` filled; static parts are shared with the template. Raises `ExpressionError`, its source the string."""
        if template.static:
            return template.tree
        return self._filled(template.tree, bindings, template.steps)

    def _filled(self, tree: JSON, bindings: Bindings, steps: tuple[str, ...]) -> JSON:
        if isinstance(tree, str):
            return self._text(tree, bindings, steps) if templates.OPEN in tree else tree
        if isinstance(tree, dict):
            return {key: self._filled(value, bindings, steps) for key, value in tree.items()}
        if isinstance(tree, list):
            return [self._filled(item, bindings, steps) for item in tree]
        return tree

    def _text(self, string: str, bindings: Bindings, steps: tuple[str, ...]) -> JSON:
        parts = self._strings.get(string)
        if parts is None:
            parts = self._strings[string] = templates.scan(string)
            assert parts is not None  # the caller saw the opening
        if len(parts) == 1 and parts[0].source is not None:
            return self._program(parts[0].source).run(bindings, steps)
        pieces: list[str] = []
        room = MAX_RESULT_BYTES
        for part in parts:
            piece = part.text
            if part.source is not None:
                piece = _printed(self._program(part.source).run(bindings, steps), part.source)
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
                raise _failed(source, _GIVEN_UP)
            program = self._programs[source] = _Program(source)
        return program


def holds(source: str, bindings: Bindings) -> bool:
    """The truth of a condition of a manifest that is not at hand: the filter of an open wait. Raises `ExpressionError`, as `Programs.condition` does."""
    value = _compiled(source).run(bindings, ())
    if value is True or value is False:
        return value
    raise ExpressionError(source, f"a condition must be a bool, this is {_kind(value)}")


@lru_cache(maxsize=1_024)
def _compiled(source: str) -> "_Program":
    return _Program(source)


class _Program:
    """One compiled source. `path`: root and keys where the whole expression is a constant path."""

    __slots__ = ("_loops", "_may_share", "_path", "_roots", "_runnable", "_source")

    def __init__(self, source: str) -> None:
        self._source = source
        try:
            compiled = compile_source(source)
        except (RuntimeError, wire.Nested) as error:
            # publish has compiled it: only another engine's language lets this happen
            raise ExpressionError(source, f"does not compile: {str(error)[:_MAX_CAUSE]}") from None
        path = compiled.facts.path
        self._path: tuple[str, tuple[Key, ...]] | None = (path.root, path.keys) if path is not None else None
        self._roots = branches(compiled.facts.reads)
        self._runnable = compiled.runnable
        self._loops = compiled.loops
        self._may_share = compiled.loops or len(compiled.facts.reads) > _FEW_READS

    def run(self, bindings: Bindings, steps: tuple[str, ...]) -> JSON:
        if self._path is not None:
            found, value = followed(*self._path, bindings)
            if found:
                return value
        if meter.decision_over():
            raise self._failed(_GIVEN_UP)
        data = bound(self._roots, bindings, steps)
        if self._loops:
            meter.open_account()
        try:
            result = self._runnable.eval(data=data)
            kind = result.type()
            if self._loops and meter.exceeded():
                raise self._failed(_GIVEN_UP)
            if kind != cel.Type.ERROR and kind != cel.Type.UNKNOWN:
                return json_of(result, may_share=self._may_share)
            cause = str(result.plain_value())  # errors come back as values, with a truthy text (CE-02)
        except ResultTooLarge as error:
            raise ExpressionError(self._source, str(error), code=BUDGET_EXCEEDED) from None
        except PayloadInvalid as refused:
            raise ExpressionError(self._source, f"its value cannot be carried: {refused.message}") from None
        except ExpressionError:
            raise
        except Exception as error:  # whatever binding raises is this expression's error, not the tick's (CE-07)
            cause = str(error)
        raise self._failed(cause)

    def _failed(self, cause: str) -> ExpressionError:
        return _failed(self._source, cause)


def _failed(source: str, cause: str) -> ExpressionError:
    if _GIVEN_UP in cause:
        return ExpressionError(source, "it takes too much work", code=BUDGET_EXCEEDED)
    status, separator, text = cause.partition(": ")
    shown = text if separator and status.isupper() else cause
    if "regular expression" in shown:  # the pattern may be data
        shown = "invalid regular expression"
    return ExpressionError(source, shown[:_MAX_CAUSE])


def _printed(value: JSON, source: str) -> str:
    """A value inside text (ruling L3)."""
    if isinstance(value, str):
        return value
    if value is None:
        raise ExpressionError(source, 'is null inside text; default(…, "") says what stands for it')
    return orjson.dumps(value).decode()


def _kind(value: JSON) -> str:
    if value is None:
        return "null"
    return {str: "a string", int: "an int", float: "a double", list: "a list", dict: "a map"}[type(value)]
