"""Evaluating a manifest's expressions and templates: compiled once per process, from then on values to values.

`Programs` belongs to one manifest and is kept by the caller under the manifest's hash. Only what an expression reads is bound, since
binding converts; a plain path (`TRIGGER.payload.id`) is followed in Python without binding anything. Whatever goes wrong with an
expression is an `ExpressionError`, never a wrong value and never another exception (rulings L3, L4, L5; CE-02, CE-05, CE-07). An input that
the caller did not load is the caller's mistake and raises `LookupError`.
"""

import base64
import datetime
from typing import Any, Final

import orjson
from cel_expr_python import cel

from ductord.engine import templates
from ductord.engine.expressions import meter, wire
from ductord.engine.expressions.bindings import Bindings, bound, branches, followed
from ductord.engine.expressions.environment import environment
from ductord.engine.expressions.errors import BUDGET_EXCEEDED, ExpressionError
from ductord.engine.expressions.reads import Key, facts
from ductord.engine.expressions.rewrite import rewrite
from ductord.model import jsonvalue
from ductord.model.errors import PayloadInvalid
from ductord.model.jsonvalue import JSON
from ductord.model.manifest import Expression, Manifest, Template

_GIVEN_UP: Final = "Iteration budget exceeded"
_MAX_CAUSE: Final = 300


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
        return "".join(
            part.text if part.source is None else _printed(self._program(part.source).run(bindings, steps), part.source)
            for part in parts
        )

    def _program(self, source: str) -> "_Program":
        program = self._programs.get(source)
        if program is None:
            program = self._programs[source] = _Program(source)
        return program


class _Program:
    """One compiled source. `path`: root and keys where the whole expression is a constant path."""

    __slots__ = ("_expression", "_metered", "_path", "_roots", "_source")

    def __init__(self, source: str) -> None:
        self._source = source
        try:
            self._expression: Any = environment().compile(source)
            checked = wire.read(self._expression.serialize())
        except (RuntimeError, wire.Nested) as error:
            # publish has compiled it: only another engine's language lets this happen
            raise ExpressionError(source, f"does not compile: {str(error)[:_MAX_CAUSE]}") from None
        found = facts(checked.expr)
        self._path: tuple[str, tuple[Key, ...]] | None = (found.path.root, found.path.keys) if found.path else None
        self._roots = branches(found.reads)
        self._metered = rewrite(checked)
        if self._metered:
            self._expression = environment().deserialize(wire.write(checked))

    def run(self, bindings: Bindings, steps: tuple[str, ...]) -> JSON:
        if self._path is not None:
            found, value = followed(*self._path, bindings)
            if found:
                return value
        data = bound(self._roots, bindings, steps)
        if self._metered:
            meter.open_account()
        try:
            result = self._expression.eval(data=data)
            kind = result.type()
            value = result.plain_value()
        except Exception as error:  # whatever binding raises is this expression's error, not the tick's (CE-07)
            raise self._failed(str(error)) from None
        if self._metered and meter.exceeded():
            raise self._failed(_GIVEN_UP)
        if kind == cel.Type.ERROR or kind == cel.Type.UNKNOWN:  # errors come back as values, with a truthy text (CE-02)
            raise self._failed(str(value))
        return self._carried(value)

    def _carried(self, value: Any) -> JSON:
        try:
            return jsonvalue.normalise(value)
        except PayloadInvalid:
            pass
        try:  # what is no JSON yet: times and durations become their proto JSON text, bytes base64
            return jsonvalue.normalise(_as_json(value))
        except PayloadInvalid as refused:
            raise ExpressionError(self._source, f"its value cannot be carried: {refused.message}") from None

    def _failed(self, cause: str) -> ExpressionError:
        if _GIVEN_UP in cause:
            return ExpressionError(self._source, "it takes too much work", code=BUDGET_EXCEEDED)
        status, separator, text = cause.partition(": ")
        shown = text if separator and status.isupper() else cause
        if "regular expression" in shown:  # the pattern may be data
            shown = "invalid regular expression"
        return ExpressionError(self._source, shown[:_MAX_CAUSE])


def _as_json(value: Any) -> Any:
    """CEL's own values inside a result as JSON, by the proto JSON mapping."""
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, datetime.timedelta):
        seconds, micros = divmod(value // datetime.timedelta(microseconds=1), 1_000_000)
        return (
            f"{seconds}.{micros:06d}".rstrip("0").rstrip(".") + "s"
            if value >= datetime.timedelta(0)
            else f"-{_as_json(-value)}"
        )
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {key: _as_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_json(item) for item in value]
    return value


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
