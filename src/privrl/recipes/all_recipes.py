"""All recipes by name, and all algorithms by the class of their learner.

Recipes of other packages have a name through an entry point of the group `privrl.recipes`, which is a `Recipe` or a
sequence of them; or they are named by their place, as `module:name`.
"""

import functools
import importlib
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import TypeVar

from privrl.contracts.learner import AbstractLearner
from privrl.envs.worlds_by_name import suggest
from privrl.recipes.control import CONTROL
from privrl.recipes.functional import FUNCTIONAL
from privrl.recipes.measured_recipes import MEASURED
from privrl.recipes.offline import OFFLINE
from privrl.recipes.online import ONLINE
from privrl.recipes.recipe import Algorithm, Recipe

T = TypeVar("T")
recipes: dict[str, Recipe] = {recipe.name: recipe for recipe in (*OFFLINE, *MEASURED, *FUNCTIONAL, *ONLINE, *CONTROL)}
algorithms: dict[type[AbstractLearner], Algorithm] = {r.algorithm.learner: r.algorithm for r in recipes.values()}


def get(name: str) -> Recipe:
    """A recipe by name; a clear error with close matches otherwise."""
    return named(name, recipes, "recipe")


def find(name: str) -> Recipe:
    """A recipe by name, also one of another package, or by its place, `module:name`, which is imported.

    Raises:
        ValueError: there is no recipe with this name or in this place.
    """
    if ":" in name:
        return _imported(name)
    return recipes[name] if name in recipes else named(name, all_recipes(), "recipe")


def all_recipes() -> dict[str, Recipe]:
    """The recipes of privrl and of every installed package that adds some."""
    return recipes | _outside()


@functools.cache
def _outside() -> dict[str, Recipe]:
    found: dict[str, Recipe] = {}
    for entry in entry_points(group="privrl.recipes"):
        try:
            loaded = entry.load()
        except Exception as error:  # of code that is not privrl's
            raise ImportError(
                f"The entry point `{entry.name}` of the group `privrl.recipes` cannot be loaded: {error}. Repair or "
                "uninstall its package."
            ) from error
        given = loaded if isinstance(loaded, Iterable) else (loaded,)
        for recipe in given:
            if not isinstance(recipe, Recipe):
                raise TypeError(
                    f"The entry point `{entry.name}` of the group `privrl.recipes` gives a `{type(recipe).__name__}`; "
                    "it must give a `privrl.recipes.Recipe`, or a sequence of them."
                )
            if recipe.name in found or recipe.name in recipes:
                raise ValueError(
                    f"The entry point `{entry.name}` of the group `privrl.recipes` gives a recipe `{recipe.name}`, and "
                    "another recipe has that name. Rename one."
                )
            found[recipe.name] = recipe
    return found


def _imported(place: str) -> Recipe:
    """The recipe in `module:name`; modules of the current folder are found too, after all installed ones."""
    module, _, name = place.partition(":")
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise ValueError(f"`{place}` names the module `{module}`, which cannot be imported: {error}.") from error
    if not isinstance(found, Recipe):
        raise ValueError(f"`{place}` is not a recipe: `{name}` of `{module}` must be a `privrl.recipes.Recipe`.")
    return found


def named(name: str, known: Mapping[str, T], what: str) -> T:
    """What has this name; an error with close matches and all names otherwise."""
    if name not in known:
        raise ValueError(f"There is no {what} `{name}`. {suggest(name, known)}")
    return known[name]
