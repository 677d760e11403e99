"""What FQI and Q-learning share: steps along sums of clipped gradients, one per episode; they differ in the step."""

import math
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from privrl.contracts.learner import AbstractOfflineLearner, Ask
from privrl.contracts.release import Declared
from privrl.learners.gradient.approximators import AbstractApproximator
from privrl.mdp.types import TabularPolicy
from privrl.statistics.gradients import EpisodeCount
from privrl.statistics.setting_checks import check_positive, check_sizes, check_terminal

_COUNT_SHARE = 0.002  # of the budget: a standard deviation of 80 episodes at epsilon = 1, delta = 1e-5


class AbstractEpisodeGradients(AbstractOfflineLearner):
    """Learns by `steps` releases of the sum of gradients of whole episodes, each clipped to norm `clip`.

    Each episode takes part in a step with probability `sampling`. `num_episodes` is public, or counted with a small
    share of the budget where it is None.
    """

    terminal: eqx.AbstractVar[tuple[int, ...]]
    discount: eqx.AbstractVar[float]
    clip: eqx.AbstractVar[float]
    steps: eqx.AbstractVar[int]
    sampling: eqx.AbstractVar[float]
    num_episodes: eqx.AbstractVar[int | None]

    def __check_init__(self) -> None:
        if not 0 <= self.discount <= 1:
            raise ValueError(f"`discount` is {self.discount}; it must lie in [0, 1].")
        check_positive(clip=self.clip)
        check_sizes(steps=self.steps, **({} if self.num_episodes is None else {"num_episodes": self.num_episodes}))
        check_terminal(self.terminal, self.space[0])

    def bounds(self) -> dict[str, object]:
        return {
            "horizon": self.horizon,
            "gradient norm of an episode": self.clip,
            "reward range": [0.0, 1.0],
            "rewards": "estimated",
        }

    def declare(self) -> tuple[Declared, ...]:
        gradient = Declared("gradient", times=self.steps, weight=1 - _COUNT_SHARE, sampling=self.sampling)
        if self.num_episodes is not None:
            return (gradient,)
        return (Declared("episodes", EpisodeCount(), weight=_COUNT_SHARE), gradient)

    def expected_batch(self, ask: Ask) -> Float[Array, ""]:
        """How many episodes a step sums over, on average; a noisy count is taken to be no smaller than its noise."""
        if self.num_episodes is not None:
            return jnp.asarray(self.sampling * float(self.num_episodes))
        count = ask("episodes")
        return self.sampling * jnp.maximum(jnp.asarray(count.value), jnp.maximum(3 * count.noise.std, 1.0))

    def descended(
        self,
        ask: Ask,
        Q: AbstractApproximator,
        change: Callable[[int, Float[Array, "*theta"]], Float[Array, "*theta"]],
    ) -> TabularPolicy:
        """The greedy policy of the mean Q of the last quarter of the iterates.

        `change(k, total)` is what step k takes away from the parameters, given the released sum of gradients.
        """
        theta, last = Q.first(), []
        settings = {"norm": self.clip, "discount": self.discount, "terminal": self.terminal}
        for k in range(self.steps):
            total = ask("gradient", Q.gradient(theta, horizon=self.horizon, **settings)).value
            theta = theta - change(k, total)
            if k >= self.steps - math.ceil(self.steps / 4):
                last.append(Q.values(theta))
        average = jnp.stack(last).mean(axis=0)
        return TabularPolicy.greedy(jnp.broadcast_to(average, (self.horizon, *self.space)))
