"""FunctionalReward: the best policy for a secret reward function, from one noisy release of the function.

The world is public: places on the mesh of [0, 1], and how actions move between them. The reward r of arriving at a
place is the secret. Releasing functions with Gaussian-process noise is due to Hall, Rinaldo and Wasserman 2013, their
use in Q-learning to [wang-hegde A1]. Here the *reward* is released, once, so that nothing after it can reveal more:

    y = r + sigma g,  g a Gaussian-process path with covariance K(x, z) = exp(-beta |x - z|),  sigma = Delta/mu
    m = y - sigma^2 K (K_0 + sigma^2 K)^-1 y                       (posterior mean of r under a public prior N(0, K_0))
    pi = the best policy for the reward m, by dynamic programming;  or Q = Q + rate (m + discount max Q - Q), repeated

**Formal guarantee** (that the release carries, for all functions). Let r and r' be two reward functions with
||r - r'||_H <= Delta in the space H of the kernel K. Then y is mu-GDP, and so is all that follows from it. Delta is the
norm of a tent of height h and half-width w (`privacy.tent_distance`): neighbours may differ by such a tent anywhere,
or by any other change whose norm in H is no larger. Two arbitrary reward functions are *not* neighbours, and nothing is
claimed about people whose data may have gone into the reward.

The prior says how smooth rewards are: level free, deviations of size `prior_spread`, neighbours alike over
`prior_length`. By default spread 1/4 (rewards lie in [0, 1]) and length 2 w: changes narrower than the tents that are
hidden are mostly noise. Both are public and have no part in the guarantee.
"""

from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from privrl.contracts.learner import AbstractOfflineLearner, Ask, Solution
from privrl.contracts.release import Declared
from privrl.mdp.planning import optimal_values
from privrl.mdp.types import TabularMDP, TabularPolicy
from privrl.privacy.functions.paths import mesh_points
from privrl.privacy.functions.released import best_beta, tent_distance

_LEVEL = 1.0  # prior deviation of the level: as large as rewards can be
_JITTER = 1e-9  # so that the smooth prior can be inverted; far below any reward that matters


class FunctionalReward(AbstractOfflineLearner):
    """Plans (or learns) on a reward function that was released once with functional noise.

    >>> world = privrl.envs.make("interval-walk")
    >>> learner = privrl.FunctionalReward(world.mdp.transition[0], world.horizon)
    >>> secret = privrl.data.RewardFunction(world.arrival)
    >>> privrl.fit(secret, learner, privrl.Central(epsilon=1, delta=1e-6), key=0)
    Result(TabularPolicy, FunctionalReward, central privacy, epsilon 1, delta 1e-06, simulated noise)

    Arguments:
        transition: the public kernel `[S, A, S]` between the S = 2^depth + 1 mesh points of [0, 1].
        horizon: the number of steps.
        height, half_width: h and w of the tents that are hidden, public.
        beta: of the noise's kernel; sqrt3/w unless given, which makes Delta, and the noise at every point, smallest.
            Slow noise, which smoothing cannot remove, has power 2 sigma^2/beta ~ 1/(beta w)^2 + 1/3: a larger beta,
            such as 4/w, is better where a prior smooths.
        prior_length, prior_spread: the public prior; `prior_length` is 2 w unless given, and 0 takes the noisy
            function as it is.
        method: `"plan"` by dynamic programming over the horizon, or `"q-learning"` with a discount.
        discount, sweeps, learning_rate: of Q-learning, which updates all places at once with the public kernel.

    Raises:
        ValueError: a setting is out of its range.
    """

    transition: Float[Array, "S A S"]
    horizon: int = eqx.field(static=True)
    height: float = eqx.field(static=True, default=0.1)
    half_width: float = eqx.field(static=True, default=0.1)
    beta: float | None = eqx.field(static=True, default=None)
    prior_length: float | None = eqx.field(static=True, default=None)
    prior_spread: float = eqx.field(static=True, default=0.25)
    method: Literal["plan", "q-learning"] = eqx.field(static=True, default="plan")
    discount: float = eqx.field(static=True, default=0.9)
    sweeps: int = eqx.field(static=True, default=200)
    learning_rate: float = eqx.field(static=True, default=0.5)

    learns_from: ClassVar[Literal["episodes", "reward function"]] = "reward function"

    def __check_init__(self) -> None:
        S = self.transition.shape[0]
        if S < 2 or (S - 1) & (S - 2):
            raise ValueError(
                f"`transition` has {S} places; a function on [0, 1] is released at 2^depth + 1 of them. Use a world "
                "such as `interval-walk`."
            )
        _ = self.distance  # refuses a bad tent at once
        if not (self.prior_spread > 0 and (self.prior_length is None or self.prior_length >= 0)):
            raise ValueError(
                f"`prior_spread` is {self.prior_spread} and `prior_length` is {self.prior_length}; they must be "
                "positive (a length of 0 means no smoothing)."
            )
        if not (0 <= self.discount < 1 and 0 < self.learning_rate <= 1):
            raise ValueError(
                f"`discount` is {self.discount} and `learning_rate` is {self.learning_rate}; they must lie in [0, 1) "
                "and (0, 1]."
            )

    @property
    def kernel_beta(self) -> float:
        """beta of the noise."""
        return best_beta(self.half_width) if self.beta is None else self.beta

    @property
    def distance(self) -> float:
        """Delta: how far apart neighbours are at most, the norm of a tent."""
        return tent_distance(self.height, self.half_width, self.kernel_beta)

    @property
    def space(self) -> tuple[int, int]:
        return self.transition.shape[0], self.transition.shape[1]

    def bounds(self) -> dict[str, object]:
        return {
            "horizon": self.horizon,
            "reward range": [0.0, 1.0],
            "rewards": "secret, released once as a function",
            "kernel of the world": "public",
        }

    @property
    def neighbours(self) -> str:
        return (
            f"two reward functions whose difference has norm at most {self.distance:.4g} in the space of the kernel "
            f"exp(-{self.kernel_beta:.4g}|x-y|); for example a tent of height {self.height:g} and half-width "
            f"{self.half_width:g}, anywhere. Larger differences are not hidden"
        )

    def declare(self) -> tuple[Declared, ...]:
        return (Declared("reward function", gaussian=True),)

    def fit(self, ask: Ask) -> Solution:
        released = ask.secret("reward function", distance=self.distance, beta=self.kernel_beta)
        policies = self.policies(released.values[None], released.scale[None])
        return Solution(TabularPolicy(policies.probabilities[0]))

    @eqx.filter_jit
    def policies(self, values: Float[Array, "D S"], scale: Float[Array, " D"]) -> TabularPolicy:
        """The policies for D released functions with these noise scales, with a leading axis, in one compiled call."""
        return jax.vmap(lambda y, sigma: self._policy(self.denoised(y, sigma)))(values, scale)

    def denoised(self, values: Float[Array, " S"], scale: Float[Array, ""]) -> Float[Array, " S"]:
        """The posterior mean under the public prior: exactly `values` where there is no noise."""
        length = 2.0 * self.half_width if self.prior_length is None else self.prior_length
        if length == 0:
            return values
        x = mesh_points((values.shape[0] - 1).bit_length() - 1)
        apart = jnp.abs(x[:, None] - x[None, :])
        noise = scale**2 * jnp.exp(-self.kernel_beta * apart)
        prior = self.prior_spread**2 * jnp.exp(-0.5 * (apart / length) ** 2) + _LEVEL**2
        both = prior + noise + _JITTER * jnp.eye(values.shape[0])
        return values - jnp.matmul(noise, jnp.linalg.solve(both, values), precision="highest")

    def _policy(self, reward: Float[Array, " S"]) -> TabularPolicy:
        S, A = self.transition.shape[:2]
        paid = jnp.matmul(self.transition, reward, precision="highest")
        if self.method == "plan":
            mdp = TabularMDP(self.transition[None], paid[None], jnp.full(S, 1.0 / S), self.horizon)
            return TabularPolicy.greedy(optimal_values(mdp)[1])

        def sweep(_: Array, Q: Float[Array, "S A"]) -> Float[Array, "S A"]:
            following = jnp.matmul(self.transition, Q.max(axis=-1), precision="highest")
            return Q + self.learning_rate * (paid + self.discount * following - Q)

        Q = jax.lax.fori_loop(0, self.sweeps, sweep, jnp.zeros((S, A)))
        return TabularPolicy.greedy(jnp.broadcast_to(Q, (self.horizon, S, A)))
