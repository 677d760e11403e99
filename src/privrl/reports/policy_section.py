"""The part of a page that shows a policy: a short description and one table."""

import numpy as np
from jaxtyping import Bool, Float
from markupsafe import Markup

from privrl.mdp.assisted import AssistedPolicy
from privrl.mdp.assisted_measured import AssistedMeasuredPolicy
from privrl.mdp.lq import LinearPolicy
from privrl.mdp.measured_policy import MeasuredPolicy
from privrl.mdp.types import TabularPolicy
from privrl.reports.display_names import Names
from privrl.reports.measured_policy_section import render_measured_policy
from privrl.reports.rendering import HtmlTable, format_percent, render

_MAX_STATES = 12  # most states for which the table has a row for every state
_MAX_ACTIONS = 8
_MAX_GAINS = 24
_NUMBERS = Names()


def render_policy(policy: object, names: Names = _NUMBERS) -> Markup:
    """Describe a policy and show what it chooses.

    Arguments:
        policy: a policy of any type, or `None` if it was withheld.
        names: the names of states and actions.
    """
    if isinstance(policy, AssistedPolicy):
        alpha = np.asarray(policy.alpha)
        advised = np.count_nonzero(alpha > 0)
        return render("policy.html", kind="assisted", policy=policy, states=len(alpha), advised=advised)
    if isinstance(policy, AssistedMeasuredPolicy):
        advice = render_measured_policy(policy.advice, names)
        return render("policy.html", kind="assisted measured", policy=policy, advice=advice)
    if isinstance(policy, TabularPolicy):
        return _render_tabular(np.asarray(policy.probabilities), names)
    if isinstance(policy, MeasuredPolicy):
        return render_measured_policy(policy, names)
    if isinstance(policy, LinearPolicy):
        return _render_linear(np.asarray(policy.gains), float(np.asarray(policy.radius)))
    kind = "withheld" if policy is None else "other"
    return render("policy.html", kind=kind, type=type(policy).__name__)


def _render_tabular(p: Float[np.ndarray, "H S A"], names: Names) -> Markup:
    best = p >= p.max(axis=-1, keepdims=True) - 1e-9
    clear = best.sum(axis=-1) == 1
    return render(
        "policy.html",
        kind="tabular",
        shape=p.shape,
        clear=float(clear.mean()),
        stationary=bool(np.all(best == best[:1])),
        table=_table_by_state(best, names) if p.shape[1] <= _MAX_STATES else _table_by_action(p, names),
    )


def _table_by_state(best: Bool[np.ndarray, "H S A"], names: Names) -> HtmlTable:
    """The choice in every state at the first, the middle and the last step."""
    horizon, num_states, _ = best.shape
    steps = _three_steps(horizon)
    rows = [(names.name_state(s), *(_name_choice(best[h, s], names) for h in steps)) for s in range(num_states)]
    columns = ("state", *(f"step {h}" for h in steps))
    return HtmlTable(columns, rows, "The action that the policy chooses", numbers=range(1, len(columns)))


def _name_choice(best: Bool[np.ndarray, " A"], names: Names) -> str:
    actions = np.flatnonzero(best)
    if len(actions) <= 2:
        return " or ".join(names.name_action(int(a)) for a in actions)
    return "any" if len(actions) == len(best) else f"one of {len(actions)}"


def _table_by_action(p: Float[np.ndarray, "H S A"], names: Names) -> HtmlTable:
    """The share of states in which each of the most frequent actions is chosen."""
    share, first = p.mean(axis=(0, 1)), p[0].mean(axis=0)
    order = np.argsort(-share, kind="stable")[:_MAX_ACTIONS]
    rows = [(names.name_action(int(a)), format_percent(share[a]), format_percent(first[a])) for a in order]
    left = len(share) - len(order)
    if left > 0:
        rest = (format_percent(1 - share[order].sum()), format_percent(1 - first[order].sum()))
        rows.append((f"{left:,} others", *rest))
    caption = "Share of states in which an action is chosen (all states count equally, ties are split)"
    return HtmlTable(("action", "all steps", "first step"), rows, caption, numbers=(1, 2))


def _render_linear(gains: Float[np.ndarray, "*batch H d n"], radius: float) -> Markup:
    horizon, d, n = gains.shape[-3:]
    norms = np.linalg.norm(gains, ord=2, axis=(-2, -1))
    table = None if d * n > _MAX_GAINS or gains.ndim != 3 else _table_of_gains(gains)
    sizes = {"steps": horizon, "inputs": d, "numbers": n, "smallest": norms.min(), "largest": norms.max()}
    return render("policy.html", kind="linear", radius=radius, table=table, sizes=sizes)


def _table_of_gains(gains: Float[np.ndarray, "H d n"]) -> HtmlTable:
    horizon, d, n = gains.shape
    steps = _three_steps(horizon)
    names = [f"input {i + 1}, state {j + 1}" for i in range(d) for j in range(n)]
    rows = [
        (name, *(f"{round(float(gains[h].ravel()[k]), 4) + 0.0:.4f}" for h in steps)) for k, name in enumerate(names)
    ]
    columns = ("gain", *(f"step {h}" for h in steps))
    return HtmlTable(columns, rows, "The gains", numbers=range(1, len(columns)))


def _three_steps(horizon: int) -> list[int]:
    return sorted({0, horizon // 2, horizon - 1})
