"""What a table must look like before anything in it is summed, and the errors that say where it does not.

Every bound here (`horizon`, `num_states`, `num_actions`, `reward_range`, `max_episodes_per_unit`) is a public argument
and is never read off the data: a bound that moved with one person's record would reveal that record. For the same
reason an error names the file, the row and the column, and never the value that was found there.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

Place = Callable[[int], str]
"""Says where entry number i of a checked array is, for example "row 17 of `stays.parquet`"."""


class TableError(ValueError):
    """A table that cannot be used as it is: what is wrong, where, and what to do. Never quotes a person's value."""


@dataclass(frozen=True)
class Bounds:
    """The public bounds that every record is held to.

    Arguments:
        horizon: the largest number of steps in an episode.
        num_states: states are 0, ..., num_states - 1; `None` until a learner says it.
        num_actions: actions are 0, ..., num_actions - 1; `None` until a learner says it.
        reward_range: the smallest and the largest reward of one step.
        max_episodes_per_unit: how many episodes of one privacy unit are used; the others are left out at random.
    """

    horizon: int
    num_states: int | None = None
    num_actions: int | None = None
    reward_range: tuple[float, float] = (0.0, 1.0)
    max_episodes_per_unit: int = 1

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

    def completed(self, num_states: int, num_actions: int) -> "Bounds":
        """The same bounds with the numbers of states and actions filled in; it is an error if they were others."""
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
        if value is None:
            raise ValueError(
                f"`{name}` is not known yet, and it is never read off the data. "
                f"Give `{name}=...` when the data are opened, or call `bounded(num_states, num_actions)`."
            )
        return value


@dataclass(frozen=True)
class Schema:
    """Which column of a table plays which part; one row is one step. `None`: the table has no such column.

    Without `episode` each unit is one episode. Without `next_state` the next state is the state of the next row.
    """

    unit: str
    step: str
    state: str
    action: str
    reward: str
    episode: str | None = None
    next_state: str | None = None
    terminated: str | None = None

    @property
    def columns(self) -> dict[str, str]:
        """Part -> column name, for the columns that the table is said to have."""
        parts = ("unit", "episode", "step", "state", "action", "reward", "next_state", "terminated")
        return {part: getattr(self, part) for part in parts if getattr(self, part) is not None}

    def require(self, present: list[str], table: str) -> None:
        """Raises if a column is missing, and lists those that exist."""
        for part, column in self.columns.items():
            if column not in present:
                names = ", ".join(f"`{name}`" for name in present)
                raise TableError(
                    f"{table} has no column `{column}` (given as `{part}=`). Its columns are {names}. "
                    f"Pass the right name as `{part}=`."
                )
            if present.count(column) > 1:
                raise TableError(f"{table} has several columns `{column}` (given as `{part}=`). Rename all but one.")


def refuse(bad: Bool[np.ndarray, " N"], column: str, place: Place, problem: str, remedy: str) -> None:
    """Raises a `TableError` for the first bad entry, if there is one."""
    if bad.any():
        raise TableError(f"Column `{column}` {problem} at {place(int(bad.argmax()))}. {remedy}")


def whole_numbers(values: Shaped[np.ndarray, " N"], column: str, place: Place) -> Int[np.ndarray, " N"]:
    """The column as int64. Floating-point columns pass if every entry is a whole number."""
    if values.dtype.kind in "iu":
        if values.dtype == np.uint64:
            _refuse_too_large(values > np.uint64(2**63 - 1), column, place)
        return values.astype(np.int64, copy=False)
    if values.dtype.kind != "f":
        raise TableError(
            f"Column `{column}` holds {_kind(values)}; it must hold whole numbers. "
            f"Number its categories 0, 1, ... before reading the table."
        )
    values = values.astype(np.promote_types(values.dtype, np.float64), copy=False)  # 2^53 is no half float
    refuse_not_finite(values, column, place)
    _refuse_too_large(np.abs(values) > 2.0**53, column, place)
    numbers = values.astype(np.int64)
    problem = "has a number with a fraction"
    refuse(numbers != values, column, place, problem, "It must hold whole numbers; number its categories 0, 1, ...")
    return numbers


def _kind(values: Shaped[np.ndarray, " N"]) -> str:
    # not the NumPy type, which gives away the length of the longest text
    words = {"U": "text", "S": "text", "b": "true or false", "O": "values of mixed types"}
    return words.get(values.dtype.kind, "dates or other objects")


def _refuse_too_large(bad: Bool[np.ndarray, " N"], column: str, place: Place) -> None:
    refuse(bad, column, place, "has a number too large to be exact", "Use 64-bit whole numbers.")


def refuse_not_finite(values: Shaped[np.ndarray, " N"], column: str, place: Place) -> None:
    """Raises if an entry is NaN or infinite."""
    remedy = "Remove the episode or fill the value in before reading the table."
    refuse(np.isnan(values), column, place, "is NaN", remedy)
    refuse(np.isinf(values), column, place, "is infinite", remedy)


def indices(
    values: Shaped[np.ndarray, " N"], column: str, place: Place, bounds: Bounds, bound: str, unknown: bool = False
) -> Int[np.ndarray, " N"]:
    """The column as int32, every entry in 0, ..., `bound` - 1 (or -1 where `unknown` entries are allowed)."""
    numbers, size = whole_numbers(values, column, place), bounds.known(bound)
    allowed = f"from 0 to {size - 1}" + (", or -1 or null where it was not recorded" if unknown else "")
    remedy = f"`{bound}` is {size}, so it must be {allowed}. Recode the column or give the right `{bound}`."
    refuse((numbers < (-1 if unknown else 0)) | (numbers >= size), column, place, "is out of range", remedy)
    return numbers.astype(np.int32)


def bounded_rewards(
    values: Shaped[np.ndarray, " N"], column: str, place: Place, reward_range: tuple[float, float]
) -> Float[np.ndarray, " N"]:
    """The column as float64, every entry finite and inside the public range."""
    if values.dtype.kind not in "iuf":
        raise TableError(f"Column `{column}` holds {_kind(values)}; rewards must be numbers. Cast the column first.")
    rewards = values.astype(np.float64, copy=False)
    refuse_not_finite(rewards, column, place)
    low, high = reward_range
    remedy = f"`reward_range` is [{low:g}, {high:g}]. Rescale the rewards or give their public range."
    refuse((rewards < low) | (rewards > high), column, place, "is out of range", remedy)
    return rewards
