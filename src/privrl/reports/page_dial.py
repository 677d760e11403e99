"""What the assisted policy does at every dial, for a page: how often advice is given, and how much of it is new."""

import math

import numpy as np
from jaxtyping import Float

from privrl.evaluation.estimates import Evaluation
from privrl.mdp.assisted import AssistedPolicy
from privrl.plots.charts import draw_ratios
from privrl.plots.style import to_svg
from privrl.reports.page import drawing, paragraph, percent

_POINTS = 40
_GIVEN, _CHANGED = "advice is given", "something else is done than today"


def shares_at(policy: AssistedPolicy, dial: float, seen: Float[np.ndarray, " S"]) -> tuple[float, float]:
    """Of all decisions, the share in which advice is given at this dial, and in which that changes what is done.

    A decision is changed if advice is given, with probability alpha, where practice would have done something else,
    with probability 1 - b*. `seen` are the shares of states under practice; a stay's deviation budget is not counted.
    """
    turned = AssistedPolicy(policy.advice, policy.support, dial, policy.deviation)
    alpha, support = np.asarray(turned.alpha), np.asarray(turned.support)
    return float(seen @ alpha), float(seen @ (alpha * (1.0 - support)))


def dial_section(evaluation: Evaluation, seen: Float[np.ndarray, " S"] | None) -> str:
    """The chart, from releases alone; nothing where no state has advice, or states are not numbered."""
    policy = evaluation.policy
    if not isinstance(policy, AssistedPolicy):
        return ""
    supported = np.asarray(policy.supported)
    if not supported.any():
        return ""
    weights = np.full(len(supported), 1.0 / len(supported)) if seen is None else seen
    dials = [1.0 / (1.0 - i / _POINTS) if i < _POINTS else math.inf for i in range(_POINTS + 1)]
    given, changed = zip(*(shares_at(policy, dial, weights) for dial in dials), strict=True)
    at, new = shares_at(policy, policy.dial, weights)
    marked = {_GIVEN: at, _CHANGED: new}
    figure = draw_ratios({_GIVEN: given, _CHANGED: changed}, dials, marked, policy.dial, evaluation.gain is not None)
    certified = f" Its certified gain is {evaluation.gain.words()}." if evaluation.gain is not None else ""
    counted = (
        "every situation counts as often as it was seen, by what was released"
        if seen is not None
        else "every situation counts alike, for no release says how often each was seen"
    )
    caption = (
        f"Here {counted}; once a stay has used up its deviation budget, no more advice is given. The circle is the "
        f"dial that was evaluated{', filled because its gain is certified' if evaluation.gain is not None else ''}."
    )
    be = "is" if evaluation.held_back is None else "would be"
    described = "Share of decisions in which advice is given, and in which it changes what is done, against the dial"
    return (
        "<h3>How far the dial is turned</h3>"
        + paragraph(
            f"At a dial of {policy.dial:g}, advice {be} given in about {percent(at)} of decisions, and something else "
            f"{be} done than today in about {percent(new)}.{certified} At other dials nothing was compared with "
            "practice."
        )
        + drawing(to_svg(figure, described), caption)
    )
