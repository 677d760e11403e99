"""The parts shared by algorithms that regress on all people so far, step by step: LSVI-UCB++ and its predecessors.

Released are Lambda_h - lambda I = sum w phi phi^T (`gram`, all steps at once), and at each step h, from the last to the
first, sum w phi y(s') for values y in [-1, 1] that were made from the release before (`regressions`). Everything else
is post-processing.
"""

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from privrl.contracts.learner import AbstractOnlineLearner
from privrl.contracts.release import Declared, Release
from privrl.mdp.features import AbstractFeatures
from privrl.mdp.types import number
from privrl.privacy.continual.mechanisms import every
from privrl.privacy.noise.distributions import SymmetricNoise
from privrl.statistics.regressions import Grams, Regressions, pack, pack_outer, unpack

_UNROLLED = 32  # beyond this size a matrix is factorised by the library


class Factorised(eqx.Module):
    """Lambda_h of every step: its inverse, log det Lambda_h, ||phi|| in the norm of the inverse, and lambda itself."""

    inverse: Float[Array, "H d d"]
    log_determinants: Float[Array, " H"]
    norms: Float[Array, "H S A"]
    ridge: Float[Array, ""]
    phi: Float[Array, "S A d"]
    unit: float = eqx.field(static=True)

    def means(self, h: int | Int[Array, ""], release: Release) -> Float[Array, "rows S A"]:
        """phi^T Lambda_h^-1 b for every row b of the regressions of step h."""
        inverse = self.inverse[h] / self.unit
        w = jnp.matmul(release.value, inverse, precision="highest")  # [sahu A1:6-8] all rows at once
        S, A, d = self.phi.shape
        return jnp.matmul(w, self.phi.reshape(-1, d).T, precision="highest").reshape(-1, S, A)


class InForce(eqx.Module):
    """What is remembered between plans, all of it public: the values in force, and the determinants behind them."""

    optimistic: Float[Array, "H S A"]
    pessimistic: Float[Array, "H S A"] | None
    log_determinants: Float[Array, " H"]
    switches: Int[Array, ""]


class AbstractRegressionRounds(AbstractOnlineLearner):
    """Declares Gram matrices and `rows` regressions per step and plan; every statistic of a step gets the same share.

    `fresh_grams` says whether each Gram matrix is a release of its own or all are one continual release.

    Arguments:
        features: phi(s, a) with norm at most 1.
        horizon: number of steps H.
        rewards: known mean rewards `[G, S, A]` in [0, 1], G = 1 or H. Left out they are estimated, and paid for.
        bonus: beta.
        ridge: lambda.
        noise_ridge: how many times the bound on the noise of a Gram matrix is added to `ridge` (the paper's 2).
        failure: probability with which a noise bound may fail (utility only, never privacy).
    """

    features: AbstractFeatures
    horizon: int = eqx.field(static=True)
    rewards: Float[Array, "G S A"] | None = None
    bonus: Float[Array, ""] = eqx.field(converter=number, default=0.03)
    ridge: Float[Array, ""] = eqx.field(converter=number, default=0.2)
    noise_ridge: Float[Array, ""] = eqx.field(converter=number, default=2.0)
    failure: float = eqx.field(static=True, default=0.05)
    centred: eqx.AbstractVar[bool]
    rows: eqx.AbstractClassVar[int]
    fresh_grams: ClassVar[bool] = True

    def bounds(self) -> dict[str, object]:
        known = "estimated" if self.rewards is None else "known"
        bounds: dict[str, object] = {"feature norm": 1.0, "horizon": self.horizon, "rewards": known}
        return bounds | ({"reward range": [0.0, 1.0]} if self.rewards is None else {})

    def declare(self, num_blocks: int) -> tuple[Declared, ...]:
        H, grams = self.horizon, Grams(self.features, self.horizon)
        regressions = Regressions(self.features, H, self.rows, self.rewards is None, self.centred)
        share = float(regressions.shape[0])
        return (
            Declared("gram", grams, access="rounds" if self.fresh_grams else "running", times=num_blocks, weight=1.0),
            Declared("regressions", regressions, times=H * num_blocks, weight=share),
        )

    def schedule(self, num_users: int) -> Int[np.ndarray, " B"]:
        """A plan after every user."""
        return every(num_users, 1)

    def largest_values(self) -> Float[Array, "H S A"]:
        """H - h at every pair, before anything was learnt."""
        H, S, A = self.horizon, self.features.num_states, self.features.num_actions
        return jnp.broadcast_to((H - jnp.arange(H, dtype=float))[:, None, None], (H, S, A))

    def switches(self, log_determinants: Float[Array, " H"], last: Float[Array, " H"]) -> Bool[Array, ""]:
        """Whether the values are replaced at this plan, given the determinants at the last time they were."""
        del log_determinants, last
        return jnp.ones((), bool)

    def switched(
        self, memory: InForce, at: "Factorised", num_seen: Int[Array, ""]
    ) -> tuple[Bool[Array, ""], Float[Array, " H"], Int[Array, ""]]:
        """Whether the values are replaced now, and what is kept of determinants and of the number of switches."""
        last = jnp.where(memory.switches == 0, self.features.dim * jnp.log(at.ridge), memory.log_determinants)
        switch = self.switches(at.log_determinants, last) & (num_seen > 0)
        last = jnp.where(switch, at.log_determinants, last)  # [sahu A1:13] the determinants of that plan are kept
        return switch, last, memory.switches + switch.astype(int)

    def factorised(self, gram: Release, unit: float) -> Factorised:
        """Lambda_h = gram/unit + lambda I, with `noise_ridge` times the bound on the noise added to the ridge."""
        H, d, phi = self.horizon, self.features.dim, self.features.table
        shift = SymmetricNoise(gram.noise.std.max(), d).spectral_bound(self.failure / H) / unit
        lam = self.ridge + self.noise_ridge * shift  # [sahu A1:1] the noise distribution, 0 without noise
        Lambda = unpack(gram.value, d) / unit + lam * jnp.eye(d)[None]  # [sahu A1:26] noise is fresh, not accumulated
        inverse, log_determinants = inverse_and_log_determinant(Lambda)
        packed = pack_outer(phi.reshape(-1, d))
        norms = jnp.matmul(pack(inverse), packed.T, precision="highest").reshape(H, *phi.shape[:2])
        return Factorised(inverse, log_determinants, jnp.sqrt(jnp.maximum(norms, 0.0)), lam, phi, unit)

    def reward(self, h: int | Int[Array, ""], estimate: Float[Array, "S A"]) -> Float[Array, "S A"]:
        """The known rewards of step h, or the estimate in [0, 1]."""
        if self.rewards is not None:
            return self.rewards[jnp.minimum(h, self.rewards.shape[0] - 1)]
        return jnp.clip((estimate + 1.0) / 2.0 if self.centred else estimate, 0.0, 1.0)


def doubled(log_determinants: Float[Array, " H"], last: Float[Array, " H"]) -> Bool[Array, ""]:
    """Whether the determinant of some step is twice what it was."""
    return (log_determinants >= last + math.log(2.0)).any()  # [sahu A1:10]


def written(
    table: Float[Array, "H S A"], values: Float[Array, "S A"], h: int | Int[Array, ""]
) -> Float[Array, "H S A"]:
    """The table with new values at step h, in the buffer that holds the old ones, which accelerators do in place."""
    return jax.lax.dynamic_update_index_in_dim(table, values, h, 0)


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
