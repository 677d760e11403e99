"""Gives the API pages the constructors of equinox modules, which are dataclasses without saying so.

An extension for griffe, which reads the source without importing it.
"""

from typing import Any

import griffe


class EquinoxModules(griffe.Extension):
    """Adds the `__init__` that `equinox.Module` makes from annotated fields."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Goes through everything once the package is read."""
        del kwargs
        _visit(pkg)


def _visit(parent: griffe.Module | griffe.Class) -> None:
    for member in list(parent.members.values()):
        if isinstance(member, griffe.Module | griffe.Class):
            _visit(member)
        if isinstance(member, griffe.Class) and "__init__" not in member.members and _is_module(member):
            fields = {field.name: field for cls in (*_parents(member)[::-1], member) for field in _fields(cls)}
            itself = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
            member.set_member(
                "__init__",
                griffe.Function(
                    "__init__",
                    lineno=0,
                    endlineno=0,
                    parent=member,
                    parameters=griffe.Parameters(itself, *fields.values()),
                ),
            )


def _parents(cls: griffe.Class) -> list[griffe.Class]:
    """The classes of this package that it derives from, the nearest first."""
    return [*cls.resolved_bases, *(above for base in cls.resolved_bases for above in _parents(base))]


def _is_module(cls: griffe.Class) -> bool:
    return any(
        isinstance(base, griffe.Expr) and base.canonical_path == "equinox.Module"
        for one in (cls, *_parents(cls))
        for base in one.bases
    )


def _fields(cls: griffe.Class) -> list[griffe.Parameter]:
    """The annotated fields of one class; abstract ones are filled in by its children."""
    found = []
    for member in cls.members.values():
        if not isinstance(member, griffe.Attribute) or member.annotation is None or "property" in member.labels:
            continue
        if "AbstractVar" in str(member.annotation) or "AbstractClassVar" in str(member.annotation):
            continue
        kind = griffe.ParameterKind.positional_or_keyword
        found.append(griffe.Parameter(member.name, annotation=member.annotation, kind=kind, default=_default(member)))
    return found


def _default(field: griffe.Attribute) -> Any:
    """The default value, taken out of `eqx.field(...)` where it is in there."""
    value = field.value
    if isinstance(value, griffe.ExprCall) and value.canonical_path == "equinox.field":
        return next((a.value for a in value.arguments if getattr(a, "name", "") == "default"), None)
    return value
