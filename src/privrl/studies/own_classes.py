"""privrl's own learners, evaluators and choosers: every finished class of the packages `learners` and `evaluation`.

A class is finished or an interface, and the interfaces are those that others are built on.
"""

import inspect
from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType

import privrl.evaluation as _evaluation
import privrl.learners as _learners
from privrl.contracts.learner import AbstractAnalysis


def _modules() -> Iterator[ModuleType]:
    for package in (_learners, _evaluation):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            yield import_module(module.name)


_defined = [
    defined
    for module in list(_modules())  # import every module before looking at subclasses
    for defined in vars(module).values()
    if inspect.isclass(defined) and defined.__module__ == module.__name__ and issubclass(defined, AbstractAnalysis)
]
registry: tuple[type[AbstractAnalysis], ...] = tuple(defined for defined in _defined if not defined.__subclasses__())
