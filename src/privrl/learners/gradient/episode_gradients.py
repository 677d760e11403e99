"""What FQI and Q-learning share: one clipped gradient per episode and step, and how many episodes scale it."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from privrl.contracts.learner import AbstractOfflineLearner, Ask
from privrl.contracts.release import Declared
from privrl.statistics.gradients import EpisodeCount

_COUNT_SHARE = 0.002  # of the budget: a standard deviation of 80 episodes at epsilon = 1, delta = 1e-5


class AbstractEpisodeGradients(AbstractOfflineLearner):
    """Learns by `steps` releases of the sum of gradients of whole episodes, each clipped to norm `clip`.

    Each episode takes part in a step with probability `sampling`. `num_episodes` is public, or counted with a small
    share of the budget where it is None.
    """

    clip: eqx.AbstractVar[float]
    steps: eqx.AbstractVar[int]
    sampling: eqx.AbstractVar[float]
    num_episodes: eqx.AbstractVar[int | None]

    def bounds(self) -> dict[str, Any]:
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
