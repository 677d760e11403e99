"""The columns and public bounds of a table, as options that several commands share."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from privrl.cli.options.grouped import flag, given, refuse
from privrl.contracts.untrusted import convert
from privrl.data.schema.declaration import parse_category, parse_doses, parse_feature, parse_products, read_schema_file
from privrl.mdp.measurements import describe_product_actions

PANEL = "Columns and public bounds of a table"
PATHS = "Parquet files, folders of them or quoted patterns, which make up one table"
_REQUIRED = ("unit", "step", "state", "action", "reward", "horizon", "num_states", "num_actions")
_AGREED = (
    "unit",
    "feature",
    "category",
    "product",
    "action_edges",
    "horizon",
    "num_states",
    "num_actions",
    "max_actions",
    "terminal",
    "max_episodes_per_unit",
)
_NOT_COLUMNS = ("terminal", "rewards_at_end", "feature", "category", "action", "action_edges", "product", "schema")


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
    next_state: Annotated[str | None, _column("next-state", "The next state; without it, that of the next row.")] = None
    terminated: Annotated[str | None, _column("terminated", "True on the last row of an episode.")] = None
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

    def with_known(self, known: dict[str, Any], what: str = "The table") -> "TableOptions":
        """The same; an option that was not given is as `known`. `what` names a file whose types are wrong."""
        if unknown := sorted(known.keys() - {f.name for f in fields(TableOptions)}):
            raise ValueError(f"{what} is malformed: `{unknown[0]}` is not an option of a table.")
        return TableOptions(**{**given(convert(known, TableOptions, what)), **given(self)})

    def agreeing_with(self, known: dict[str, Any], what: str) -> "TableOptions":
        """The same with what is `known`; a unit or a public bound that was given and differs is refused."""
        whole, own = TableOptions().with_known(known, what), given(self, _AGREED)
        for name, value in given(whole, _AGREED).items():
            if name in own and own[name] != value:
                raise ValueError(
                    f"{flag(name)} is {own[name]!r}, and {what} says {value!r}. Leave the option out, or evaluate the "
                    "policy's .npz file, with all options of the table."
                )
        return self.with_known(known, what)

    def resolved(self) -> "TableOptions":
        """The same with what its schema file holds, where it was not given as an option; checked for contradictions."""
        whole = self if self.schema is None else replace(self.with_known(read_schema_file(self.schema)), schema=None)
        if whole.measured:
            others = given(whole, ("state", "num_states", "next_state", "terminal"))
            refuse(others, "speaks of numbered states, and `--feature` or `--category` declares measurements")
        else:
            refuse(given(whole, ("product",)), "speaks of measurements, which are declared with `--feature`")
        if whole.action_edges:
            refuse(given(whole, ("num_actions",)), "is said by `--action-edges`")
        elif whole.action and len(whole.action) > 1:
            raise ValueError("Several columns of actions are doses. Give `--action-edges` once for each `--action`.")
        return whole

    @property
    def measured(self) -> bool:
        """Whether states are vectors of measurements."""
        return bool(self.feature or self.category)

    @property
    def products(self) -> tuple[tuple[str, str], ...] | None:
        """The pairs of measurements that were named; `None`: all."""
        return None if self.product is None else parse_products(self.product)

    @property
    def missing(self) -> list[str]:
        """What a table needs and was not given, as flags."""
        needed = [name for name in _REQUIRED if not self.measured or name not in ("state", "num_states")]
        needed = [name for name in needed if not self.action_edges or name != "num_actions"]
        return [flag(name) for name in needed if getattr(self, name) is None]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """States, actions and steps."""
        assert self.num_states is not None and self.num_actions is not None and self.horizon is not None
        return self.num_states, self.num_actions, self.horizon

    @property
    def ends(self) -> dict[str, Any]:
        """What is public about how episodes end, checked against the columns."""
        if self.terminal and self.next_state is None:
            raise ValueError(
                "`--terminal` names states that end an episode, and without `--next-state` the state after the last "
                "row of an episode is not known, so no row leads to any of them. Add a column with the state that "
                "each step led to and name it with `--next-state`, or leave out `--terminal`."
            )
        return {"terminal": tuple(self.terminal or ()), "rewards_at_end": self.rewards_at_end}

    @property
    def action_words(self) -> dict[str, Any]:
        """What the actions of doses are called, as names for a report; nothing where actions are numbers."""
        return (
            {"actions": describe_product_actions(parse_doses(self.action or (), self.action_edges))}
            if self.action_edges
            else {}
        )

    @property
    def columns(self) -> dict[str, Any]:
        """What `read_parquet` takes."""
        columns = {name: value for name, value in given(self).items() if name not in _NOT_COLUMNS}
        if self.measured:
            measurements = [parse_feature(words) for words in self.feature or ()]
            columns["features"] = (*measurements, *(parse_category(words) for words in self.category or ()))
        if self.action_edges:
            columns["action"] = parse_doses(self.action or (), self.action_edges)
        elif self.action:
            columns["action"] = self.action[0]
        return columns

    def rules(self, noun: str) -> list[str]:
        """What is done to the table without being visible in the result, as public rules."""
        most = self.max_episodes_per_unit or 1
        found = []
        if self.episode is not None:
            found.append(
                f"Of each {noun} at most {most} episode{'s are' if most > 1 else ' is'} used, chosen at random; "
                "all others are left out. How many is not shown: it depends on the records."
            )
        if self.measured:
            found.append(
                "A value outside the bounds of its column is moved to the bound: "
                + ", ".join(map(str, self.columns["features"]))
                + "."
            )
        elif self.next_state is None:
            found.append(
                "There is no column of next states: the next row's state is taken, and what followed the last row of "
                "an episode is unknown."
            )
        return found
