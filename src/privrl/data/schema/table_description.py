"""The description of a table: which columns it has, and which bounds are public.

A schema file, the options of a command and the argument `schema` of `privrl.fit` all end in a `TableDescription`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privrl.contracts.untrusted import convert
from privrl.data.schema.declaration import (
    parse_category,
    parse_doses,
    parse_feature,
    parse_groups,
    parse_outcome,
    parse_products,
    parse_schema,
    read_schema_file,
)
from privrl.data.schema.outcomes import Good, check_direction
from privrl.data.schema.table_schema import check_least_propensity
from privrl.mdp.measurements import BinnedAction, Feature, describe_product_actions
from privrl.mdp.reported_columns import ReportedColumns

_REQUIRED = ("unit", "step", "state", "action", "reward", "horizon", "num_states", "num_actions")
_MEASURED = ("feature", "category", "product")
_NOT_COLUMNS = ("good", "terminal", "rewards_at_end", "action", "action_edges", "by", "outcome", *_MEASURED)
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
_OF_STATES = ("state", "num_states", "next_state", "terminal")


@dataclass(frozen=True)
class TableDescription:
    """The columns of a table and what is public about it; `None` for everything that is not declared.

    Attributes:
        unit, episode, step, state, reward, next_state, terminated, propensity: names of columns, as in `read_parquet`.
        feature: measurements with public bounds, "NAME:LO..HI[:missing][:log]", instead of `state`.
        category: columns with a public list of values, "NAME:a,b,c[:missing]".
        product: pairs of measurements whose product is a feature too, "A*B"; by default all pairs.
        action: the column of actions, or the columns of doses.
        action_edges: where the actions of each dose begin, "0,0.02,0.05".
        least_propensity: the public number below which no action of the program had a probability.
        by: groups by which an evaluation reports, "NAME:a,b,c", or the name of a declared category.
        outcome: a second outcome that an evaluation reports, "NAME:MOST", with the largest total of an episode.
        horizon, num_states, num_actions, max_actions, max_episodes_per_unit: public bounds.
        good: which values of the reward are good, "high" or "low".
        terminal: public states whose entry ends an episode.
        rewards_at_end: whether it is public that only the last step of an episode pays.
        sort: whether to sort the table in memory first.
    """

    unit: str | None = None
    episode: str | None = None
    step: str | None = None
    state: str | None = None
    feature: list[str] | None = None
    category: list[str] | None = None
    product: list[str] | None = None
    action: list[str] | None = None
    action_edges: list[str] | None = None
    reward: str | None = None
    good: Good | None = None
    next_state: str | None = None
    terminated: str | None = None
    propensity: str | None = None
    least_propensity: float | None = None
    by: str | None = None
    outcome: str | None = None
    horizon: int | None = None
    num_states: int | None = None
    num_actions: int | None = None
    max_actions: int | None = None
    terminal: list[int] | None = None
    rewards_at_end: bool = False
    max_episodes_per_unit: int | None = None
    sort: bool = False

    @classmethod
    def read(cls, schema: "str | Path | Mapping[str, object] | TableDescription") -> "TableDescription":
        """The description in a schema file, or in a mapping with the same names.

        Raises:
            ValueError: a name is unknown, or a value has the wrong type.
        """
        if isinstance(schema, TableDescription):
            return schema
        found = parse_schema(schema, "`schema`") if isinstance(schema, Mapping) else read_schema_file(schema)
        return cls(**found)

    def __post_init__(self) -> None:
        if self.measured:
            self._refuse(_OF_STATES, "describes numbered states, and `feature` or `category` declares measurements")
        else:
            self._refuse(("product",), "describes measurements, which are declared with `feature`")
        if self.action_edges:
            self._refuse(("num_actions",), "follows from `action_edges`")
        elif self.action and len(self.action) > 1:
            raise ValueError("Several columns of actions are doses. Give `action_edges` once for each `action`.")

        self.reported  # noqa: B018 raises if a declaration is malformed
        check_least_propensity(self.least_propensity or 0.0, self.num_actions, logged=self.propensity is not None)

    def _refuse(self, names: Sequence[str], why: str) -> None:
        for name in names:
            if name in self.given:
                raise ValueError(f"`{name}` {why}. Leave it out.")

    @property
    def given(self) -> dict[str, Any]:
        """Everything that is declared, by name; a report keeps it."""
        found = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in found.items() if value is not False and value not in (None, (), [])}

    def completed_by(self, known: Mapping[str, Any], what: str) -> "TableDescription":
        """The same with everything that is `known`, for example from a report; `what` names the source in errors.

        Raises:
            ValueError: the source has unknown names or wrong types, or a unit or a public bound that differs.
        """
        if unknown := sorted(known.keys() - {field.name for field in dataclasses.fields(self)}):
            raise ValueError(f"{what} is malformed: `{unknown[0]}` is not an option of a table.")
        other = convert(dict(known), TableDescription, what).given
        if self.reward not in (None, other.get("reward")):
            other.pop("good", None)  # it is about another column
        for name in _AGREED:
            if name in self.given and name in other and self.given[name] != other[name]:
                raise ValueError(
                    f"`{name}` is {self.given[name]!r}, and {what} says {other[name]!r}. Leave it out, or evaluate the "
                    "policy's .npz file, with a full description of the table."
                )
        return TableDescription(**{**other, **self.given})

    @property
    def measured(self) -> bool:
        """Whether states are vectors of measurements."""
        return bool(self.feature or self.category)

    @property
    def products(self) -> tuple[tuple[str, str], ...] | None:
        """The pairs of measurements whose product is a feature; `None`: all."""
        return None if self.product is None else parse_products(self.product)

    @property
    def missing(self) -> list[str]:
        """The names that a table needs and that are not declared."""
        needed = [name for name in _REQUIRED if not self.measured or name not in ("state", "num_states")]
        needed = [name for name in needed if not self.action_edges or name != "num_actions"]
        return [name for name in needed if getattr(self, name) is None]

    def check_complete(self, remedy: str = "Declare them in the schema; `privrl schema init` drafts one.") -> None:
        """Refuses a description in which something that every table needs is missing, or contradicts the rest."""
        if self.missing:
            raise ValueError(f"A table needs {', '.join(f'`{name}`' for name in self.missing)} too. {remedy}")
        assert self.reward is not None
        check_direction(self.reward, self.good)
        if self.terminal and self.next_state is None:
            raise ValueError(
                "`terminal` names states that end an episode, and without `next_state` the state after the last row of "
                "an episode is not known, so no row leads to any of them. Add a column with the state that each step "
                "led to and name it with `next_state`, or leave out `terminal`."
            )

    @property
    def sizes(self) -> tuple[int, int, int]:
        """States, actions and steps."""
        assert self.num_states is not None and self.num_actions is not None and self.horizon is not None
        return self.num_states, self.num_actions, self.horizon

    @property
    def action_names(self) -> tuple[str, ...]:
        """The names of actions that are doses, for a report; empty if actions are numbers."""
        return tuple(describe_product_actions(self.doses)) if self.doses else ()

    @property
    def doses(self) -> tuple[BinnedAction, ...]:
        """The doses of which an action consists; empty if actions are numbers."""
        return parse_doses(self.action or (), self.action_edges) if self.action_edges else ()

    @property
    def reported(self) -> ReportedColumns:
        """The columns that an evaluation only reports on."""
        known = [parse_category(words) for words in self.category or ()]
        by = None if self.by is None else parse_groups(self.by, known)
        return ReportedColumns(by, None if self.outcome is None else parse_outcome(self.outcome))

    @property
    def columns(self) -> dict[str, Any]:
        """The arguments of `read_parquet`."""
        columns = {name: value for name, value in self.given.items() if name not in _NOT_COLUMNS}
        if self.measured:
            measurements = [parse_feature(words) for words in self.feature or ()]
            columns["features"] = (*measurements, *(parse_category(words) for words in self.category or ()))
        if self.action_edges:
            columns["action"] = self.doses
        elif self.action:
            columns["action"] = self.action[0]
        both = {"by": self.reported.by, "outcome": self.reported.outcome}
        return columns | {name: column for name, column in both.items() if column is not None}

    def rules(self, noun: str) -> list[str]:
        """The public rules by which records are changed or left out, as sentences; `noun` is the name of one unit."""
        most, reported, found = self.max_episodes_per_unit or 1, self.reported, []
        if self.episode is not None:
            found.append(
                f"Of each {noun} the first {f'{most} episodes' if most > 1 else 'episode'} in the table "
                f"{'are' if most > 1 else 'is'} used, so episodes must be in the order of time. All others are left "
                "out. Their number is not shown, because it depends on the records."
            )
        if self.measured:
            features = [str(one) for one in self.columns["features"] if isinstance(one, Feature)]
            moved = f"A value outside the bounds of its column is moved to the bound: {', '.join(features)}."
            found += [moved] if features else []
        elif self.next_state is None:
            found.append(
                "There is no column of next states: the state of the next row is used, and the state after the last "
                "row of an episode is unknown."
            )
        if reported.by is not None:
            found.append(
                f"A {noun} belongs to the group (`{reported.by.name}`) in the first row of the first episode that is "
                "used, or to no group if it has no value there."
            )
        if reported.outcome is not None:
            found.append(
                f"Values of `{reported.outcome.name}` below 0, and the part of its total over an episode that is above "
                f"{reported.outcome.high:.15g}, are cut off; a missing value counts as 0."
            )
        return found
