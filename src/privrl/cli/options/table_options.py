"""The columns and public bounds of a table, as options that several commands share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from privrl.cli.options.grouped import given
from privrl.data.schema.declaration import read_schema_file
from privrl.data.schema.outcomes import Good
from privrl.data.schema.table_description import TableDescription

PANEL = "Columns and public bounds of a table"
PATHS = "Parquet files, folders of them or quoted patterns, which make up one table"


def _column(name: str, text: str) -> Any:
    return typer.Option(f"--{name}", metavar="COL", help=text, rich_help_panel=PANEL)


def _declared(name: str, words: str, text: str) -> Any:
    return typer.Option(f"--{name}", metavar=words, help=text, rich_help_panel=PANEL)


def _bound(name: str, text: str) -> Any:
    return typer.Option(f"--{name}", help=text, rich_help_panel=PANEL)


@dataclass(frozen=True)
class TableOptions:
    """What is said of a table: its columns, and what is public about it."""

    unit: Annotated[str | None, _column("unit", "Whom privacy protects, for example patient_id.")] = None
    episode: Annotated[str | None, _column("episode", "Which episode of the unit; without it a unit has one.")] = None
    step: Annotated[str | None, _column("step", "The number of the step, 0, 1, ... or 1, 2, ...")] = None
    state: Annotated[str | None, _column("state", "The state, a whole number from 0.")] = None
    feature: Annotated[
        list[str] | None,
        _declared(
            "feature", "NAME:LO..HI[:missing][:log]", "A measurement with its public bounds, instead of --state."
        ),
    ] = None
    category: Annotated[
        list[str] | None, _declared("category", "NAME:a,b,c[:missing]", "A column with its public list of values.")
    ] = None
    product: Annotated[
        list[str] | None,
        typer.Option(
            "--product",
            "--products",
            metavar="A*B",
            help="Two measurements whose product counts too, or none; all pairs unless given.",
            rich_help_panel=PANEL,
        ),
    ] = None
    action: Annotated[
        list[str] | None, _column("action", "The action, a whole number from 0; or a dose, with --action-edges.")
    ] = None
    action_edges: Annotated[
        list[str] | None,
        _declared("action-edges", "0,0.02,0.05", "Where the actions of a dose begin; once for each --action."),
    ] = None
    reward: Annotated[str | None, _column("reward", "The reward of the step, in [0, 1].")] = None
    good: Annotated[
        Good | None, _bound("good", "Which values of the reward are good; needed if the name of the column sounds low.")
    ] = None
    next_state: Annotated[str | None, _column("next-state", "The next state; without it, that of the next row.")] = None
    terminated: Annotated[str | None, _column("terminated", "True on the last row of an episode.")] = None
    propensity: Annotated[
        str | None, _column("propensity", "If a program decided: the logged probability of what it did, in (0, 1].")
    ] = None
    least_propensity: Annotated[
        float | None,
        _bound("least-propensity", "No action of the program had a smaller probability, public; for randomised ones."),
    ] = None
    by: Annotated[
        str | None,
        _declared(
            "by", "NAME:a,b,c", "With --evaluate: practice and gain in each of these groups; NAME if it is a category."
        ),
    ] = None
    outcome: Annotated[
        str | None,
        _declared(
            "outcome",
            "NAME:MOST",
            "With --evaluate: a second outcome; MOST is its largest total in an episode, public.",
        ),
    ] = None
    horizon: Annotated[int | None, _bound("horizon", "The largest number of steps, public.")] = None
    num_states: Annotated[int | None, _bound("num-states", "How many states there can be, public.")] = None
    num_actions: Annotated[int | None, _bound("num-actions", "How many actions there can be, public.")] = None
    max_actions: Annotated[int | None, _bound("max-actions", "The most actions of doses (12 unless given).")] = None
    terminal: Annotated[
        list[int] | None,
        _bound("terminal", "A state that ends an episode, public; give it once per state. Needs --next-state."),
    ] = None
    rewards_at_end: Annotated[
        bool, _bound("rewards-at-end", "It is public that only the last step of an episode pays.")
    ] = False
    max_episodes_per_unit: Annotated[
        int | None, _bound("max-episodes-per-unit", "How many episodes of one unit are used at most (1 unless given).")
    ] = None
    sort: Annotated[bool, _bound("sort", "Sort the table in memory first, if it is not grouped by unit.")] = False
    schema: Annotated[
        Path | None, _bound("schema", "A TOML file with options of this panel; see `privrl schema init`.")
    ] = None

    @property
    def description(self) -> TableDescription:
        """The description of the table, with what its schema file holds; options come before lines of the file."""
        known = {} if self.schema is None else read_schema_file(self.schema)
        own = {name: value for name, value in given(self).items() if name != "schema"}
        if own.get("reward", known.get("reward")) != known.get("reward"):
            known = {name: value for name, value in known.items() if name != "good"}  # it is about another column
        return TableDescription(**{**known, **own})
