"""The part of a page that answers what a policy would change: for which people, how often, with how much support, and
what would have to be collected for a release.

The situations of a withheld policy are listed only for review. Everything follows from releases and public bounds.
"""

import itertools
import math
from collections.abc import Collection, Iterator

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int
from markupsafe import Markup

from privrl.evaluation.decision import Decision, Reason
from privrl.evaluation.estimates import Evaluation
from privrl.evaluation.evaluated import EVALUATE
from privrl.evaluation.shares import releases
from privrl.evaluation.showing import Candidate
from privrl.evaluation.widths import PeopleNeeded, people_needed_at
from privrl.mdp.assistance import LEAST_SUPPORT, AbstractAssisted
from privrl.mdp.assisted import AssistedPolicy
from privrl.mdp.assisted_measured import AssistedMeasuredPolicy
from privrl.mdp.measurements import Category
from privrl.mdp.policy_slices import draw_rows
from privrl.privacy.accounting.certificate import Certificate
from privrl.reports.display_names import Names
from privrl.reports.rendering import HtmlTable, format_measurement, format_percent, render
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
        another=decision.is_about_another_policy,
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
    return _table_by_measurement(policy, names) if isinstance(policy, AssistedMeasuredPolicy) else None


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


def _table_by_measurement(policy: AssistedMeasuredPolicy, names: Names) -> HtmlTable:
    """The columns along which the share of changed decisions varies most, in three parts of their usual range, with the
    change that is most likely in each part."""
    rows = draw_rows(policy.advice, np.random.default_rng(0))
    at = policy.decisions(jnp.asarray(rows))
    changed = np.asarray(at.alpha(policy.ratio_at(1.0)) * (1.0 - at.support))
    advice = np.asarray(at.advice)
    replaced = np.array(policy.advice.practice_probabilities(rows))
    replaced[np.arange(len(rows)), advice] = 0.0
    parts = [_split_column(policy, place, rows[:, place]) for place in range(rows.shape[1])]
    shares = [[float(changed[inside].mean()) for _, inside in part] for part in parts]
    order = np.argsort([min(found) - max(found) for found in shares], kind="stable")[:_MAX_COLUMNS]
    found = [
        (
            policy.advice.columns[place].name,
            words,
            _describe_change(replaced[inside], advice[inside], changed[inside], names),
            format_percent(share),
        )
        for place in order.tolist()
        for (words, inside), share in zip(parts[place], shares[place], strict=True)
    ]
    caption = "Where the policy changes more decisions, and where fewer"
    columns = ("column", "values", "today → advice", "changes")
    return HtmlTable(columns, found, caption, numbers=(3,), stacked=True)


def _describe_change(
    replaced: Float[np.ndarray, "N A"], advice: Int[np.ndarray, " N"], changed: Float[np.ndarray, " N"], names: Names
) -> str:
    """The most likely change: what practice would have done instead of the advice, and the advice.

    `replaced` are the probabilities of practice, 0 for the advice.
    """
    each = changed[:, None] * replaced / np.maximum(replaced.sum(axis=1, keepdims=True), 1e-12)
    likely = np.zeros((replaced.shape[1], replaced.shape[1]))
    np.add.at(likely.T, advice, each)
    before, after = np.unravel_index(int(likely.argmax()), likely.shape)
    if not likely[before, after] > 0.0:
        return "no change"
    return " → ".join(names.name_action(int(action), "action ") for action in (before, after))


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
        return [(f"about {format_measurement(float(ends[0]))}", np.ones(len(values), bool))]
    inside = [(values >= low) & (values <= high) for low, high in itertools.pairwise(ends)]
    words = (f"{low} to {high}" for low, high in itertools.pairwise(map(format_measurement, ends.tolist())))
    return list(zip(words, inside, strict=True))


def explain_collection(evaluation: Evaluation, decision: Decision, certificate: Certificate) -> Iterator[str]:
    """Yield what would have to be collected for a release, one sentence or two for each reason."""
    unit, people = certificate.unit, evaluation.people
    needed = _find_needed(evaluation, certificate)
    for reason in decision.reasons:
        if reason is Reason.ANOTHER_POLICY:
            yield (
                "The saved policy is not the one that was compared, so more data cannot lead to its release. Save the "
                "policy that is compared: `privrl fit --evaluate`, or in Python `evaluation.released_policy`."
            )
        elif reason is Reason.INCONCLUSIVE and needed is not None:
            never = f"; with fewer than {needed.least:,} they never do" if people < needed.least else ""
            yield (
                f"The checks of practice need more {unit}s: about {needed.enough:,} held out at this budget pass them "
                f"in 95% of studies, if practice follows the record{never}. There were {people:,}."
            )
        elif reason in (Reason.FOLLOWS_MORE, Reason.CONTRADICTED):
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
            if needed is not None and people < needed.estimate:
                fixed = (
                    evaluation.public
                    or evaluation.assumption in ("logged", "randomised")
                    or "columns" in certificate.bounds
                )
                give = "" if fixed else "give `--practice`, or "  # which lists numbered states
                yield (
                    f"An estimate of the gain: {give}evaluate on more {unit}s. At this budget the estimate alone needs "
                    f"about {needed.estimate:,} {unit}s."
                )
        elif reason is Reason.NO_GAIN:
            yield _explain_gain(evaluation, certificate)


def _find_noise(certificate: Certificate, name: str) -> float:
    """The standard deviation of the noise of one of the evaluation's releases; 0 if it has none."""
    for release in certificate.releases:
        if str(release["name"]).rpartition(": ")[2] == name and release["noise"]:
            return float(release["noise"][-1]["scale"])
    return 0.0


def _return_width(certificate: Certificate) -> float:
    """The width of the range of returns."""
    low, high = certificate.return_range or (0.0, 1.0)
    return high - low


def _is_gaussian(certificate: Certificate) -> bool:
    """Whether all noise of the evaluation is."""
    own = [event for event in certificate.events if event.group in (None, EVALUATE)]
    return all(event.mechanism == "gaussian" for event in own)


def _find_needed(evaluation: Evaluation, certificate: Certificate) -> PeopleNeeded | None:
    """How many people the evaluation needs at its budget; `None` if that is not known.

    Every release has a public share of mu^2. The mean return always keeps its share, and its sensitivity is 1, so its
    noise gives the mu of all others, also of those that were skipped.
    """
    noise = _find_noise(certificate, "practice")
    if noise <= 0.0 or not math.isfinite(noise) or not _is_gaussian(certificate):
        return None
    declared = releases(
        public=evaluation.public,
        bounded=evaluation.balance is not None,
        modelled=evaluation.markov,
        in_cells=isinstance(evaluation.policy, AssistedMeasuredPolicy),
        assumption=evaluation.assumption,
        markov=evaluation.markov,
    )
    weights = {one.name: one.weight for one in declared}
    mu = {name: math.sqrt(weight / weights["practice"]) / noise for name, weight in weights.items()}
    return people_needed_at(
        mu,
        public=evaluation.public or evaluation.assumption in ("logged", "randomised"),
        checked=evaluation.assumption == "checked",
        markov=evaluation.markov,
    )


def _explain_gain(evaluation: Evaluation, certificate: Certificate) -> str:
    """How many people a gain of the size that was estimated needs, for the limits that need the fewest."""
    unit, candidates = certificate.unit, _list_candidates(evaluation, certificate)
    if all(one.gain.value <= 0.0 for one in candidates):
        return (
            f"The estimate of the gain is not above 0. More {unit}s make it more precise, not larger: learn another "
            "policy, or try one in a pilot (`privrl pilot`)."
        )
    best = max(candidates, key=lambda one: one.gain.value)
    if not _is_gaussian(certificate):
        return f"{_describe_gain(best, certificate)} More {unit}s held out, or a larger budget, would narrow this."
    among = len(candidates)
    found = [(needed, one) for one in candidates if (needed := one.people_to_show(evaluation.people, among))]
    if not found:
        return (
            f"{_describe_gain(best, certificate)} No number of {unit}s is enough for a gain of this size, because the "
            "allowance for errors of the estimated practice is larger: give `--practice`, or log the probability of "
            "each decision."
        )
    needed, one = min(found, key=lambda pair: pair[0])
    return (
        f"{_describe_gain(one, certificate)} If the estimate is right, about {_round_up(needed):,} {unit}s held out at "
        "this budget would show a gain in half of all studies."
    )


def _describe_gain(one: Candidate, certificate: Certificate) -> str:
    gain = one.gain.scaled(_return_width(certificate))
    return (
        f"The estimate of the gain {one.name} is {gain.value:+.3f}, but anything from {gain.low:+.3f} to "
        f"{gain.high:+.3f} fits the data."
    )


def _list_candidates(evaluation: Evaluation, certificate: Certificate) -> list[Candidate]:
    """The gains that were compared, as shares of the range of returns, with the noise of each."""
    unit = 1.0 / _return_width(certificate)
    noise, square = (_find_noise(certificate, name) for name in ("gain", "gain-square"))
    found = [
        Candidate(
            f"with limits {one.max_ratio:g}/{one.max_weight:g}",
            one.gain.scaled(unit),
            noise * math.sqrt(one.max_weight),  # each entry is divided by the root of its largest weight
            square * one.max_weight,
            one.max_weight,
        )
        for one in evaluation.pairs
    ]
    if evaluation.markov and evaluation.model_gain is not None:
        noise, square = (_find_noise(certificate, name) for name in ("model-gain", "model-square"))
        found.append(Candidate("without limits", evaluation.model_gain.scaled(unit), noise, square))
    return found


def _round_up(number: float) -> int:
    """Two significant digits, upwards."""
    unit = 10 ** max(int(np.floor(np.log10(max(number, 1.0)))) - 1, 0)
    return int(np.ceil(number / unit)) * unit
