"""Columns that an evaluation only reports on: a public list of groups, and a second outcome such as cost.

No learner sees them. A table holds them as an array `extras` with two entries per row: the position of the row's group
in the public list (NaN: in no group), and the second outcome in its own unit, within its bounds (0: no value).
"""

import json
from dataclasses import dataclass, replace
from typing import final

from privrl.mdp.measurements import Category, Feature

GROUP, OUTCOME = 0, 1
"""The entries of a row of `extras`."""


@final
@dataclass(frozen=True)
class ReportedColumns:
    """Which columns are reported on.

    >>> ReportedColumns(Category("sex", ("female", "male")), Feature("cost", 0, 50_000)).described
    {'groups': 'sex: ["female", "male"]', 'second outcome': 'cost:50000'}

    Arguments:
        by: the column of groups. A person belongs to the group in the first row of their first episode that is used.
        outcome: a second outcome with its bounds, 0 and the public largest total of one episode.
    """

    by: Category | None = None
    outcome: Feature | None = None

    def __post_init__(self) -> None:
        by, outcome = self.by, self.outcome
        if by is not None and not isinstance(by, Category):
            raise ValueError(f'`by` is a `{type(by).__name__}`. Give `Category("sex", ("female", "male"))`.')
        if outcome is not None and (not isinstance(outcome, Feature) or outcome.low != 0.0 or outcome.log):
            raise ValueError(
                '`outcome` must be a `Feature` from 0 to the largest total of an episode, `Feature("cost", 0, 50_000)`.'
            )
        object.__setattr__(self, "by", None if by is None else replace(by, missing=True))
        object.__setattr__(self, "outcome", None if outcome is None else replace(outcome, missing=True))

    def __bool__(self) -> bool:
        return self.by is not None or self.outcome is not None

    @property
    def described(self) -> dict[str, str]:
        """Both, for a certificate."""
        groups = {} if self.by is None else {"groups": f"{self.by.name}: {json.dumps(self.by.values)}"}
        outcome = self.outcome
        return groups if outcome is None else groups | {"second outcome": f"{outcome.name}:{outcome.high:.15g}"}

    @property
    def columns(self) -> dict[str, str]:
        """The column of each part."""
        found = {} if self.by is None else {"by": self.by.name}
        return found if self.outcome is None else found | {"outcome": self.outcome.name}

    @property
    def groups(self) -> tuple[str, ...]:
        """The public names of the groups."""
        return () if self.by is None else tuple(self.by.values)


UNREPORTED = ReportedColumns()
"""No such columns."""
