"""LSVI-UCB++ (He et al. 2023), and the private versions that were published of it and of LSVI-UCB [sahu Algorithm 1].

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
The constants (4 d^3 H^2 for c_gap, 2 d^3 H^2 for c_direction, and the betas) are arguments: `theory_constants` gives
those of the proof, with which every Q stays at its maximum for ever. With `centred`, V - mid is regressed with the
middle of the range of V and mid added back, so that the ridge shrinks towards mid and not towards 0.

The determinant test reads every Gram matrix, so that version costs one release of everything per user, used or not.
`switching="schedule"` plans at public times only.

Two older algorithms (Luyo et al. 2021, Ngo et al. 2022) are this one without weights (sbar = 1) and without Qcheck,
both in our reading of how sahu and others describe them, as their own papers are not at hand: see `luyo` and `ngo`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from privrl.contracts.learner import AbstractOnlineLearner, Plan
from privrl.contracts.release import Declared, Release
from privrl.mdp.features import AbstractFeatures
from privrl.mdp.types import TabularPolicy
from privrl.privacy.continual.mechanisms import every, geometric_schedule
from privrl.privacy.noise.laws import SymmetricNoise
from privrl.statistics.regressions import Grams, Regressions, pack, pack_outer, unpack

_UNROLLED = 32  # beyond this size a matrix is factorised by the library


def _number(x: ArrayLike) -> Float[Array, ""]:
    return jnp.asarray(x, float)


class Planned(eqx.Module):
    """What is remembered between plans, all of it public: the values in force, and the determinants behind them."""

    optimistic: Float[Array, "H S A"]
    pessimistic: Float[Array, "H S A"]
    log_determinants: Float[Array, " H"]
    switches: Int[Array, ""]


class LSVIUCBPlusPlus(AbstractOnlineLearner):
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
        grams: `"fresh"`: each Gram matrix is a release of its own; `"running"`: by continual release.
        weighted: by 1/sbar^2 as in LSVI-UCB++; without, sbar = 1 and there are no pessimistic values.
        monotone: new optimistic values never exceed old ones.
        centred: regress V - mid instead of V.
        growth: of the blocks of `"schedule"`.
        batch: size of the blocks as a multiple of K^(2/5), instead of growing ones.
        most_switches: determinants are read at this many public times, evenly spaced, instead of after every user.
        failure: probability with which a noise bound may fail (utility only, never privacy).
    """

    features: AbstractFeatures
    horizon: int = eqx.field(static=True)
    rewards: Float[Array, "G S A"] | None = None
    bonus: Float[Array, ""] = eqx.field(converter=_number, default=0.03)
    pessimistic_bonus: Float[Array, ""] = eqx.field(converter=_number, default=0.03)
    squares_bonus: Float[Array, ""] = eqx.field(converter=_number, default=0.03)
    gap_scale: Float[Array, ""] = eqx.field(converter=_number, default=0.0)
    direction_scale: Float[Array, ""] = eqx.field(converter=_number, default=0.0)
    ridge: Float[Array, ""] = eqx.field(converter=_number, default=0.2)
    noise_ridge: Float[Array, ""] = eqx.field(converter=_number, default=2.0)
    switching: Literal["determinant", "always", "schedule"] = eqx.field(static=True, default="determinant")
    grams: Literal["fresh", "running"] = eqx.field(static=True, default="fresh")
    weighted: bool = eqx.field(static=True, default=True)
    monotone: bool = eqx.field(static=True, default=True)
    centred: bool = eqx.field(static=True, default=True)
    growth: float = eqx.field(static=True, default=1.3)
    batch: float | None = eqx.field(static=True, default=None)
    most_switches: int | None = eqx.field(static=True, default=None)
    failure: float = eqx.field(static=True, default=0.05)

    def bounds(self) -> dict[str, Any]:
        known = "estimated" if self.rewards is None else "known"
        bounds: dict[str, Any] = {"feature norm": 1.0, "horizon": self.horizon, "rewards": known}
        return bounds | ({"reward range": [0.0, 1.0]} if self.rewards is None else {})

    def schedule(self, num_users: int) -> Int[np.ndarray, " B"]:
        if self.most_switches is not None:
            return every(num_users, -(-num_users // self.most_switches))
        if self.batch is not None:
            return every(num_users, max(1, round(self.batch * num_users**0.4)))
        if self.switching == "schedule":
            return geometric_schedule(num_users, self.growth)
        return every(num_users, 1)

    @property
    def _regressions(self) -> Regressions:
        rows = 3 if self.weighted else 1
        return Regressions(self.features, self.horizon, rows, self.rewards is None, self.centred)

    def declare(self, num_blocks: int) -> tuple[Declared, ...]:
        """Every statistic of every step gets the same share: one Gram matrix and the rows of the regressions."""
        access: Literal["rounds", "running"] = "rounds" if self.grams == "fresh" else "running"
        rows, H = self._regressions.shape[0], self.horizon
        return (
            Declared("gram", Grams(self.features, H), access=access, times=num_blocks, weight=1.0),
            Declared("regressions", self._regressions, times=H * num_blocks, weight=float(rows)),
        )

    def init(self) -> Planned:
        S, A, H = self.features.num_states, self.features.num_actions, self.horizon
        most = jnp.broadcast_to(_remaining(H)[:, None, None], (H, S, A))  # [sahu A1:2] H - h in place of H
        return Planned(most, jnp.zeros((H, S, A)), jnp.zeros(H), jnp.zeros((), int))

    def plan(
        self,
        memory: Planned,
        released: Mapping[str, Release],
        ask: Callable[[str, int, Any], Release],
        num_seen: Int[Array, ""],
    ) -> tuple[Planned, Plan]:
        H, d, phi = self.horizon, self.features.dim, self.features.table
        S, A = phi.shape[:2]
        unit = H if self.weighted else 1.0  # the released weights are `unit` / sbar^2
        gram = released["gram"] if self.grams == "running" else ask("gram", 0, None)
        shift = SymmetricNoise(gram.noise.std.max(), d).spectral_bound(self.failure / H) / unit
        lam = self.ridge + self.noise_ridge * shift  # [sahu A1:1] the noise's law, 0 without noise
        Lambda = (
            unpack(gram.value, d) / unit + lam * jnp.eye(d)[None]
        )  # [sahu A1:26] noise is fresh and not accumulated
        inverse, log_determinants = inverse_and_log_determinant(Lambda)
        packed = pack_outer(phi.reshape(-1, d))
        norms = jnp.matmul(pack(inverse), packed.T, precision="highest").reshape(H, S, A)
        norms = jnp.sqrt(jnp.maximum(norms, 0.0))  # ||phi|| in the norm of Lambda^-1, for all steps at once
        last = jnp.where(memory.switches == 0, d * jnp.log(lam), memory.log_determinants)
        switch = self._switches(log_determinants, last) & (num_seen > 0)

        # Tables are written step by step into the buffers that hold the old ones, which accelerators do in place.
        Q, lower, weights = memory.optimistic, memory.pessimistic, jnp.zeros((H, S, A))
        V_hi = V_lo = jnp.zeros(S)
        for h in reversed(range(H)):  # [sahu A1:5]
            asked = _Asked.of(V_hi, V_lo, self.centred, H)
            release = ask("regressions", h, (h, asked.rows[: 3 if self.weighted else 1]))
            w = jnp.matmul(release.value, inverse[h] / unit, precision="highest")  # [sahu A1:6-8]
            means = jnp.matmul(w, phi.reshape(-1, d).T, precision="highest").reshape(-1, S, A)
            r = self._rewards(h, means[-1])
            hi = r + asked.optimistic(means[0]) + self.bonus * norms[h]  # [sahu A1:11]
            hi = jnp.minimum(hi, float(H - h))
            hi = jnp.minimum(hi, Q[h]) if self.monotone else jnp.maximum(hi, 0.0)
            hi = jnp.where(switch, hi, Q[h])  # [sahu A1:10,15]
            V_hi = hi.max(axis=-1)  # [sahu A1:18]
            Q = _written(Q, hi, h)
            if self.weighted:
                P_lo = asked.pessimistic(means[1])
                lo = r + P_lo - self.pessimistic_bonus * norms[h]  # [sahu A1:12] max and minus, as in He et al.
                lo = jnp.maximum(lo, jnp.maximum(lower[h], 0.0))
                lo = jnp.where(switch, lo, lower[h])  # [sahu A1:16]
                V_lo = lo.max(axis=-1)  # [sahu A1:19]
                lower = _written(lower, lo, h)
                variance, gap = asked.variance(means[0], means[2]), asked.optimistic(means[0]) - P_lo
                weights = _written(weights, H / self._sigma_bar_squared(variance, gap, norms[h]), h)
        kept = Planned(
            Q, lower, jnp.where(switch, log_determinants, last), memory.switches + switch.astype(int)
        )  # [sahu A1:13]
        policy = TabularPolicy.greedy(Q)  # [sahu A1:20,23] ties shared
        return kept, Plan(policy, weights if self.weighted else None)

    def _switches(self, log_determinants: Float[Array, " H"], last: Float[Array, " H"]) -> Bool[Array, ""]:
        if self.switching != "determinant":
            return jnp.ones((), bool)
        return (log_determinants >= last + math.log(2.0)).any()  # [sahu A1:10]

    def _rewards(self, h: int, estimate: Float[Array, "S A"]) -> Float[Array, "S A"]:
        if self.rewards is not None:
            return self.rewards[min(h, self.rewards.shape[0] - 1)]
        return jnp.clip((estimate + 1.0) / 2.0 if self.centred else estimate, 0.0, 1.0)

    def _sigma_bar_squared(
        self, variance: Float[Array, "S A"], gap: Float[Array, "S A"], norms: Float[Array, "S A"]
    ) -> Float[Array, "S A"]:
        H = self.horizon
        E = jnp.minimum(self.squares_bonus * norms, H**2) + jnp.minimum(2 * H * self.bonus * norms, H**2)
        D = jnp.minimum(self.gap_scale * (gap + 2 * self.bonus * norms), self.gap_scale * H / 4)
        sigma2 = variance + E + D + H  # [sahu A1:24] all of it under the root
        return jnp.maximum(jnp.maximum(sigma2, H), self.direction_scale**2 * norms)  # [sahu A1:25] sqrt H, as He et al.

    @classmethod
    def paper(cls, features: AbstractFeatures, horizon: int, **settings: Any) -> "LSVIUCBPlusPlus":
        """[sahu A1] with fresh noise: uncentred, a release of everything after every user, determinant switching.

        2 lambda_Lambda of the paper, in terms of the scale s of a symmetric matrix (its s^2 = 1/(2 rho_0)), is
        4 sqrt(d) s (2 + (log(5 c_1 H/failure)/(c_2 d))^(2/3)); we read the universal constants c_1, c_2 as 1.
        """
        failure = settings.get("failure", 0.05)
        shift = 4 * math.sqrt(features.dim) * (2 + (math.log(5 * horizon / failure) / features.dim) ** (2 / 3))
        bound = float(SymmetricNoise(1.0, features.dim).spectral_bound(failure / horizon))
        return cls(features, horizon, **{"centred": False, "noise_ridge": shift / bound} | settings)  # [sahu A1:1]

    @classmethod
    def luyo(cls, features: AbstractFeatures, horizon: int, epsilon: float = 1.0, **settings: Any) -> "LSVIUCBPlusPlus":
        """Private LSVI-UCB with static batches (Luyo et al. 2021), in our reading.

        Blocks of (K epsilon)^(2/5) d^(3/5) H^(1/5) users; after each, Gram matrices from a binary tree whose leaves are
        the blocks, and regressions over everybody with fresh Gaussian noise for vectors of norm H. No weights, no
        minimum with old values, no centring. Half of the budget each.
        """
        batch = epsilon**0.4 * features.dim**0.6 * horizon**0.2
        older: dict[str, Any] = {"weighted": False, "monotone": False, "centred": False, "grams": "running"}
        return cls(features, horizon, **older | {"switching": "schedule", "batch": batch} | settings)

    @classmethod
    def ngo(
        cls, features: AbstractFeatures, horizon: int, most_switches: int | None = None, **settings: Any
    ) -> "LSVIUCBPlusPlus":
        """Private LSVI-UCB with adaptive batches (Ngo et al. 2022), in our reading.

        New values when a determinant has doubled, at most `most_switches` times, over which the noise of the
        regressions is shared out; Gram matrices from a binary tree. That cap is kept by reading determinants at so many
        public times, evenly spaced. Its default, d ceil(log2(1 + 2^20/d)), is how often the determinant of one
        d x d matrix can double over a million users. No weights, no minimum with old values, no centring. Half of the
        budget each.
        """
        if most_switches is None:
            most_switches = features.dim * math.ceil(math.log2(1 + 2**20 / features.dim))
        older: dict[str, Any] = {"weighted": False, "monotone": False, "centred": False, "grams": "running"}
        return cls(features, horizon, **older | {"switching": "determinant", "most_switches": most_switches} | settings)


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


def _written(table: Float[Array, "H S A"], values: Float[Array, "S A"], h: int) -> Float[Array, "H S A"]:
    """The table with new values at step h."""
    return jax.lax.dynamic_update_index_in_dim(table, values, h, 0)


def _remaining(horizon: int) -> Float[Array, " H"]:
    return horizon - jnp.arange(horizon, dtype=float)


def inverse_and_log_determinant(
    matrix: Float[Array, "*batch d d"],
) -> tuple[Float[Array, "*batch d d"], Float[Array, "*batch"]]:
    """Of positive definite matrices: by Cholesky factorisation, and small ones on accelerators by d symmetric sweeps.

    A sweep on k with pivot p = A_kk sends A_ij to A_ij - A_ik A_kj/p, row and column k to A_ik/p, and A_kk to -1/p;
    after all d the matrix is -A^-1, and the product of the pivots is its determinant. These are the operations of a
    Cholesky factorisation, as elementwise passes that accelerators run at the speed of their memory.
    """
    if matrix.shape[-1] > _UNROLLED:
        return _by_cholesky(matrix)
    return jax.lax.platform_dependent(matrix, cpu=_by_cholesky, default=_by_sweeps)


def _by_cholesky(matrix: Float[Array, "*batch d d"]) -> tuple[Float[Array, "*batch d d"], Float[Array, "*batch"]]:
    L = jnp.linalg.cholesky(matrix)
    half = jax.scipy.linalg.solve_triangular(L, jnp.broadcast_to(jnp.eye(L.shape[-1]), L.shape), lower=True)
    inverse = jnp.matmul(jnp.swapaxes(half, -1, -2), half, precision="highest")
    return inverse, 2.0 * jnp.log(jnp.diagonal(L, axis1=-2, axis2=-1)).sum(axis=-1)


def _by_sweeps(matrix: Float[Array, "*batch d d"]) -> tuple[Float[Array, "*batch d d"], Float[Array, "*batch"]]:
    d = matrix.shape[-1]
    i, j = np.triu_indices(d)  # the swept matrix stays symmetric: its upper triangle says all
    at = np.zeros((d, d), int)
    at[i, j] = at[j, i] = np.arange(len(i))
    swept, pivots = matrix[..., i, j], []
    for k in range(d):
        pivot = swept[..., at[k, k]]
        p = pivot[..., None]
        on_row, on_column = ((x == k).reshape((1,) * (matrix.ndim - 2) + (-1,)) for x in (i, j))
        inside = swept - swept[..., at[i, k]] * swept[..., at[k, j]] / p
        swept = jnp.where(on_row & on_column, -1.0 / p, jnp.where(on_row | on_column, swept / p, inside))
        pivots.append(pivot)
    return -swept[..., at], jnp.log(jnp.stack(pivots)).sum(axis=0)


def published_parameters(declared: Sequence[Declared], rho: float) -> dict[str, float]:
    """The mu of each release under the noise of the papers, for `Published(...)`.

    [sahu A1:1] has rho_0 = rho/(4 H K) for each of 4 H K statistics: Gram matrices take a quarter of rho and the three
    regressions the rest. With the true sensitivities (weights at most 1/H; sqrt 2 for a matrix, hence
    Z_ij ~ N(0, 1/(2 rho_0)) before that scaling) each is exactly rho_0-zCDP, so all K releases of the Gram matrices
    together cost mu^2 = 2 (rho/4), and all H K of the regressions 2 (3 rho/4): the declared releases spend rho. In
    `luyo` and `ngo` the tree of the Gram matrices is one mechanism and takes half.
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
