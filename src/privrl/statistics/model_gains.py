"""One person's part in the model-assisted gain: sums for its two linear nuisances, and the estimate that they give.

f in [-1, 1] is a public feature of states (their value, as the learn group sees it), x = (1, f(s)), and x' that of the
next state, 0 after the end. rho is the one-step weight of the *whole* supported advice, without a product along the
stay (1 in states whose `strength` is 0, where no advice is given); with logged probabilities p of what was done it is
1{a = a*}/p, whose mean does not depend on what else the program saw. The second copy has rho = 1, practice itself. Per
stay, summed over its steps, df = f - f' between steps:

    n = sum rho (1, f, f^2)    M = sum rho (1, f) df    T = rho (1, f, f^2) at the ending    R = sum rho r (1, f)

which give sum rho x x^T and E = sum rho x (x - x')^T = [[T0, M0 + T1], [T1, M1 + T2]]. A stay ends on entering a
terminal state, or where it stops before the horizon and no next state was recorded. A person's sums are those of their
**first stay** (as everything else in the estimate is), scaled.

**Formal guarantee** (for all records). `NuisanceSums` is (copy of rho, copy of practice, f(s0)); the blocks of a copy
have the weights wn, wM, wT, wT, df is clipped to [-1, 1], and the copy is scaled to norm C. Two copies are positive
multiples of sums of steps with rho, rho' >= 0, so their inner product is a non-negative combination, over pairs of
steps, of

    wn^2 (1 + t + t^2) + wM^2 (1 + t) df df' + wT^2 e e' (1 + t + t^2) + wT^2 r r' (1 + t),    t = f f' in [-1, 1],

e = 1 at endings. The last two terms are not negative, and wM^2 (1 + t) <= wn^2 (1 + t + t^2) as wM <= wn, since
(1 + t + t^2)/(1 + t) = t + 1/(1 + t) >= 1 for t > -1. So two copies are at most sqrt(2) C apart, and with f(s0) in
[-1, 1] replace-one costs sqrt(2 C^2 + 2 C'^2 + 4), add-remove sqrt(C^2 + C'^2 + 1). `ModelGains` is clipped to [-3, 3]
per stay, so it costs 6 and its square 9.
"""

import math
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from privrl.contracts.statistic import AbstractStatistic, Adjacency, SumHints
from privrl.mdp.assistance import LEAST_SUPPORT, previous_actions
from privrl.mdp.assisted import AssistedPolicy
from privrl.mdp.types import Trajectory
from privrl.mdp.value_features import TableValueFeature
from privrl.privacy.noise.bounding import clip_by_norm
from privrl.statistics.off_policy import AbstractStayMean, of_first_stay, paid
from privrl.statistics.setting_checks import check_array, check_positive

VISITS, MOVES, ENDINGS = 0.2, 0.12, 1.0
"""wn, wM and wT."""
ENTRIES = 10
WEIGHTS = (VISITS,) * 3 + (MOVES,) * 2 + (ENDINGS,) * 5
"""The weights of the entries of a copy: n (3), M (2), T (3), R (2)."""
LARGEST = 3.0
"""Where one stay's estimate of the gain is cut."""


class StaySums(eqx.Module):
    """The sums of one stay, for advice and for practice.

    Arguments:
        policy: the advice; its `max_ratio` and `max_weight` play no part.
        feature: f.
        reward_unit: what a reward is divided by, the length of the public range of returns.
        logged: rho uses the logged probabilities of what was done, and is at most 1/`LEAST_SUPPORT`.
    """

    policy: AssistedPolicy
    feature: TableValueFeature
    reward_unit: float = eqx.field(static=True, default=1.0)
    logged: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        check_positive(reward_unit=self.reward_unit)
        check_array("feature", self.feature.feature, self.policy.advice.shape, low=-1.0, high=1.0)

    def of(self, stay: Trajectory, clip: float) -> tuple[Float[Array, "2 10"], Float[Array, ""]]:
        """Both copies, with df clipped to [-clip, clip], and f(s0)."""
        seen = self.feature.see(stay)
        x = jnp.stack([jnp.ones_like(seen.f), seen.f, seen.f**2])
        df = jnp.where(seen.ended, 0.0, jnp.clip(seen.f - seen.after, -clip, clip))
        r = paid(stay) / self.reward_unit
        entries = jnp.concatenate([x, x[:2] * df[None], x * seen.ended[None], x[:2] * r[None]]) * seen.counted[None]
        states, actions = jnp.asarray(stay.states), jnp.asarray(stay.actions)
        at = self.policy.decisions(states, previous_actions(actions))
        if self.logged:
            p = jnp.ones(len(actions)) if stay.propensities is None else jnp.asarray(stay.propensities)
            p = jnp.clip(jnp.where(jnp.isfinite(p), p, 1.0), LEAST_SUPPORT, 1.0)
            alpha = at.alpha(math.inf)
            rho = 1.0 - alpha + jnp.where(actions == at.advice, alpha / p, 0.0)
        else:
            rho = at.rho(actions, math.inf)
        return jnp.stack([entries @ rho, entries.sum(axis=1)]), seen.f[0]


class NuisanceSums(AbstractStatistic):
    """Both copies and f(s0), `[21]`. Arguments: the sums, and the norms of the two copies."""

    sums: StaySums
    norms: tuple[float, float] = eqx.field(static=True, default=(6.0, 3.0))
    per_person: ClassVar[bool] = True
    shape: tuple[int, ...] = eqx.field(static=True, default=(2 * ENTRIES + 1,), init=False)
    symmetric: bool = eqx.field(static=True, default=False, init=False)

    def __check_init__(self) -> None:
        check_positive(advice_norm=self.norms[0], practice_norm=self.norms[1])

    def contribution(self, record: Trajectory, query: None) -> Float[Array, " 21"]:
        del query
        copies, first = of_first_stay(lambda stay: self.sums.of(stay, 1.0), record)
        weighted = copies * jnp.asarray(WEIGHTS)[None]
        scaled = [clip_by_norm(weighted[i], norm) for i, norm in enumerate(self.norms)]
        return jnp.concatenate([*scaled, first[None]])

    @property
    def hints(self) -> SumHints:
        return SumHints(any_width=True)

    def l2(self, adjacency: Adjacency) -> float:
        squares = sum(norm**2 for norm in self.norms)
        return math.sqrt(2.0 * squares + 4.0) if adjacency == "replace-one" else math.sqrt(squares + 1.0)

    def l1(self, adjacency: Adjacency) -> float:
        return (math.sqrt(ENTRIES) * sum(self.norms) + 1.0) * (2.0 if adjacency == "replace-one" else 1.0)


class ModelGains(AbstractStayMean):
    """One person's estimate of the whole advice's gain, or its square.

    Arguments:
        sums: of a stay.
        first: the coefficients of (1, f(s0)), advice minus practice.
        coefficients: of the two copies' entries; all of these from earlier releases.
        squared: its square instead.
    """

    sums: StaySums
    first: Float[Array, " 2"]
    coefficients: Float[Array, "2 10"]
    squared: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        check_array("first", self.first, (2,))
        check_array("coefficients", self.coefficients, (2, ENTRIES))

    def of_stay(self, stay: Trajectory) -> Float[Array, ""]:
        copies, f = self.sums.of(stay, 2.0)  # two features are never further apart
        psi = (
            self.first[0]
            + self.first[1] * f
            + (self.coefficients[0] * copies[0] - self.coefficients[1] * copies[1]).sum()
        )
        psi = jnp.clip(jnp.where(jnp.isnan(psi), 0.0, psi), -LARGEST, LARGEST)
        return psi**2 if self.squared else psi

    def interval(self) -> tuple[float, float]:
        return (0.0, LARGEST**2) if self.squared else (-LARGEST, LARGEST)
