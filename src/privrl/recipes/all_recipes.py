"""All recipes by name, and all algorithms by the class of their learner."""

from collections.abc import Mapping
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


def named(name: str, known: Mapping[str, T], what: str) -> T:
    """What has this name; an error with close matches and all names otherwise."""
    if name not in known:
        raise ValueError(f"There is no {what} `{name}`. {suggest(name, known)}")
    return known[name]
