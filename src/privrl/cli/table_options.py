"""The columns and public bounds of a table, as options that several commands share."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

PANEL = "Columns and public bounds of a table"
REQUIRED = ("unit", "step", "state", "action", "reward", "horizon", "num_states", "num_actions")
_OPTIONAL = ("episode", "next_state", "terminated", "terminal", "rewards_at_end", "max_episodes_per_unit", "sort")
COLUMNS = REQUIRED + _OPTIONAL


def _column(name: str, text: str) -> Any:
    return typer.Option(f"--{name}", metavar="COL", help=text, rich_help_panel=PANEL)


def _bound(name: str, text: str) -> Any:
    return typer.Option(f"--{name}", help=text, rich_help_panel=PANEL)


UnitOption = Annotated[str | None, _column("unit", "Whom privacy protects, for example patient_id.")]
EpisodeOption = Annotated[str | None, _column("episode", "Which episode of the unit; without it a unit has one.")]
StepOption = Annotated[str | None, _column("step", "The number of the step, 0, 1, ... or 1, 2, ...")]
StateOption = Annotated[str | None, _column("state", "The state, a whole number from 0.")]
ActionOption = Annotated[str | None, _column("action", "The action, a whole number from 0.")]
RewardOption = Annotated[str | None, _column("reward", "The reward of the step, in [0, 1].")]
NextStateOption = Annotated[str | None, _column("next-state", "The next state; without it, that of the next row.")]
TerminatedOption = Annotated[str | None, _column("terminated", "True on the last row of an episode.")]
HorizonOption = Annotated[int | None, _bound("horizon", "The largest number of steps, public.")]
NumStatesOption = Annotated[int | None, _bound("num-states", "How many states there can be, public.")]
NumActionsOption = Annotated[int | None, _bound("num-actions", "How many actions there can be, public.")]
TerminalOption = Annotated[
    list[int] | None, _bound("terminal", "A state that ends an episode, public; give it once per state.")
]
RewardsAtEndOption = Annotated[
    bool, _bound("rewards-at-end", "It is public that only the last step of an episode pays.")
]
MaxEpisodesOption = Annotated[
    int | None, _bound("max-episodes-per-unit", "How many episodes of one unit are used at most (1 unless given).")
]
SortOption = Annotated[bool, _bound("sort", "Sort the table in memory first, if it is not grouped by unit.")]
UnitNounOption = Annotated[
    str | None, typer.Option("--unit-noun", help="What one unit is called in words, for example patient.")
]


def given(options: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Those of the options that were given, by name."""
    found = {name: options[name] for name in names}
    return {name: value for name, value in found.items() if value is not False and value not in (None, (), [])}


def refuse(options: dict[str, Any], why: str) -> None:
    """An error that names the first of these options, if there is any."""
    if options:
        raise ValueError(f"{flag(next(iter(options)))} {why}. Leave it out.")


def flag(name: str) -> str:
    return f"`--{name.replace('_', '-')}`"


def ends_of(table: dict[str, Any]) -> dict[str, Any]:
    """What is public about how episodes end; the rest of `table` is what `read_parquet` takes."""
    return {"terminal": tuple(table.get("terminal", ())), "rewards_at_end": table.get("rewards_at_end", False)}


def columns_of(table: dict[str, Any]) -> dict[str, Any]:
    """What `read_parquet` takes."""
    return {name: value for name, value in table.items() if name not in ("terminal", "rewards_at_end")}
