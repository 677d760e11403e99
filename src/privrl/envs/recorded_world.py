"""Worlds of which a table records only a part: a policy sees the recorded state, practice sees more."""

import abc
from collections.abc import Hashable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from privrl.envs.base import Env, most_frequent
from privrl.mdp.features import OneHotFeatures
from privrl.mdp.multinomial import AnyKey
from privrl.mdp.types import TabularPolicy, Trajectory


class AbstractRecorded(eqx.Module):
    """A finite table of an offline world in which treatment depends on something that the table does not record.

    It has the interface of an `Env` for learners, but no kernel, because recorded states are not Markov. Rewards are
    unknown beforehand, except payments on entering a state of `terminal`.
    """

    num_states: eqx.AbstractVar[int]
    num_actions: eqx.AbstractVar[int]
    horizon: eqx.AbstractVar[int]
    terminal: eqx.AbstractVar[tuple[int, ...]]
    arrival: eqx.AbstractVar[Float[Array, " S"] | None]
    name: eqx.AbstractVar[str]
    arguments: eqx.AbstractVar[tuple[tuple[str, Hashable], ...]]
    seed: eqx.AbstractVar[int]

    @property
    def features(self) -> OneHotFeatures:
        return OneHotFeatures(self.num_states, self.num_actions)

    @property
    def rewards(self) -> None:
        """`None`: rewards are not known beforehand."""
        return

    @property
    def stationary(self) -> bool:
        return True

    @property
    @abc.abstractmethod
    def behaviour(self) -> Float[Array, "S A"]:
        """How often practice takes each action in each recorded state, the most that a table can reveal about it."""

    @abc.abstractmethod
    def behaviour_policy(self) -> PyTree:
        """Practice itself, which sees more than the recorded state; for `sample` and `value`."""

    @property
    @abc.abstractmethod
    def optimal_value(self) -> Float[Array, ""]:
        """The value of a known policy that sees more than the recorded state."""

    @abc.abstractmethod
    def value(self, policy: PyTree) -> Float[Array, ""]:
        """The expected return of a policy on recorded states, or of practice."""

    @abc.abstractmethod
    def sample(self, policy: PyTree, episodes: int, key: AnyKey) -> Trajectory:
        """Recorded episodes of `episodes` people."""

    def _every_step(self, probabilities: Float[Array, "S A"]) -> TabularPolicy:
        return TabularPolicy(jnp.broadcast_to(probabilities, (self.horizon, self.num_states, self.num_actions)))

    def recorded_policy(self) -> TabularPolicy:
        """Actions drawn from the frequencies of practice in each recorded state, without the unrecorded information."""
        return self._every_step(self.behaviour)

    def mode_policy(self) -> TabularPolicy:
        """The most frequent action of practice in the recorded state, as in `Env.mode_policy`."""
        return self._every_step(most_frequent(self.behaviour))

    def uniform_policy(self) -> TabularPolicy:
        """All actions with equal probability."""
        return TabularPolicy.uniform(self.horizon, self.num_states, self.num_actions)


OfflineEnv = Env | AbstractRecorded
"""A finite world from whose tables a policy can be learned."""
