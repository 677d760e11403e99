"""Families of Q tables that are learnt by gradients: the table itself, linear in features, a small network."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from privrl.contracts.statistic import AbstractStatistic
from privrl.statistics.gradients import BellmanGradient, ParameterGradient


class AbstractApproximator(eqx.Module):
    """A public family of Q tables with parameters theta."""

    @abc.abstractmethod
    def first(self) -> Float[Array, "*theta"]:
        """The parameters to begin with."""

    @abc.abstractmethod
    def values(self, theta: Float[Array, "*theta"]) -> Float[Array, "S A"]:
        """Q at every state and action."""

    @abc.abstractmethod
    def gradient(self, theta: Float[Array, "*theta"], **settings: object) -> AbstractStatistic:
        """One episode's clipped gradient at theta."""


class TabularQ(AbstractApproximator):
    """Q itself."""

    num_states: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)

    def first(self) -> Float[Array, "S A"]:
        return jnp.zeros((self.num_states, self.num_actions))

    def values(self, theta: Float[Array, "S A"]) -> Float[Array, "S A"]:
        return theta

    def gradient(self, theta: Float[Array, "S A"], **settings: Any) -> BellmanGradient:
        return BellmanGradient(theta, **settings)


class LinearQ(AbstractApproximator):
    """Q(s, a) = <phi(s, a), theta>."""

    table: Float[Array, "S A d"]

    def first(self) -> Float[Array, " d"]:
        return jnp.zeros(self.table.shape[-1])

    def values(self, theta: Float[Array, " d"]) -> Float[Array, "S A"]:
        return jnp.matmul(self.table, theta, precision="highest")

    def gradient(self, theta: Float[Array, " d"], **settings: Any) -> ParameterGradient:
        return ParameterGradient(self.values(theta), slopes=self.table, **settings)


class NetworkQ(AbstractApproximator):
    """Q(x, a) = c_a + sum_i v_ia tanh(w_i x + b_i), one hidden layer on a public coordinate x in [0, 1] of the state.

    It begins with v = c = 0 and units that turn at equally spaced points of [0, 1], all with slope `hidden`/2: public
    and the same in every study, so nothing has to be drawn.
    """

    coordinate: Float[Array, " S"]
    num_actions: int = eqx.field(static=True)
    hidden: int = eqx.field(static=True)

    def first(self) -> Float[Array, " P"]:
        w = jnp.full(self.hidden, self.hidden / 2.0)
        b = -w * (jnp.arange(self.hidden) + 0.5) / self.hidden
        return jnp.concatenate([w, b, jnp.zeros((self.hidden + 1) * self.num_actions)])

    @eqx.filter_jit
    def values(self, theta: Float[Array, " P"]) -> Float[Array, "S A"]:
        w, b, rest = theta[: self.hidden], theta[self.hidden : 2 * self.hidden], theta[2 * self.hidden :]
        v = rest.reshape(self.hidden + 1, self.num_actions)
        units = jnp.tanh(self.coordinate[:, None] * w[None, :] + b[None, :])
        return jnp.matmul(units, v[:-1], precision="highest") + v[-1:]

    @eqx.filter_jit
    def _slopes(self, theta: Float[Array, " P"]) -> Float[Array, "S A P"]:
        return jax.jacrev(self.values)(theta)

    def gradient(self, theta: Float[Array, " P"], **settings: Any) -> ParameterGradient:
        return ParameterGradient(self.values(theta), slopes=self._slopes(theta), **settings)
