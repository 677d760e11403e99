"""Who decides in a world of people: practice, rules, policies on measurements, with or without a memory."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from privrl.mdp.assistance import AbstractAssisted
from privrl.mdp.measured_policy import MeasuredPolicy

Actor = Callable[[Int[Array, ""], Any, Float[Array, " D"], Float[Array, " coins"]], Int[Array, ""]]
"""(step, the person's full state, what was observed, two uniform numbers) -> action."""


class AbstractActor(eqx.Module):
    """Somebody who acts, and keeps something in mind from decision to decision."""

    @abc.abstractmethod
    def begin(self) -> Any:
        """What is in mind before the first decision."""

    @abc.abstractmethod
    def act(
        self,
        memory: Any,
        step: Int[Array, ""],
        state: Any,
        observation: Float[Array, " D"],
        coins: Float[Array, " coins"],
    ) -> tuple[Int[Array, ""], Any]:
        """The action, and what is in mind afterwards."""


class MemorylessActor(AbstractActor):
    """An `Actor` as one who keeps nothing in mind."""

    actor: Actor

    def begin(self) -> None:
        return None

    def act(self, memory: Any, *decision: Any) -> tuple[Int[Array, ""], Any]:
        return self.actor(*decision), memory


class AssistedActor(AbstractActor):
    """Practice with a bounded share of advice; what is kept in mind is the weight of the stay.

    Arguments:
        policy: the assisted policy.
        practice: whoever decides otherwise.
        read: what the policy takes for an observation.
    """

    policy: AbstractAssisted
    practice: Actor
    read: Callable[[Float[Array, " D"]], Array] = jnp.asarray

    def begin(self) -> Float[Array, ""]:
        return jnp.ones(())

    def act(
        self,
        memory: Float[Array, ""],
        step: Int[Array, ""],
        state: object,
        observation: Float[Array, " D"],
        coins: Float[Array, " coins"],
    ) -> tuple[Int[Array, ""], Float[Array, ""]]:
        at, on = self.policy.decisions(self.read(observation)), memory < self.policy.max_weight
        # Low bits of a coin, of which practice uses the high ones, make another coin.
        advised = on & (jnp.mod(coins[0] * 2.0**26, 1.0) < at.alpha(self.policy.max_ratio))
        action = jnp.where(advised, at.advice, self.practice(step, state, observation, coins))
        return action, jnp.where(on, memory * at.rho(action, self.policy.max_ratio), memory)


class _Measured(eqx.Module):
    """A policy on measurements as an `Actor`."""

    policy: MeasuredPolicy

    def __call__(
        self, step: Int[Array, ""], state: object, observation: Float[Array, " D"], coins: Float[Array, " coins"]
    ) -> Int[Array, ""]:
        return self.policy.choose(observation)


class UniformActor(eqx.Module):
    """Every action alike, as an `Actor`."""

    num_actions: int

    def __call__(
        self, step: Int[Array, ""], state: object, observation: Float[Array, " D"], coins: Float[Array, " coins"]
    ) -> Int[Array, ""]:
        return jnp.floor(self.num_actions * coins[0]).astype(int)


def as_actor(policy: MeasuredPolicy | Actor) -> Actor:
    """A policy on measurements, or whoever acts, as an `Actor`."""
    return _Measured(policy) if isinstance(policy, MeasuredPolicy) else policy
