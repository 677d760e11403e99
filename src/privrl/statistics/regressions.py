"""Moments of a whole episode under public weights: its Gram matrices, and regressions on values asked about later.

One person has at most one transition per step. With phi = phi(s_h, a_h), ||phi|| <= 1, and w_h(s, a) the public weight
that was published with the policy (1 where nothing was, cut to [0, 1]), they contribute for every step h

    w phi phi^T                               (`Grams`, packed)
    w phi e_{s'}^T, and w phi r               (`Regressions`, asked about later; `WeightedTransitions`, as they are)
    e_{s_h}                                   (`StateVisits`)

A symmetric matrix is **packed** as its upper triangle with the entries above the diagonal times sqrt 2. Packing keeps
inner products: <pack A, pack B> = tr(A B), so distances are Frobenius distances, independent noise of one scale on the
packed numbers is the Gaussian orthogonal ensemble, and phi^T A phi = <pack A, pack(phi phi^T)>: the quadratic forms of
all (s, a) are one matrix product.

**Formal guarantee** (for all records and all queries). `Grams`: a block w phi phi^T is positive semidefinite of
Frobenius norm at most 1, so two of them are at most sqrt 2 apart (reached by orthogonal unit features), and the H
blocks of two people at most sqrt(2 H). `Regressions`: an answer has rows w v(s') phi with |v| <= 1 (and w (2r - 1) phi
or w r phi), each of norm at most 1, so two people are at most 2 apart in each row (phi' = -phi) and 2 sqrt(n) in n
rows. Adding or removing a person moves `Grams` by at most sqrt(H) and `Regressions` by at most sqrt(n).
`WeightedTransitions`: as `FeatureTransitions`, whose bound holds for any two tables of weights in [0, 1].
`StateVisits`: one state per step at most, so two people are at most sqrt(2 H) apart in L2 and 2 H in L1.
"""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from privrl.contracts.statistic import AbstractStatistic, Adjacency
from privrl.mdp.features import AbstractFeatures
from privrl.mdp.types import Transitions
from privrl.statistics.next_states import FeatureTransitions
from privrl.statistics.row_statistics import clipped_reward, within
from privrl.statistics.setting_checks import check_features, check_sizes, unit_features, unit_weights


def packed_size(d: int) -> int:
    """The number of entries of a packed d x d matrix."""
    return d * (d + 1) // 2


def pack(matrix: Float[Array, "*batch d d"]) -> Float[Array, "*batch m"]:
    """The upper triangle, entries above the diagonal times sqrt 2."""
    i, j, factor = _triangle(matrix.shape[-1])
    return matrix[..., i, j] * factor.reshape((1,) * (matrix.ndim - 2) + (-1,))


def pack_outer(phi: Float[Array, "*batch d"]) -> Float[Array, "*batch m"]:
    """`pack(phi phi^T)`, without forming it."""
    i, j, factor = _triangle(phi.shape[-1])
    return phi[..., i] * phi[..., j] * factor.reshape((1,) * (phi.ndim - 1) + (-1,))


def unpack(packed: Float[Array, "*batch m"], d: int) -> Float[Array, "*batch d d"]:
    """The symmetric matrix of a packed one."""
    i, j, factor = _triangle(d)
    place = np.zeros((d, d), int)
    place[i, j] = place[j, i] = np.arange(len(i))
    return packed[..., place] / factor[place].reshape((1,) * (packed.ndim - 1) + (d, d))


class _AbstractEpisode(AbstractStatistic):
    """A sum over the steps of an episode, each transition times its published weight."""

    features: AbstractFeatures
    horizon: int = eqx.field(static=True)
    symmetric: bool = eqx.field(static=True, default=False, init=False)

    def __check_init__(self) -> None:
        check_features(self.features)
        check_sizes(horizon=self.horizon)

    def l1(self, adjacency: Adjacency) -> float:
        return math.sqrt(math.prod(self.shape)) * self.l2(adjacency)

    def _weighted(self, record: PyTree, query: PyTree) -> tuple[Transitions, Float[Array, "H d"], Float[Array, "H d"]]:
        """The rows of an episode and, per step, w phi and phi; w is 0 without a step or outside the world."""
        rows = _checked(Transitions.from_trajectory(record), self.horizon)
        counted = within(rows, self.features.num_states, self.features.num_actions, "ignored") & (rows.count > 0)
        s, a = jnp.where(counted, rows.state, 0), jnp.where(counted, rows.action, 0)
        weight = counted.astype(float)
        if query is not None and query.query is not None:
            w = query.query[jnp.arange(self.horizon), s, a]
            weight = weight * unit_weights(w)
        phi = unit_features(self.features, s, a, counted)
        return rows, weight[:, None] * phi, phi


class Grams(_AbstractEpisode):
    """sum w_h phi_h phi_h^T for every step, packed: `[H, d(d+1)/2]`.

    The weights `[H, S, A]` are the `query` of the published plan; without one they are 1.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.horizon, packed_size(self.features.dim))

    @property
    def nonnegative(self) -> bool:
        """Positive semidefinite at every step, each in the coordinates of the Frobenius norm."""
        return True

    def contribution(self, record: PyTree, query: PyTree) -> Float[Array, "H m"]:
        _, weighted, phi = self._weighted(record, query)
        i, j, factor = _triangle(self.features.dim)
        return weighted[:, i] * phi[:, j] * factor[None]

    def l2(self, adjacency: Adjacency) -> float:
        return math.sqrt((2.0 if adjacency == "replace-one" else 1.0) * self.horizon)


class Regressions(_AbstractEpisode):
    """sum w_h phi_h v(s_{h+1}) at one step, for `rows` public functions v that are asked about later.

    The curator keeps sum w phi e_{s'}^T per step (and sum w phi r with `with_reward`). A query is (h, v) with v
    `[rows, S]` cut to [-1, 1] (0 where it is not a number). With rewards the answer has one more row: the sum of
    w phi (2r - 1), or of w phi r if not `centred`, r cut to [0, 1].
    """

    rows: int = eqx.field(static=True, default=1)
    with_reward: bool = eqx.field(static=True, default=False)
    centred: bool = eqx.field(static=True, default=True)

    def __check_init__(self) -> None:
        check_sizes(rows=self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.rows + self.with_reward, self.features.dim)

    @property
    def raw_shape(self) -> tuple[int, ...]:
        return (self.horizon, self.features.num_states + self.with_reward, self.features.dim)

    def contribution(self, record: PyTree, query: PyTree) -> Float[Array, "H n d"]:
        rows, weighted, _ = self._weighted(record, query)
        S = self.features.num_states
        selected = jax.nn.one_hot(rows.next_state, S, dtype=float)  # nowhere outside the world: a row of zeros
        if self.with_reward:
            reward = clipped_reward(rows)
            reward = 2.0 * reward - rows.count if self.centred else reward
            selected = jnp.concatenate([selected, reward[:, None]], axis=1)
        return selected[:, :, None] * weighted[:, None, :]

    def answer(
        self, total: Float[Array, "H n d"], query: tuple[int | Int[Array, ""], Float[Array, "rows S"]] | None
    ) -> Float[Array, "answers d"]:
        S = self.features.num_states
        h, v = (0, jnp.ones((self.rows, S))) if query is None else query
        v = jnp.clip(jnp.where(jnp.isnan(v), 0.0, v), -1.0, 1.0)
        answers = jnp.matmul(v, total[h, :S], precision="highest")
        return jnp.concatenate([answers, total[h, S:]]) if self.with_reward else answers

    def l2(self, adjacency: Adjacency) -> float:
        return (2.0 if adjacency == "replace-one" else 1.0) * math.sqrt(self.shape[0])


class WeightedTransitions(_AbstractEpisode):
    """`FeatureTransitions` with the weights `[H, S, A]` that were published with the policy (1 without any)."""

    with_rewards: bool = eqx.field(static=True, default=False)

    @property
    def _unweighted(self) -> FeatureTransitions:
        return FeatureTransitions(self.features, self.horizon, self.with_rewards)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._unweighted.shape

    @property
    def nonnegative(self) -> bool:
        return self._unweighted.nonnegative

    @property
    def least_inner_product(self) -> float:
        return self._unweighted.least_inner_product

    def contribution(self, record: PyTree, query: PyTree) -> Float[Array, "H slots d"]:
        given = None if query is None else query.query
        weights = None if given is None else unit_weights(given)
        return FeatureTransitions(self.features, self.horizon, self.with_rewards, weights).contribution(record, None)

    def l2(self, adjacency: Adjacency) -> float:
        return self._unweighted.l2(adjacency)

    def l1(self, adjacency: Adjacency) -> float:
        return self._unweighted.l1(adjacency)


class StateVisits(AbstractStatistic):
    """How many people were in each state at each step: `[H, S]`."""

    num_states: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    symmetric: bool = eqx.field(static=True, default=False, init=False)

    def __check_init__(self) -> None:
        check_sizes(num_states=self.num_states, horizon=self.horizon)

    @property
    def nonnegative(self) -> bool:
        return True

    @property
    def shape(self) -> tuple[int, ...]:
        return self.horizon, self.num_states

    def contribution(self, record: PyTree, query: PyTree) -> Float[Array, "H S"]:
        del query
        rows = _checked(Transitions.from_trajectory(record), self.horizon)
        return jax.nn.one_hot(rows.state, self.num_states, dtype=float) * rows.count[:, None]

    def l2(self, adjacency: Adjacency) -> float:
        return math.sqrt((2.0 if adjacency == "replace-one" else 1.0) * self.horizon)

    def l1(self, adjacency: Adjacency) -> float:
        return (2.0 if adjacency == "replace-one" else 1.0) * self.horizon


def _checked(rows: Transitions, horizon: int) -> Transitions:
    """The rows of an episode, one per step."""
    if rows.count.shape != (horizon,):
        raise ValueError(
            f"An episode has {rows.count.shape[0]} steps and `horizon` is {horizon}. Cut or pad episodes to the "
            "horizon."
        )
    return rows


@functools.lru_cache(maxsize=64)
def _triangle(d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    i, j = np.triu_indices(d)
    return i, j, np.where(i == j, 1.0, math.sqrt(2.0))
