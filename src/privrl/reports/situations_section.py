"""The table of situations: current practice, the advice, how often each was seen, and how much evidence there is."""

from collections.abc import Collection

import numpy as np
from jaxtyping import Float, Int
from markupsafe import Markup

from privrl.mdp.assisted import AssistedPolicy, stationary_advice
from privrl.mdp.types import TabularPolicy
from privrl.reports.certificate_facts import find_terminal_states
from privrl.reports.display_names import Names
from privrl.reports.rendering import HtmlTable, format_percent, render
from privrl.studies.offline.situations import Situations
from privrl.studies.results.result import Result

_MAX_ROWS = 20
_STRONG, _FAIR = 10.0, 3.0  # visits over the standard deviation of their noise


def read_situations(result: Result) -> Situations | None:
    """Return what releases show about the states of a result; `None` if it is damaged or about another world."""
    kept = result.report.get("situations")
    try:
        found = None if kept is None else Situations.from_json(kept)
    except (KeyError, TypeError, ValueError):
        return None
    policies = [result.policy, None if result.evaluation is None else result.evaluation.policy]
    states = {len(policy.advice) for policy in policies if isinstance(policy, AssistedPolicy)} - {0}
    if isinstance(result.policy, TabularPolicy):
        states = {result.policy.probabilities.shape[1]}
    return found if found is not None and states <= {found.num_states} else None


def render_advice(result: Result, situations: Situations | None, names: Names, *, withheld: bool = False) -> Markup:
    """Show the table of situations of a result; nothing if its policy has no numbered states.

    If the policy was withheld, the table is about the one that was evaluated.
    """
    ends = find_terminal_states(result.certificate)
    policy = None if result.evaluation is None else result.evaluation.policy
    at_least = result.evaluation is not None and result.evaluation.assumption == "randomised"
    if withheld and isinstance(policy, AssistedPolicy) and policy.support.size:
        return render_situations(np.asarray(policy.advice), situations, policy, names, ends, at_least=at_least)
    if isinstance(result.policy, AssistedPolicy):
        advice = np.asarray(result.policy.advice)
        return render_situations(advice, situations, result.policy, names, ends, at_least=at_least)
    if isinstance(result.policy, TabularPolicy) and situations is not None:
        return render_situations(stationary_advice(result.policy.probabilities), situations, None, names, ends)
    return Markup("")


def render_situations(
    advice: Int[np.ndarray, " S"],
    situations: Situations | None,
    assisted: AssistedPolicy | None,
    names: Names,
    terminal: Collection[int] = (),
    *,
    at_least: bool = False,
) -> Markup:
    """Show the situations that were seen most often or, if that is unknown, those in which the policy changes most.

    Arguments:
        advice: an action for each state.
        situations: what releases show about the states, if anything.
        assisted: the policy that was evaluated, if there is one; it contains how often practice follows the advice.
        names: the names of states and actions.
        terminal: states in which there is nothing to decide.
        at_least: the policy was given a lower bound of how often practice follows the advice.
    """
    open_states = np.setdiff1d(np.arange(len(advice)), np.asarray(list(terminal), int))
    seen = None if situations is None else situations.seen
    alpha, support = (None, None) if assisted is None else (np.asarray(assisted.alpha), np.asarray(assisted.support))
    if seen is not None:
        rank, by = seen, "that were seen most often"
    elif alpha is not None and support is not None:
        rank, by = alpha * (1.0 - support), "in which the policy changes most"
    else:
        rank, by = np.zeros(len(advice)), "with the smallest numbers"
    shown = open_states[np.argsort(-rank[open_states], kind="stable")][:_MAX_ROWS]
    columns = ["situation", "today", "advice"]
    columns += ["advice taken"] if assisted is not None else []
    columns += ["seen", "evidence"] if seen is not None else []
    rows = []
    for s in shown.tolist():
        row = [names.name_state(s, "state "), _describe_today(s, situations, names)]
        row.append(_describe_advice(s, advice, alpha, situations, names))
        if alpha is not None and support is not None:
            row.append(_describe_change(float(support[s]), float(alpha[s])))
        if situations is not None and seen is not None:
            row += [format_percent(float(seen[s])), _grade_evidence(s, int(advice[s]), situations)]
        rows.append(row)
    some = f"The {len(rows)} situations {by}" if len(open_states) > len(rows) else "All situations"
    numbers = [i for i, name in enumerate(columns) if name in ("advice taken", "seen")]
    return render(
        "situations.html",
        table=HtmlTable(columns, rows, some, numbers, stacked=True),
        practice="unknown" if situations is None else "public" if situations.practice is not None else "released",
        assisted=assisted is not None,
        at_least=at_least,
        counted=situations is not None and situations.visits is not None,
        strong=_STRONG,
        fair=_FAIR,
    )


def _describe_today(s: int, situations: Situations | None, names: Names) -> str:
    return "unknown" if situations is None else names.name_action(situations.today[s], "action ")


def _describe_advice(
    s: int,
    advice: Int[np.ndarray, " S"],
    alpha: Float[np.ndarray, " S"] | None,
    situations: Situations | None,
    names: Names,
) -> str:
    if alpha is not None and alpha[s] <= 0:
        return "no advice"
    same = situations is not None and situations.today[s] == int(advice[s])
    return f"{names.name_action(int(advice[s]), 'action ')}{' (as today)' if same else ''}"


def _describe_change(support: float, alpha: float) -> str:
    if alpha <= 0:
        return "as today"
    return f"{format_percent(support)} → {format_percent(support + alpha * (1.0 - support))}"


def _grade_evidence(s: int, action: int, situations: Situations) -> str:
    assert situations.visits is not None
    if situations.noise == 0.0:
        return "no noise"
    times = situations.visits[s][action] / situations.noise
    return "strong" if times >= _STRONG else "fair" if times >= _FAIR else "weak"
