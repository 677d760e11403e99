"""How people come: how often one of them may, how far apart, and how late plans are for them."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

_PANEL = "How people come"


@dataclass(frozen=True)
class ComingOptions:
    """The arguments of `privrl.run` that say how people come."""

    max_episodes_per_unit: Annotated[
        int,
        typer.Option(
            "--max-episodes-per-unit",
            help="How many of the episodes may be those of one person; the noise covers all of them.",
            rich_help_panel=_PANEL,
        ),
    ] = 1
    min_block_distance: Annotated[
        int,
        typer.Option(
            "--min-block-distance",
            help="The least number of blocks from one episode of a person to their next.",
            rich_help_panel=_PANEL,
        ),
    ] = 0
    delay: Annotated[int, typer.Option("--delay", help="How many blocks plans lag behind.", rich_help_panel=_PANEL)] = 0

    @property
    def arguments(self) -> dict[str, Any]:
        """For `privrl.run`."""
        return asdict(self)
