"""Public names of a package that are imported when they are first used.

A package lists its names as imports under `if TYPE_CHECKING`, where editors and type checkers find them, and ends with
`__getattr__, __dir__ = lazy_names(__name__)`. Importing the package then costs nothing, and a name costs the import of
its own module.
"""

import ast
import gc
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions `__getattr__` and `__dir__` of a package. Submodules of the package are names too."""

    @cache
    def homes() -> dict[str, str]:
        return _homes(package)

    def get(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if name in homes():
            value = getattr(_import(homes()[name]), name)
        elif find_spec(f"{package}.{name}") is not None:
            value = _import(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *homes()})


def _homes(package: str) -> dict[str, str]:
    """The module of each name that the package imports under `if TYPE_CHECKING`."""
    spec = find_spec(package)
    source = getattr(spec.loader, "get_source", lambda name: None)(package) if spec is not None else None
    if source is None:
        raise ImportError(
            f"`{package}` needs its source, `__init__.py`, to find its public names. Install it as files."
        )
    return {
        alias.asname or alias.name: node.module
        for block in ast.parse(source).body
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
    }


def _import(module: str) -> Any:
    """Without collecting garbage, which takes about a seventh of the time of imports that leave none."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        return import_module(module)
    finally:
        if collecting:
            gc.enable()
