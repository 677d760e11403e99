"""What an evaluation releases, and which part of the budget each release has."""

import math
from collections.abc import Collection
from typing import Any

import numpy as np

from privrl.contracts.release import Declared, Release
from privrl.evaluation.estimates import Assumption
from privrl.mdp.reported_columns import UNREPORTED, ReportedColumns

_ALWAYS = {"practice": 4.0, "unsupported": 1.0, "changed": 1.0}
_RESIDUALS = {"checked": 20.0, "recorded": 8.0}  # a stated assumption only has to be contradicted
_BOUNDED = {"balance": 3.0}
_SPREAD = {"practice-spread": 2.0}
_SLOPE = {"practice-slope": 2.0}
# Noise in the square only widens the interval, by little where noise in the gain itself does: its share is small.
_GAIN = {"gain": 36.0, "gain-square": 4.0}
_INFLUENCES = {"influences": 6.0}
_TABLE = {"checked": 44.0, "recorded": 44.0, "logged": 12.0}  # logged probabilities need the table for alpha alone
MODEL = {"nuisance": 8.0, "model-gain": 13.5, "model-square": 5.5}
# Reports decide nothing: about a sixth of the budget for groups, a tenth for a second outcome, of which the gain has
# most, because its noise is that of a weight.
_GROUPS = {"group-people": 2.0, "group-practice": 3.0}
_GROUP_GAIN = {"group-gain": 12.0, "group-gain-square": 3.0}
_OUTCOME = {"outcome-practice": 2.0}
_OUTCOME_SLOPE = {"outcome-slope": 1.0}
_OUTCOME_GAIN = {"outcome-gain": 8.0, "outcome-gain-square": 2.0}
WEIGHED = (*_GAIN, *_SLOPE, *_GROUP_GAIN, *_OUTCOME_SLOPE, *_OUTCOME_GAIN)
"""What is not released if there are too few people to estimate weights."""
_DECIDES = 2.0  # times these shares, if the model may decide on a release


def releases(
    *,
    public: bool,
    bounded: bool,
    modelled: bool,
    in_cells: bool = False,
    assumption: Assumption = "checked",
    markov: bool = False,
    reported: ReportedColumns = UNREPORTED,
) -> tuple[Declared, ...]:
    """What is released, with its share of mu^2 in percent.

    `public`: the probabilities of practice are; `bounded`: weights are, so `max_weight` is finite; `modelled`: there is
    a value feature for a model; `in_cells`: practice is estimated in cells of measurements; `markov`: the study states
    that the recorded state is complete, so a model may decide; `reported`: columns by which and about which more is
    released, and which take their shares from all others. What is not released leaves its share to the others.
    With logged probabilities, no checks of practice are needed. The whole advice is modelled only if practice is
    checked, or the recorded state is stated to be complete. If no action had less than a public probability, practice
    is not estimated.
    """
    logged = assumption in ("logged", "randomised")
    shares = _ALWAYS | (_BOUNDED | _GAIN if bounded else {})
    shares |= {} if logged else {"residuals": _RESIDUALS[assumption]}
    if not public and assumption != "randomised":
        shares |= {"practice-table": _TABLE[assumption]}
    shares |= _SPREAD if bounded and not (public or logged) else {}
    shares |= _SLOPE if bounded and in_cells and not logged else {}
    shares |= _INFLUENCES if bounded and public and not logged else {}
    if modelled and (markov or assumption == "checked"):
        shares |= {name: share * (_DECIDES if markov else 1.0) for name, share in MODEL.items()}
    exact = bounded and assumption != "logged"  # clipped weights err to the safe side for the decision alone
    if reported.by is not None:
        shares |= _GROUPS | (_GROUP_GAIN if exact else {})
    if reported.outcome is not None:
        shares |= _OUTCOME | (_OUTCOME_GAIN if exact else {})
        shares |= _OUTCOME_SLOPE if exact and in_cells and not logged else {}
    return tuple(Declared(name, weight=share) for name, share in shares.items())


def skip_model(ledger: Any, declared: tuple[Declared, ...]) -> None:
    """Gives up the model's releases in favour of the gain, or of the table of practice, if there is either."""
    names = {d.name for d in declared}
    to = {"nuisance": "gain-square"} if "gain" in names else {}
    rest = next((name for name in ("gain", "practice-table") if name in names), None)
    for name in MODEL:
        if rest is not None:
            ledger.skip(name, to=(to.get(name, rest),))


def model_mu(returns: Release, declared: tuple[Declared, ...], of: Collection[str] = tuple(MODEL)) -> float:
    """mu of the model's releases (or of others) together, from the noise in the mean return, whose sensitivity is 1."""
    std = float(np.max(returns.noise.std))
    weights = {d.name: d.weight for d in declared}
    times = sum(weights[name] for name in of) / weights["practice"]
    return math.inf if std == 0.0 else math.sqrt(times) / std
