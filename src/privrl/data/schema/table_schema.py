"""What a table must look like before anything in it is summed, and the errors that say where it does not.

Every bound here (`horizon`, `num_states`, `num_actions`, `reward_range`, `max_episodes_per_unit`) is a public argument
and is never read off the data: a bound that moved with one person's record would reveal that record. For the same
reason an error names the file, the row and the column, and never the value that was found there.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from privrl.mdp.measurements import BinnedAction, Measurement, check_measurements

_VECTORS = (
    "The states are vectors of measurements (`features`), and numbered states are needed. Use the recipe `dp-lap`, or "
    "discretise the measurements into one column of numbered states, with public rules."
)

Place = Callable[[int], str]
"""Says where entry number i of a checked array is, for example "row 17 of `stays.parquet`"."""


class TableError(ValueError):
    """A table that cannot be used as it is: what is wrong, where, and what to do. Never quotes a person's value.

    Where entries of one column are at fault, `kind` is the column and what is wrong, and `rows` marks all of them.
    """

    def __init__(self, message: str, kind: tuple[str, str] | None = None, rows: np.ndarray | None = None) -> None:
        super().__init__(message)
        self.kind, self.rows = kind, rows


@dataclass(frozen=True)
class Bounds:
    """The public bounds that every record is held to.

    Arguments:
        horizon: the largest number of steps in an episode.
        num_states: states are 0, ..., num_states - 1; `None` until a learner says it.
        num_actions: actions are 0, ..., num_actions - 1; `None` until a learner says it.
        reward_range: the smallest and the largest reward of one step.
        max_episodes_per_unit: how many episodes of one privacy unit are used; the others are left out at random.
        features: the columns of a state with their bounds, where states are vectors and not numbers.
    """

    horizon: int
    num_states: int | None = None
    num_actions: int | None = None
    reward_range: tuple[float, float] = (0.0, 1.0)
    max_episodes_per_unit: int = 1
    features: tuple[Measurement, ...] = ()

    def __post_init__(self) -> None:
        for name in ("horizon", "num_states", "num_actions", "max_episodes_per_unit"):
            value = getattr(self, name)
            if value is None and name in ("num_states", "num_actions"):
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value < 2**31:
                raise ValueError(f"`{name}` is {value!r}; it must be a whole number, at least 1 and below 2^31.")
        low, high = self.reward_range
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise ValueError(f"`reward_range` is {self.reward_range!r}; give two finite numbers, the smaller first.")
        if self.horizon * (self.num_states or 1) * (self.num_actions or 1) * ((self.num_states or 1) + 1) >= 2**63:
            raise ValueError(
                "`horizon` * `num_states`^2 * `num_actions` is above 2^63, too many to number the transitions. "
                "Merge states or actions."
            )
        if self.features and self.num_states is not None:
            raise ValueError(
                "`num_states` counts numbered states, and `features` declares vectors of measurements. Leave one out."
            )

    def with_sizes(self, num_states: int | None, num_actions: int) -> "Bounds":
        """The same bounds with the numbers of states (`None`: vectors) and actions filled in; it is an error if they
        were others."""
        if num_states is None and not self.features:
            raise ValueError(
                "The data have numbered states, and vectors of measurements are needed. Declare columns with "
                "`features`, or use a learner of numbered states such as `TDFP`."
            )
        if num_states is not None and self.features:
            raise ValueError(_VECTORS)
        for name, wanted in (("num_states", num_states), ("num_actions", num_actions)):
            given = getattr(self, name)
            if given is not None and given != wanted:
                raise ValueError(
                    f"The data were declared with `{name}`={given} and are used with `{name}`={wanted}. "
                    f"Give the same `{name}` to both."
                )
        return replace(self, num_states=num_states, num_actions=num_actions)

    def known(self, name: str) -> int:
        """`num_states` or `num_actions`, which must have been given by now."""
        value = getattr(self, name)
        if value is None and name == "num_states" and self.features:
            raise ValueError(_VECTORS)
        if value is None:
            raise ValueError(
                f"`{name}` is not known yet, and it is never read off the data. "
                f"Give `{name}=...` when the data are opened, or call `with_sizes(num_states, num_actions)`."
            )
        return value


@dataclass(frozen=True)
class Schema:
    """Which column of a table plays which part; one row is one step. `None`: the table has no such column.

    Without `episode` each unit is one episode. Without `next_state` the next state is the state of the next row. The
    state is one column of numbers, or `features`; the action is one column of numbers, or `doses` that are cut into
    actions.
    """

    unit: str
    step: str
    state: str | None
    action: str | None
    reward: str
    episode: str | None = None
    next_state: str | None = None
    terminated: str | None = None
    features: tuple[Measurement, ...] = ()
    doses: tuple[BinnedAction, ...] = ()

    def __post_init__(self) -> None:
        if (self.state is None) != bool(self.features):
            raise ValueError("Give either `state`, a column of whole numbers, or `features`, and not both.")
        if self.features and self.next_state is not None:
            raise ValueError("With `features` the next state is that of the next row. Leave out `next_state`.")
        names = [dose.name for dose in self.doses]
        both = {feature.name for feature in self.features} & {*names, self.action}
        if both or len(set(names)) != len(names):
            raise ValueError(
                f"The column `{sorted(map(str, both or names))[0]}` is named twice as an action, or as an action and a "
                "feature. A state is what is known before the action is taken; name each column once."
            )

    @property
    def columns(self) -> dict[str, str]:
        """Part -> column name, for the columns that the table is said to have."""
        parts = ("unit", "episode", "step", "state", "action", "reward", "next_state", "terminated")
        named = {part: getattr(self, part) for part in parts if getattr(self, part) is not None}
        measured = {f"{type(feature).__name__.lower()} {feature.name}": feature.name for feature in self.features}
        return named | measured | {f"dose {dose.name}": dose.name for dose in self.doses}

    def require(self, present: list[str], table: str) -> None:
        """Raises if a column is missing, and lists those that exist."""
        for part, column in self.columns.items():
            require_column(part, column, present, table)


_ARGUMENTS = {"feature": "features", "category": "features", "dose": "action"}


def require_column(part: str, column: str, present: list[str], table: str) -> None:
    """Raises if a column is not there exactly once."""
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
    reward_range: tuple[float, float] = (0.0, 1.0),
    max_episodes_per_unit: int = 1,
    max_actions: int = 12,
) -> tuple[Schema, Bounds]:
    """The columns and the public bounds of a table, checked against each other; see `read_parquet`."""
    named = action if isinstance(action, str) else None
    doses = () if isinstance(action, str) else (action,) if isinstance(action, BinnedAction) else tuple(action)
    columns = check_measurements(features) if features else ()
    schema = Schema(unit, step, state, named, reward, episode, next_state, terminated, columns, doses)
    if named is None:
        num_actions = _number_of_actions(doses, num_actions, max_actions)
    return schema, Bounds(horizon, num_states, num_actions, reward_range, max_episodes_per_unit, columns)


def _number_of_actions(doses: tuple[BinnedAction, ...], given: int | None, most: int) -> int:
    """The number of actions that doses make, if it is the one given and not too large."""
    made = math.prod(dose.num_actions for dose in doses)
    if not doses or given not in (None, made):
        raise ValueError(f"The edges of the doses make {made} actions, and `num_actions` is {given}. Leave it out.")
    if made > most:
        raise ValueError(
            f"The edges of the doses make {made} actions, and `max_actions` is {most}. Noise grows with the number of "
            "actions: give fewer edges, or a larger `max_actions`."
        )
    return made
