"""Recipes: a name for a learner, who is trusted, and how the noise is calibrated.

`dp-apvi` is `APVI` under `Central(...)` with practical public constants. A name ending in `@paper` uses the paper's own
noise and constants where these are private at all. The constants were chosen on simulated worlds, never on anybody's
data, and no certificate depends on them.
"""

from typing import TYPE_CHECKING

from privrl.lazy import lazy_names

if TYPE_CHECKING:
    from privrl.recipes.all_recipes import get, recipes
    from privrl.recipes.recipe import Algorithm, Problem, Recipe

__all__ = ["Algorithm", "Problem", "Recipe", "get", "recipes"]

__getattr__, __dir__ = lazy_names(__name__)
