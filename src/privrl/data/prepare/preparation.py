"""Public settings that turn raw records into steps: windows, aggregations, and the time of a state."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from privrl.data.prepare.grid import NEXT_STATE, STATE, GridColumn, StateGrid
from privrl.data.prepare.raw import ROW, Cells, CsvFormat, Use
from privrl.data.prepare.windows import AGGREGATIONS, Aggregation
from privrl.data.schema.outcomes import Good, sounds_low

StateAt = Literal["start", "end"]
"""Whether the state of a step is known at the start of its window, or includes the records of its window."""

OWN_EFFECT = (
    "The state of a step includes the window in which its action was given, so it can show the effect of its own "
    "action, and a learner mistakes effects for causes. Use states at the start of a window: `--state-at start`, "
    "or `state_at='start'` in Python."
)
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True)
class Preparation:
    """Public settings that turn raw records into steps.

    Arguments:
        unit, time: the columns of the person and of the time: timestamps, or numbers such as hours since admission.
        every: the length of a window: "4h", "30min", "1d", or a number if times are numbers. It decides how times in a
            CSV file are read.
        columns: the measurements of a state, each with its aggregation in a window: "last", "first", "mean", "max",
            "min" or "sum".
        action: the columns of actions or doses, each with its aggregation in a window (usually "sum" for doses).
        reward: the column of the reward. By default, an episode pays its last value at the end.
        horizon: the largest number of steps of an episode; later records are left out, except for the reward at the
            end.
        episode: the column that tells the episodes of a person apart. Without it, a person has one.
        end: true on the last record of an episode that has ended, or the time at which it ended.
        end_time: `end` is a time, like `time`. Otherwise it is true or false, or 1 or 0 (or timestamps, in Parquet).
        reward_each: the aggregation of the rewards in a window, if every step pays.
        carry: how long a value is carried forward if nothing was measured, in the form of `every`; by default not at
            all.
        state_at: "start": a state summarises the windows before that of its action. "end": it includes the same window,
            which may show an effect of the action.
        idle: the action of a window that has no record of one.
        time_format: the format of times in a CSV file, if not ISO 8601, for example "%d.%m.%Y %H:%M".
        zoned: times in a CSV file have a time zone: they end in Z or in an offset such as +02:00.
        text: the `columns` that are text, aggregated by "last" or "first". In a CSV file all others are numbers.
        name, value: the columns of names and values of a long table, which has one row per measurement. Then `columns`,
            `action`, `reward` and `end` are names in it; rows with other names are records without a value.
        good: which values of the reward are good. If "low", 1 minus the reward is written, as the column `not_NAME`.
        grid: cuts every measurement at public edges: the table then has numbered states, with `state` and `next_state`
            instead of the measurements. Without `end`, an episode that is paid at its end has ended with its last step.
        propensity: if a program decided, the logged probability of its action; each window has exactly one.
        by: a column of groups by which an evaluation reports, text, whole numbers, or true or false; every step of an
            episode has its first value. A long table has no such column.
        outcome: a second outcome that an evaluation reports, summed over the window of each action.
        delimiter, decimal, encoding: how a CSV file is written, see `CsvFormat`.
        items: codes of a long table and their names, {"220052": "map"}; a name without a code occurs in the table
            itself.

    **Formal guarantee.** `cells`, the types of the columns of a CSV file, is a function of these settings; no person's
    values change how the values of another person are read.
    """

    unit: str
    time: str
    every: str | float
    columns: Mapping[str, Aggregation]
    action: Mapping[str, Aggregation]
    reward: str
    horizon: int = 1000
    episode: str | None = None
    end: str | None = None
    reward_each: Aggregation | None = None
    carry: str | float = 0
    state_at: StateAt = "start"
    idle: float = 0.0
    time_format: str | None = None
    end_time: bool = False
    zoned: bool = False
    text: tuple[str, ...] = ()
    name: str | None = None
    value: str | None = None
    items: Mapping[str, str] = field(default_factory=dict)
    good: Good = "high"
    grid: tuple[GridColumn, ...] = ()
    propensity: str | None = None
    by: str | None = None
    outcome: str | None = None
    delimiter: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    uses: dict[str, Use] = field(init=False, repr=False)
    cells: dict[str, Cells] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if (self.name is None) != (self.value is None):
            raise ValueError(
                "A long table has a column of names and a column of values. Give both `name` and `value`, or neither."
            )
        if self.name is not None and self.by is not None:
            raise ValueError(
                "A long table has no column of groups (`by`). Join it to the table of steps by the person, and declare "
                "it in the schema."
            )
        asked, renamed = set(self.named), set(self.items.values())
        if self.items and (self.name is None or not renamed <= asked or set(self.items) & (asked - renamed)):
            raise ValueError(
                "`items` maps codes of a long table to names in `columns`, `action`, `reward`, `propensity`, `outcome` "
                "or `end`. Give `name` and `value`, map codes to these names only, and use none of the other names as "
                "a code."
            )
        named = [self.unit, self.time, self.episode, self.name, self.value, self.end, self.reward, self.propensity]
        reported = (self.by, self.outcome)
        names = [name for name in (*named, *reported, *self.columns, *self.action) if name is not None]
        twice = sorted({name for name in names if names.count(name) > 1 or name in self._added})
        if twice:
            raise ValueError(
                f"The column `{twice[0]}` is named twice, or has the name of a column that is added. Name each column "
                "once, and rename columns that have one of the names "
                f"{', '.join(f'`{one}`' for one in self._added[:-1])}."
            )
        if not self.columns or not self.action:
            raise ValueError("Name at least one column for the state and one for the action.")
        hows = [*self.columns.values(), *self.action.values(), self.reward_each or "last"]
        if not set(hows) <= set(AGGREGATIONS):
            raise ValueError(f"An aggregation is unknown. Use one of {', '.join(AGGREGATIONS)}.")
        if isinstance(self.horizon, bool) or not 1 <= self.horizon < 2**31:
            raise ValueError(f"`horizon` is {self.horizon}; it must be a whole number from 1 to 2^31 - 1.")
        if self.good not in get_args(Good):
            raise ValueError(f"`good` is {self.good!r}; it must be 'high' or 'low'.")
        if self.grid and sorted(column.name for column in self.grid) != sorted(self.columns):
            cut = [column.name for column in self.grid]
            wrong = next(name for name in (*self.columns, *cut) if name not in self.columns or cut.count(name) != 1)
            raise ValueError(
                f"`grid` must cut every measurement once, and measurements only. `{wrong}` is not cut once, or is not "
                "a measurement."
            )
        if any(bool(column.values) != (column.name in self.text) for column in self.grid):
            raise ValueError("A column of text is in a `grid` with its values, and every other column with its edges.")
        self.csv  # noqa: B018 raises if the format is invalid
        if self.state_at not in ("start", "end"):
            raise ValueError(f"`state_at` is {self.state_at!r}; it must be 'start' or 'end'.")
        for name in self.text:
            if self.columns.get(name) not in ("last", "first"):
                raise ValueError(f"`{name}` is declared as text, so it must be a column aggregated by last or first.")
        uses: dict[str, Use] = {self.unit: "id", self.time: "time"}
        uses |= {} if self.episode is None else {self.episode: "id"}
        if self.name is not None and self.value is not None:
            uses |= {self.name: "name", self.value: "text" if self.text else "number"}
        else:
            uses |= self.named
        object.__setattr__(self, "uses", uses)
        object.__setattr__(self, "cells", {name: self._cells_of(use) for name, use in uses.items()})
        self.carried_windows  # noqa: B018 raises if a duration is invalid

    @property
    def _added(self) -> tuple[str, ...]:
        """The columns that are added, which no other column may be called."""
        states = (STATE, NEXT_STATE) if self.grid else ()
        inverted = (self.paid,) if self.good == "low" else ()
        return ("step", "terminated", *states, *inverted, ROW)

    @property
    def csv(self) -> CsvFormat:
        """How a CSV file is written."""
        return CsvFormat(self.delimiter, self.decimal, self.encoding)

    @property
    def paid(self) -> str:
        """The column of the reward in the table of steps."""
        return self.reward if self.good == "high" else f"not_{self.reward}"

    @property
    def states(self) -> StateGrid | None:
        """The grid of numbered states, if there is one. If a reward is paid at the end, there is a state of the end."""
        return StateGrid(self.grid, self.end is not None or self.reward_each is None) if self.grid else None

    @property
    def named(self) -> dict[str, Use]:
        """The use of everything that is aggregated, and of the end: columns of a wide table, names in a long one."""
        found: dict[str, Use] = {} if self.end is None else {self.end: "end"}
        found |= {name: "value" if how in ("last", "first") else "number" for name, how in self.columns.items()}
        more = [name for name in (self.propensity, self.outcome) if name is not None]
        numbers = (*self.action, self.reward, *more)
        found |= {} if self.by is None else {self.by: "group"}
        return found | dict.fromkeys(self.text, "text") | dict.fromkeys(numbers, "number")

    def _cells_of(self, use: Use) -> Cells:
        if use in ("id", "text", "name", "group"):
            return "text"
        if use == "end" and not self.end_time:
            return "truth"
        if use in ("end", "time") and not is_unitless(self.every):
            return "zoned time" if self.zoned else "time"
        return "number"

    @property
    def carried_windows(self) -> int:
        """The number of windows for which a value is carried forward."""
        every, carry = parse_duration(self.every, "every"), parse_duration(self.carry, "carry")
        if every <= 0 or carry < 0:
            raise ValueError(
                f"`every` is {self.every} and `carry` is {self.carry}; `every` must be above 0 and `carry` at least 0."
            )
        if isinstance(self.every, str) != isinstance(self.carry, str) and carry:
            raise ValueError(
                "Give `every` and `carry` in the same form: both with a unit such as 4h, or both as numbers."
            )
        return math.floor(carry / every)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about these settings, to read before learning from the result."""
        found: tuple[str, ...] = (OWN_EFFECT,) if self.state_at == "end" else ()
        if self.good == "high" and sounds_low(self.reward):
            found += (
                f"`{self.reward}` sounds like an outcome that should be low, and its high values are declared good, so "
                "learning will raise it. If its low values are good, use `--good low`, or `good='low'` in Python.",
            )
        return found


def is_unitless(given: str | float) -> bool:
    """Whether a duration is a number without a unit."""
    return re.fullmatch(r"[\d.\s]+", str(given)) is not None


def parse_duration(given: str | float, name: str) -> float:
    """The seconds of "4h", "30min", "1d" or "90s"; a number is returned unchanged.

    >>> parse_duration("30min", "every")
    1800.0
    """
    if not isinstance(given, str):
        return float(given)
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|m|min|h|d)?\s*", given)
    if found is None:
        raise ValueError(f"`{name}` is {given!r}; write a duration such as 4h, 30min, 1d or 90s.")
    return float(found[1]) * _SECONDS[found[2] or "s"]
