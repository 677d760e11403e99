"""Private LSVI-UCB (Jin et al. 2020) in adaptive batches, Ngo et al. 2022.

This is our reading of how [sahu] and others describe it, as its own paper is not at hand.
"""

import math
from typing import ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from privrl.learners.linear.lsvi_ucb_unweighted import AbstractUnweightedLSVIUCB
from privrl.learners.linear.regression_rounds import doubled
from privrl.privacy.continual.mechanisms import every


class NgoLSVIUCB(AbstractUnweightedLSVIUCB):
    """Private LSVI-UCB with adaptive batches.

    New values when a determinant has doubled, at most `most_switches` times, over which the noise of the regressions is
    shared out; Gram matrices from a binary tree. That cap is kept by reading determinants at that number of public,
    evenly spaced times. Half of the budget each.

    Arguments:
        most_switches: by default d ceil(log2(1 + 2^20/d)), which is how often the determinant of one d x d matrix can
            double over a million users.
    """

    most_switches: int | None = eqx.field(static=True, default=None)
    fresh_grams: ClassVar[bool] = False

    def schedule(self, num_users: int) -> Int[np.ndarray, " B"]:
        d = self.features.dim
        most = d * math.ceil(math.log2(1 + 2**20 / d)) if self.most_switches is None else self.most_switches
        return every(num_users, -(-num_users // most))

    def switches(self, log_determinants: Float[Array, " H"], last: Float[Array, " H"]) -> Bool[Array, ""]:
        return doubled(log_determinants, last)
