"""Moments of linear systems: inputs and states against the states that follow, with their sensitivities.

A transition of a person is z = [x; u] and x', stacked with a public weight c as v = [z; c x']. The person contributes

    sum_h v_h v_h^T = [ S1    c S2   ]      S1 = sum_h z_h z_h^T,   S2 = sum_h z_h x'_h^T,   S3 = sum_h x'_h x'_h^T
                      [ c S2^T  c^2 S3 ]

after scaling it to a trace sum_h |z_h|^2 + c^2 |x'_h|^2 of at most tau, which is public (the *episode clip*).

**Formal guarantee** (for all records). The contribution M is positive semidefinite with |M|_F <= tr M <= tau, so |M -
M'|_F^2 <= |M|_F^2 + |M'|_F^2 - 2 <M, M'> <= 2 tau^2: replacing a person moves the sum by at most sqrt(2) tau, adding
one by at most tau. Nothing is assumed about states, inputs or noise: transitions that are not numbers are dropped,
and anything too large is scaled down. In L1, sum_ij |M_ij| <= (sum_i sqrt(M_ii))^2 <= q tr M <= q tau for q rows. Where
|x|, |x'| <= 1 and |u| <= gamma hold, the trace is at most H (1 + gamma^2
+ c^2), so tau of that size clips no record.

**What is reached.** Two people whose states and inputs are constant, orthogonal to the other's and as large as allowed
meet the bound. Symmetric noise of scale s leaves S2 with independent noise of scale s/(sqrt(2) c): this is the
distribution of releasing the pair (S1, sqrt(2) c S2) with isotropic noise, so that S3 comes for free; the same two
people move that pair by .956 of the bound. With c^2 = (sqrt 2 - 1)(1 + gamma^2) the noise in S1 is that of two separate
releases of half the budget each, and the noise in S2 is 1/(2 sqrt(sqrt 2 - 1)) = .777 of it.
"""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from privrl.contracts.statistic import AbstractStatistic, Adjacency
from privrl.mdp.lq import LQTrajectory
from privrl.privacy.noise.bounding import clip_by_norm
from privrl.privacy.noise.sensitivities import l2_of_outer_products, l2_of_sum
from privrl.statistics.setting_checks import check_not_negative, check_positive, check_sizes


class AbstractLQMoment(AbstractStatistic):
    """A sum over the transitions of one episode of a linear system with n states and d inputs."""

    state_dim: int = eqx.field(static=True)
    input_dim: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        check_sizes(state_dim=self.state_dim, input_dim=self.input_dim, horizon=self.horizon)

    def transitions(self, record: LQTrajectory) -> tuple[Float[Array, "H p"], Float[Array, "H n"]]:
        """z_h and x'_h of the steps that were taken; 0 where there was none, or where something is not a number."""
        H, n, d = self.horizon, self.state_dim, self.input_dim
        states, inputs = jnp.asarray(record.states, float), jnp.asarray(record.inputs, float)
        if states.shape != (H + 1, n) or inputs.shape != (H, d):
            raise ValueError(
                f"A record has states {states.shape} and inputs {inputs.shape}; `{type(self).__name__}` is for "
                f"{(H + 1, n)} and {(H, d)}. Pad shorter episodes and give their `length`."
            )
        rows = jnp.concatenate([states[:-1], inputs, states[1:]], axis=1)
        taken = (jnp.arange(H) < record.length) & jnp.isfinite(rows).all(axis=1)
        rows = jnp.where(taken[:, None], rows, 0.0)
        return rows[:, : n + d], rows[:, n + d :]


class LQMoments(AbstractLQMoment):
    """sum_h [z; c x'][z; c x']^T with z = [x; u]: all that a regression of x' on z needs, as one release.

    Arguments:
        state_dim, input_dim, horizon: n, d and H.
        target_weight: c > 0.
        trace_bound: tau; a person's whole contribution is scaled to a trace of at most this.
    """

    target_weight: float = eqx.field(static=True)
    trace_bound: float = eqx.field(static=True)
    symmetric: bool = eqx.field(static=True, default=True, init=False)

    def __check_init__(self) -> None:
        check_positive(target_weight=self.target_weight, trace_bound=self.trace_bound)

    @property
    def nonnegative(self) -> bool:
        """Positive semidefinite."""
        return True

    @property
    def shape(self) -> tuple[int, ...]:
        return (2 * self.state_dim + self.input_dim,) * 2

    def contribution(self, record: LQTrajectory, query: object) -> Float[Array, "q q"]:
        """V^T V of the rows v_h: the trace is the squared norm of V, so clipping V clips it."""
        del query
        z, following = self.transitions(record)
        V = clip_by_norm(jnp.concatenate([z, self.target_weight * following], axis=1), math.sqrt(self.trace_bound))
        return V.T @ V

    def l2(self, adjacency: Adjacency) -> float:
        return l2_of_outer_products(math.sqrt(self.trace_bound), adjacency)

    def l1(self, adjacency: Adjacency) -> float:
        return self.shape[0] * self.trace_bound * (2.0 if adjacency == "replace-one" else 1.0)


def joint_weight(gain_bound: float) -> float:
    """c with c^2 = (sqrt 2 - 1)(1 + gamma^2)."""
    return math.sqrt((math.sqrt(2.0) - 1.0) * (1.0 + gain_bound**2))


class AbstractBoundedMoment(AbstractLQMoment):
    """A sum over transitions in which states are scaled to norm 1 and inputs to norm gamma, step by step."""

    gain_bound: float = eqx.field(static=True)
    symmetric: bool = eqx.field(static=True, default=False, init=False)

    def __check_init__(self) -> None:
        check_not_negative(gain_bound=self.gain_bound)

    def bounded(self, record: LQTrajectory) -> tuple[Float[Array, "H p"], Float[Array, "H n"]]:
        """The transitions with |x|, |x'| <= 1 and |u| <= gamma, by scaling each vector that is longer."""
        z, following = self.transitions(record)
        n, clip = self.state_dim, eqx.filter_vmap(clip_by_norm, in_axes=(0, None))
        z = jnp.concatenate([clip(z[:, :n], 1.0), clip(z[:, n:], self.gain_bound)], axis=1)
        return z, clip(following, 1.0)


class LQGram(AbstractBoundedMoment):
    """sum_h z_h z_h^T, its entries on and above the diagonal, each of which the paper gives noise of one scale.

    **Formal guarantee.** For a difference D of two contributions, sum_{i<=j} D_ij^2 = (|D|_F^2 + sum_i D_ii^2)/2. The
    first is at most 2 H^2 (1 + gamma^2)^2. The diagonals are a = sum_h z_h^2 and b, non-negative with at most H on the
    states and H gamma^2 on the inputs: |a - b|^2 <= 2 H^2 (1 + gamma^4). So two people differ by at most
    sqrt(2) H sqrt(1 + gamma^2 + gamma^4), which orthogonal states and orthogonal inputs along the axes meet; the half
    of |M|_F^2 + sum M_ii^2 <= H^2 ((1 + gamma^2)^2 + 1 + gamma^4), H^2 (1 + gamma^2 + gamma^4), bounds one person. In
    L1 the upper triangle of z z^T has (|z|_1^2 + |z|^2)/2, and |z|_1 <= sqrt(n) + gamma sqrt(d).
    """

    @property
    def nonnegative(self) -> bool:
        """Twice the inner product of two upper triangles is that of the matrices plus that of their diagonals."""
        return True

    @property
    def shape(self) -> tuple[int, ...]:
        p = self.state_dim + self.input_dim
        return (p * (p + 1) // 2,)

    def contribution(self, record: LQTrajectory, query: object) -> Float[Array, " m"]:
        del query
        z, _ = self.bounded(record)
        return (z.T @ z)[np.triu_indices(z.shape[1])]

    def l2(self, adjacency: Adjacency) -> float:
        g = self.gain_bound
        one = self.horizon * math.sqrt(1.0 + g**2 + g**4)
        return math.sqrt(2.0) * one if adjacency == "replace-one" else one

    def l1(self, adjacency: Adjacency) -> float:
        longest = math.sqrt(self.state_dim) + self.gain_bound * math.sqrt(self.input_dim)
        one = self.horizon * (longest**2 + 1.0 + self.gain_bound**2) / 2.0
        return one * (2.0 if adjacency == "replace-one" else 1.0)


def from_upper(entries: Float[Array, " m"], dim: int) -> Float[Array, "p p"]:
    """The symmetric matrix with these entries on and above its diagonal."""
    upper = jnp.zeros((dim, dim)).at[np.triu_indices(dim)].set(entries)
    return upper + jnp.triu(upper, 1).T


class LQCross(AbstractBoundedMoment):
    """sum_h z_h x'_h^T.

    **Formal guarantee.** |z x'^T|_F = |z| |x'| <= sqrt(1 + gamma^2), so a person contributes at most
    H sqrt(1 + gamma^2), and two differ by at most twice that, which x' and -x' after the same z meet. The paper has
    H (1 + gamma), which is smaller for every gamma. In L1, |z x'^T|_1 = |z|_1 |x'|_1.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.state_dim + self.input_dim, self.state_dim)

    def contribution(self, record: LQTrajectory, query: object) -> Float[Array, "p n"]:
        del query
        z, following = self.bounded(record)
        return z.T @ following

    def l2(self, adjacency: Adjacency) -> float:
        return l2_of_sum(self.horizon * math.sqrt(1.0 + self.gain_bound**2), adjacency)

    def l1(self, adjacency: Adjacency) -> float:
        n, d = self.state_dim, self.input_dim
        one = self.horizon * (math.sqrt(n) + self.gain_bound * math.sqrt(d)) * math.sqrt(n)
        return one * (2.0 if adjacency == "replace-one" else 1.0)
