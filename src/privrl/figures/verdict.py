"""The verdict on a figure as Markdown. Every number in it is computed from the runs."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from privrl.figures.cell import Cell, by_recipe
from privrl.figures.claims import LEVEL, Claim, ClaimOutcome, Results, Status, compare_means, format_estimate
from privrl.plots.means import mean_and_error
from privrl.recipes.all_recipes import get

if TYPE_CHECKING:
    from privrl.figures.figure import Figure

Unit = Literal["share", "total", "value"]
_NEAR = 3.0  # standard errors within which two numbers agree
OURS = "privrl"  # the "paper" of figures that privrl adds


@dataclass(frozen=True)
class Earlier:
    """Numbers that were measured earlier.

    Arguments:
        where: the document that contains them.
        numbers: cells, each with its number and, if known, the standard error.
        unit: "share" of the uninformed policy's loss, "total" regret (or suboptimality), or "value" of the policy.
        note: what was different then, if anything.
    """

    where: str = ""
    numbers: tuple[tuple[Cell, float, float | None], ...] = ()
    unit: Unit = "share"
    note: str = ""

    def compare(self, results: Results) -> tuple["EarlierComparison", ...]:
        """Compare every earlier number with the results."""
        found = []
        for cell, before, before_error in self.numbers:
            now = results[cell]
            value = now.levels["optimal"] - now.final
            values = {"share": now.final_share, "total": now.final, "value": value}[self.unit]
            mean, error = mean_and_error(values)
            found.append(EarlierComparison(self, cell, mean, error or 0.0, before, before_error))
        return tuple(found)


@dataclass(frozen=True)
class EarlierComparison:
    """A number now and earlier. If the earlier standard error is unknown, it is assumed to equal the current one."""

    earlier: Earlier
    cell: Cell
    mean: float
    error: float
    before: float
    before_error: float | None

    @property
    def distance(self) -> float:
        """The difference in standard errors."""
        error = math.hypot(self.error, self.error if self.before_error is None else self.before_error)
        difference = self.mean - self.before
        if abs(difference) <= _rounding(self.before):
            return 0.0
        return difference / error if error > 0 else math.copysign(math.inf, difference)

    @property
    def summary(self) -> str:
        """Whether the numbers agree and, if not, which is better."""
        if abs(self.distance) <= _NEAR:
            return "agrees"
        better = (self.distance > 0) == (self.earlier.unit == "value")
        far = "" if math.isinf(self.distance) else f" by {abs(self.distance):.1f} standard errors"
        note = f"; {self.earlier.note}" if self.earlier.note else ""
        return f"{'better' if better else 'worse'} now{far}{note}"

    def to_json(self) -> dict[str, object]:
        """Return both numbers and how they compare."""
        return {
            "cell": self.cell.label,
            "now": self.mean,
            "standard_error": self.error,
            "before": self.before,
            "before_standard_error": self.before_error,
            "where": self.earlier.where,
            "comparison": self.summary,
        }


NOTHING_EARLIER = Earlier()


def compose_verdict(
    figure: "Figure",
    results: Results,
    outcomes: Sequence[tuple[Claim, ClaimOutcome]],
    comparisons: Sequence[EarlierComparison],
    *,
    smoke: bool,
    seed: int,
    older: Sequence[str],
    code: Mapping[str, str],
) -> str:
    """Compose the content of `verdict.md`.

    Arguments:
        figure: the figure.
        results: its finished cells.
        outcomes, comparisons: the judged claims and the comparisons with earlier numbers; empty in a smoke run.
        smoke: whether this is a smoke run.
        seed: the seed of the figure.
        older: labels of cells that other code made.
        code: versions of the code.
    """
    made = ", ".join(f"{name} {value}" for name, value in code.items())
    lines = [f"# {figure.name}: {figure.title}", "", f"{figure.summary} Seed {seed}; {made}.", ""]
    if smoke:
        lines += [
            "**This is a smoke run**: its tiny sizes show only that the figure can be made. No claim is judged.",
            "",
        ]
        lines += ["## Claims", "", *(f"- {claim.text} *Not judged.*" for claim in figure.claims), ""]
    else:
        lines += _claims(outcomes) + _earlier(comparisons)
    lines += _runs(results)
    if older:
        lines += [f"**Made by another version of the code**: {', '.join(older)}. Use `--fresh` to run them again.", ""]
    if figure.notes:
        head = "## Notes" if figure.paper == OURS else "## How this differs from the paper"
        lines += [head, "", *(f"- {note}" for note in figure.notes), ""]
    return "\n".join(lines)


def _claims(outcomes: Sequence[tuple[Claim, ClaimOutcome]]) -> list[str]:
    tally = Counter(outcome.status for _, outcome in outcomes)
    counted = ", ".join(f"{tally[status]} {status}" for status in get_args(Status) if tally[status])
    lines = [f"Of {len(outcomes)} claims: {counted}.", "", "## Claims", ""]
    rows = [(str(i), c.text, f"**{o.status}**", _number(o)) for i, (c, o) in enumerate(outcomes, 1)]
    lines += _table("# | claim | verdict | number", rows)
    for i, (claim, outcome) in enumerate(outcomes, 1):
        lines += [f"**{i}. {outcome.status}.** {outcome.text} {compare_with_finding(claim, outcome)}".rstrip(), ""]
    return lines


def compare_with_finding(claim: Claim, outcome: ClaimOutcome) -> str:
    """Say whether the outcome agrees with the earlier finding and, if not, whether chance can explain it."""
    if claim.found is None:
        return ""
    if outcome.status == claim.found:
        return f"This agrees with our earlier finding ({claim.where})."
    if outcome.margin is None:
        why = "The rule has no standard error, so whether chance explains this is unknown."
    elif outcome.margin < _NEAR:
        away = f"{outcome.margin:.1f} standard errors from where the verdict changes"
        why = f"The number is {away}, so chance may explain this."
    else:
        why = "Chance does not explain this: the settings or the code have changed since."
    return f"**Our earlier finding was: {claim.found}** ({claim.where}). {why}"


def _earlier(comparisons: Sequence[EarlierComparison]) -> list[str]:
    if not comparisons:
        return []
    rows = [
        (
            c.cell.label,
            _where(c.cell),
            format_estimate(c.mean, c.error),
            f"{format_estimate(c.before, c.before_error)} ({c.earlier.where}, {c.earlier.unit})",
            c.summary,
        )
        for c in comparisons
    ]
    return ["## Comparison with earlier measurements", "", *_table("cell | world | now | before | comparison", rows)]


def _runs(results: Results) -> list[str]:
    """List all runs, and the loss per person of policies that never learn, for each world."""
    grids = _grids(results)
    in_grids = {cell for grid in grids.values() for cell in grid}
    rows: list[tuple[str, ...]] = []
    worlds: dict[tuple[str, str], str] = {}
    for cell, found in results.items():
        levels = ", ".join(f"{name} {level:.4g}" for name, level in found.levels.items())
        worlds.setdefault((cell.env, levels), _where(cell))
        if cell not in in_grids:
            certified = "" if found.certified is None else f"{found.certified:.3g}"
            total, share = (format_estimate(*mean_and_error(v)) for v in (found.final, found.final_share))
            repeated = f"{found.at[-1]:,}", str(len(found.values))
            rows.append((cell.label, _where(cell), certified, *repeated, total, share))
    measures = ", ".join(sorted({found.measure for found in results.values()}))
    text = [
        "## All runs",
        "",
        f"Loss is {measures} at the end, as mean and standard error. `runs.parquet` contains every row and, for runs "
        "of recipes, the command that repeats it.",
        "",
    ]
    for (notion, delta, people, seeds), grid in grids.items():
        text += [
            f"Share of the uninformed policy's loss at several epsilons: {notion} privacy, delta {delta:g}, {people:,} "
            f"people, {seeds} repetitions. The smallest number of a world is bold, with those that do not differ from "
            "it significantly.",
            "",
            *_grid(grid, results),
        ]
    if rows:
        text += _table("cell | world | exact epsilon | people | repetitions | loss | share of uninformed loss", rows)
    return [
        *text,
        "Loss per person of policies that never learn, and the value of the optimal policy:",
        "",
        *_table("world | levels", [(world, levels) for (_, levels), world in worlds.items()]),
    ]


_Grid = tuple[str, float, int, int]
"""The notion of privacy, delta, people and repetitions."""


def _grids(results: Results) -> dict[_Grid, list[Cell]]:
    """The cells that fill tables of a recipe and an epsilon: private recipes as exact as requested, at several
    epsilons.
    """
    grids: dict[_Grid, list[Cell]] = defaultdict(list)
    for cell, found in results.items():
        exact = found.certified is not None and cell.epsilon is not None
        if exact and cell.how is by_recipe and math.isclose(found.certified or 0.0, cell.epsilon or 0.0, rel_tol=1e-3):
            recipe = get(cell.recipe)
            notion = "joint" if recipe.trust == "central" and recipe.family in ("online", "control") else recipe.trust
            grids[notion, cell.delta or 0.0, cell.people, len(found.values)].append(cell)
    return {
        kind: cells
        for kind, cells in grids.items()
        if len({cell.epsilon for cell in cells}) > 1
        and len({(_where(cell), cell.recipe, cell.epsilon) for cell in cells}) == len(cells)
    }


def _grid(cells: Sequence[Cell], results: Results) -> list[str]:
    """A row for each world and recipe, and a column for each epsilon."""
    epsilons = sorted({cell.epsilon or 0.0 for cell in cells})
    found = {(_where(cell), cell.recipe, cell.epsilon): results[cell].final_share for cell in cells}
    rows: list[list[str]] = []
    said: set[str] = set()
    worlds = list(dict.fromkeys(map(_where, cells)))
    pairs = dict.fromkeys((_where(cell), cell.recipe) for cell in cells)
    for world, recipe in sorted(pairs, key=lambda pair: worlds.index(pair[0])):
        row = ["" if world in said else world, f"`{recipe}`"]
        said.add(world)
        for epsilon in epsilons:
            share = found.get((world, recipe, epsilon))
            row.append("" if share is None else format_estimate(*mean_and_error(share)))
            rivals = [other for (where, _, at), other in found.items() if (where, at) == (world, epsilon)]
            if share is not None and len(rivals) > 1:
                best = min(rivals, key=lambda other: float(other.mean()))
                if best is share or compare_means(best, share).p >= LEVEL:
                    row[-1] = f"**{row[-1]}**"
        rows.append(row)
    return _table(" | ".join(["world", "recipe", *(f"epsilon {epsilon:g}" for epsilon in epsilons)]), rows)


def _where(cell: Cell) -> str:
    arguments = ", ".join(f"{name} {value}" for name, value in cell.world)
    instance = f", instance {cell.env_seed}" if cell.env_seed else ""
    return f"{cell.env}{f' ({arguments})' if arguments else ''}{instance}"


def _table(head: str, rows: Sequence[Sequence[str]]) -> list[str]:
    columns = head.count("|") + 1
    return [f"| {head} |", "|" + "---|" * columns, *(f"| {' | '.join(row)} |" for row in rows), ""]


def _number(outcome: ClaimOutcome) -> str:
    return "" if outcome.number is None else format_estimate(outcome.number, outcome.error)


def _rounding(value: float) -> float:
    """Half a unit of the last digit of a number as it was written."""
    text = repr(value)
    digits = len(text.partition(".")[2]) if "." in text else 0
    return 0.5 * 10.0**-digits if value != int(value) else 0.5
