"""Private LSVI-UCB (Jin et al. 2020) in static batches, Luyo et al. 2021.

This is our reading of how [sahu] and others describe it, as its own paper is not at hand.
"""

from typing import ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Int

from privrl.learners.linear.lsvi_ucb_unweighted import AbstractUnweightedLSVIUCB
from privrl.privacy.continual.mechanisms import every


class LuyoLSVIUCB(AbstractUnweightedLSVIUCB):
    """Private LSVI-UCB with static batches.

    Blocks of (K epsilon)^(2/5) d^(3/5) H^(1/5) users; after each, Gram matrices from a binary tree whose leaves are
    the blocks, and regressions over all people with fresh Gaussian noise for vectors of norm H. Half of
    the budget each.

    Arguments:
        epsilon: for which the size of the blocks is chosen (utility only, never privacy).
        block: how many users a block has, in place of the formula.
    """

    epsilon: float = eqx.field(static=True, default=1.0)
    block: int | None = eqx.field(static=True, default=None)
    fresh_grams: ClassVar[bool] = False

    def schedule(self, num_users: int) -> Int[np.ndarray, " B"]:
        if self.block is not None:
            return every(num_users, self.block)
        batch = self.epsilon**0.4 * self.features.dim**0.6 * self.horizon**0.2
        return every(num_users, max(1, round(batch * num_users**0.4)))
