"""The required form of a table, checked before anything is summed, and errors that locate a problem.

Every bound here (`horizon`, `num_states`, `num_actions`, `reward_range`, `max_episodes_per_unit`) is a public argument
and is never read off the data: a bound that moved with one person's record would reveal that record. For the same
reason an error names the file, the row and the column, never the value in the cell.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from privrl.mdp.measurements import BinnedAction, Category, Feature, Measurement, check_measurements
from privrl.mdp.reported_columns import UNREPORTED, ReportedColumns

_VECTORS = (
    "The states are vectors of measurements (`features`), but numbered states are required. Use the recipe `dp-lap`, "
    "or discretise the measurements into one column of numbered states by public rules."
)

Place = Callable[[int], str]
"""Locates entry i of a checked array, for example "row 17 of `stays.parquet`"."""


class TableError(ValueError):
    """A table that cannot be used: the problem, its place and the remedy. It never quotes a person's value.

    Attributes:
        kind: the column and the problem, if entries of one column are at fault.
        rows: marks all of these entries.
    """

    def __init__(self, message: str, kind: tuple[str, str] | None = None, rows: np.ndarray | None = None) -> None:
        super().__init__(message)
        self.kind, self.rows = kind, rows


@dataclass(frozen=True)
class Bounds:
    """The public bounds that every record must satisfy.

    Arguments:
        horizon: the largest number of steps in an episode.
        num_states: states are 0, ..., num_states - 1; `None` until a learner sets it.
        num_actions: actions are 0, ..., num_actions - 1; `None` until a learner sets it.
        reward_range: the smallest and the largest reward of one step.
        max_episodes_per_unit: the number of episodes used per privacy unit, the first ones in the table.
        features: the columns of a state with their bounds, if states are vectors.
        propensities: whether every step has the logged probability, in (0, 1], with which a program took its action.
        least_propensity: the number below which no action of the program had a probability, taken or not.
        reported: the columns that an evaluation only reports on.
    """

    horizon: int
    num_states: int | None = None
    num_actions: int | None = None
    reward_range: tuple[float, float] = (0.0, 1.0)
    max_episodes_per_unit: int = 1
    features: tuple[Measurement, ...] = ()
    propensities: bool = False
    least_propensity: float = 0.0
    reported: ReportedColumns = UNREPORTED

    def __post_init__(self) -> None:
        for name in ("horizon", "num_states", "num_actions", "max_episodes_per_unit"):
            value = getattr(self, name)
            if value is None and name in ("num_states", "num_actions"):
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value < 2**31:
                raise ValueError(f"`{name}` is {value!r}; it must be a whole number from 1 to 2^31 - 1.")
        check_least_propensity(self.least_propensity, self.num_actions, logged=self.propensities)
        low, high = self.reward_range
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise ValueError(f"`reward_range` is {self.reward_range!r}; give two finite numbers, the smaller first.")
        if self.horizon * (self.num_states or 1) * (self.num_actions or 1) * ((self.num_states or 1) + 1) >= 2**63:
            raise ValueError(
                "`horizon` * `num_states`^2 * `num_actions` is above 2^63, so transitions cannot be numbered. "
                "Merge states or actions."
            )
        if self.features and self.num_states is not None:
            raise ValueError(
                "`num_states` declares numbered states, and `features` declares vectors. Leave one of them out."
            )

    def with_sizes(self, num_states: int | None, num_actions: int) -> "Bounds":
        """Return the same bounds with these numbers of states (`None`: states are vectors) and actions.

        Raises:
            ValueError: if the bounds have other numbers.
        """
        if num_states is None and not self.features:
            raise ValueError(
                "The data have numbered states, but vectors of measurements are required. Declare columns with "
                "`features`, or use a learner for numbered states such as `TDFP`."
            )
        if num_states is not None and self.features:
            raise ValueError(_VECTORS)
        for name, wanted in (("num_states", num_states), ("num_actions", num_actions)):
            given = getattr(self, name)
            if given is not None and given != wanted:
                raise ValueError(
                    f"The data were declared with `{name}`={given} but are used with `{name}`={wanted}. "
                    f"Give the same `{name}` to both."
                )
        return replace(self, num_states=num_states, num_actions=num_actions)

    @property
    def largest_propensity(self) -> float:
        """The largest probability of an action that `least_propensity` leaves."""
        return 1.0 - max((self.num_actions or 1) - 1, 0) * self.least_propensity

    def known(self, name: str) -> int:
        """`num_states` or `num_actions`; an error if it is not set yet."""
        value = getattr(self, name)
        if value is None and name == "num_states" and self.features:
            raise ValueError(_VECTORS)
        if value is None:
            raise ValueError(
                f"`{name}` is not set, and it is never read off the data. "
                f"Give `{name}=...` when you open the data, or call `with_sizes(num_states, num_actions)`."
            )
        return value


@dataclass(frozen=True)
class Schema:
    """The column that plays each part; one row is one step. `None`: the table has no such column.

    Without `episode`, each unit is one episode. Without `next_state`, the next state is the state of the next row. The
    state is either one column of numbers or `features`. The action is either one column of numbers or `doses`, which
    are cut into actions.
    """

    unit: str
    step: str
    state: str | None
    action: str | None
    reward: str
    episode: str | None = None
    next_state: str | None = None
    terminated: str | None = None
    propensity: str | None = None
    features: tuple[Measurement, ...] = ()
    doses: tuple[BinnedAction, ...] = ()
    reported: ReportedColumns = UNREPORTED

    def __post_init__(self) -> None:
        if (self.state is None) != bool(self.features):
            raise ValueError("Give either `state`, a column of whole numbers, or `features`, but not both.")
        if self.features and self.next_state is not None:
            raise ValueError("With `features`, the next state is the state of the next row. Leave out `next_state`.")
        names = [dose.name for dose in self.doses]
        both = {feature.name for feature in self.features} & {*names, self.action}
        if both or len(set(names)) != len(names):
            raise ValueError(
                f"The column `{sorted(map(str, both or names))[0]}` is declared twice as an action, or as an action "
                "and a feature. A state holds what is known before the action. Name each column once."
            )

        self._check_reported()

    def _check_reported(self) -> None:
        """Refuse a group or a second outcome in a column that says something else about a step."""
        for part, column in self.reported.columns.items():
            for other, name in self.columns.items():
                kind = other.split(" ")[0]
                if name == column and kind not in (part, "state", "feature", "category"):
                    raise ValueError(
                        f"`{part}` names the column `{column}`, which is the `{_ARGUMENTS.get(kind, kind)}` too. Name "
                        "another column, or leave it out."
                    )

    @property
    def columns(self) -> dict[str, str]:
        """The column of each part that is declared."""
        parts = ("unit", "episode", "step", "state", "action", "reward", "next_state", "terminated", "propensity")
        named = {part: getattr(self, part) for part in parts if getattr(self, part) is not None}
        measured = {f"{type(feature).__name__.lower()} {feature.name}": feature.name for feature in self.features}
        return named | measured | {f"dose {dose.name}": dose.name for dose in self.doses} | self.reported.columns

    def require(self, present: list[str], table: str) -> None:
        """Raise if a declared column is missing; the error lists the existing columns."""
        for part, column in self.columns.items():
            require_column(part, column, present, table)


_ARGUMENTS = {"feature": "features", "category": "features", "dose": "action"}


def require_column(part: str, column: str, present: list[str], table: str) -> None:
    """Raise unless the column exists exactly once."""
    argument = _ARGUMENTS.get(part.split(" ")[0], part)
    if column not in present:
        names = ", ".join(f"`{name}`" for name in present)
        raise TableError(
            f"{table} has no column `{column}` (given as `{argument}=`). Its columns are {names}. "
            f"Pass the right name as `{argument}=`."
        )
    if present.count(column) > 1:
        raise TableError(f"{table} has several columns `{column}` (given as `{argument}=`). Rename all but one.")


def declare_table(
    *,
    unit: str,
    step: str,
    action: str | BinnedAction | Sequence[BinnedAction],
    reward: str,
    horizon: int,
    state: str | None = None,
    features: Sequence[Measurement] = (),
    num_states: int | None = None,
    num_actions: int | None = None,
    episode: str | None = None,
    next_state: str | None = None,
    terminated: str | None = None,
    propensity: str | None = None,
    least_propensity: float = 0.0,
    by: Category | None = None,
    outcome: Feature | None = None,
    reward_range: tuple[float, float] = (0.0, 1.0),
    max_episodes_per_unit: int = 1,
    max_actions: int = 12,
) -> tuple[Schema, Bounds]:
    """The columns and the public bounds of a table, checked against each other; see `read_parquet`."""
    named = action if isinstance(action, str) else None
    doses = () if isinstance(action, str) else (action,) if isinstance(action, BinnedAction) else tuple(action)
    columns = check_measurements(features) if features else ()
    reported = ReportedColumns(by, outcome)
    parts = (unit, step, state, named, reward, episode, next_state, terminated, propensity, columns, doses)
    schema = Schema(*parts, reported)
    if named is None:
        num_actions = _number_of_actions(doses, num_actions, max_actions)
    sizes = (horizon, num_states, num_actions)
    logged = (propensity is not None, least_propensity)
    return schema, Bounds(*sizes, reward_range, max_episodes_per_unit, columns, *logged, reported)


def check_least_propensity(least: float, num_actions: int | None = None, *, logged: bool) -> None:
    """Refuse a number that the probabilities of all actions cannot keep, or that is about no column."""
    if not 0.0 <= least < 1.0:
        raise ValueError(f"`least_propensity` is {least}; it must be at least 0 and below 1.")
    if num_actions is not None and least * num_actions > 1.0 + 1e-9:
        raise ValueError(
            f"`least_propensity` is {least}, and the probabilities of {num_actions} actions add up to 1: one of them "
            f"is at most {1.0 / num_actions:.4g}. Give a number that no probability was below, or leave it out."
        )
    if least > 0.0 and not logged:
        raise ValueError("`least_propensity` is about logged probabilities, and there are none. Give `propensity` too.")


def _number_of_actions(doses: tuple[BinnedAction, ...], given: int | None, most: int) -> int:
    """The number of actions into which doses are cut; an error if it is too large or not the given one."""
    made = math.prod(dose.num_actions for dose in doses)
    if not doses or given not in (None, made):
        raise ValueError(f"The edges of the doses make {made} actions, but `num_actions` is {given}. Leave it out.")
    if made > most:
        raise ValueError(
            f"The edges of the doses make {made} actions, but `max_actions` is {most}. Give fewer edges, because noise "
            "grows with the number of actions, or a larger `max_actions`."
        )
    return made
