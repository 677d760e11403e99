"""A policy in a few lines and one table, for somebody who has not seen it before."""

from typing import Any

import numpy as np
from jaxtyping import Float

from privrl.mdp.assisted import AssistedPolicy
from privrl.mdp.assisted_measured import AssistedMeasuredPolicy
from privrl.mdp.lq import LinearPolicy
from privrl.mdp.measured_policy import MeasuredPolicy
from privrl.mdp.types import TabularPolicy
from privrl.reports.names import Names
from privrl.reports.page import paragraph, percent, table
from privrl.reports.page_measured import measured_section

_MOST_STATES = 12
_MOST_ACTIONS = 8
_MOST_GAINS = 24
_NUMBERS = Names()


def policy_section(policy: Any, names: Names = _NUMBERS) -> str:
    """What the policy does: of which size it is, and what it chooses."""
    if policy is None:
        return paragraph("The budget is spent, and there is no policy: it was withheld.", "warn")
    if isinstance(policy, AssistedPolicy):
        return _assisted(policy)
    if isinstance(policy, AssistedMeasuredPolicy):
        return _assisted_measured(policy, names)
    if isinstance(policy, TabularPolicy):
        return _tabular(np.asarray(policy.probabilities), names)
    if isinstance(policy, MeasuredPolicy):
        return measured_section(policy, names)
    if isinstance(policy, LinearPolicy):
        return _linear(np.asarray(policy.gains), float(np.asarray(policy.radius)))
    return paragraph(f"A policy of type `{type(policy).__name__}`.")


def _assisted(policy: AssistedPolicy) -> str:
    """In how many states advice is given, and how."""
    alpha = np.asarray(policy.alpha)
    if not (alpha > 0).any():
        return paragraph(
            f"A policy that gives no advice in any of its {len(alpha):,} states: every decision is left to whoever "
            "decides now."
        )
    return paragraph(
        f"Advice beside practice, for {len(alpha):,} states. In {np.count_nonzero(alpha > 0):,} of them it gives "
        f"advice, which makes the advised action at most {policy.dial:g} times as frequent as it is today; everything "
        f"else is left to whoever decides now. A stay whose weight has reached {policy.deviation:g} is left to "
        "practice."
    )


def _assisted_measured(policy: AssistedMeasuredPolicy, names: Names) -> str:
    """How advice is given, and the whole advice behind it."""
    if policy.is_silent:
        said = "A policy that gives no advice: every decision is left to whoever decides now. What it would advise:"
    else:
        said = (
            f"Advice beside practice, which makes the advised action at most {policy.dial:g} times as frequent as it "
            "is today; everything else is left to whoever decides now, and so is all of a stay whose weight has "
            f"reached {policy.deviation:g}. The whole advice:"
        )
    return paragraph(said) + measured_section(policy.advice, names)


def _tabular(p: Float[np.ndarray, "H S A"], names: Names) -> str:
    horizon, num_states, num_actions = p.shape
    best = p >= p.max(axis=-1, keepdims=True) - 1e-9
    clear = best.sum(axis=-1) == 1
    same = np.all(best == best[:1])
    text = (
        f"A table of {horizon:,} steps, {num_states:,} states and {num_actions:,} actions. It has one clear choice in "
        f"{percent(clear.mean())} of all (step, state) pairs and is undecided between several actions in the others. "
        f"{'It does the same at every step.' if same else 'What it does depends on the step.'}"
    )
    if num_states <= _MOST_STATES:
        return paragraph(text) + _by_state(best, names)
    return paragraph(text) + _by_action(p, names)


def _by_state(best: np.ndarray, names: Names) -> str:
    """The choice in every state at a few steps."""
    horizon, num_states, _ = best.shape
    steps = sorted({0, horizon // 2, horizon - 1})
    rows = [(names.state(s), *(_choice(best[h, s], names) for h in steps)) for s in range(num_states)]
    columns = ("state", *(f"step {h}" for h in steps))
    return table(columns, rows, caption="The action that the policy chooses", numbers=range(1, len(columns)))


def _choice(best: np.ndarray, names: Names) -> str:
    actions = np.flatnonzero(best)
    if len(actions) <= 2:
        return " or ".join(names.action(int(a)) for a in actions)
    return "any" if len(actions) == len(best) else f"one of {len(actions)}"


def _by_action(p: np.ndarray, names: Names) -> str:
    """How much of the table the most frequent actions have."""
    share = p.mean(axis=(0, 1))
    first = p[0].mean(axis=0)
    order = np.argsort(-share, kind="stable")[:_MOST_ACTIONS]
    rows = [(names.action(int(a)), percent(share[a]), percent(first[a])) for a in order]
    left = len(share) - len(order)
    if left > 0:
        rows.append((f"{left:,} others", percent(1 - share[order].sum()), percent(1 - first[order].sum())))
    return table(
        ("action", "all steps", "first step"),
        rows,
        caption="In how many states an action is chosen; ties are shared, and every state counts alike",
        numbers=(1, 2),
    )


def _linear(gains: Float[np.ndarray, "*batch H d n"], radius: float) -> str:
    horizon, d, n = gains.shape[-3:]
    norms = np.linalg.norm(gains, ord=2, axis=(-2, -1))
    explored = f" and adds a random push of size {radius:.3g} to learn from" if radius > 0 else ""
    text = (
        f"A linear controller of {horizon:,} steps: it multiplies the state ({_numbers(n)}) by a gain to get the input "
        f"({_numbers(d)}){explored}. Its gains have norms from {norms.min():.3g} to {norms.max():.3g}."
    )
    if d * n > _MOST_GAINS or gains.ndim != 3:
        return paragraph(text)
    steps = sorted({0, horizon // 2, horizon - 1})
    names = [f"input {i + 1}, state {j + 1}" for i in range(d) for j in range(n)]
    rows = [
        (name, *(f"{round(float(gains[h].ravel()[k]), 4) + 0.0:.4f}" for h in steps)) for k, name in enumerate(names)
    ]
    columns = ("gain", *(f"step {h}" for h in steps))
    return paragraph(text) + table(columns, rows, caption="The gains", numbers=range(1, len(columns)))


def _numbers(count: int) -> str:
    return "one number" if count == 1 else f"{count} numbers"
