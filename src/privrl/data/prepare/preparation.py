"""How raw records become steps, in public settings: windows, what is combined how, and when a state is looked at."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from privrl.data.prepare.raw import ROW, Cells, Use
from privrl.data.prepare.windows import AGGREGATIONS, Aggregation

StateAt = Literal["start", "end"]
"""Whether the state of a step is what was known when its window began, or what its window itself has shown."""

OWN_EFFECT = (
    "The state of a step comes from the window in which its action was given, so a state can show the effect of its "
    "own action, and what is learnt takes effects for reasons. Let states be those at the start of a window."
)
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True)
class Preparation:
    """How raw records become steps; all of it is public.

    Arguments:
        unit, time: the columns of the person and of the time: timestamps, or numbers such as hours since admission.
        every: the length of a window: "4h", "30min", "1d", or a number where times are numbers. It says how times in a
            CSV file are read.
        columns: the measurements of a state, each with how several values in a window become one: "last", "first",
            "mean", "max", "min" or "sum".
        action: the columns of actions or doses, each with how a window's values become one (usually "sum" of doses).
        reward: the column of the reward. It is paid at the end of an episode: the last value of the whole episode.
        horizon: the largest number of steps of an episode; later records are left out (but for the reward at the end).
        episode: which episode of the person a record belongs to; without it a person has one.
        end: true on the last record of an episode that has ended, or the time at which it ended.
        end_time: `end` is a time, as `time` is; without it, true or false, or 1 or 0 (or timestamps, in Parquet).
        reward_each: how a window's rewards become one, where every step pays.
        carry: for how long a value is carried forward where nothing was measured, as `every`; by default not at all.
        state_at: "start": a state is what windows before that of its action have shown. "end": what the same window
            has shown, which may be an effect of the action.
        idle: the action of a window without a record of it.
        time_format: of times in a CSV file, where they are not ISO 8601, for example "%d.%m.%Y %H:%M".
        zoned: times in a CSV file have a time zone: they end in Z or in an offset such as +02:00.
        text: the `columns` that are text, combined by "last" or "first". In a CSV file all others are numbers.
        name, value: of a long table, which has one row per measurement, the columns of its name and of its value. Then
            `columns`, `action`, `reward` and `end` are names; rows with other names are records without a value.
        items: of a long table, under which other words names are found there, {"220052": "map"}; a name that is not
            among them is found under its own.

    **Formal guarantee.** `cells`, the types of the columns of a CSV file, is a function of these settings; nobody's
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
    uses: dict[str, Use] = field(init=False, repr=False)
    cells: dict[str, Cells] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if (self.name is None) != (self.value is None):
            raise ValueError("A long table has a column of names and one of values. Give both, or neither.")
        asked, renamed = set(self.named), set(self.items.values())
        if self.items and (self.name is None or not renamed <= asked or set(self.items) & (asked - renamed)):
            raise ValueError(
                "`items` says under which words a long table has names that are asked for. Give it for such names, and "
                "no word that is itself a name that is asked for."
            )
        named = [self.unit, self.time, self.episode, self.name, self.value, self.end, self.reward]
        names = [name for name in (*named, *self.columns, *self.action) if name is not None]
        twice = sorted({name for name in names if names.count(name) > 1 or name in ("step", "terminated", ROW)})
        if twice:
            raise ValueError(
                f"The column `{twice[0]}` is named twice, or as a column that is added. Name each column once, and "
                "call none `step` or `terminated`."
            )
        if not self.columns or not self.action:
            raise ValueError("Name at least one column of a state and one of an action.")
        hows = [*self.columns.values(), *self.action.values(), self.reward_each or "last"]
        if not set(hows) <= set(AGGREGATIONS):
            raise ValueError(f"Values of a window are combined by {', '.join(AGGREGATIONS)}; nothing else is known.")
        if isinstance(self.horizon, bool) or not 1 <= self.horizon < 2**31:
            raise ValueError(f"`horizon` is {self.horizon}; it must be a whole number, at least 1 and below 2^31.")
        if self.state_at not in ("start", "end"):
            raise ValueError(f"`state_at` is {self.state_at!r}; it must be 'start' or 'end'.")
        for name in self.text:
            if self.columns.get(name) not in ("last", "first"):
                raise ValueError(
                    f"`{name}` is declared as text; it must be a column that is combined by last or first."
                )
        uses: dict[str, Use] = {self.unit: "id", self.time: "time"}
        uses |= {} if self.episode is None else {self.episode: "id"}
        if self.name is not None and self.value is not None:
            uses |= {self.name: "name", self.value: "text" if self.text else "number"}
        else:
            uses |= self.named
        object.__setattr__(self, "uses", uses)
        object.__setattr__(self, "cells", {name: self._cells_of(use) for name, use in uses.items()})
        self.carried_windows  # noqa: B018 raises where durations are none

    @property
    def named(self) -> dict[str, Use]:
        """What is combined, and the end: columns of a wide table, names in a long one."""
        found: dict[str, Use] = {} if self.end is None else {self.end: "end"}
        found |= {name: "value" if how in ("last", "first") else "number" for name, how in self.columns.items()}
        return found | dict.fromkeys(self.text, "text") | dict.fromkeys((*self.action, self.reward), "number")

    def _cells_of(self, use: Use) -> Cells:
        if use in ("id", "text", "name"):
            return "text"
        if use == "end" and not self.end_time:
            return "truth"
        if use in ("end", "time") and not is_unitless(self.every):
            return "zoned time" if self.zoned else "time"
        return "number"

    @property
    def carried_windows(self) -> int:
        """For how many windows a value is carried forward."""
        every, carry = parse_duration(self.every, "every"), parse_duration(self.carry, "carry")
        if every <= 0 or carry < 0:
            raise ValueError(f"`every` is {self.every} and `carry` is {self.carry}; a window must have a length.")
        if isinstance(self.every, str) != isinstance(self.carry, str) and carry:
            raise ValueError("Give `carry` as `every` is given: both with a unit such as 4h, or both as numbers.")
        return math.floor(carry / every)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to think about before learning from the result."""
        return (OWN_EFFECT,) if self.state_at == "end" else ()


def is_unitless(given: str | float) -> bool:
    """Whether a duration is a number without a unit."""
    return re.fullmatch(r"[\d.\s]+", str(given)) is not None


def parse_duration(given: str | float, name: str) -> float:
    """The seconds of "4h", "30min", "1d" or "90s"; a number stays as it is."""
    if not isinstance(given, str):
        return float(given)
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|m|min|h|d)?\s*", given)
    if found is None:
        raise ValueError(f"`{name}` is {given!r}; write a duration such as 4h, 30min, 1d or 90s.")
    return float(found[1]) * _SECONDS[found[2] or "s"]
