"""LSVI-UCB++ (He et al. 2023) and its published private version [sahu Algorithm 1].

In our notation, with phi of norm at most 1, h = 0, ..., H-1 and V_H = 0:

     1: Lambda_{0,h} = lambda I                                           (lambda + 2 shift under noise)
     2: Qhat_{0,h} = H - h,  Qcheck_{0,h} = 0
     3: for users k = 1, ..., K, with Lambda_{k,h} = lambda I + sum_{i<k} phi phi^T / sbar^2          (release `gram`)
     5:     for h = H-1, ..., 0:
   6-8:         what = Lambda^-1 sum phi Vhat(s')/sbar^2, wcheck and wbar the same with Vcheck and Vhat^2
                                                                                               (release `regressions`)
     9:         Var = clip(phi^T wbar, 0, H^2) - clip(phi^T what, 0, H)^2
    10:         if det Lambda_{k,h'} >= 2 det Lambda_{last,h'} for some h':
    11:             Qhat   = min(r + phi^T what + beta ||phi||, Qhat, H - h)            ||phi|| in the norm of Lambda^-1
    12:             Qcheck = max(r + phi^T wcheck - beta_check ||phi||, Qcheck, 0)
    13:             last = k
 18-20:         Vhat = max_a Qhat,  Vcheck = max_a Qcheck,  pi greedy on Qhat, ties shared
    24:     sigma^2 = Var + E + D + H
    25:     sbar^2  = max(sigma^2, H, c_direction^2 ||phi||)
            E = min(beta_bar ||phi||, H^2) + min(2 H beta ||phi||, H^2)
            D = min(c_gap (phi^T (what - wcheck) + 2 beta ||phi||), c_gap H/4)
    26:     Lambda_{k+1,h} = Lambda_{k,h} + phi phi^T / sbar^2

What differs from the paper. **26** accumulates one draw of the noise, so two Gram matrices differ by a user's
features: here every release has noise of its own, and none is accumulated. **12** has min{.. + .., 0}, which is 0 for
ever: He et al. have the maximum. **24** belongs under one root, **25** has sbar >= H where He et al. have sqrt H.
**1** has noise for vectors of norm H although sbar^2 >= H: what is released is H phi phi^T/sbar^2 and
H phi V/(H sbar^2), weights w = H/sbar^2 at most 1, published with the policy. **11** cuts at H; V_h is at most H - h.
The constants (4 d^3 H^2 for c_gap, 2 d^3 H^2 for c_direction, and the betas) are arguments. In every recipe, `@paper`
included, c_gap = c_direction = 0: D of line 24 and the third term of line 25 are off, which would make almost all
weights tiny. With those of the proof every Q stays at its maximum for ever (a test has them). With
`centred`, V - mid is regressed with the middle of the range of V and mid added back, so that the ridge shrinks towards
mid and not towards 0; the paper regresses V.

The determinant test reads every Gram matrix, so that version costs one release of everything per user, used or not.
"""

import math
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from privrl.contracts.learner import OnlineAsk, Plan, Releases
from privrl.learners.linear.regression_rounds import AbstractRegressionRounds, InForce, doubled, written
from privrl.mdp.features import AbstractFeatures
from privrl.mdp.types import TabularPolicy, number
from privrl.privacy.noise.distributions import SymmetricNoise

Switching = Literal["determinant", "always"]


class LSVIUCBPlusPlus(AbstractRegressionRounds):
    """Optimistic least-squares value iteration, each transition weighed by how certain its next value is.

    >>> world = privrl.envs.make("riverswim", states=3, horizon=4)
    >>> learner = privrl.LSVIUCBPlusPlus(world.features, 4, rewards=world.rewards)
    >>> privrl.run(world, learner, privrl.Central(epsilon=1, delta=1e-6), episodes=20, key=0)
    Run(LSVIUCBPlusPlus, 1 seed of 20 episodes, joint privacy, epsilon 1, delta 1e-06, simulated noise)

    Arguments: those of `AbstractRegressionRounds`, and
        pessimistic_bonus, squares_bonus: beta_check and beta_bar.
        gap_scale, direction_scale: c_gap and c_direction.
        switching: new values when a determinant has doubled (`"determinant"`), or at every plan (`"always"`).
        centred: regress V - mid instead of V.
    """

    pessimistic_bonus: Float[Array, ""] = eqx.field(converter=number, default=0.03)
    squares_bonus: Float[Array, ""] = eqx.field(converter=number, default=0.03)
    gap_scale: Float[Array, ""] = eqx.field(converter=number, default=0.0)
    direction_scale: Float[Array, ""] = eqx.field(converter=number, default=0.0)
    switching: Switching = eqx.field(static=True, default="determinant")
    centred: bool = eqx.field(static=True, default=True)
    rows: ClassVar[int] = 3

    def init(self) -> InForce:
        Q = self.largest_values()  # [sahu A1:2] H - h in place of H
        return InForce(Q, jnp.zeros_like(Q), jnp.zeros(self.horizon), jnp.zeros((), int))

    def plan(
        self, memory: InForce, released: Releases, ask: OnlineAsk, num_seen: Int[Array, ""]
    ) -> tuple[InForce, Plan]:
        del released
        H, S = self.horizon, self.features.num_states
        at = self.factorised(ask("gram", 0, None), H)  # the released weights are H / sbar^2
        switch, *kept = self.switched(memory, at, num_seen)
        assert memory.pessimistic is not None

        def step(carry: tuple[Array, ...], h: int | Int[Array, ""]) -> tuple[Array, ...]:
            Q, lower, weights, V_hi, V_lo = carry
            asked = _Asked.of(V_hi, V_lo, self.centred, H)
            means = at.means(h, ask("regressions", h, (h, asked.rows)))
            r, (P_hi, P_lo) = self.reward(h, means[-1]), asked.means(means)
            hi = r + P_hi + self.bonus * at.norms[h]  # [sahu A1:11] cut at H - h in place of H
            hi = jnp.minimum(jnp.minimum(hi, H - h), Q[h])
            lo = r + P_lo - self.pessimistic_bonus * at.norms[h]  # [sahu A1:12] max and minus, as in He et al.
            lo = jnp.maximum(lo, jnp.maximum(lower[h], 0.0))
            hi = jnp.where(switch, hi, Q[h])  # [sahu A1:10,15] as printed
            lo = jnp.where(switch, lo, lower[h])  # [sahu A1:16] as printed
            V_hi = hi.max(axis=-1)  # [sahu A1:18] as printed
            V_lo = lo.max(axis=-1)  # [sahu A1:19] as printed
            sbar2 = self._sigma_bar_squared(asked.variance(means[0], means[2]), P_hi - P_lo, at.norms[h])
            return written(Q, hi, h), written(lower, lo, h), written(weights, H / sbar2, h), V_hi, V_lo

        nothing, V = jnp.zeros_like(memory.optimistic), jnp.zeros(S)
        first = (memory.optimistic, memory.pessimistic, nothing, V, V)
        Q, lower, weights, *_ = ask.scan(step, first, H)  # [sahu A1:5] our h counts from 0
        policy = TabularPolicy.greedy(Q)  # [sahu A1:20,23] ties shared
        return InForce(Q, lower, *kept), Plan(policy, weights)

    def switches(self, log_determinants: Float[Array, " H"], last: Float[Array, " H"]) -> Bool[Array, ""]:
        return doubled(log_determinants, last) if self.switching == "determinant" else jnp.ones((), bool)

    def _sigma_bar_squared(
        self, variance: Float[Array, "S A"], gap: Float[Array, "S A"], norms: Float[Array, "S A"]
    ) -> Float[Array, "S A"]:
        H = self.horizon
        E = jnp.minimum(self.squares_bonus * norms, H**2) + jnp.minimum(2 * H * self.bonus * norms, H**2)
        D = jnp.minimum(self.gap_scale * (gap + 2 * self.bonus * norms), self.gap_scale * H / 4)
        sigma2 = variance + E + D + H  # [sahu A1:24] all under the root; D is 0 in every recipe
        third = self.direction_scale**2 * norms
        return jnp.maximum(jnp.maximum(sigma2, H), third)  # [sahu A1:25] floor sqrt H; the third is 0 in every recipe

    @classmethod
    def paper(
        cls,
        features: AbstractFeatures,
        horizon: int,
        *,
        rewards: Float[Array, "G S A"] | None = None,
        switching: Switching = "determinant",
        failure: float = 0.05,
    ) -> "LSVIUCBPlusPlus":
        """[sahu A1] with fresh noise: uncentred, a release of everything after every user, determinant switching.

        2 lambda_Lambda of the paper, in terms of the scale s of a symmetric matrix (its s^2 = 1/(2 rho_0)), is
        4 sqrt(d) s (2 + (log(5 c_1 H/failure)/(c_2 d))^(2/3)); we read the universal constants c_1, c_2 as 1.
        """
        shift = 4 * math.sqrt(features.dim) * (2 + (math.log(5 * horizon / failure) / features.dim) ** (2 / 3))
        bound = float(SymmetricNoise(1.0, features.dim).spectral_bound(failure / horizon))
        printed: dict[str, Any] = {"centred": False, "noise_ridge": shift / bound}  # [sahu A1:1] lambda
        return cls(features, horizon, rewards=rewards, switching=switching, failure=failure, **printed)


class _Asked(eqx.Module):
    """The rows of one query, V in units in which it lies in [-1, 1], and how to read the answers.

    With centring: (V - mid)/half of both values in their own ranges, and 2 ((V - mid)/half)^2 - 1. Without: V/H and
    (V/H)^2, as the paper has it.
    """

    rows: Float[Array, "3 S"]
    mid: Float[Array, "2"]
    half: Float[Array, "2"]
    centred: bool = eqx.field(static=True)

    @classmethod
    def of(cls, V_hi: Float[Array, " S"], V_lo: Float[Array, " S"], centred: bool, horizon: int) -> "_Asked":
        V = jnp.stack([V_hi, V_lo])
        if centred:
            mid, half = (V.max(axis=1) + V.min(axis=1)) / 2, (V.max(axis=1) - V.min(axis=1)) / 2
        else:
            mid, half = jnp.zeros(2), jnp.full(2, float(horizon))
        v = (V - mid[:, None]) / jnp.where(half > 0, half, 1.0)[:, None]
        squares = 2 * v[:1] ** 2 - 1 if centred else v[:1] ** 2
        return cls(jnp.concatenate([v, squares]), mid, half, centred)

    def means(self, answers: Float[Array, "rows S A"]) -> tuple[Float[Array, "S A"], Float[Array, "S A"]]:
        """The means of both values."""
        return self.mid[0] + self.half[0] * answers[0], self.mid[1] + self.half[1] * answers[1]

    def variance(self, mean: Float[Array, "S A"], square: Float[Array, "S A"]) -> Float[Array, "S A"]:
        """[sahu A1:9], both moments clipped to what they can be."""
        square = jnp.clip((square + 1.0) / 2.0 if self.centred else square, 0.0, 1.0)
        mean = jnp.clip(mean, -1.0 if self.centred else 0.0, 1.0)
        return self.half[0] ** 2 * (square - mean**2)  # [sahu A1:9] the second clip is at H, not H^2
