"""What an evaluation releases, and which part of the budget each release has."""

import math
from collections.abc import Collection
from typing import Any

import numpy as np

from privrl.contracts.release import Declared, Release

_ALWAYS = {"practice": 4.0, "unsupported": 2.0, "residuals": 20.0}
_BOUNDED = {"balance": 3.0}
# Noise in the square only widens the interval, by little where noise in the gain itself does: its share is small.
_GAIN = {"gain": 36.0, "gain-square": 2.0}
_INFLUENCES = {"influences": 6.0}
_TABLE = {"practice-table": 44.0}
MODEL = {"nuisance": 8.0, "model-gain": 13.5, "model-square": 5.5}


def releases(*, public: bool, bounded: bool, modelled: bool, in_cells: bool = False) -> tuple[Declared, ...]:
    """What is released, with its share of mu^2 in percent.

    `public`: the probabilities of practice are; `bounded`: weights are, so `max_ratio` is finite; `modelled`: there is
    a value feature; `in_cells`: practice is estimated in a few cells, well enough to give a gain. What is not released
    leaves its share to the others.
    """
    shares = _ALWAYS | (_BOUNDED if bounded else {})
    shares |= {} if public else _TABLE
    shares |= _GAIN if bounded and (public or in_cells) else {}
    shares |= _INFLUENCES if bounded and public else {}
    shares |= MODEL if modelled else {}
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
