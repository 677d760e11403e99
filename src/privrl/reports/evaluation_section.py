"""The part of a page that compares a policy with current practice: the verdict, intervals, and assumptions."""

import math
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from markupsafe import Markup

from privrl.evaluation.comparing import COMPLETE, WHO_DECIDED
from privrl.evaluation.confidence import Interval
from privrl.evaluation.decision import Decision, Reason
from privrl.evaluation.estimates import Evaluation, is_balanced
from privrl.mdp.assisted import AssistedPolicy
from privrl.plots.charts import draw_intervals, draw_ratios
from privrl.reports.display_names import to_noun
from privrl.reports.rendering import HtmlTable, embed_plot, render
from privrl.studies.offline.situations import Situations
from privrl.studies.results.certified_evaluation import CertifiedEvaluation, ReleaseEvidence

_CLEAR = 0.1  # the largest half width of an interval that shows whether weights are balanced
_POINTS = 40  # of each line of the chart
_GIVEN, _CHANGED = "advice is given", "the decision changes"


class Shares(NamedTuple):
    """Shares of all decisions: in which advice is given, and in which the decision differs from current practice."""

    given: float
    changed: float


def render_verdict(
    evaluation: Evaluation | None, decision: Decision | None, evidence: ReleaseEvidence | None = None
) -> Markup:
    """Show what was decided, with its reasons, and the verdict in one line.

    Arguments:
        evaluation: the comparison, or `None` if there was none.
        decision: what was decided, computed from what was saved.
        evidence: in place of a decision, what an evaluation supports whose policy is elsewhere.
    """
    return render("verdict.html", evaluation=evaluation, decision=decision, evidence=evidence)


def render_evaluation(
    evaluation: Evaluation, unit: str, situations: Situations | None = None, *, advice: bool = True
) -> Markup:
    """Show the comparison with current practice. Everything shown follows from releases.

    Arguments:
        evaluation: the comparison.
        unit: the unit of the policy's certificate; an evaluation with its own certificate uses the unit of that.
        situations: what releases show about states, if anything.
        advice: whether the policy was released, so that the chart of other limits is shown.
    """
    own = evaluation.certificate if isinstance(evaluation, CertifiedEvaluation) else None
    gains = _collect_gains(evaluation)
    plot, table = None, None
    if gains:
        ends = {name: (i.low, i.value, i.high, certified) for name, i, certified in gains}
        plot = embed_plot(draw_intervals(ends), "Gain over current practice with 95% intervals, current practice at 0")
        table = HtmlTable(
            ("policy", "gain", "95% interval", "kind"),
            [
                (name, f"{i.value:+.3f}", f"{i.low:+.3f} to {i.high:+.3f}", "certified" if sure else "no guarantee")
                for name, i, sure in gains
            ],
            "Gain over current practice",
            numbers=(1, 2),
            stacked=True,
        )
    odds = None if evaluation.verdict == "not shown" else evaluation.sensitivity
    return render(
        "evaluation.html",
        evaluation=evaluation,
        unit=to_noun(unit if own is None else own.unit),
        balance=_judge_balance(evaluation),
        contradicted=bool({Reason.FOLLOWS_MORE, Reason.CONTRADICTED} & {*evaluation.reasons}),
        plot=plot,
        table=table,
        ratios=render_ratios(evaluation, None if situations is None else situations.seen) if advice else "",
        overturned="never" if odds is None else "impossible" if math.isinf(odds) else f"{odds:.2f}",
        own=own,
        pairs=_table_of_pairs(evaluation),
        groups=_table_of_groups(evaluation),
        forest=_draw_groups(evaluation),
        outcome=_table_of_outcome(evaluation),
        who=WHO_DECIDED[evaluation.assumption],
        complete=COMPLETE,
    )


def _table_of_pairs(evaluation: Evaluation) -> HtmlTable | None:
    """The gain with each pair of limits that was compared; nothing if there was one."""
    if len(evaluation.pairs) < 2:
        return None
    limits = (evaluation.policy.max_ratio, evaluation.policy.max_weight)
    rows = [
        (f"{one.max_ratio:g} / {one.max_weight:g}", f"{one.gain.value:+.3f}", f"{one.gain.lower:+.3f}")
        for one in evaluation.pairs
    ]
    best = [i for i, one in enumerate(evaluation.pairs) if (one.max_ratio, one.max_weight) == limits]
    if evaluation.markov and evaluation.model_gain is not None:
        model = evaluation.model_gain
        best += [len(rows)] if math.isinf(limits[1]) else []
        rows.append(("no limits (model)", f"{model.value:+.3f}", f"{model.lower:+.3f}"))
    bounds = "their lower bounds hold together at 95%" if evaluation.gain is not None else "practice is estimated"
    return HtmlTable(
        ("factor / weight", "gain", "lower bound"),
        rows,
        f"Limits that were compared; {bounds}",
        numbers=(1, 2),
        marked=dict.fromkeys(best, "chosen"),
    )


def _table_of_groups(evaluation: Evaluation) -> HtmlTable | None:
    """Practice and gain of each group, the worst one first; groups that seem to be harmed are highlighted."""
    if evaluation.by is None:
        return None
    kind = "certified" if evaluation.gain is not None else "no guarantee"
    return HtmlTable(
        (evaluation.by, "people", "current practice", f"gain ({kind})"),
        [one.cells for one in evaluation.groups],
        "Practice and gain by group, the worst one first, each with a 95% interval",
        numbers=(1, 2, 3),
        marked={row: "bad" for row, one in enumerate(evaluation.groups) if one.harmed},
        stacked=True,
    )


def _draw_groups(evaluation: Evaluation) -> Markup | None:
    """The gains of groups below each other; nothing if none is given."""
    known = evaluation.gain is not None
    ends = {
        one.name.replace("$", r"\$"): (one.gain.low, one.gain.value, one.gain.high, known)
        for one in evaluation.groups
        if one.gain is not None
    }
    described = "Gain over current practice in each group with 95% intervals, current practice at 0"
    return embed_plot(draw_intervals(ends), described) if ends else None


def _table_of_outcome(evaluation: Evaluation) -> HtmlTable | None:
    """The second outcome, if there is one."""
    outcome = evaluation.outcome
    if outcome is None:
        return None
    title = f"Second outcome, the total of `{outcome.name}` over an episode, with 95% intervals"
    return HtmlTable((outcome.name, "mean per episode"), outcome.cells, title, numbers=(1,))


def _collect_gains(evaluation: Evaluation) -> list[tuple[str, Interval, bool]]:
    """Each estimate with its name, and whether it is certified."""
    ratio = evaluation.policy.max_ratio
    named = (
        (f"limited advice (ratio {ratio:g})", evaluation.gain, True),
        (f"limited advice (ratio {ratio:g}, practice estimated)", evaluation.assisted_gain, False),
        ("full advice (model)", evaluation.model_gain, False),
    )
    return [(name, interval, certified) for name, interval, certified in named if interval is not None]


def _judge_balance(evaluation: Evaluation) -> Literal["unknown", "right", "unclear", "wrong"]:
    """The mean weight is 1 if the probabilities of current practice are right; a wide interval does not show it."""
    if evaluation.balance is None:
        return "unknown"
    if not is_balanced(evaluation.balance, public=evaluation.public, assumption=evaluation.assumption):
        return "wrong"
    return "right" if evaluation.balance.half <= _CLEAR else "unclear"


def compute_shares(policy: AssistedPolicy, ratio: float, seen: Float[np.ndarray, " S"]) -> Shares:
    """Return how often a policy with this largest ratio to current practice gives advice and changes a decision.

    Advice is given with probability alpha. It changes the decision if practice would have done something else, which
    has probability 1 - b*. Episodes that have reached the limit of their weight are not taken into account.

    Arguments:
        policy: the advice and its support b*.
        ratio: the largest factor by which the policy may raise an action's probability.
        seen: the share of visits to each state under current practice.
    """
    changed = replace(policy, max_ratio=ratio)
    alpha, support = np.asarray(changed.alpha), np.asarray(changed.support)
    return Shares(float(seen @ alpha), float(seen @ (alpha * (1.0 - support))))


def render_ratios(evaluation: Evaluation, seen: Float[np.ndarray, " S"] | None) -> Markup:
    """Draw how much the policy would change with other limits; nothing if states are not numbered or have no advice."""
    policy = evaluation.policy
    if not isinstance(policy, AssistedPolicy):
        return Markup("")
    if policy.is_silent:
        return Markup("")
    weights = np.full(len(policy.advice), 1.0 / len(policy.advice)) if seen is None else seen
    # Evenly spaced in 1 - 1/ratio, which is how the chart shows them, up to infinity.
    ratios = [1.0 / (1.0 - i / _POINTS) if i < _POINTS else math.inf for i in range(_POINTS + 1)]
    found = [compute_shares(policy, ratio, weights) for ratio in ratios]
    at = compute_shares(policy, policy.max_ratio, weights)
    figure = draw_ratios(
        {_GIVEN: [one.given for one in found], _CHANGED: [one.changed for one in found]},
        ratios,
        {_GIVEN: at.given, _CHANGED: at.changed},
        policy.max_ratio,
        evaluation.gain is not None,
    )
    described = "Share of decisions with advice, and share of decisions that change, against the largest ratio"
    plot = embed_plot(figure, described)
    return render("ratios.html", evaluation=evaluation, at=at, plot=plot, weighted=seen is not None)
