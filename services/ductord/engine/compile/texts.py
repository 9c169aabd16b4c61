"""Expressions and templates of a definition, each judged in its place (ruling L3): what it reads goes into the manifest.

Gives `None` for what has a fault; the definition is then not published.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from ductord.engine import templates
from ductord.engine.compile.findings import Findings
from ductord.engine.expressions import Fault, Scope, Site, check
from ductord.engine.positions import Path
from ductord.model.specs import Expression, Template

Reachable = Callable[[], frozenset[str]]
"""The refs that a place may read; asked for only where STEPS is read."""

UNSOUND: Final = Expression(source="false")
"""In the place of an expression that has a fault: what it stands in is never published."""

_EMPTY: Final[frozenset[str]] = frozenset()


class Texts:
    """Judges the texts of one definition. `steps`: all its refs; `variables`: the names it declares. `reads_origin`: one of them asks what started the run."""

    def __init__(self, findings: Findings, steps: frozenset[str], variables: Iterable[str]) -> None:
        self._findings = findings
        self._steps = steps
        self._variables = frozenset(variables)
        self.variables_read: set[str] = set()
        self.reads_all_variables = False
        self.reads_origin = False

    def condition(
        self, source: str | None, path: Path, reachable: Reachable, site: Site = Site.GRAPH
    ) -> Expression | None:
        """A bare CEL condition."""
        return self._bare(source, path, reachable, site, boolean=True)

    def value(self, source: str | None, path: Path, reachable: Reachable, site: Site = Site.GRAPH) -> Expression | None:
        """A bare CEL expression of any type."""
        return self._bare(source, path, reachable, site)

    def items(
        self, source: str | None, path: Path, reachable: Reachable, collections: tuple[str, ...] = ("list",)
    ) -> Expression | None:
        """A bare CEL expression of the items of a step, once for all of them."""
        return self._bare(source, path, reachable, Site.GRAPH, collections=collections)

    def template(self, tree: Any, path: Path, reachable: Reachable, site: Site = Site.GRAPH) -> Template | None:
        """A JSON tree whose strings may hold `${{ }}`."""
        if templates.is_static(tree) and not _has_template_key(tree):
            return Template(tree=tree)
        found: list[Expression] = []
        if not self._walk(tree, path, reachable, site, found):
            return None
        names = sorted({name for expression in found for name in expression.names})
        steps = sorted({ref for expression in found for ref in expression.steps})
        return Template(tree=tree, static=not found, names=tuple(names), steps=tuple(steps))

    def data(self, tree: Any, path: Path) -> None:
        """Values that are never rendered: a `${{` in them is likely a mistake."""
        if not templates.is_static(tree):
            message = "a variable is data: `${{ }}` in it is not evaluated"
            self._findings.add("TEMPLATE_NOT_EVALUATED", message, path, warning=True)

    def _bare(
        self,
        source: str | None,
        path: Path,
        reachable: Reachable,
        site: Site,
        *,
        boolean: bool = False,
        collections: tuple[str, ...] = (),
    ) -> Expression | None:
        if source is None:
            return None
        if source.lstrip().startswith(templates.OPEN):
            message = "an expression stands bare here: leave `${{` and `}}` away"
            self._findings.add_inside("EXPRESSION_SYNTAX", message, path, source, source.index(templates.OPEN))
            return None
        scope = self._scope(source, reachable, site)
        return self._expression(source, scope, path, source, 0, boolean=boolean, collections=collections)

    def _walk(self, tree: Any, path: Path, reachable: Reachable, site: Site, found: list[Expression]) -> bool:
        if isinstance(tree, str):
            return self._string(tree, path, reachable, site, found)
        sound = True
        if isinstance(tree, dict):
            for key, value in tree.items():
                if templates.OPEN in key:
                    message = "keys are no templates: `${{ }}` works in values"
                    self._findings.add("TEMPLATE_IN_KEY", message, (*path, key), on_key=True)
                    sound = False
                sound = self._walk(value, (*path, key), reachable, site, found) and sound
        elif isinstance(tree, list):
            for number, item in enumerate(tree):
                sound = self._walk(item, (*path, number), reachable, site, found) and sound
        return sound

    def _string(self, text: str, path: Path, reachable: Reachable, site: Site, found: list[Expression]) -> bool:
        try:
            parts = templates.scan(text)
        except templates.Unterminated as opened:
            message = "`${{` has no matching `}}`"
            self._findings.add_inside("TEMPLATE_SYNTAX", message, path, text, opened.offset)
            return False
        sound = True
        for part in parts or ():
            if part.source is not None:
                scope = self._scope(part.source, reachable, site)
                expression = self._expression(part.source, scope, path, text, part.offset)
                if expression is None:
                    sound = False
                else:
                    found.append(expression)
        return sound

    def _scope(self, source: str, reachable: Reachable, site: Site) -> Scope:
        may_read = reachable() if "STEPS" in source else _EMPTY
        return Scope(site=site, reachable=may_read, steps=self._steps, variables=self._variables)

    def _expression(
        self,
        source: str,
        scope: Scope,
        path: Path,
        text: str,
        offset: int,
        *,
        boolean: bool = False,
        collections: tuple[str, ...] = (),
    ) -> Expression | None:
        checked = check(source, scope, boolean=boolean, collections=collections)
        for fault in checked.faults:
            self._report(fault, path, text, offset)
        if checked.expression is not None:
            self.variables_read |= checked.variables
            self.reads_origin |= checked.reads_origin
            self.reads_all_variables |= "VARS" in checked.expression.names and not checked.variables
        return checked.expression

    def _report(self, fault: Fault, path: Path, text: str, offset: int) -> None:
        self._findings.add_inside(fault.code, fault.message, path, text, offset + fault.offset, warning=fault.warning)


class Reader:
    """Reads the texts of one step, which may read its ancestors: `before`."""

    def __init__(self, texts: Texts, before: Reachable) -> None:
        self._texts = texts
        self._before = before

    def template(self, tree: Any, path: Path, site: Site = Site.GRAPH) -> Template | None:
        """None also for a tree that was not written."""
        return None if tree is None else self._texts.template(tree, path, self._before, site)

    def value(self, source: str | None, path: Path, site: Site = Site.GRAPH) -> Expression | None:
        """A bare expression of any type."""
        return self._texts.value(source, path, self._before, site)

    def items(self, source: str, path: Path, collections: tuple[str, ...] = ("list",)) -> Expression | None:
        """The items of the step."""
        return self._texts.items(source, path, self._before, collections)

    def condition(self, source: str | None, path: Path, site: Site = Site.GRAPH) -> Expression | None:
        """A bare condition."""
        return self._texts.condition(source, path, self._before, site)


def _has_template_key(tree: Any) -> bool:
    if isinstance(tree, dict):
        return any(templates.OPEN in key or _has_template_key(value) for key, value in tree.items())
    return isinstance(tree, list) and any(map(_has_template_key, tree))
