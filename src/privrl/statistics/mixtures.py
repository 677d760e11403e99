"""What one person of a linear mixture MDP sends: for each step the Gram term and the target of value regression.

With V_{h+1} the *published* value function and phi_V(s,a) = sum_s' phi(s'|s,a) V(s'), step h adds

    Lambda_h += phi_V phi_V^T,    u_h += phi_V V_{h+1}(s_{h+1}),    phi_V = phi_{V_{h+1}}(s_h, a_h).

Everything but (s_h, a_h, s_{h+1}) is public, V too. The last step is not sent: its V is 0.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from privrl.contracts.statistic import AbstractStatistic, Adjacency
from privrl.mdp.types import Transitions, number
from privrl.privacy.noise.bounding import clip_by_norm
from privrl.statistics.row_statistics import within
from privrl.statistics.setting_checks import check_array, check_sizes

_ROUNDING = 1.0 + 1e-12  # norms are computed in float64, and must not come out too small


class MixtureMoments(AbstractStatistic):
    """The upper triangles of Lambda_1, ..., Lambda_{H-1} and the vectors u_1, ..., u_{H-1}, as one vector.

    The shape is `[H-1, B, m(m+1)/2 + m]`. One-hot features are sent as the B = SA blocks (s,a) of size m = S, outside
    which Lambda is 0 whatever happened; general features, and one-hot ones `as_printed`, as one block of size m = d.
    General features have their off-diagonal entries multiplied by sqrt 2 (unless `as_printed`), so that the norm of the
    vector is the Frobenius norm and the noise of these entries is smaller.

    Arguments:
        ranges: v_0, ..., v_{H-1}: the published V_h lies in [0, v_h].
        num_states, num_actions: S and A.
        base: phi(s'|s,a); one-hot, e_{s,a,s'}, if left out.
        norm: L, with ||phi_V|| <= L v for V in [0, v]^S (general features).
        as_printed: the layout of the paper, whose noise is independent in all entries of the upper triangle.

    The query is the published plan: its `query` holds V_0, ..., V_{H-1}, `[H, S]`.

    **Formal guarantee** (for all records and queries). V is clipped to [0, v], phi_V to norm L v, and a step outside
    the finite world, or without a next state, adds nothing; one episode has one transition per step. Let v be the
    range of V_{h+1}; steps are different slots, so squares add up over h.

    *One-hot.* A term lies in the block of (s,a), where phi_V = V. Terms in different blocks are orthogonal. Their upper
    triangle has squared norm (|V|^4 + sum V_i^4)/2 <= S(S+1)/2 v^4, their vector |V|^2 V(s')^2 <= S v^4. So two records
    differ by at most 2 (S(S+1)/2 + S) v^4 = (S^2 + 3S) v^4, met by V = v; in one block the Gram terms are equal and the
    vectors differ by at most S v^4. Delta^2 = (S^2 + 3S) sum_h v_h^4.

    *General.* Write a = (phi, y), b = (psi, y') with y, y' in [0, v] and t = <phi, psi>. Then
    ||phi phi^T - psi psi^T||_F^2 + |phi y - psi y'|^2 = ||phi a^T - psi b^T||_F^2 = |phi|^2 |a|^2 + |psi|^2 |b|^2
    - 2 t (t + y y'). The first two are at most L^2 (L^2 + 1) v^4 each, and the last at most v^4/2 (t = -y y'/2), or
    2 L^2 (1 - L^2) v^4 where |t| <= L^2 v^2 forbids that (L^2 < 1/2). For L = 1: 4.5 v^4. An upper triangle
    without the sqrt 2 has at most the Frobenius norm. Two terms, whatever was published to either, have the inner
    product t (t + y y'), which is at least minus half of that last bound.
    """

    ranges: Float[Array, " H"]
    num_states: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    base: Float[Array, "S A S d"] | None = None
    norm: Float[Array, ""] = eqx.field(converter=number, default=1.0)
    as_printed: bool = eqx.field(static=True, default=False)
    symmetric: bool = eqx.field(static=True, default=False, init=False)

    def __check_init__(self) -> None:
        check_sizes(num_states=self.num_states, num_actions=self.num_actions)
        if self.ranges.ndim != 1 or self.ranges.shape[0] < 2:
            raise ValueError(f"`ranges` has shape {self.ranges.shape}; give one per step, of at least two steps.")
        check_array("ranges", self.ranges, self.ranges.shape, low=0.0)
        check_array("norm", self.norm, (), low=0.0)
        if self.base is not None:
            S, A = self.num_states, self.num_actions
            if self.base.ndim != 4 or self.base.shape[3] < 1:
                raise ValueError(f"`base` has shape {self.base.shape}; it must be (states, actions, states, features).")
            check_array("base", self.base, (S, A, S, self.base.shape[3]))

    @property
    def blocks(self) -> tuple[int, int]:
        """The number of blocks of Lambda_h that are sent, and their size."""
        S, A = self.num_states, self.num_actions
        if self.base is not None:
            return 1, self.base.shape[-1]
        return (1, S * A * S) if self.as_printed else (S * A, S)

    @property
    def nonnegative(self) -> bool:
        """One-hot features: values and targets are not negative."""
        return self.base is None

    @property
    def least_inner_product(self) -> float:
        if self.base is None or self.as_printed:
            return super().least_inner_product
        L2 = (float(self.norm) * _ROUNDING) ** 2
        return -(0.25 if L2 >= 0.5 else L2 * (1.0 - L2)) * float(np.sum(np.asarray(self.ranges)[1:] ** 4))

    @property
    def weight(self) -> float:
        """What the entries above the diagonal are multiplied by."""
        return 1.0 if self.base is None or self.as_printed else math.sqrt(2.0)

    @property
    def shape(self) -> tuple[int, ...]:
        B, m = self.blocks
        return self.ranges.shape[0] - 1, B, m * (m + 1) // 2 + m

    def features(self, V: Float[Array, " S"], top: Float[Array, ""]) -> Float[Array, "S A m"]:
        """phi_V(s,a) for all pairs, each within its own block, for a V that is clipped to [0, top]."""
        S, A = self.num_states, self.num_actions
        V = jnp.where(jnp.isfinite(V), jnp.clip(V, 0.0, top), 0.0)
        if self.base is not None:
            phi = jnp.einsum("saxd,x->sad", self.base, V, precision="highest")
            return jax.vmap(jax.vmap(lambda x: clip_by_norm(x, self.norm * top)))(phi)
        if self.as_printed:
            return jnp.kron(jnp.eye(S * A), V[None, :]).reshape(S, A, S * A * S)
        return jnp.broadcast_to(V, (S, A, S))

    def parts(self, record: PyTree, query: PyTree) -> tuple[Int[Array, " P"], Float[Array, "P n"]]:
        """One block per step: the one of its (s,a), or the only one."""
        S, A, B = self.num_states, self.num_actions, self.blocks[0]
        rows = jax.tree.map(lambda x: jnp.asarray(x)[: self.shape[0]], Transitions.from_trajectory(record))
        taken = within(rows, S, A, "needed") & (rows.count > 0)
        s, a, after = (jnp.where(taken, x, 0) for x in (rows.state, rows.action, rows.next_state))
        V, top = query.query[1:], self.ranges[1:]
        tables = jax.vmap(self.features)(V, top)
        phi = jnp.where(taken[:, None], tables[rows.step, s, a], 0.0)
        reached = V[rows.step, after]
        target = jnp.where(jnp.isfinite(reached), jnp.clip(reached, 0.0, top), 0.0)
        i, j = np.triu_indices(self.blocks[1])
        gram = phi[:, i] * phi[:, j] * jnp.where(i == j, 1.0, self.weight)[None, :]  # [liao-he-gu A1:12] without W_h
        place = rows.step * B + (s * A + a if B > 1 else 0)
        return place, jnp.concatenate([gram, phi * target[:, None]], axis=1)  # [liao-he-gu A1:13] without xi_h

    def contribution(self, record: object, query: object) -> Float[Array, "T B n"]:
        place, blocks = self.parts(record, query)
        T, B, n = self.shape
        return jnp.zeros((T * B, n)).at[place].add(blocks).reshape(self.shape)

    def matrices(self, total: Float[Array, "T B n"]) -> tuple[Float[Array, "T B m m"], Float[Array, "T B m"]]:
        """Lambda and u of a (noisy) sum."""
        m = self.blocks[1]
        i, j = np.triu_indices(m)
        above = total[..., : len(i)] / jnp.where(i == j, 1.0, self.weight)[None, None, :]
        upper = jnp.zeros((*total.shape[:-1], m, m)).at[..., i, j].set(above)
        return upper + jnp.swapaxes(jnp.triu(upper, 1), -1, -2), total[..., len(i) :]

    def l2(self, adjacency: Adjacency) -> float:
        S, L2 = self.num_states, (float(self.norm) * _ROUNDING) ** 2
        if self.base is None:
            one, two = S * (S + 1) / 2 + S, S**2 + 3.0 * S
        else:
            one = L2 * (L2 + 1.0)
            two = 2.0 * one + (0.5 if L2 >= 0.5 else 2.0 * L2 * (1.0 - L2))
        return math.sqrt((two if adjacency == "replace-one" else one) * float(np.sum(np.asarray(self.ranges)[1:] ** 4)))

    def l1(self, adjacency: Adjacency) -> float:
        """Twice the largest L1 norm of a term; |phi_V|_1 <= sqrt(d) L v for general features."""
        S, d, L, w = self.num_states, self.blocks[1], float(self.norm) * _ROUNDING, self.weight
        if self.base is None:
            one = S * (S + 1) / 2 + S
        else:
            one = L**2 * (w / 2 * d + 1 - w / 2) + math.sqrt(d) * L
        return (2.0 if adjacency == "replace-one" else 1.0) * one * float(np.sum(np.asarray(self.ranges)[1:] ** 2))


def feature_norm(base: Float[Array, "S A S d"]) -> Float[Array, ""]:
    """An L with ||phi_V(s,a)|| <= L v for every V in [0, v]^S: the sums of the positive or negative parts, the larger.

    Exact for features without negative entries, where V = v is the worst case.
    """
    positive, negative = jnp.maximum(base, 0.0).sum(axis=2), jnp.maximum(-base, 0.0).sum(axis=2)
    return jnp.sqrt((jnp.maximum(positive, negative) ** 2).sum(axis=-1).max())
