"""Options of `privrl fit env:NAME`: how people are simulated."""

from dataclasses import dataclass
from typing import Annotated

import typer

from privrl.cli.options.parsing import EnvArgOption, EnvSeedOption

_WORLD = "Simulated world"


@dataclass(frozen=True)
class WorldOptions:
    """How people are simulated."""

    episodes: Annotated[
        int | None, typer.Option("--episodes", help="How many people to simulate.", rich_help_panel=_WORLD)
    ] = None
    seeds: Annotated[
        int | None, typer.Option("--seeds", help="How many repetitions (1 unless given).", rich_help_panel=_WORLD)
    ] = None
    env_arg: EnvArgOption = None
    env_seed: EnvSeedOption = None
