"""Options that several commands share, and how they are turned into what the library wants."""

import secrets
from collections.abc import Sequence
from typing import Annotated

import typer

from privrl.cli.compilation import keep_compiled_programs
from privrl.contracts.statistic import Adjacency
from privrl.envs.worlds_by_name import AnyEnv, make

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
    """The given seed, or a random one; it is printed, so that a simulation can be repeated."""
    if seed is None:
        return secrets.randbits(31)
    if not 0 <= seed < 2**63:
        raise ValueError(f"`--seed` is {seed}; it must be at least 0 and below 2^63.")
    return seed
