"""privrl's own learners: every finished class of the packages beside this file.

A class is finished or an interface, and the interfaces are those that others are built on.
"""

import inspect
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

import privrl.learners as _learners
from privrl.contracts.learner import AbstractLearner


def _modules() -> Iterator[ModuleType]:
    for package in iter_modules(_learners.__path__, f"{_learners.__name__}."):
        if package.ispkg:
            inside = iter_modules(import_module(package.name).__path__, f"{package.name}.")
            yield from (import_module(module.name) for module in inside)


_defined = [
    defined
    for module in list(_modules())  # all of them, before anybody's subclasses are looked at
    for defined in vars(module).values()
    if inspect.isclass(defined) and defined.__module__ == module.__name__ and issubclass(defined, AbstractLearner)
]
registry: tuple[type[AbstractLearner], ...] = tuple(defined for defined in _defined if not defined.__subclasses__())
