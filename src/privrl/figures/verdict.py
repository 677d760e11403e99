"""The verdict on a figure, as a page of text: every sentence with a number in it is computed from the runs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from privrl.figures.cell import Cell
from privrl.figures.claims import Claim, Outcome, Results, pm
from privrl.figures.numbers import mean_and_error

if TYPE_CHECKING:
    from privrl.figures.figure import Figure

Unit = Literal["share", "total", "value"]
_NEAR = 3.0
OURS = "privrl"  # the "paper" of our own figures


@dataclass(frozen=True)
class Reference:
    """A number that we have measured before, for one cell.

    `unit` is "share" of what knowing nothing loses, "total" regret (or suboptimality), or "value" of the policy. `note`
    says what was different then, if anything.
    """

    cell: Cell
    value: float
    error: float | None
    where: str
    unit: Unit = "share"
    note: str = ""


@dataclass(frozen=True)
class Comparison:
    """A number of ours now and before. Without a standard error of the earlier number it is taken to be as large."""

    reference: Reference
    mean: float
    error: float

    @property
    def distance(self) -> float:
        """The difference in standard errors."""
        known = self.reference.error
        error = math.hypot(self.error, self.error if known is None else known)
        difference = self.mean - self.reference.value
        if abs(difference) <= _rounding(self.reference.value):
            return 0.0
        return difference / error if error > 0 else math.copysign(math.inf, difference)

    @property
    def words(self) -> str:
        if abs(self.distance) <= _NEAR:
            return "agrees"
        better = (self.distance > 0) == (self.reference.unit == "value")
        far = "" if math.isinf(self.distance) else f" by {abs(self.distance):.1f} standard errors"
        note = f"; {self.reference.note}" if self.reference.note else ""
        return f"{'better' if better else 'worse'} now{far}{note}"

    def to_json(self) -> dict[str, Any]:
        return {
            "cell": self.reference.cell.label,
            "now": self.mean,
            "standard_error": self.error,
            "before": self.reference.value,
            "before_standard_error": self.reference.error,
            "where": self.reference.where,
            "comparison": self.words,
        }


def compared(reference: Reference, results: Results) -> Comparison:
    """The earlier number beside today's."""
    found = results[reference.cell]
    values = {
        "share": found.final_share,
        "total": found.final,
        "value": found.levels["optimal"] - found.final,
    }[reference.unit]
    mean, error = mean_and_error(values.tolist())
    return Comparison(reference, mean, error or 0.0)


def verdict_text(
    figure: "Figure",
    results: Results,
    outcomes: Sequence[tuple[Claim, Outcome]],
    comparisons: Sequence[Comparison],
    *,
    smoke: bool,
    seed: int,
    older: Sequence[str],
    code: Mapping[str, str],
) -> str:
    """The page `verdict.md`."""
    made = ", ".join(f"{name} {value}" for name, value in code.items())
    lines = [f"# {figure.name}: {figure.title}", "", f"{figure.summary} Seed {seed}; {made}.", ""]
    if smoke:
        lines += ["**This is a smoke run**: tiny sizes that show that the figure can be made. Nothing is judged.", ""]
        lines += ["## Claims", "", *(f"- {claim.text} *Not judged.*" for claim in figure.claims), ""]
    else:
        lines += _summary(outcomes) + _claims(outcomes) + _references(comparisons)
    lines += _runs(results)
    if older:
        lines += [f"**Made by other code than this**, and kept: {', '.join(older)}. `--fresh` runs them again.", ""]
    if figure.notes:
        lines += [
            "## Notes" if figure.paper == OURS else "## How this differs from the paper",
            "",
            *(f"- {note}" for note in figure.notes),
            "",
        ]
    return "\n".join(lines)


def _summary(outcomes: Sequence[tuple[Claim, Outcome]]) -> list[str]:
    tally = {status: sum(o.status == status for _, o in outcomes) for status in _ORDER}
    counted = ", ".join(f"{count} {status}" for status, count in tally.items() if count)
    rows = [
        f"| {i} | {claim.text} | **{outcome.status}** | {_number(outcome)} |"
        for i, (claim, outcome) in enumerate(outcomes, 1)
    ]
    return [
        f"Of {len(outcomes)} claims: {counted}.",
        "",
        "## Claims",
        "",
        *_table("# | claim | verdict | number", rows),
    ]


_ORDER = ("reproduced", "not reproduced", "cannot be tested")


def _claims(outcomes: Sequence[tuple[Claim, Outcome]]) -> list[str]:
    lines = []
    for i, (claim, outcome) in enumerate(outcomes, 1):
        lines += [f"**{i}. {outcome.status}.** {outcome.text} {agreement(claim, outcome)}".rstrip(), ""]
    return lines


def agreement(claim: Claim, outcome: Outcome) -> str:
    """Whether the outcome is what we had found before, and if not, what speaks for chance and what against it."""
    if claim.found is None:
        return ""
    if outcome.status == claim.found:
        return f"This is what we had found ({claim.where})."
    if outcome.margin is None:
        why = "The rule rests on no standard error, so chance cannot be weighed."
    elif outcome.margin < _NEAR:
        why = (
            f"The number is {outcome.margin:.1f} standard errors from where the verdict changes, so chance may decide."
        )
    else:
        why = "Chance does not explain it: the setting or the code differs from what was measured then."
    return f"**We had found the claim {claim.found}** ({claim.where}). {why}"


def _references(comparisons: Sequence[Comparison]) -> list[str]:
    if not comparisons:
        return []
    rows = [
        f"| {c.reference.cell.label} | {_where(c.reference.cell)} | {pm(c.mean, c.error)} | "
        f"{pm(c.reference.value, c.reference.error)} ({c.reference.where}, {c.reference.unit}) | {c.words} |"
        for c in comparisons
    ]
    head = "cell | world | now | before | comparison"
    return ["## Beside what we measured before", "", *_table(head, rows)]


def _runs(results: Results) -> list[str]:
    rows = []
    for cell, found in results.items():
        certified = "" if found.certified is None else f"{found.certified:.3g}"
        total, share = (pm(*mean_and_error(v.tolist())) for v in (found.final, found.final_share))
        seeds = len(found.values)
        rows.append(f"| {cell.label} | {_where(cell)} | {certified} | {found.at[-1]:,} | {seeds} | {total} | {share} |")
    head = "cell | world | exact epsilon | people | repetitions | loss | over knowing nothing"
    measures = ", ".join(sorted({found.measure for found in results.values()}))
    return [
        "## All runs",
        "",
        f"Loss is {measures} at the end, mean and standard error; every row is in `runs.parquet`, with the command "
        "that repeats it (where it is a recipe's).",
        "",
        *_table(head, rows),
        *_free(results),
    ]


def _free(results: Results) -> list[str]:
    """What policies that never learn lose per person, in every world."""
    worlds: dict[tuple[str, str], str] = {}
    for cell, found in results.items():
        levels = ", ".join(f"{name} {level:.4g}" for name, level in found.levels.items())
        worlds.setdefault((cell.env, levels), _where(cell))
    rows = [f"| {world} | {levels} |" for (_, levels), world in worlds.items()]
    return [
        "Loss per person of policies that never learn, and the value of the best one:",
        "",
        *_table("world | levels", rows),
    ]


def _where(cell: Cell) -> str:
    arguments = ", ".join(f"{name} {value}" for name, value in cell.world)
    instance = f", instance {cell.env_seed}" if cell.env_seed else ""
    return f"{cell.env}{f' ({arguments})' if arguments else ''}{instance}"


def _table(head: str, rows: Sequence[str]) -> list[str]:
    columns = head.count("|") + 1
    return [f"| {head} |", "|" + "---|" * columns, *rows, ""]


def _number(outcome: Outcome) -> str:
    return "" if outcome.number is None else pm(outcome.number, outcome.error)


def _rounding(value: float) -> float:
    """Half of the last digit with which a number was written."""
    text = repr(value)
    digits = len(text.partition(".")[2]) if "." in text else 0
    return 0.5 * 10.0**-digits if value != int(value) else 0.5
