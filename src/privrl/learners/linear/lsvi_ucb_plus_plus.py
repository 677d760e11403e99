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
weights tiny. `theory_constants` gives those of the proof, with which every Q stays at its maximum for ever. With
`centred`, V - mid is regressed with the middle of the range of V and mid added back, so that the ridge shrinks towards
mid and not towards 0; the paper regresses V.

The determinant test reads every Gram matrix, so that version costs one release of everything per user, used or not.
`switching="schedule"` plans at public times only.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from privrl.contracts.learner import Plan
from privrl.contracts.release import Declared, Release
from privrl.learners.linear.regression_rounds import AbstractRegressionRounds, number, written
from privrl.mdp.features import AbstractFeatures
from privrl.mdp.types import TabularPolicy
from privrl.privacy.continual.mechanisms import every, geometric_schedule
from privrl.privacy.noise.laws import SymmetricNoise


class Planned(eqx.Module):
    """What is remembered between plans, all of it public: the values in force, and the determinants behind them."""

    optimistic: Float[Array, "H S A"]
    pessimistic: Float[Array, "H S A"]
    log_determinants: Float[Array, " H"]
    switches: Int[Array, ""]


class LSVIUCBPlusPlus(AbstractRegressionRounds):
    """Optimistic least-squares value iteration, each transition weighed by how certain its next value is.

    Arguments:
        features: phi(s, a) with norm at most 1.
        horizon: number of steps H.
        rewards: known mean rewards `[G, S, A]` in [0, 1], G = 1 or H. Left out they are estimated, and paid for.
        bonus, pessimistic_bonus, squares_bonus: beta, beta_check and beta_bar.
        gap_scale, direction_scale: c_gap and c_direction.
        ridge: lambda.
        noise_ridge: how many times the bound on the noise of a Gram matrix is added to `ridge` (the paper's 2).
        switching: new values when a determinant has doubled (`"determinant"`), at every plan (`"always"`), or at
            every plan of a public schedule (`"schedule"`). The first two plan after every user.
        centred: regress V - mid instead of V.
        growth: of the blocks of `"schedule"`.
        failure: probability with which a noise bound may fail (utility only, never privacy).
    """

    features: AbstractFeatures
    horizon: int = eqx.field(static=True)
    rewards: Float[Array, "G S A"] | None = None
    bonus: Float[Array, ""] = eqx.field(converter=number, default=0.03)
    pessimistic_bonus: Float[Array, ""] = eqx.field(converter=number, default=0.03)
    squares_bonus: Float[Array, ""] = eqx.field(converter=number, default=0.03)
    gap_scale: Float[Array, ""] = eqx.field(converter=number, default=0.0)
    direction_scale: Float[Array, ""] = eqx.field(converter=number, default=0.0)
    ridge: Float[Array, ""] = eqx.field(converter=number, default=0.2)
    noise_ridge: Float[Array, ""] = eqx.field(converter=number, default=2.0)
    switching: Literal["determinant", "always", "schedule"] = eqx.field(static=True, default="determinant")
    centred: bool = eqx.field(static=True, default=True)
    growth: float = eqx.field(static=True, default=1.3)
    failure: float = eqx.field(static=True, default=0.05)

    rows: ClassVar[int] = 3

    def schedule(self, num_users: int) -> Int[np.ndarray, " B"]:
        return geometric_schedule(num_users, self.growth) if self.switching == "schedule" else every(num_users, 1)

    def init(self) -> Planned:
        most = self.largest_values()  # [sahu A1:2] H - h in place of H
        return Planned(most, jnp.zeros_like(most), jnp.zeros(self.horizon), jnp.zeros((), int))

    def plan(
        self,
        memory: Planned,
        released: Mapping[str, Release],
        ask: Callable[[str, int, Any], Release],
        num_seen: Int[Array, ""],
    ) -> tuple[Planned, Plan]:
        del released
        H, S = self.horizon, self.features.num_states
        at = self.factorised(ask("gram", 0, None), H)  # the released weights are H / sbar^2
        last = jnp.where(memory.switches == 0, self.features.dim * jnp.log(at.ridge), memory.log_determinants)
        switch = self._switches(at.log_determinants, last) & (num_seen > 0)
        Q, lower, weights = memory.optimistic, memory.pessimistic, jnp.zeros_like(memory.optimistic)
        V_hi = V_lo = jnp.zeros(S)
        for h in reversed(range(H)):  # [sahu A1:5] our h counts from 0
            asked = _Asked.of(V_hi, V_lo, self.centred, H)
            means = at.means(h, ask("regressions", h, (h, asked.rows)))
            r, P_hi, P_lo = self.reward(h, means[-1]), asked.optimistic(means[0]), asked.pessimistic(means[1])
            hi = r + P_hi + self.bonus * at.norms[h]  # [sahu A1:11] cut at H - h in place of H
            hi = jnp.minimum(jnp.minimum(hi, float(H - h)), Q[h])
            lo = r + P_lo - self.pessimistic_bonus * at.norms[h]  # [sahu A1:12] max and minus, as in He et al.
            lo = jnp.maximum(lo, jnp.maximum(lower[h], 0.0))
            hi = jnp.where(switch, hi, Q[h])  # [sahu A1:10,15] as printed
            lo = jnp.where(switch, lo, lower[h])  # [sahu A1:16] as printed
            V_hi = hi.max(axis=-1)  # [sahu A1:18] as printed
            V_lo = lo.max(axis=-1)  # [sahu A1:19] as printed
            sbar2 = self._sigma_bar_squared(asked.variance(means[0], means[2]), P_hi - P_lo, at.norms[h])
            Q, lower, weights = written(Q, hi, h), written(lower, lo, h), written(weights, H / sbar2, h)
        last = jnp.where(switch, at.log_determinants, last)  # [sahu A1:13] the determinants of that plan are kept
        policy = TabularPolicy.greedy(Q)  # [sahu A1:20,23] ties shared
        return Planned(Q, lower, last, memory.switches + switch.astype(int)), Plan(policy, weights)

    def _switches(self, log_determinants: Float[Array, " H"], last: Float[Array, " H"]) -> Bool[Array, ""]:
        if self.switching != "determinant":
            return jnp.ones((), bool)
        return (log_determinants >= last + math.log(2.0)).any()  # [sahu A1:10]

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
    def paper(cls, features: AbstractFeatures, horizon: int, **settings: Any) -> "LSVIUCBPlusPlus":
        """[sahu A1] with fresh noise: uncentred, a release of everything after every user, determinant switching.

        2 lambda_Lambda of the paper, in terms of the scale s of a symmetric matrix (its s^2 = 1/(2 rho_0)), is
        4 sqrt(d) s (2 + (log(5 c_1 H/failure)/(c_2 d))^(2/3)); we read the universal constants c_1, c_2 as 1.
        """
        failure = settings.get("failure", 0.05)
        shift = 4 * math.sqrt(features.dim) * (2 + (math.log(5 * horizon / failure) / features.dim) ** (2 / 3))
        bound = float(SymmetricNoise(1.0, features.dim).spectral_bound(failure / horizon))
        printed = {"centred": False, "noise_ridge": shift / bound}  # [sahu A1:1] lambda for noise of norm `bound`
        return cls(features, horizon, **printed | settings)


class _Asked(eqx.Module):
    """The rows of one question, V in units in which it lies in [-1, 1], and how to read the answers.

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

    def optimistic(self, mean: Float[Array, "S A"]) -> Float[Array, "S A"]:
        return self.mid[0] + self.half[0] * mean

    def pessimistic(self, mean: Float[Array, "S A"]) -> Float[Array, "S A"]:
        return self.mid[1] + self.half[1] * mean

    def variance(self, mean: Float[Array, "S A"], square: Float[Array, "S A"]) -> Float[Array, "S A"]:
        """[sahu A1:9], both moments clipped to what they can be."""
        square = jnp.clip((square + 1.0) / 2.0 if self.centred else square, 0.0, 1.0)
        mean = jnp.clip(mean, -1.0 if self.centred else 0.0, 1.0)
        return self.half[0] ** 2 * (square - mean**2)  # [sahu A1:9] the second clip is at H, not H^2


def published_parameters(declared: Sequence[Declared], rho: float) -> dict[str, float]:
    """The mu of each release under the noise of the papers, for `Published(...)`.

    [sahu A1:1] has rho_0 = rho/(4 H K) for each of 4 H K statistics: Gram matrices take a quarter of rho and the three
    regressions the rest. With the true sensitivities (weights at most 1/H; sqrt 2 for a matrix, hence
    Z_ij ~ N(0, 1/(2 rho_0)) before that scaling) each is exactly rho_0-zCDP, so all K releases of the Gram matrices
    together cost mu^2 = 2 (rho/4), and all H K of the regressions 2 (3 rho/4): the declared releases spend rho. In
    `LuyoLSVIUCB` and `NgoLSVIUCB` the tree of the Gram matrices is one mechanism and takes half.
    """
    by_name = {d.name: d for d in declared}
    matrices = 0.25 if by_name["gram"].access == "rounds" else 0.5
    shares = {"gram": matrices, "regressions": 1.0 - matrices}
    rho = rho * (1.0 - 1e-12)  # rounding must not make the sum exceed the claim
    return {name: math.sqrt(2.0 * shares[name] * rho / by_name[name].touches) for name in by_name}


def theory_constants(horizon: int, dim: int, num_users: int, rho: float, failure: float = 0.05) -> dict[str, float]:
    """The constants of the paper's theorem, as arguments of `LSVIUCBPlusPlus`; its O(.) are read as 1.

    L bounds the noise of the vectors and lambda that of the matrices [sahu Lemma A.1], iota is the logarithm. The bonus
    beta ||phi|| is then at least H for every K, since Lambda is at most lambda + K and beta is at least
    H L sqrt(d lambda): no Q ever leaves its maximum.
    """
    H, d, K = horizon, dim, num_users
    L = 4 * H * math.sqrt(d * H * K / rho * math.log(10 * d * K * H / failure))
    lam = math.sqrt(8 * d * H * K / rho) * (2 + (math.log(5 * H / failure) / d) ** (2 / 3))
    iota = math.log(H * K**4 * L**2 * d / (failure * lam))
    beta = H * L * math.sqrt(d * lam) + math.sqrt(d**3 * H**2) * iota
    return {
        "bonus": beta,
        "pessimistic_bonus": beta,
        "squares_bonus": H**2 * L**2 * math.sqrt(d * lam) + math.sqrt(d**3 * H**4) * iota,
        "gap_scale": 4.0 * d**3 * H**2,
        "direction_scale": 2.0 * d**3 * H**2,
        "ridge": 2 * lam,
    }
