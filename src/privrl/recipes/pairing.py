"""A recipe's name in place of a learner and a privatizer.

Verbs and agents take either `learner` and `privatizer`, as objects, or the name of a recipe and a budget. Both forms
end in the same two objects.
"""

import math
from dataclasses import dataclass
from typing import Any

from privrl.contracts.learner import AbstractLearner
from privrl.contracts.statistic import Adjacency
from privrl.envs.worlds_by_name import AnyEnv, make
from privrl.mdp.lq import LQTask
from privrl.privacy.accounting.privacy_budget import BudgetError
from privrl.privacy.trust.privatizers import AbstractPrivatizer, Central
from privrl.recipes.all_recipes import find
from privrl.recipes.recipe import Family, MeasuredProblem, Problem, Recipe

AnyWorld = AnyEnv | Problem | MeasuredProblem | LQTask
"""What a recipe builds its learner for: an environment, or what is public about a task."""

_ONLINE = "learns while people take part. Use `privrl.run`, an `Agent`, or the command `privrl run {} --env ENV`"
_OFFLINE = "learns from a table. Use `privrl.fit`, or the command `privrl fit DATA --recipe {}`"
_USE: dict[Family, str] = {
    "online": _ONLINE,
    "control": _ONLINE,
    "offline": _OFFLINE,
    "measured": _OFFLINE,
    "functional": "hides a reward function. Use `privrl.fit`, or the command `privrl fit env:ENV --recipe {}`",
}


@dataclass(frozen=True)
class BudgetArguments:
    """The budget as the arguments of a verb give it: `None` for each that is missing."""

    epsilon: float | None = None
    delta: float | None = None
    rho: float | None = None
    adjacency: Adjacency | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The arguments that are not `None`, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def check(self, who: str) -> None:
        """Refuses arguments that are not a budget; `who` needs one and is the subject of the error."""
        if self.epsilon is None and self.rho is None:
            alone = "" if self.delta is None else f" `delta` = {self.delta:g} alone is not a budget."
            raise BudgetError(
                f"{who} needs a budget.{alone} Give `epsilon` with `delta`, `epsilon` alone for pure differential "
                "privacy, or `rho`."
            )
        if self.epsilon is not None and math.isinf(self.epsilon):
            raise BudgetError("`epsilon` must be a finite number above 0. To learn without privacy use another recipe.")
        if self.delta is not None and not 0 < self.delta < 1:
            raise BudgetError(
                f"`delta` is {self.delta:g}; it must lie strictly between 0 and 1, well below one over the number of "
                "people. Leave it out (with `epsilon`) for pure differential privacy."
            )

    def central(self, who: str) -> Central:
        """A trusted curator with this budget, for verbs that have no recipe."""
        self.check(who)
        return Central(self.epsilon, self.delta, self.rho, adjacency=self.adjacency or "replace-one")


def recipe_named(learner: str | AbstractLearner, *families: Family) -> Recipe | None:
    """The recipe with this name; `None` if `learner` is not a name.

    Raises:
        ValueError: no recipe has this name, or it is of another family; the error names the verb for it.
    """
    if not isinstance(learner, str):
        return None
    if learner == "auto" and "online" in families:
        learner = "auto-online"
    recipe = find(learner)
    if recipe.family not in families:
        raise ValueError(f"`{learner}` {_USE[recipe.family].format(learner)}.")
    return recipe


def privatizer_of(
    recipe: Recipe | None, privatizer: AbstractPrivatizer | None, budget: BudgetArguments
) -> AbstractPrivatizer:
    """The privatizer of a recipe with this budget; without a recipe, the one that was given.

    Raises:
        TypeError: both a privatizer and a budget were given, or the one that does not fit.
        BudgetError: the recipe is private, and the budget is missing or meaningless.
    """
    if recipe is None:
        if budget.given:
            raise TypeError(
                f"`{next(iter(budget.given))}` belongs to the name of a recipe. With a learner object, the budget is "
                "part of `privatizer`, for example `privrl.Central(epsilon=1.0, delta=1e-6)`."
            )
        if privatizer is None:
            raise TypeError(
                "`privatizer` is missing. Give one, for example `privrl.Central(epsilon=1.0, delta=1e-6)`; or give the "
                "name of a recipe in place of the learner, with `epsilon` and `delta`."
            )
        return privatizer
    if privatizer is not None:
        raise TypeError(
            f"`{recipe.name}` names both a learner and a privatizer, and `privatizer` was given too. Give `epsilon` "
            "and `delta` (or `rho`) instead, or a learner object."
        )
    if recipe.trust != "none":
        budget.check(f"`{recipe.name}` is private and")
    return recipe.privatizer(**{"adjacency": "replace-one", **budget.given})


def central_of(privatizer: AbstractPrivatizer | None, budget: BudgetArguments, who: str) -> AbstractPrivatizer:
    """The privatizer that was given, or a trusted curator with a budget; `who` needs one of the two."""
    if privatizer is None:
        return budget.central(who)
    if budget.given:
        raise TypeError(f"`privatizer` has a budget, and `{next(iter(budget.given))}` was given too. Give one of them.")
    return privatizer


def world_named(world: object) -> Any:
    """The environment with this name; anything but a name is returned as it is."""
    return make(world) if isinstance(world, str) else world


def resolve_pair(
    learner: str | AbstractLearner,
    privatizer: AbstractPrivatizer | None,
    world: str | AnyWorld | None,
    budget: BudgetArguments,
    *families: Family,
) -> tuple[AbstractLearner, AbstractPrivatizer]:
    """The learner and the privatizer that a caller means: both as objects, or the name of a recipe for a world.

    Arguments:
        learner: a learner, or the name of a recipe.
        privatizer: the privatizer of a learner object.
        world: what the learner of a recipe is built for: an environment or its name, or a `Problem`.
        budget: the budget of a recipe.
        families: the recipes that are allowed.
    """
    recipe = recipe_named(learner, *families)
    chosen = privatizer_of(recipe, privatizer, budget)
    if recipe is None:
        assert not isinstance(learner, str)
        return learner, chosen
    if world is None:
        raise TypeError(
            f"`{recipe.name}` needs to know for which world it learns. Give `world`: an environment or its name, or a "
            "`privrl.recipes.Problem` with the public sizes."
        )
    known = world_named(world)
    built = recipe.learner(known) if isinstance(known, Problem | MeasuredProblem | LQTask) else recipe.build(known)
    return built, chosen
