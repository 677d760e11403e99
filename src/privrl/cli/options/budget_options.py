"""The budget that all studies of the same people share."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from privrl.privacy.shared_budget import SharedBudget

_PANEL = "Privacy budget"

BudgetOption = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="FILE",
        help="One budget for all studies of the same people (`privrl budget init`); the cost is reserved first.",
        rich_help_panel=_PANEL,
    ),
]
BudgetLogOption = Annotated[
    Path | None,
    typer.Option(
        "--budget-log",
        help="The audit log of the budget, if it is not at the place that is written in the budget.",
        rich_help_panel=_PANEL,
    ),
]


ListedBudgetOption = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="FILE",
        help="The budget that studies of the same people share: lists those that reserved. Nothing is reserved.",
        rich_help_panel=_PANEL,
    ),
]


@dataclass(frozen=True)
class BudgetOptions:
    """The budget that pays for a study, and its audit log."""

    budget: BudgetOption = None
    budget_log: BudgetLogOption = None

    @property
    def shared(self) -> "SharedBudget | None":
        """The budget; `None` without one."""
        if self.budget is not None:
            from privrl.privacy.shared_budget import SharedBudget  # imports JAX, which other commands do without

            return SharedBudget(self.budget, self.budget_log)
        if self.budget_log is not None:
            raise ValueError("`--budget-log` belongs to a budget, and `--budget` is missing. Leave it out.")
        return None
