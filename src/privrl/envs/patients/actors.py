"""Actors in a world of patients: practice, rules, policies on measurements, with or without a memory."""

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from privrl.mdp.assistance import AbstractAssisted
from privrl.mdp.measured_policy import MeasuredPolicy

Actor = Callable[[Int[Array, ""], PyTree, Float[Array, " D"], Float[Array, " uniforms"]], Int[Array, ""]]
"""(step, the person's full state, the observation, two uniform numbers) -> action."""


class AbstractActor(eqx.Module):
    """An actor with a memory that persists from decision to decision."""

    @abc.abstractmethod
    def begin(self) -> PyTree:
        """The memory before the first decision."""

    @abc.abstractmethod
    def act(
        self,
        memory: PyTree,
        step: Int[Array, ""],
        state: PyTree,
        observation: Float[Array, " D"],
        uniforms: Float[Array, " uniforms"],
    ) -> tuple[Int[Array, ""], PyTree]:
        """The action, and the memory afterwards."""


class MemorylessActor(AbstractActor):
    """An `Actor` without a memory."""

    actor: Actor

    def begin(self) -> None:
        return None

    def act(self, memory: PyTree, *decision: PyTree) -> tuple[Int[Array, ""], PyTree]:
        return self.actor(*decision), memory


class LoggingActor(AbstractActor):
    """A program that decides as an `Actor` does and logs the probability of each action.

    The probability is the share of a grid of uniform numbers at which the actor takes the same action. It is exact if
    the actor compares them with multiples of 1/20 and 1/60.

    Arguments:
        actor: decides.
        horizon: the number of steps.
    """

    actor: Actor
    horizon: int = eqx.field(static=True)

    def begin(self) -> Float[Array, " H"]:
        return jnp.ones(self.horizon)

    def act(
        self,
        memory: Float[Array, " H"],
        step: Int[Array, ""],
        state: PyTree,
        observation: Float[Array, " D"],
        uniforms: Float[Array, " uniforms"],
    ) -> tuple[Int[Array, ""], Float[Array, " H"]]:
        action = self.actor(step, state, observation, uniforms)
        grid = jnp.stack(jnp.meshgrid((jnp.arange(20) + 0.5) / 20, (jnp.arange(60) + 0.5) / 60), axis=-1).reshape(-1, 2)
        others = jax.vmap(lambda pair: self.actor(step, state, observation, pair))(grid)
        return action, memory.at[step].set(jnp.maximum((others == action).mean(), 1.0 / len(grid)))


class AssistedActor(AbstractActor):
    """Practice with a bounded share of advice; the memory is the weight of the episode.

    Arguments:
        policy: the assisted policy.
        practice: the actor of all other decisions.
        read: converts a measured row to the policy's observation.
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
        uniforms: Float[Array, " uniforms"],
    ) -> tuple[Int[Array, ""], Float[Array, ""]]:
        at, ratio = self.policy.decisions(self.read(observation)), self.policy.ratio_at(memory, step)
        # Practice uses the high bits of this uniform number; its low bits make another, independent one.
        advised = jnp.mod(uniforms[0] * 2.0**26, 1.0) < at.alpha(ratio)
        action = jnp.where(advised, at.advice, self.practice(step, state, observation, uniforms))
        return action, jnp.minimum(memory * at.rho(action, ratio), self.policy.bound)


class _Measured(eqx.Module):
    """A policy on measurements as an `Actor`."""

    policy: MeasuredPolicy

    def __call__(
        self, step: Int[Array, ""], state: object, observation: Float[Array, " D"], uniforms: Float[Array, " uniforms"]
    ) -> Int[Array, ""]:
        return self.policy.choose(observation)


class UniformActor(eqx.Module):
    """An `Actor` that takes all actions with equal probability."""

    num_actions: int

    def __call__(
        self, step: Int[Array, ""], state: object, observation: Float[Array, " D"], uniforms: Float[Array, " uniforms"]
    ) -> Int[Array, ""]:
        return jnp.floor(self.num_actions * uniforms[0]).astype(int)


def as_actor(policy: MeasuredPolicy | Actor) -> Actor:
    """A policy on measurements, or an actor, as an `Actor`."""
    return _Measured(policy) if isinstance(policy, MeasuredPolicy) else policy
