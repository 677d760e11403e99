"""LSVI-UCB from transition moments (`lsvi_ucb.py`) with the variance weights of LSVI-UCB++.

With `smallest_weight` = f a table w_h(s,a) = f/clip(12 Var/R^2, f, 1) is published with every policy, and transitions
count with these weights:

    M_h = sum w phi e_{s'}^T                                                                        (release `moments`)
    n_h = states of the block's people at step h, projected on {n >= 0, sum n = length of the block}  (release `visits`)
    G_h += sum n_h(s,a) w_h(s,a) phi phi^T, n_h(s,a) from n_h, the published policy and dM_h 1

Weighted moments no longer say how many people arrived where, so states are counted separately, for a fifth of the
budget, in the place of first states. A weighted transition has variance w^2 Var <= f R^2/12: M and G divided by f fit
the regressions as they are. Noise does not shrink with the weights, so a transition that is weighed down is drowned
sooner, and with one-hot features weights cancel altogether: measure before you use it.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from privrl.contracts.release import Declared
from privrl.learners.linear.lsvi_ucb import AbstractLSVIUCB, Seen
from privrl.learners.linear.transition_moments import (
    Spectrum,
    counted_states,
    variance_weights,
    weighted_pair_counts,
)
from privrl.mdp.types import number
from privrl.statistics.regressions import StateVisits, WeightedTransitions

_VISITS = 0.25  # budget of the states against that of weighted moments


class WeightedLSVIUCB(AbstractLSVIUCB):
    """LSVI-UCB in which transitions are weighed by their variances.

    Arguments:
        smallest_weight: weights lie between this one, in (0, 1], and 1; an array leaf, so that several can be run
            together.

    The other arguments are those of `LSVIUCB`.
    """

    smallest_weight: Float[Array, ""] = eqx.field(converter=number, default=0.5)
    _counts: ClassVar[str] = "visits"

    def __check_init__(self) -> None:
        f = self.smallest_weight
        if not isinstance(f, jax.core.Tracer) and not (f.ndim > 0 or 0.0 < float(f) <= 1.0):
            raise ValueError(
                f"`smallest_weight` is {float(f)}; weights lie in (0, 1]. Use `LSVIUCB` if every transition counts "
                "fully."
            )

    def declare(self, num_blocks: int) -> tuple[Declared, ...]:
        S, H = self.features.num_states, self.horizon
        weighted = WeightedTransitions(self.features, H, self._estimates_rewards)
        return (
            Declared("moments", weighted, access="running", times=num_blocks),
            Declared("visits", StateVisits(S, H), access="running", times=num_blocks, weight=_VISITS),
        )

    def init(self) -> Seen:
        H, S, A = self.horizon, self.features.num_states, self.features.num_actions
        return self._memory((H, S), jnp.ones((H, S, A)))

    @property
    def _scale(self) -> Float[Array, ""]:
        return self.smallest_weight

    def _first_states(self, counted: Float[Array, "H S"]) -> Float[Array, " S"]:
        return counted[0]

    def _pairs(
        self,
        memory: Seen,
        counted: Float[Array, "H S"],
        dM: Float[Array, "H S d"],
        length: Float[Array, ""],
        variances: tuple[Float[Array, ""], Float[Array, ""]],
    ) -> Float[Array, "H S A"]:
        assert memory.weights is not None
        n = counted_states(counted, self._live, bool(self.terminal), length)
        of_moments = self.features.num_states * variances[0]
        pi, phi = memory.policy.probabilities, self.features.table
        return weighted_pair_counts(n, pi, memory.weights, phi, dM.sum(axis=1), of_moments)

    def _weights(self, at: Spectrum, M: Float[Array, "S d"], V: Float[Array, " S"]) -> Float[Array, "S A"]:
        return variance_weights(at, M, V, self.smallest_weight)
