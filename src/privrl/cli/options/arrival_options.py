"""How people come: how often one of them may, how far apart, and how late plans are for them."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from privrl.studies.open_ended import OpenEnded

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

    open_ended: Annotated[
        bool,
        typer.Option(
            "--open-ended",
            help="The number of people is unknown in advance; `--episodes` of them are simulated.",
            rich_help_panel=_PANEL,
        ),
    ] = False
    epoch: Annotated[
        int | None,
        typer.Option(
            "--epoch", help="With --open-ended: the number of people in an epoch.", rich_help_panel=_PANEL, min=1
        ),
    ] = None
    forget: Annotated[
        float,
        typer.Option(
            "--forget",
            help="With --epoch: the weight in [0, 1] that earlier people keep when an epoch begins.",
            rich_help_panel=_PANEL,
        ),
    ] = 1.0

    @property
    def facts(self) -> dict[str, Any]:
        """As they were given, for output."""
        return asdict(self)

    @property
    def arguments(self) -> dict[str, Any]:
        """For `privrl.run`."""
        if not self.open_ended and (self.epoch is not None or self.forget != 1.0):
            raise ValueError("`--epoch` and `--forget` are of studies without a known end. Add `--open-ended`.")
        spec = OpenEnded(epoch=self.epoch, forget=self.forget) if self.open_ended else False
        return {
            "max_episodes_per_unit": self.max_episodes_per_unit,
            "min_block_distance": self.min_block_distance,
            "delay": self.delay,
            "open_ended": spec,
        }
