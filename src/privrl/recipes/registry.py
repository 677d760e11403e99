"""All recipes by name."""

import difflib

from privrl.recipes.control import CONTROL
from privrl.recipes.functional import FUNCTIONAL
from privrl.recipes.offline import OFFLINE
from privrl.recipes.online import ONLINE
from privrl.recipes.recipe import Recipe

recipes: dict[str, Recipe] = {recipe.name: recipe for recipe in (*OFFLINE, *FUNCTIONAL, *ONLINE, *CONTROL)}


def get(name: str) -> Recipe:
    """A recipe by name; a clear error with close matches otherwise."""
    if name not in recipes:
        close = difflib.get_close_matches(name, recipes, n=3)
        hint = f"Did you mean {' or '.join(f'`{c}`' for c in close)}? " if close else ""
        raise ValueError(f"There is no recipe `{name}`. {hint}There are: {', '.join(recipes)}.")
    return recipes[name]
