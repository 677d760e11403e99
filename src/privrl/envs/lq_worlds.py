"""Linear quadratic worlds: three small systems, and a model of overnight insulin.

Regret is J(policy) - J*, computed exactly by the Lyapunov recursion of the policy; `value` is minus the expected cost,
so that larger is better as in every other world. The natural scale of a total regret R(K) is K (J_zero - J*): 1 means
doing nothing, 0 the optimum.
"""

from collections.abc import Hashable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from privrl.envs.base import check_at_least
from privrl.mdp.lq import LinearPolicy, LQTask, LQTrajectory, lq_rollout
from privrl.mdp.multinomial import AnyKey
from privrl.mdp.riccati import linear_cost, optimal_cost, riccati


class LQEnv(eqx.Module):
    """A linear system that can be simulated and evaluated exactly, inside `jit` and `vmap` too.

    Arguments:
        A, B: the dynamics, which learners do not know.
        task: the public facts: costs, horizon, radii.
        name, arguments, seed: the arguments with which `make` builds this world again.
    """

    A: Float[Array, "n n"]
    B: Float[Array, "n d"]
    task: LQTask
    name: str = eqx.field(static=True)
    arguments: tuple[tuple[str, Hashable], ...] = eqx.field(static=True, default=())
    seed: int = eqx.field(static=True, default=0)

    def __check_init__(self) -> None:
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(self)):
            return
        task = self.task
        for what, cost in {"state_cost": task.state_cost, "input_cost": task.input_cost}.items():
            if not np.linalg.eigvalsh(np.asarray(cost)).min() > 0:
                raise ValueError(f"`{what}` of environment `{self.name}` must be positive definite.")
        size = float(jnp.linalg.norm(self.parameters))
        if size > float(task.parameter_radius):
            raise ValueError(
                f"The parameters of environment `{self.name}` have Frobenius norm {size:.4g}, above the public "
                f"`parameter_radius` {float(task.parameter_radius):.4g}. Give a larger radius."
            )

    @property
    def parameters(self) -> Float[Array, "p n"]:
        """Theta = [A, B]^T, so that x' = Theta^T [x; u] + w."""
        return jnp.concatenate([self.A, self.B], axis=1).T

    @property
    def horizon(self) -> int:
        return self.task.horizon

    @property
    def _costs(self) -> tuple[Float[Array, "n n"], Float[Array, "n d"], Float[Array, "n n"], Float[Array, "d d"]]:
        return self.A, self.B, self.task.state_cost, self.task.input_cost

    @property
    def _moments(self) -> tuple[Float[Array, "n n"], Float[Array, "n n"]]:
        """E x_1 x_1^T, and E w w^T = Cw^2/(n + 2) I: the ball, not the sphere."""
        n = self.task.state_dim
        return self.task.first_moment, self.task.noise_radius**2 / (n + 2) * jnp.eye(n)

    @property
    def optimal_value(self) -> Float[Array, ""]:
        """Minus the smallest expected cost J*."""
        return -optimal_cost(*self._costs, *self._moments, self.horizon)

    def optimal_policy(self) -> LinearPolicy:
        """The best policy, from the Riccati recursion; it is linear and does not explore."""
        return LinearPolicy(riccati(*self._costs, self.horizon)[0])

    def value(self, policy: LinearPolicy) -> Float[Array, ""]:
        """Minus a policy's expected cost, including its exploration, exactly."""
        exploration = policy.radius**2 / self.task.input_dim * jnp.eye(self.task.input_dim)
        return -linear_cost(*self._costs, policy.gains, *self._moments, exploration)

    def regret(self, policy: LinearPolicy) -> Float[Array, ""]:
        """The expected loss of one episode of the policy against the optimum, exactly."""
        return self.optimal_value - self.value(policy)

    def total_regret(self, policy: LinearPolicy, episodes: int) -> float:
        """The expected loss of `episodes` people who all follow one policy."""
        return episodes * float(self.regret(policy))

    def rollout(self, policy: LinearPolicy, key: AnyKey) -> LQTrajectory:
        """Simulate one episode; `vmap` it over keys."""
        return lq_rollout(self.A, self.B, self.task, policy, key)

    def zero_policy(self) -> LinearPolicy:
        """The policy whose input is always 0, with which every learner here is compared."""
        return LinearPolicy.zero(self.horizon, self.task.state_dim, self.task.input_dim)

    def fixed_policies(self) -> dict[str, LinearPolicy]:
        """Policies that never learn, by name; the first uses no knowledge at all."""
        return {"zero": self.zero_policy()}


def _world(
    name: str,
    A: list[list[float]],
    B: list[list[float]],
    state_cost: list[float],
    input_cost: list[float],
    horizon: int,
    **radii: Any,
) -> LQEnv:
    costs = (jnp.diag(jnp.array(state_cost)), jnp.diag(jnp.array(input_cost)))
    task = LQTask(*costs, check_at_least("horizon", horizon, 1), **radii)
    return LQEnv(jnp.array(A), jnp.array(B), task, name, (("horizon", horizon),))


def LQScalar(horizon: int = 5) -> LQEnv:
    """A number that decays by itself and can be pushed.

    Arguments:
        horizon: steps per episode.
    """
    return _world("lq-scalar", [[0.8]], [[0.5]], [1.0], [2.3], horizon, gain_bound=0.3)


def LQ2D(horizon: int = 5) -> LQEnv:
    """Two coupled numbers and one input.

    Arguments:
        horizon: steps per episode.
    """
    A = [[0.70, 0.15], [0.0, 0.55]]
    return _world("lq-2d", A, [[0.20], [0.35]], [1.0, 1.0], [0.65], horizon, gain_bound=0.5)


def LQ4D(horizon: int = 5) -> LQEnv:
    """Four numbers in a chain and two inputs.

    Arguments:
        horizon: steps per episode.
    """
    A = [[0.78, 0.05, 0.0, 0.0], [0.0, 0.3, 0.05, 0.0], [0.0, 0.0, 0.2, 0.05], [0.0, 0.0, 0.0, 0.1]]
    B = [[0.35, 0.0], [0.0, 0.25], [0.1, 0.0], [0.0, 0.1]]
    return _world("lq-4d", A, B, [1.0] * 4, [1.15] * 2, horizon, gain_bound=0.4)


def Glucose(horizon: int = 8) -> LQEnv:
    """Basal insulin overnight, as a linear model: a demonstration, not medical advice.

    One person is one night of hourly steps. The state is g = (glucose - basal)/100 mg/dl and 1.5 times the insulin on
    board v, the input u = (insulin - basal)/(2 U/h):

        g' = .800 g - .419 v - .022 u        v' = .85 v + .4 u

    The coefficients are fitted to the ten adults of the UVa/Padova parameters in `simglucose`. Do not dose insulin with
    this model. The best gains have norm .98, above the public bound .6, so no admissible policy reaches regret 0.

    Arguments:
        horizon: hours of a night.
    """
    scale = 1.5
    A = [[0.800, -0.419 / scale], [0.0, 0.85]]
    B = [[-0.022], [0.4 * scale]]
    radii = {"gain_bound": 0.6, "parameter_radius": 1.5, "noise_radius": 0.08, "first_radius": 0.5}
    return _world("glucose", A, B, [1.0, 0.05], [0.35], horizon, **radii)
