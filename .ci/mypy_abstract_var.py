"""Teaches mypy what `eqx.AbstractVar` means: an attribute that a subclass supplies as a field or as a property.

mypy takes `x: eqx.AbstractVar[T]` for a dataclass field, so it asks for `x` in every constructor and forbids a property
in a subclass. Before it looks at the class, this plugin rewrites that line as a read-only property of type `T`.
"""

from collections.abc import Callable

from mypy.fastparse import _dummy_fallback
from mypy.nodes import (
    ARG_POS,
    Argument,
    AssignmentStmt,
    Block,
    Decorator,
    FuncDef,
    NameExpr,
    RaiseStmt,
    Statement,
    Var,
)
from mypy.plugin import ClassDefContext, Plugin
from mypy.types import AnyType, CallableType, TypeOfAny, UnboundType


def as_property(statement: Statement) -> Statement:
    if not (
        isinstance(statement, AssignmentStmt)
        and isinstance(name := statement.lvalues[0], NameExpr)
        and isinstance(kind := statement.unanalyzed_type, UnboundType)
        and kind.name.endswith("AbstractVar")
    ):
        return statement
    signature = CallableType([AnyType(TypeOfAny.special_form)], [ARG_POS], ["self"], kind.args[0], _dummy_fallback)
    body = Block([RaiseStmt(NameExpr("NotImplementedError"), None)])
    function = FuncDef(name.name, [Argument(Var("self"), None, None, ARG_POS)], body, signature)
    function.is_decorated = True
    variable = Var(name.name)
    variable.is_ready = False
    property_ = Decorator(function, [NameExpr("property")], variable)
    for node in (function, body, body.body[0], variable, property_, *property_.decorators):
        node.set_line(statement)
    return property_


def rewrite(context: ClassDefContext) -> None:
    context.cls.defs.body = [as_property(statement) for statement in context.cls.defs.body]


class AbstractVarPlugin(Plugin):
    def get_customize_class_mro_hook(self, fullname: str) -> Callable[[ClassDefContext], None] | None:
        return rewrite if fullname.startswith("privrl.") else None


def plugin(version: str) -> type[Plugin]:
    return AbstractVarPlugin
