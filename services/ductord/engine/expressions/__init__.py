"""CEL expressions (ruling L3): `check` judges a source at publish, `Programs` evaluates a manifest's sources at run time.

Data in, data out: nothing here reads a clock, a row or a socket, and no data is ever evaluated as an expression.
"""

from ductord.engine.expressions.bindings import Bindings
from ductord.engine.expressions.check import Checked, Fault, Scope, check
from ductord.engine.expressions.elements import PerElement
from ductord.engine.expressions.environment import Site
from ductord.engine.expressions.errors import BUDGET_EXCEEDED, EXPRESSION_ERROR, ExpressionError
from ductord.engine.expressions.evaluate import Programs, described, filled, holds, programs_for
from ductord.engine.expressions.meter import one_decision

__all__ = [
    "BUDGET_EXCEEDED",
    "EXPRESSION_ERROR",
    "Bindings",
    "Checked",
    "ExpressionError",
    "Fault",
    "PerElement",
    "Programs",
    "Scope",
    "Site",
    "check",
    "described",
    "filled",
    "holds",
    "one_decision",
    "programs_for",
]
