"""Options that several commands share, and how they are turned into what the library wants."""

import math
import secrets
from collections.abc import Sequence
from typing import Annotated

import typer

from privrl.cli.compilation import keep_compiled_programs
from privrl.contracts.statistic import Adjacency
from privrl.envs.worlds_by_name import AnyEnv, make
from privrl.privacy.accounting.budget import BudgetError
from privrl.privacy.trust.privatizers import AbstractPrivatizer
from privrl.recipes.all_recipes import get
from privrl.recipes.recipe import Family, Recipe

_BUDGET = "Privacy budget"
_WORLD = "Simulated world"

EpsilonOption = Annotated[
    float | None,
    typer.Option("--epsilon", help="Privacy budget; without --delta it is pure.", rich_help_panel=_BUDGET),
]
DeltaOption = Annotated[
    float | None,
    typer.Option("--delta", help="Slack in (0, 1), well below one over the number of people.", rich_help_panel=_BUDGET),
]
RhoOption = Annotated[
    float | None,
    typer.Option("--rho", help="Zero-concentrated budget, instead of --epsilon and --delta.", rich_help_panel=_BUDGET),
]
AdjacencyOption = Annotated[
    Adjacency,
    typer.Option("--adjacency", help="What may differ between neighbouring tables.", rich_help_panel=_BUDGET),
]
EnvArgOption = Annotated[
    list[str] | None,
    typer.Option(
        "--env-arg",
        metavar="NAME=VALUE",
        help="An argument of the world, such as states=6; may be repeated.",
        rich_help_panel=_WORLD,
    ),
]
EnvSeedOption = Annotated[
    int | None,
    typer.Option("--env-seed", help="Which instance of the world, where there are several.", rich_help_panel=_WORLD),
]


def recipe_of(name: str, *families: Family) -> Recipe:
    """The recipe, if this command can run it; otherwise an error that names the command that can."""
    recipe = get(name)
    if recipe.family not in families:
        raise ValueError(f"`{name}` {_RIGHT[recipe.family].format(name)}.")
    return recipe


_ONLINE = "learns while people take part: use `privrl run {} --env ENV`"
_RIGHT: dict[Family, str] = {
    "online": _ONLINE,
    "control": _ONLINE,
    "functional": "is learnt from a simulated world: use `privrl fit env:ENV --recipe {}`",
    "offline": "learns from a table: use `privrl fit DATA --recipe {}`",
    "measured": "learns from a table: use `privrl fit DATA --recipe {}`",
}


def privatizer_of(
    recipe: Recipe, epsilon: float | None, delta: float | None, rho: float | None, adjacency: Adjacency
) -> AbstractPrivatizer:
    """The privatizer for the budget options; there is no default budget."""
    if recipe.trust != "none":
        check_budget(f"`{recipe.name}` is private and", epsilon, delta, rho)
    return recipe.privatizer(epsilon=epsilon, delta=delta, rho=rho, adjacency=adjacency)


def check_budget(who: str, epsilon: float | None, delta: float | None, rho: float | None) -> None:
    """Refuses budget options that are none; `who` needs one."""
    if epsilon is None and rho is None:
        given = f" `--delta` {delta:g} alone is no budget." if delta is not None else ""
        raise BudgetError(
            f"{who} needs a budget.{given} Give `--epsilon` with `--delta`, `--epsilon` "
            "alone for pure differential privacy, or `--rho`."
        )
    if epsilon is not None and math.isinf(epsilon):
        raise BudgetError("`--epsilon` must be a finite number above 0. To learn without privacy use another recipe.")
    if delta is not None and not 0 < delta < 1:
        raise BudgetError(
            f"`--delta` is {delta:g}; it must lie strictly between 0 and 1, well below one over the number of "
            "people. Leave it out (with `--epsilon`) for pure differential privacy."
        )


def env_of(name: str, arguments: Sequence[str] | None, seed: int | None) -> AnyEnv:
    """The world that the options describe; whatever is compiled for it is kept for the next time."""
    keep_compiled_programs()
    given: dict[str, str] = {}
    for argument in arguments or ():
        key, equals, value = argument.partition("=")
        if not equals or not key:
            raise ValueError(f"`--env-arg` is {argument!r}; write it as NAME=VALUE, for example `--env-arg states=6`.")
        if key in given:
            raise ValueError(f"`--env-arg {key}=...` was given twice. Give it once.")
        if key == "seed":
            raise ValueError("The instance of a world is chosen with `--env-seed`.")
        given[key] = value
    return make(name, seed=seed or 0, **given)


def fresh_seed(seed: int | None) -> int:
    """The given seed, or one that nobody has chosen; it is printed, so that a simulation can be repeated."""
    if seed is None:
        return secrets.randbits(31)
    if not 0 <= seed < 2**63:
        raise ValueError(f"`--seed` is {seed}; it must be at least 0 and below 2^63.")
    return seed
