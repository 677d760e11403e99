"""What commands that evaluate share: their options, the learner that evaluates, the truth in a known world, words."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from privrl.cli.output import say, show_table
from privrl.evaluation.decision import Decision
from privrl.evaluation.estimates import Evaluation

NOT_COMPARED = "Not compared with practice: `--evaluate .3` holds out 30% of the people to do so."
WORLD = "env"
"""As a table of practice: that of the simulated world itself."""
NOT_BETTER = 3
"""The exit code of `--require-better` where nothing better was shown."""
_PANEL = "Comparison with practice"
_STAYS = 40_000  # simulated to know what an assisted policy is worth


@dataclass(frozen=True)
class ComparisonOptions:
    """How a policy is compared with practice."""

    practice: Annotated[
        str | None,
        typer.Option(
            "--practice",
            help="Public table of state, action, probability (.parquet or .csv); `env` for a simulated world's own.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    max_ratio: Annotated[
        float | None,
        typer.Option(
            "--max-ratio",
            help="Largest factor by which the policy may raise an action's probability over current practice; or inf. "
            "By default, several pairs of this and `--max-weight` are compared, and the best one is chosen.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    max_weight: Annotated[
        float | None,
        typer.Option(
            "--max-weight",
            help="Stop advising in an episode once its weight reaches this limit.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    assume_recorded: Annotated[
        bool,
        typer.Option(
            "--assume-recorded",
            help="State that people decided and saw nothing but the record; certificate and report repeat it.",
            rich_help_panel=_PANEL,
        ),
    ] = False
    assume_markov: Annotated[
        bool,
        typer.Option(
            "--assume-markov",
            help="State that what happens next depends on the recorded state and the action alone. The whole advice "
            "may then be released, by a model; certificate and report repeat the statement.",
            rich_help_panel=_PANEL,
        ),
    ] = False
    return_bound: Annotated[
        float | None,
        typer.Option(
            "--return-bound",
            help="The largest return of an episode, public (1 with rewards at the end, else the horizon).",
            rich_help_panel=_PANEL,
        ),
    ] = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `fit` and `evaluate` for these options."""
        return {
            "practice": self.practice,
            "return_range": None if self.return_bound is None else (0.0, self.return_bound),
            "max_ratio": self.max_ratio,
            "max_weight": self.max_weight,
            "assume_recorded": self.assume_recorded,
            "assume_markov": self.assume_markov,
        }


SpendAnywayOption = Annotated[
    bool,
    typer.Option(
        "--spend-anyway",
        help="Spend the budget even if public numbers make it certain that the policy will be withheld.",
    ),
]


@dataclass(frozen=True)
class EvaluateOptions:
    """Whether a fit is compared with practice, and what is required of it."""

    evaluate: Annotated[
        float | None,
        typer.Option("--evaluate", help="Hold out this share of the people to evaluate with.", rich_help_panel=_PANEL),
    ] = None
    require_better: Annotated[
        bool,
        typer.Option(
            "--require-better",
            help="Save no policy and exit with 3 unless it is better. Not with `--release-anyway`.",
            rich_help_panel=_PANEL,
        ),
    ] = False
    release_anyway: Annotated[
        bool,
        typer.Option(
            "--release-anyway",
            help="Save the assisted policy even if practice could not be checked or no gain is seen.",
            rich_help_panel=_PANEL,
        ),
    ] = False

    def arguments(self, comparison: ComparisonOptions) -> dict[str, Any]:
        """The arguments of `fit` for a comparison."""
        own = {"release_anyway": self.release_anyway, "require_better": self.require_better}
        return {"evaluate": self.evaluate, **comparison.arguments, **own}


def decision_json(decision: Decision | None) -> dict[str, Any]:
    """What was decided, as the first entry of a command's JSON; nothing without current practice."""
    return {} if decision is None else {"decision": decision.to_json()}


def show_decision(decision: Decision | None, evaluation: Evaluation | None = None) -> None:
    """The first lines of an output: what was decided, why, and the bound that decided; then warnings."""
    if decision is not None:
        say(decision.words)
    show_warnings(evaluation)


def show_warnings(evaluation: Evaluation | None) -> None:
    """Groups in which the policy is worse than practice."""
    for sentence in () if evaluation is None else evaluation.warnings:
        say(sentence)


def evaluation_json(evaluation: Evaluation | None, truth: dict[str, float] | None = None) -> dict[str, Any] | None:
    """What a command says about an evaluation, as JSON; the policy is in its own file."""
    if evaluation is None:
        return None
    content = {name: value for name, value in evaluation.to_json().items() if name not in ("policy", "certificate")}
    said = {"line": evaluation.line, "words": evaluation.words, "warnings": list(evaluation.warnings)}
    return {**content, **said, "truth": truth}


def _show_groups(evaluation: Evaluation) -> None:
    """Practice and gain of each group, the worst one first."""
    if evaluation.by is None:
        return
    certified = " (certified)" if evaluation.gain is not None else ""
    columns = (evaluation.by, "people", "practice", f"gain{certified}")
    rows = [one.cells for one in evaluation.groups]
    show_table("By group, the worst one first, with 95% intervals; not used to decide", columns, rows, numbers=3)


def show_evaluation(evaluation: Evaluation | None, truth: dict[str, float] | None = None) -> None:
    """Sentences, the truth beside them where it is known, and the verdict in the last line."""
    if evaluation is None:
        say(NOT_COMPARED)
        return
    say(evaluation.words)
    _show_groups(evaluation)
    if truth is not None:
        known = [f"practice {truth['practice']:.4f}"]
        if "gain" in truth:
            known.append(f"assisted policy {truth['gain']:+.4f} (standard error {truth['gain_se']:.4f})")
        error = f" (standard error {truth['model_gain_se']:.4f})" if "model_gain_se" in truth else ""
        known.append(f"full advice {truth['model_gain']:+.4f}{error}")
        say(f"The truth in this world: {', '.join(known)}.")
    say(evaluation.line)
