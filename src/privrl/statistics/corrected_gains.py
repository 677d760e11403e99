"""The gain of an assisted policy with estimated weights, corrected by what the weights get wrong about a value feature.

f(x) in [-1, 1] says how well people fare from x under practice (`mdp/value_features.py`), w_t is the weight after step
t, w_0 = 1, and (w - 1)(G - m) is the sum over steps of (w_t - w_{t-1})(G - m). With a released slope s,

    D = sum over t of (w_t - w_{t-1}) (G - m - s f(x_t)) = (w - 1)(G - m) - s sum over t of (w_t - w_{t-1}) f(x_t)

If b* is right, E[w_t - w_{t-1} | everything before] = 0, and the correction has mean 0 whatever s is. If b* is wrong by
e(x) = P(a*|x) - b*, the mean of (w - 1)(G - m) is wrong by E sum of w_{t-1} (alpha/b*) e (Q_t - m), with Q_t the mean
return after the advice, and that of D by the same sum with Q_t - m - s f in place of Q_t - m: a product of two errors.

**The sum of the correction is bounded without clipping**, because clipping would cut the largest losses of advice that
harms people who were expected to do well, so that a loss might seem to be a gain. Let L = (W-1)/2 and B_t = sum over
u <= t of q_u (w_u - w_{u-1}) f(x_u), with

    q_t = min(1, (L - |B_{t-1}|) / (|f(x_t)| r_t)),    r_t the largest |w_t - w_{t-1}| of any action

B_T takes the place of the sum. |B_t| <= |B_{t-1}| + q_t |f| r_t <= L for every record. q_t and f(x_t) are known before
the action, so if b* is right, B_T has mean 0 as the whole sum has; q_t is 1 unless the weight is large.

    ReturnSlopes      ((G-m) f, f^2), means over the decisions of a stay       s is the ratio of their means
    CorrectedGains    D, or D^2

**Formal guarantee** (for all records). Everything is about a person's first stay, and an empty one contributes 0.
|f| <= 1, so a mean of (G-m) f lies in [-M, M] with M = max(m, 1-m), and one of f^2 in [0, 1]: replace-one costs
hypot(2 M, 1) in L2 and 2 M + 1 in L1, add-remove hypot(M, 1) and M + 1. As |B_T| <= (W-1)/2, D lies in the interval of
`Gains`, widened on both sides by (W-1) |s|/2, for every pair of limits; the interval holds 0. (D is clipped to it, but
only rounding can be cut.) Sensitivities follow from its length as in `off_policy.py`. m and s are functions of earlier
releases, so they are public.
"""

import math
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from privrl.contracts.statistic import AbstractStatistic, Adjacency, SumHints
from privrl.mdp.assistance import AbstractAssisted, EpisodeWeights
from privrl.mdp.types import Trajectory
from privrl.mdp.value_features import AbstractValueFeature
from privrl.statistics.off_policy import AbstractPairMeans, Limits, check_range, of_first_stay, stay_return
from privrl.statistics.setting_checks import check_array

LARGEST_SLOPE = 0.5
"""Returns lie in [0, 1] and f in [-1, 1], so predictions vary by no more than this around m."""
_LEAST_SQUARE = 0.05  # a feature that varies less is not used at its full slope


class ReturnSlopes(AbstractStatistic):
    """(G-m) f and f^2, each the mean over the decisions of a stay.

    Arguments:
        feature: f.
        centre: m, from an earlier release.
        return_range: public.
    """

    feature: AbstractValueFeature
    centre: Float[Array, ""]
    return_range: tuple[float, float] = eqx.field(static=True, default=(0.0, 1.0))
    per_person: ClassVar[bool] = True
    shape: tuple[int, ...] = eqx.field(static=True, default=(2,), init=False)
    symmetric: bool = eqx.field(static=True, default=False, init=False)

    def __check_init__(self) -> None:
        check_range(*self.return_range)
        check_array("centre", self.centre, (), low=0.0, high=1.0)

    @property
    def hints(self) -> SumHints:
        return SumHints(any_width=True, working_entries=lambda steps: steps * self.feature.entries)

    def contribution(self, record: Trajectory, query: None) -> Float[Array, " 2"]:
        del query
        m = jnp.clip(self.centre, 0.0, 1.0)
        M = jnp.maximum(m, 1.0 - m)

        def of_stay(stay: Trajectory) -> Float[Array, " 2"]:
            f, G = self.feature.of(jnp.asarray(stay.states)), stay_return(stay, *self.return_range)
            first, second = (jnp.where(stay.valid, x, 0.0).sum() for x in (f, f**2))
            steps = jnp.maximum(stay.valid.sum(), 1)
            return jnp.stack([(G - m) * first / steps, second / steps])

        of_first = of_first_stay(of_stay, record)
        return jnp.clip(of_first, jnp.stack([-M, jnp.zeros(())]), jnp.stack([M, jnp.ones(())]))

    @property
    def _largest(self) -> float:
        return max(float(self.centre), 1.0 - float(self.centre))

    def l2(self, adjacency: Adjacency) -> float:
        return math.hypot(self._largest * (2.0 if adjacency == "replace-one" else 1.0), 1.0)

    def l1(self, adjacency: Adjacency) -> float:
        return self._largest * (2.0 if adjacency == "replace-one" else 1.0) + 1.0


def read_slope(found: Float[np.ndarray, " 2"], people: int) -> float:
    """s from a release of `ReturnSlopes`; 0 if it is not a number."""
    slope = float(found[0]) / max(float(found[1]), _LEAST_SQUARE * people)
    return min(max(slope, -LARGEST_SLOPE), LARGEST_SLOPE) if math.isfinite(slope) else 0.0


class CorrectedGains(AbstractPairMeans):
    """D, or its square, for one or several pairs of limits.

    Arguments:
        policy: an assisted policy.
        feature: f.
        centre, slope: m and s, from earlier releases.
        return_range: public.
        squared: the square of D instead.
        limits: the pairs; by default those of the policy.
    """

    policy: AbstractAssisted
    feature: AbstractValueFeature
    centre: Float[Array, ""]
    slope: Float[Array, ""]
    return_range: tuple[float, float] = eqx.field(static=True, default=(0.0, 1.0))
    squared: bool = eqx.field(static=True, default=False)
    limits: Limits | None = eqx.field(static=True, default=None)
    logged: bool = eqx.field(static=True, default=False, init=False)

    def __check_init__(self) -> None:
        check_range(*self.return_range)
        check_array("centre", self.centre, (), low=0.0, high=1.0)
        check_array("slope", self.slope, (), low=-LARGEST_SLOPE, high=LARGEST_SLOPE)

    @property
    def least_propensity(self) -> float:
        return 0.0

    @property
    def units(self) -> Float[np.ndarray, " pairs"]:
        return super().units ** (2 if self.squared else 1)

    def of_weights(self, w: EpisodeWeights, stay: Trajectory) -> Float[Array, " pairs"]:
        m, s = jnp.clip(self.centre, 0.0, 1.0), jnp.clip(self.slope, -LARGEST_SLOPE, LARGEST_SLOPE)
        W = jnp.asarray(self.pairs)[:, 1]
        B = _bounded_sum(self.feature.of(jnp.asarray(stay.states)), w, (W - 1.0) / 2.0)
        D = (w.last - 1.0) * (stay_return(stay, *self.return_range) - m) - s * B
        D = jnp.clip(D, *_ends(m, s, W, jnp.maximum))
        return D**2 if self.squared else D

    def interval(self, max_weight: float) -> tuple[float, float]:
        low, high = _ends(float(self.centre), float(self.slope), max_weight, max)
        return (0.0, max(-low, high) ** 2) if self.squared else (low, high)


def _bounded_sum(f: Float[Array, " H"], w: EpisodeWeights, largest: Float[Array, " pairs"]) -> Float[Array, " pairs"]:
    """B_T, at most `largest` in absolute value."""

    def step(B: Array, x: tuple[Array, Array, Array]) -> tuple[Array, None]:
        f_t, change, reach = x
        room, most = largest - jnp.abs(B), jnp.abs(f_t) * reach
        q = jnp.where(most > room, room / jnp.where(most > room, most, 1.0), 1.0)
        return jnp.clip(B + q * f_t * change, -largest, largest), None

    change = jnp.diff(w.steps, axis=0, prepend=jnp.ones((1, len(largest))))
    return jax.lax.scan(step, jnp.zeros(len(largest)), (f, change, w.reach))[0]


def _ends(m: Any, s: Any, W: Any, larger: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """The smallest and the largest D of a person, for numbers or arrays."""
    wider = (W - 1.0) * abs(s) / 2.0
    return -larger(1.0 - m, (W - 1.0) * m) - wider, larger(m, (W - 1.0) * (1.0 - m)) + wider
