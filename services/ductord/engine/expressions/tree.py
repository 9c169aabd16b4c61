"""Building and reading the nodes of a checked expression."""

from functools import reduce
from typing import Any, Final

from ductord.engine.expressions.wire import Expr

TERNARY: Final = "_?_:_"
INDEX: Final = "_[_]"
UNKNOWN: Final = "unknown"
_PRIMITIVES: Final = {1: "bool", 2: "int", 3: "uint", 4: "double", 5: "string", 6: "bytes"}
"""`Type.PrimitiveType`."""


def type_name(kind: Any) -> str:
    """The name of a checked type, UNKNOWN for one that shows at run time only."""
    which = kind.WhichOneof("type_kind") if kind is not None else None
    if which in (None, "dyn", "type_param"):
        return UNKNOWN
    if which == "primitive":
        return _PRIMITIVES[kind.primitive]
    return str(which).removesuffix("_type")


def operands(expr: Any) -> list[Any]:
    """The nodes right below a node."""
    match expr.WhichOneof("kind"):
        case "select_expr":
            return [expr.select_expr.operand]
        case "call_expr":
            target = [expr.call_expr.target] if expr.call_expr.HasField("target") else []
            return [*target, *expr.call_expr.args]
        case "list_expr":
            return list(expr.list_expr.elements)
        case "struct_expr":
            return [part for entry in expr.struct_expr.entries for part in (entry.map_key, entry.value)]
        case "comprehension_expr":
            fold = expr.comprehension_expr
            return [fold.iter_range, fold.accu_init, fold.loop_condition, fold.loop_step, fold.result]
    return []


def container_and_key(expr: Any) -> tuple[Any, str | int | None]:
    """What a selecting node selects from and by which constant key; `(None, None)` for every other node."""
    if expr.WhichOneof("kind") == "select_expr" and not expr.select_expr.test_only:
        return expr.select_expr.operand, str(expr.select_expr.field)
    if expr.call_expr.function == INDEX:
        operand, key = expr.call_expr.args
        match key.const_expr.WhichOneof("kind"):
            case "string_value":
                return operand, str(key.const_expr.string_value)
            case "int64_value":
                return operand, int(key.const_expr.int64_value)
    return None, None


def ident(name: str) -> Any:
    expr = Expr()
    expr.ident_expr.name = name
    return expr


def constant(value: bool | int | float) -> Any:
    expr = Expr()
    if isinstance(value, bool):
        expr.const_expr.bool_value = value
    elif isinstance(value, int):
        expr.const_expr.int64_value = value
    else:
        expr.const_expr.double_value = value
    return expr


def text(value: str) -> Any:
    expr = Expr()
    expr.const_expr.string_value = value
    return expr


def data(value: bytes) -> Any:
    expr = Expr()
    expr.const_expr.bytes_value = value
    return expr


def null() -> Any:
    expr = Expr()
    expr.const_expr.null_value = 0
    return expr


def call(function: str, *args: Any) -> Any:
    expr = Expr()
    expr.call_expr.function = function
    expr.call_expr.args.extend(args)
    return expr


def array(*elements: Any) -> Any:
    expr = Expr()
    expr.list_expr.SetInParent()
    expr.list_expr.elements.extend(elements)
    return expr


def empty_map() -> Any:
    expr = Expr()
    expr.struct_expr.SetInParent()
    return expr


def is_of(value: Any, sample: Any) -> Any:
    """The test that a value is of the sample's type."""
    return call("_==_", call("type", value), call("type", sample))


def has(container: Any, key: str) -> Any:
    expr = Expr()
    expr.select_expr.operand.CopyFrom(container)
    expr.select_expr.field = key
    expr.select_expr.test_only = True
    return expr


def ternary(condition: Any, then: Any, otherwise: Any) -> Any:
    return call(TERNARY, condition, then, otherwise)


def conjunction(tests: list[Any]) -> Any:
    return reduce(lambda left, right: call("_&&_", left, right), tests) if tests else constant(True)


def disjunction(tests: list[Any]) -> Any:
    return reduce(lambda left, right: call("_||_", left, right), tests) if tests else constant(False)


def fold(**parts: Any) -> Any:
    """A comprehension of the named parts."""
    expr = Expr()
    for name, part in parts.items():
        if isinstance(part, str):
            setattr(expr.comprehension_expr, name, part)
        else:
            getattr(expr.comprehension_expr, name).CopyFrom(part)
    return expr


def bind(name: str, value: Any, body: Any) -> Any:
    """`body` with a name for `value`, as the macro `cel.bind` spells it: a fold over nothing."""
    return fold(
        iter_var="#unused",
        iter_range=array(),
        accu_var=name,
        accu_init=value,
        loop_condition=constant(False),
        loop_step=ident(name),
        result=body,
    )
