"""Linear quadratic control of people who arrive one after another: public facts, policies, episodes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int

from privrl.contracts.policy import AbstractPolicy
from privrl.mdp.multinomial import AnyKey
from privrl.mdp.types import number


class LQTask(eqx.Module):
    """The public facts about a linear quadratic task: all that a learner may know before the first person takes part.

    Arguments:
        state_cost: Q, positive definite.
        input_cost: R, positive definite.
        horizon: H, the number of steps.
        gain_bound: gamma, the largest spectral norm of a gain.
        parameter_radius: a bound on the Frobenius norm of the parameters [A, B].
        noise_radius: Cw, a bound on the norm of the noise of one step.
        first_radius: r1; the first state is uniform on the sphere of this radius.
    """

    state_cost: Float[Array, "n n"]
    input_cost: Float[Array, "d d"]
    horizon: int = eqx.field(static=True)
    gain_bound: Float[Array, ""] = eqx.field(converter=number)
    parameter_radius: Float[Array, ""] = eqx.field(converter=number, default=1.0)
    noise_radius: Float[Array, ""] = eqx.field(converter=number, default=0.05)
    first_radius: Float[Array, ""] = eqx.field(converter=number, default=1.0)

    @property
    def state_dim(self) -> int:
        """n, the dimension of a state."""
        return self.state_cost.shape[-1]

    @property
    def input_dim(self) -> int:
        """d, the dimension of an input."""
        return self.input_cost.shape[-1]

    @property
    def first_moment(self) -> Float[Array, "n n"]:
        """X_1 = E x_1 x_1^T of a first state uniform on its sphere."""
        return self.first_radius**2 / self.state_dim * jnp.eye(self.state_dim)

    @property
    def largest_noise(self) -> Float[Array, "n n"]:
        """The largest isotropic covariance of noise of norm at most Cw: uniform on the sphere."""
        return self.noise_radius**2 / self.state_dim * jnp.eye(self.state_dim)


class LinearPolicy(AbstractPolicy):
    """u_h = K_h x_h + v_h with v_h uniform on the sphere of a public `radius`, drawn independently at every step.

    The exploration v_h is drawn by the person; its distribution is public, its value is private.
    """

    gains: Float[Array, "*batch H d n"]
    radius: Float[Array, "*batch"] = eqx.field(converter=number, default=0.0)

    @classmethod
    def zero(cls, horizon: int, state_dim: int, input_dim: int) -> "LinearPolicy":
        """The policy whose input is always 0."""
        return cls(jnp.zeros((horizon, input_dim, state_dim)))


class LQTrajectory(eqx.Module):
    """One person's episode: states x_1, ..., x_{H+1}, inputs u_h, and the exploration v_h contained in them.

    Steps from `length` on are padding. All of it is private; batch axes go in front.
    """

    states: Float[Array, "*batch steps n"]
    inputs: Float[Array, "*batch H d"]
    exploration: Float[Array, "*batch H d"]
    length: Int[Array, "*batch"]


@eqx.filter_jit
def lq_rollout(
    A: Float[Array, "n n"], B: Float[Array, "n d"], task: LQTask, policy: LinearPolicy, key: AnyKey
) -> LQTrajectory:
    """One episode of x_{h+1} = A x_h + B u_h + w_h, w_h uniform in the ball of radius Cw, x_1 uniform on its sphere."""
    first, noise, exploration = _draws(policy, key)
    first, noise = task.first_radius * first, task.noise_radius * noise

    def step(x: Array, given: tuple[Array, Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        K, v, w = given
        u = K @ x + v
        following = A @ x + B @ u + w
        return following, (following, u)

    _, (states, inputs) = jax.lax.scan(step, first, (policy.gains, exploration, noise))
    return LQTrajectory(jnp.concatenate([first[None], states]), inputs, exploration, jnp.asarray(task.horizon))


def explorations(policy: LinearPolicy, key: AnyKey) -> Float[Array, "H d"]:
    """The exploration v_h that `lq_rollout` with this key adds to the inputs of all steps."""
    return _draws(policy, key)[2]


def _draws(policy: LinearPolicy, key: AnyKey) -> tuple[Float[Array, " n"], Float[Array, "H n"], Float[Array, "H d"]]:
    """First state and noise relative to their radii, and the exploration, all from one key."""
    H, d, n = policy.gains.shape
    white = jr.normal(key, (n + H * (n + 2 + d),))  # one draw compiles faster than several
    steps = white[n:].reshape(H, n + 2 + d)
    # The first n coordinates of a uniform point on the sphere in n + 2 dimensions are uniform in the ball.
    noise = _directions(steps[:, : n + 2])[:, :n]
    return _directions(white[:n]), noise, policy.radius * _directions(steps[:, n + 2 :])


def _directions(white: Float[Array, "*steps n"]) -> Float[Array, "*steps n"]:
    """Uniform on unit spheres of the last axis, from normal numbers."""
    return white / jnp.linalg.norm(white, axis=-1, keepdims=True)
