"""The part of a page that answers what a policy would change: for which people, how often, with how much support, and
what would have to be collected for a release.

The situations of a withheld policy are listed only for review. Everything follows from releases and public bounds.
"""

import itertools
from collections.abc import Collection, Iterator, Mapping

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float
from markupsafe import Markup

from privrl.evaluation.confidence import Interval
from privrl.evaluation.decision import Decision, Reason
from privrl.evaluation.estimates import Evaluation
from privrl.evaluation.widths import PeopleNeeded, people_needed_at
from privrl.mdp.assistance import LEAST_SUPPORT, AbstractAssisted
from privrl.mdp.assisted import AssistedPolicy
from privrl.mdp.assisted_measured import AssistedMeasuredPolicy
from privrl.mdp.measurements import Category
from privrl.mdp.policy_slices import draw_rows
from privrl.privacy.accounting.certificate import Certificate
from privrl.reports.display_names import Names
from privrl.reports.rendering import HtmlTable, format_percent, render
from privrl.studies.offline.situations import Situations

_MAX_SITUATIONS = 8
_MAX_COLUMNS = 3


def render_changes(
    evaluation: Evaluation,
    decision: Decision,
    certificate: Certificate,
    situations: Situations | None,
    names: Names,
    terminal: Collection[int] = (),
    *,
    show_withheld: bool = False,
    alone: bool = False,
) -> Markup:
    """Answer the four questions about the policy that was evaluated.

    Arguments:
        evaluation: the comparison with current practice.
        decision: what was decided, computed from what was saved.
        certificate: of the evaluation; its unit is a noun.
        situations: what releases show about states, if anything.
        names: the names of states and actions.
        terminal: states in which there is nothing to decide.
        show_withheld: list the situations of a withheld policy, marked as not to be used.
        alone: the policy is elsewhere, so `decision` is only about what the evidence supports.
    """
    policy = evaluation.policy
    return render(
        "changes.html",
        decision=decision,
        alone=alone,
        unit=certificate.unit,
        changed=evaluation.changed,
        unsupported=min(max(evaluation.unsupported.value, 0.0), 1.0),
        support=_range_of_support(policy),
        uneven=bool((policy.strengths <= 0.0).any()),
        hidden=decision.outcome == "withheld" and not show_withheld,
        where=_table_of_changes(policy, situations, names, terminal),
        weighted=situations is not None and situations.seen is not None,
        measured=isinstance(policy, AssistedMeasuredPolicy),
        at_least=evaluation.assumption == "randomised",
        collect=list(explain_collection(evaluation, decision, certificate)),
    )


def _range_of_support(policy: AbstractAssisted) -> tuple[float, float] | None:
    """The smallest and the largest probability with which practice takes an action that would be advised."""
    support = np.asarray(policy.support)
    given = support[np.asarray((policy.support >= LEAST_SUPPORT) & (policy.strengths > 0.0))]
    return (float(given.min()), float(given.max())) if given.size else None


def _table_of_changes(
    policy: AbstractAssisted, situations: Situations | None, names: Names, terminal: Collection[int]
) -> HtmlTable | None:
    if policy.is_silent:
        return None
    if isinstance(policy, AssistedPolicy):
        return _table_by_state(policy, situations, names, terminal)
    return _table_by_measurement(policy) if isinstance(policy, AssistedMeasuredPolicy) else None


def _table_by_state(
    policy: AssistedPolicy, situations: Situations | None, names: Names, terminal: Collection[int]
) -> HtmlTable | None:
    alpha, support = np.asarray(policy.alpha), np.asarray(policy.support)
    changed = alpha * (1.0 - support)
    changed[np.asarray(list(terminal), int)] = 0.0
    seen = None if situations is None else situations.seen
    rank = changed if seen is None else changed * seen
    shown = [s for s in np.argsort(-rank, kind="stable")[:_MAX_SITUATIONS].tolist() if rank[s] > 0.0]
    rows = [
        (
            names.name_state(s, "state "),
            *(() if seen is None else (format_percent(float(seen[s])),)),
            format_percent(float(changed[s])),
            format_percent(float(support[s])),
        )
        for s in shown
    ]
    columns = ("situation", *(() if seen is None else ("seen",)), "changes", "today")
    caption = f"The {len(rows)} situations in which the policy changes most"
    return HtmlTable(columns, rows, caption, numbers=range(1, len(columns)), stacked=True) if rows else None


def _table_by_measurement(policy: AssistedMeasuredPolicy) -> HtmlTable:
    """The columns along which the share of changed decisions varies most, in three parts of their usual range."""
    rows = draw_rows(policy.advice, np.random.default_rng(0))
    at = policy.decisions(jnp.asarray(rows))
    changed = np.asarray(at.alpha(policy.ratio_at(1.0)) * (1.0 - at.support))
    parts = [_split_column(policy, place, rows[:, place]) for place in range(rows.shape[1])]
    shares = [[float(changed[inside].mean()) for _, inside in part] for part in parts]
    order = np.argsort([min(found) - max(found) for found in shares], kind="stable")[:_MAX_COLUMNS]
    found = [
        (policy.advice.columns[place].name, words, format_percent(share))
        for place in order.tolist()
        for (words, _), share in zip(parts[place], shares[place], strict=True)
    ]
    caption = "Where the policy changes more decisions, and where fewer"
    return HtmlTable(("column", "values", "changes"), found, caption, numbers=(2,), stacked=True)


def _split_column(
    policy: AssistedMeasuredPolicy, place: int, values: Float[np.ndarray, " N"]
) -> list[tuple[str, Bool[np.ndarray, " N"]]]:
    """Each value of a category, or three parts of the usual range of a measurement, with the rows in it."""
    column = policy.advice.columns[place]
    if isinstance(column, Category):
        present = [k for k in range(len(column.values)) if (values == k).any()]
        return [(column.values[k], values == k) for k in present]
    ends = np.quantile(values, (0.0, 1 / 3, 2 / 3, 1.0))
    if not (np.diff(ends) > 0).all():
        return [(f"about {ends[0]:.3g}", np.ones(len(values), bool))]
    inside = [(values >= low) & (values <= high) for low, high in itertools.pairwise(ends)]
    words = (f"{low:.3g} to {high:.3g}" for low, high in itertools.pairwise(ends))
    return list(zip(words, inside, strict=True))


def explain_collection(evaluation: Evaluation, decision: Decision, certificate: Certificate) -> Iterator[str]:
    """Yield what would have to be collected for a release, one sentence or two for each reason."""
    unit, people = certificate.unit, evaluation.people
    needed = _find_needed(evaluation, certificate)
    for reason in decision.reasons:
        if reason is Reason.INCONCLUSIVE and needed is not None:
            yield (
                f"The checks of practice need more {unit}s: about {needed.enough:,} held out at this budget pass them "
                f"in 95% of studies, if practice follows the record; there were {people:,}."
            )
        elif reason is Reason.FOLLOWS_MORE:
            yield (
                f"More {unit}s of the same kind will not help: record what clinicians see besides these columns, or "
                "decide some treatments at random in a pilot (`privrl pilot`)."
            )
        elif reason is Reason.UNBALANCED:
            correct = "correct `--practice`, or " if evaluation.public else ""
            yield f"Find out how {unit}s were treated: {correct}log the probability of each decision."
        elif reason is Reason.NO_SUPPORT:
            yield f"More {unit}s, or coarser situations, so that each was seen often enough."
        elif reason is Reason.NO_ESTIMATE:
            if needed is not None and people < needed.least:
                fixed = (
                    evaluation.public
                    or evaluation.assumption in ("logged", "randomised")
                    or "columns" in certificate.bounds
                )
                give = "" if fixed else "give `--practice`, or "  # which lists numbered states
                yield (
                    f"An estimate of the gain: {give}evaluate on more {unit}s. At this budget it needs at least "
                    f"{needed.least:,} {unit}s."
                )
        elif reason is Reason.NO_GAIN:
            yield _explain_gain(evaluation, unit)
        elif reason is Reason.ANOTHER_POLICY:
            yield f"An evaluation of the saved policy on {unit}s who were not learnt from (`privrl evaluate`)."


def _find_needed(evaluation: Evaluation, certificate: Certificate) -> PeopleNeeded | None:
    """How many people the evaluation needs at its budget; `None` if that is not known."""
    mu: Mapping[str, float] = {
        event.name.rpartition(": ")[2]: event.parameter
        for event in certificate.events
        if event.mechanism == "gaussian" and event.group in (None, "evaluate")
    }
    if not 0.0 < mu.get("residuals", 0.0) < np.inf:
        return None
    table = mu.get("practice-table", 0.0)
    given = {"gain": 1.0, "residuals": mu["residuals"], "practice-table": table}  # releases that were skipped have none
    return people_needed_at(given, public=evaluation.public or table <= 0.0)


def _explain_gain(evaluation: Evaluation, unit: str) -> str:
    """How many people a gain of the size that was estimated needs."""
    gain: Interval | None = evaluation.gain or evaluation.assisted_gain or evaluation.model_gain
    if gain is None or gain.value <= 0.0:
        return (
            f"The estimate of the gain is not above 0. More {unit}s make it more precise, not larger: learn another "
            "policy, or try one in a pilot (`privrl pilot`)."
        )
    times = ((gain.value - gain.lower) / gain.value) ** 2
    return (
        f"The estimate is {gain.value:+.3f}, but anything from {gain.low:+.3f} to {gain.high:+.3f} fits the data. If "
        f"the estimate is right, about {_round_up(times * evaluation.people):,} {unit}s held out would show it."
    )


def _round_up(number: float) -> int:
    """Two significant digits, upwards."""
    unit = 10 ** max(int(np.floor(np.log10(max(number, 1.0)))) - 1, 0)
    return int(np.ceil(number / unit)) * unit
