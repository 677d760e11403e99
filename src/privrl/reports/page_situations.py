"""The table of situations, for a page: what is done today, what is advised, how often it was seen, how sure that is."""

from collections.abc import Collection

import numpy as np
from jaxtyping import Float, Int

from privrl.mdp.assisted import AssistedPolicy, stationary_advice
from privrl.mdp.types import TabularPolicy
from privrl.reports.names import Names
from privrl.reports.page import paragraph, percent, table
from privrl.studies.offline.situations import Situations
from privrl.studies.results.result import Result

_MOST = 20
_STRONG, _FAIR = 10.0, 3.0
LEFT = "left to whoever decides"


def saved_situations(result: Result) -> Situations | None:
    """What releases say about the states of a result; the file beside its certificate may be damaged, or about another
    world, and then nothing is shown."""
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


def advice_table(result: Result, situations: Situations | None, names: Names) -> str:
    """The table of situations, of a result that has any."""
    stated = result.certificate.bounds.get("terminal states")
    ends = [state for state in stated if isinstance(state, int)] if isinstance(stated, list) else []
    if isinstance(result.policy, AssistedPolicy):
        return situations_table(np.asarray(result.policy.advice), situations, result.policy, names, ends)
    if isinstance(result.policy, TabularPolicy) and situations is not None:
        return situations_table(stationary_advice(result.policy.probabilities), situations, None, names, ends)
    return ""


def situations_table(
    advice: Int[np.ndarray, " S"],
    situations: Situations | None,
    assisted: AssistedPolicy | None,
    names: Names,
    terminal: Collection[int] = (),
) -> str:
    """The situations that were seen most often, or in which most is changed where nothing says how often.

    Arguments:
        advice: an action per state.
        situations: what releases say about states, if anything.
        assisted: the policy that was evaluated, if there is one: it says how often practice follows the advice.
        names: what states and actions are called.
        terminal: states in which nothing is decided.
    """
    open_states = np.setdiff1d(np.arange(len(advice)), np.asarray(list(terminal), int))
    seen = None if situations is None else situations.seen
    alpha, support = (None, None) if assisted is None else (np.asarray(assisted.alpha), np.asarray(assisted.support))
    if seen is not None:
        rank, by = seen, "seen most often"
    elif alpha is not None and support is not None:
        rank, by = alpha * (1.0 - support), "in which most is changed"
    else:
        rank, by = np.zeros(len(advice)), "with the smallest numbers"
    shown = open_states[np.argsort(-rank[open_states], kind="stable")][:_MOST]
    columns = ["situation", "today", "advice"]
    columns += ["taken"] if assisted is not None else []
    columns += ["seen", "how sure"] if seen is not None else []
    rows = []
    for s in shown.tolist():
        row = [names.state_words(s), _today(s, situations, names), _advised(s, advice, alpha, situations, names)]
        row += [_raised(float(support[s]), float(alpha[s]))] if alpha is not None and support is not None else []
        if situations is not None and seen is not None:
            row += [percent(float(seen[s])), _sure(s, int(advice[s]), situations)]
        rows.append(row)
    more = f", the {len(rows)} {by}" if len(open_states) > len(rows) else ""
    numbers = [i for i, name in enumerate(columns) if name in ("taken", "seen")]
    return table(columns, rows, caption=f"Situations{more}", numbers=numbers, stacked=True) + paragraph(
        " ".join(_explained(situations, assisted)), "small"
    )


def _explained(situations: Situations | None, assisted: AssistedPolicy | None) -> list[str]:
    said = []
    if situations is not None and situations.practice is not None:
        said.append("Today: what practice does most often there, by its public probabilities.")
    elif situations is not None:
        said.append("Today: what was done most often there, by what was released.")
    else:
        said.append("What is done most often today was neither released nor saved with public probabilities.")
    if assisted is not None:
        said.append("Taken: how often the advised choice is taken, today and with advice.")
    if situations is not None and situations.visits is not None:
        said.append(
            "Seen: share of all visits, by what was released. How sure: how often the advised choice itself was seen "
            f"there, against the noise: strong at {_STRONG:g} times the noise or more, fair at {_FAIR:g}, weak below. "
            "It says whether the advice rests on records, not whether it is right."
        )
    else:
        said.append("How often a situation was seen is not known: nothing of that kind was released.")
    return said


def _today(s: int, situations: Situations | None, names: Names) -> str:
    return "not known" if situations is None else names.action_words(situations.today[s])


def _advised(
    s: int,
    advice: Int[np.ndarray, " S"],
    alpha: Float[np.ndarray, " S"] | None,
    situations: Situations | None,
    names: Names,
) -> str:
    if alpha is not None and alpha[s] <= 0:
        return LEFT
    same = situations is not None and situations.today[s] == int(advice[s])
    return f"{names.action_words(int(advice[s]))}{' (as today)' if same else ''}"


def _raised(support: float, alpha: float) -> str:
    if alpha <= 0:
        return "as today"
    return f"{percent(support)} → {percent(support + alpha * (1.0 - support))}"


def _sure(s: int, action: int, situations: Situations) -> str:
    assert situations.visits is not None
    if situations.noise == 0.0:
        return "no noise"
    times = situations.visits[s][action] / situations.noise
    return "strong" if times >= _STRONG else "fair" if times >= _FAIR else "weak"
