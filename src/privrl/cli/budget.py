"""`privrl budget init` and `show`: one budget for all studies of the same people."""

from pathlib import Path
from typing import Annotated

import typer

from privrl.cli.commands import App
from privrl.cli.options.budget_options import BudgetLogOption
from privrl.cli.options.grouped import grouped
from privrl.cli.options.parsing import AdjacencyOption
from privrl.cli.output import JsonOption, emit, say, show_table
from privrl.privacy.accounting.gdp import gdp_epsilon
from privrl.privacy.shared_budget import DELTA, EPSILON, MU, SharedBudget
from privrl.privacy.store.release_store import store_exists

budget = App(name="budget", help="One budget for all studies of the same people.", no_args_is_help=True)

_PARTS = {EPSILON: "other epsilon", DELTA: "other delta"}
"""The parts of a budget for studies that are not Gaussian, as `budget init` calls them."""

BudgetFileArgument = Annotated[str, typer.Argument(help="The file of the budget, or a postgresql:// address.")]


@budget.command()
@grouped
def init(
    file: BudgetFileArgument,
    epsilon: Annotated[float, typer.Option("--epsilon", help="What all studies together may reveal.")],
    delta: Annotated[float, typer.Option("--delta", help="Slack in (0, 1), well below one over the number of people.")],
    unit: Annotated[str, typer.Option("--unit", metavar="COL", help="The column that identifies the people.")],
    adjacency: AdjacencyOption = "replace-one",
    other_epsilon: Annotated[
        float, typer.Option("--other-epsilon", help="Part of epsilon for studies that are not Gaussian.")
    ] = 0.0,
    other_delta: Annotated[
        float | None,
        typer.Option("--other-delta", help="Part of delta for studies that are not Gaussian (a tenth unless given)."),
    ] = None,
    budget_log: Annotated[
        Path | None,
        typer.Option(
            "--budget-log",
            help="Where to keep its audit log, which refuses an older copy; best on another disk (FILE.log unless "
            "given).",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Make a budget, from which studies reserve their cost before they start."""
    existed = store_exists(file)
    made = SharedBudget.create(
        file,
        epsilon=epsilon,
        delta=delta,
        unit=unit,
        adjacency=adjacency,
        other_epsilon=other_epsilon,
        other_delta=other_delta,
        log=budget_log,
    )
    shown = made.describe()
    if json:
        emit({"file": made.place, "existed": existed, **shown})
        return
    if existed:
        say("The budget existed already, with the same terms. Nothing was changed.")
    say(
        f"The budget `{made.place}` has epsilon {epsilon:g} and delta {delta:g} for all studies of `{unit}`. Gaussian "
        f"releases may add up to mu^2 = {shown['pools'][MU]['limit']:.4g}."
    )
    say("Give it to every study of these people: `--budget`. Never restore an older copy.")
    say(_describe_log(shown["log"]))


@budget.command()
def show(file: BudgetFileArgument, budget_log: BudgetLogOption = None, json: JsonOption = False) -> None:
    """List the studies that have reserved, with dates, and what is left."""
    opened = SharedBudget(file, budget_log)
    shown = opened.describe()
    if json:
        emit({"file": opened.place, **shown})
        return
    say(
        f"Epsilon {shown['epsilon']:g}, delta {shown['delta']:g} for all studies of `{shown['unit']}` "
        f"({shown['adjacency']})."
    )
    if shown["studies"]:
        delta = shown["left"]["delta"]
        rows = [
            [
                study["date"],
                study["name"],
                study["study"][:8],
                f"{gdp_epsilon(study['mu'], delta):.3g}",
                f"{study['mu'] ** 2:.4g}",
                f"{study['epsilon']:g}",
                f"{study['delta']:g}",
            ]
            for study in shown["studies"]
        ]
        columns = ["date (UTC)", "study", "id", "epsilon", MU, *(_PARTS[name] for name in (EPSILON, DELTA))]
        show_table(f"studies (epsilon: of Gaussian noise, at delta {delta:.3g})", columns, rows, numbers=4)
    else:
        say("No study has reserved anything yet.")
    pools = [
        [_PARTS.get(name, name), *(f"{pool[part]:.4g}" for part in ("limit", "reserved", "left"))]
        for name, pool in shown["pools"].items()
        if pool["limit"]
    ]
    show_table("budget", ["part", "size", "reserved", "left"], pools, numbers=3)
    say(_describe_log(shown["log"]))
    left = shown["left"]
    say(f"Left for Gaussian noise: one study of epsilon {left['epsilon']:.3g} at delta {left['delta']:.3g}.")


def _describe_log(log: str | None) -> str:
    """Where the audit log is, and what is not noticed."""
    if log is None:
        return "There is no audit log, so an older copy of the budget is not noticed (`--budget-log` of `budget init`)."
    return (
        f"The audit log is `{log}`. It refuses an older copy of the budget, unless the log is an older copy too: never "
        "restore the log from a backup."
    )
