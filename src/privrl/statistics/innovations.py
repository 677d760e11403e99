"""What one episode of a linear system says beyond what is already believed about it.

With a published belief Theta-hat about x' = Theta^T z + w, z = [x; u], a person's surprises are
e_h = x_{h+1} - Theta-hat^T z_h. Their inputs contain exploration v_h of publicly known covariance (r^2/d) I,
independent of the past, and their first state has a public second moment X_1. So

    s_v = sum_h v_h e_h^T     has mean (H r^2/d) (B - B-hat)^T,
    s_x = x_1 e_1^T           has mean [X_1, X_1 K_1^T] (Theta - Theta-hat),

and no Gram matrix has to be released: what multiplies the unknown is public. Surprises are small once the belief is
good, so they are clipped at levels tau that were published with the belief, and the noise shrinks with them.

**Formal guarantee** (for all records, whatever they say). The term is (s_x/tau_x; s_v/tau_v), each of the two scaled
down to Frobenius norm at most 1; a part with numbers that are not finite (tau = 0, say) is zero. Two terms differ by at
most 2 in each part, reached by opposite ones, so by 2 sqrt(2) together; one term has norm at most sqrt(2). Theta-hat
and tau come from earlier releases, so they are public. No bound on states or noise is assumed.
"""

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from privrl.contracts.statistic import AbstractStatistic, Adjacency
from privrl.mdp.lq import LQTrajectory
from privrl.privacy.noise.bounding import clip_by_norm
from privrl.privacy.noise.sensitivities import l2_of_outer_products
from privrl.statistics.setting_checks import SMALLEST, check_array, check_sizes


class Surprise(eqx.Module):
    """The public query: what is believed, and how much surprise one person may report.

    Attributes:
        parameters: Theta-hat = [A, B]^T.
        first_clip: tau_x, the largest norm of x_1 e_1^T.
        exploration_clip: tau_v, the largest norm of sum_h v_h e_h^T.
    """

    parameters: Float[Array, "p n"]
    first_clip: Float[Array, ""]
    exploration_clip: Float[Array, ""]


class Innovations(AbstractStatistic):
    """(x_1 e_1^T / tau_x; sum_h v_h e_h^T / tau_v), shape `[n + d, n]`, each part of norm at most 1.

    The plan that people act on carries a `Surprise` as its query.

    Arguments:
        state_dim, input_dim: n and d.
    """

    state_dim: int = eqx.field(static=True)
    input_dim: int = eqx.field(static=True)
    symmetric: bool = eqx.field(static=True, default=False, init=False)

    def __check_init__(self) -> None:
        check_sizes(state_dim=self.state_dim, input_dim=self.input_dim)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.state_dim + self.input_dim, self.state_dim

    def contribution(self, record: LQTrajectory, query: PyTree) -> Float[Array, "p n"]:
        asked: Surprise = query.query
        states, inputs, explored = (jnp.asarray(x, float) for x in (record.states, record.inputs, record.exploration))
        taken = (jnp.arange(inputs.shape[0]) < record.length)[:, None]
        x, v = jnp.where(taken, states[:-1], 0.0), jnp.where(taken, explored, 0.0)
        z = jnp.concatenate([x, jnp.where(taken, inputs, 0.0)], axis=1)
        e = jnp.where(taken, states[1:], 0.0) - z @ asked.parameters
        first = clip_by_norm(jnp.outer(x[0], e[0]) / asked.first_clip, 1.0)
        return jnp.concatenate([first, clip_by_norm(v.T @ e / asked.exploration_clip, 1.0)])

    def l2(self, adjacency: Adjacency) -> float:
        return math.sqrt(2.0) * (2.0 if adjacency == "replace-one" else 1.0)

    def l1(self, adjacency: Adjacency) -> float:
        n, d = self.state_dim, self.input_dim
        return (n + math.sqrt(d * n)) * (2.0 if adjacency == "replace-one" else 1.0)


class FirstStates(AbstractStatistic):
    """x_1 x_1^T / radius^2, shape `[n, n]`: where people start, if that is not public.

    **Formal guarantee.** x_1/radius is scaled down to norm 1 (0 if it is not finite), so two terms differ by at most
    sqrt(2) in Frobenius norm and one has norm at most 1, whatever the record. In L1 one term is (sum |x_i|)^2 <= n.

    Arguments:
        state_dim: n.
        radius: the public norm to which first states are cut.
    """

    state_dim: int = eqx.field(static=True)
    radius: Float[Array, ""]
    symmetric: bool = eqx.field(static=True, default=True, init=False)

    def __check_init__(self) -> None:
        check_sizes(state_dim=self.state_dim)
        check_array("radius", self.radius, (), low=SMALLEST)

    @property
    def nonnegative(self) -> bool:
        """Positive semidefinite."""
        return True

    @property
    def shape(self) -> tuple[int, ...]:
        return self.state_dim, self.state_dim

    def contribution(self, record: LQTrajectory, query: PyTree) -> Float[Array, "n n"]:
        del query
        first = jnp.where(record.length > 0, jnp.asarray(record.states, float)[0], 0.0)
        x = clip_by_norm(first / self.radius, 1.0)
        return jnp.outer(x, x)

    def l2(self, adjacency: Adjacency) -> float:
        return l2_of_outer_products(1.0, adjacency)

    def l1(self, adjacency: Adjacency) -> float:
        return self.state_dim * (2.0 if adjacency == "replace-one" else 1.0)
