"""QLearning: Q-learning by gradient steps on Poisson samples of whole episodes (`dp-sgd-q` when the steps are noisy).

Q-learning is due to Watkins and Dayan 1992, gradients clipped per person and made noisy to Abadi et al. 2016.

    theta = theta_0 (public)
    for k = 1, ..., steps:
        every episode takes part with probability batch/N, by a secret coin of its own
        y(r, s') = r + discount max_a' Q(s', a'; theta),  0 after the end              (held fixed in the gradient)
        g        = sum over those episodes of clip_C( gradient of  1/2 sum_h (Q(s_h,a_h;theta) - y(r_h,s_{h+1}))^2 )
        theta    = theta - learning_rate step(g / batch)                       (g is a release, the rest is public)
    pi = argmax_a of the mean Q of the last quarter of the iterates

`step` is the identity, momentum, or Adam. Q is linear in public features, a small network of a public coordinate of the
state, or a table (what features of one coordinate per pair amount to). One Q serves all steps of an episode.

The clipped unit is the episode, hence the person. N, the public number of episodes, turns `batch` into a probability.
If it is left out, all episodes take part in every step, and N is counted with a small share of the budget.
"""

from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from privrl.contracts.learner import Ask, Solution
from privrl.learners.gradient.approximators import AbstractApproximator, LinearQ, NetworkQ, TabularQ
from privrl.learners.gradient.episode_gradients import AbstractEpisodeGradients
from privrl.mdp.features import AbstractFeatures, OneHotFeatures
from privrl.statistics.setting_checks import check_array, check_positive, check_sizes


class QLearning(AbstractEpisodeGradients):
    """Q-learning on samples of whole episodes, one clipped gradient each.

    >>> world = privrl.envs.make("riverswim", states=3, horizon=4)
    >>> learner = privrl.QLearning(world.features, 4, steps=3)
    >>> privrl.fit(world, learner, privrl.Central(epsilon=1, delta=1e-6), episodes=200, key=0).certificate
    Certificate(QLearning, central privacy, epsilon 1, delta 1e-06, simulated noise)

    Arguments:
        features: public features of (state, action); they also say how many there are of each.
        horizon: the largest number of steps of an episode.
        num_episodes: N, the public number of episodes; if left out, all episodes take part in every step.
        approximator: `"features"` (linear in them) or `"network"`.
        coordinate: for a network, a public number in [0, 1] per state; s/(S - 1) unless given.
        hidden: the units of the network.
        terminal: public states after which nothing comes.
        discount: of the next value.
        clip: C, the L2 norm to which the gradient of one whole episode is clipped.
        steps: gradient steps, each of which is a release.
        batch: the expected number of episodes in a step.
        learning_rate: on the mean gradient, or on Adam's normalised one.
        momentum: the weight of earlier gradients in a step (their running mean).
        adaptive: whether steps are divided by the root mean square of earlier gradients, coordinate by coordinate
            (Adam).

    Raises:
        ValueError: a setting is out of its range.
    """

    features: AbstractFeatures
    horizon: int = eqx.field(static=True)
    num_episodes: int | None = eqx.field(static=True, default=None)
    approximator: Literal["features", "network"] = eqx.field(static=True, default="features")
    coordinate: Float[Array, " S"] | None = None
    hidden: int = eqx.field(static=True, default=16)
    terminal: tuple[int, ...] = eqx.field(static=True, default=())
    discount: float = eqx.field(static=True, default=0.9)
    clip: float = eqx.field(static=True, default=1.0)
    steps: int = eqx.field(static=True, default=150)
    batch: int = eqx.field(static=True, default=500)
    learning_rate: float = eqx.field(static=True, default=0.1)
    momentum: float = eqx.field(static=True, default=0.9)
    adaptive: bool = eqx.field(static=True, default=True)

    def __check_init__(self) -> None:
        check_positive(learning_rate=self.learning_rate)
        check_sizes(batch=self.batch, hidden=self.hidden)
        if not 0 <= self.momentum < 1:
            raise ValueError(f"`momentum` is {self.momentum}; it must lie in [0, 1).")
        if self.coordinate is not None:
            check_array("coordinate", self.coordinate, (self.features.num_states,))

    @property
    def space(self) -> tuple[int, int]:
        return self.features.num_states, self.features.num_actions

    @property
    def sampling(self) -> float:
        """The probability with which an episode takes part in a step."""
        return 1.0 if self.num_episodes is None else min(1.0, self.batch / self.num_episodes)

    def fit(self, ask: Ask) -> Solution:
        Q, expected = self._approximator(), self.expected_batch(ask)
        mean, square = jnp.zeros_like(Q.first()), jnp.zeros_like(Q.first())

        def change(k: int, total: Float[Array, "*theta"]) -> Float[Array, "*theta"]:
            nonlocal mean, square
            g = total / expected
            mean = self.momentum * mean + (1 - self.momentum) * g
            square = _SLOW * square + (1 - _SLOW) * g**2
            step = mean / (1 - self.momentum ** (k + 1))  # the first steps have few gradients to average
            if self.adaptive:
                step = step / (jnp.sqrt(square / (1 - _SLOW ** (k + 1))) + _TINY)
            return self.learning_rate * step

        return Solution(self.descended(ask, Q, change))

    def _approximator(self) -> AbstractApproximator:
        S, A = self.space
        if self.approximator == "network":
            x = jnp.arange(S) / max(S - 1, 1) if self.coordinate is None else self.coordinate
            return NetworkQ(x, A, self.hidden)
        if isinstance(self.features, OneHotFeatures):
            return TabularQ(S, A)  # the same numbers; no gradient of one person is ever a whole table
        return LinearQ(self.features.table)


_SLOW = 0.99  # Adam's memory of squares
_TINY = 1e-8
