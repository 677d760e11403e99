"""Worlds of simulated people with real-valued measurements, some of them missing; values are estimated by simulation.

A person is a function of random draws, so that two policies can be compared on the same people. An episode ends by
death, by discharge, or at the horizon. Leaving alive pays `survival`, and every step may pay in addition.
"""

import abc
from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from privrl.envs.base import check_at_least
from privrl.envs.patients.actors import AbstractActor, Actor, LoggingActor, MemorylessActor, UniformActor, as_actor
from privrl.mdp.measured_policy import MeasuredPolicy
from privrl.mdp.measurements import ENDED, NOT_RECORDED, Measurement
from privrl.mdp.multinomial import AnyKey
from privrl.mdp.types import Trajectory

_CHUNK = 2048  # people (or mirrored pairs of people) simulated at once
_UNIFORMS = 4  # uniform numbers of every step: two for the actor, one for death, one for discharge


@dataclass(frozen=True)
class KnownValue:
    """A value with its standard error, 0 if it is exact."""

    value: float
    error: float = 0.0


class Draws(NamedTuple):
    """Everything random about one person; row h is for step h, and one more row is for the last observation."""

    person: Float[Array, " first"]
    uniform: Float[Array, " first_uniform"]
    normals: Float[Array, "rows N"]
    uniforms: Float[Array, "rows U"]

    def mirror(self) -> "Draws":
        """The opposite draws, which have the same distribution: the mean over a person and their mirror image varies
        less."""
        return Draws(-self.person, 1 - self.uniform, -self.normals, 1 - self.uniforms)


class StepOutcome(NamedTuple):
    """The outcome of a step: the next state if the episode continues, the reward, and the probabilities of the two
    ends."""

    state: PyTree
    reward: Float[Array, ""]
    death: Float[Array, ""]
    discharge: Float[Array, ""]


class Walk(NamedTuple):
    """The steps that a person would take if nothing ended the episode."""

    observations: Float[Array, "rows D"]
    actions: Int[Array, " H"]
    rewards: Float[Array, " H"]
    death: Float[Array, " H"]
    discharge: Float[Array, " H"]
    memory: PyTree = None
    """The actor's, after the last step."""


class AbstractPatients(eqx.Module):
    """A real-valued world: people, their measurements, and current practice.

    `survival` is the payment for leaving alive. If it is 0, each step pays at most `largest_reward`. Otherwise only the
    end pays, and people present at the horizon leave alive.
    """

    name: eqx.AbstractClassVar[str]
    num_actions: eqx.AbstractClassVar[int]
    columns: eqx.AbstractClassVar[tuple[Measurement, ...]]
    survival: eqx.AbstractClassVar[float]
    sizes: eqx.AbstractClassVar[tuple[int, int, int, int]]  # normal and uniform numbers per person, then per step
    horizon: eqx.AbstractVar[int]
    evaluated: eqx.AbstractVar[int]  # `value` is the mean over this many people
    seed: int = eqx.field(static=True, default=0, kw_only=True)  # of these people

    def __check_init__(self) -> None:
        check_at_least("horizon", self.horizon, 1)
        check_at_least("evaluated", self.evaluated, 1)

    @property
    def arguments(self) -> tuple[tuple[str, Hashable], ...]:
        """The arguments with which `make` builds this world again."""
        return (("horizon", self.horizon), ("evaluated", self.evaluated))

    @abc.abstractmethod
    def begin(self, normals: Float[Array, " first"], uniforms: Float[Array, " first_uniform"]) -> PyTree:
        """A person at the first step."""

    @abc.abstractmethod
    def observe(self, state: PyTree, normals: Float[Array, " N"], uniforms: Float[Array, " U"]) -> Float[Array, " D"]:
        """The measurements, NaN if missing."""

    @abc.abstractmethod
    def practice(
        self, step: Int[Array, ""], state: PyTree, observation: Float[Array, " D"], uniforms: Float[Array, " uniforms"]
    ) -> Int[Array, ""]:
        """Current practice, as an `Actor`."""

    @abc.abstractmethod
    def tuned(
        self, step: Int[Array, ""], state: PyTree, observation: Float[Array, " D"], uniforms: Float[Array, " uniforms"]
    ) -> Int[Array, ""]:
        """A good rule on the observation alone, whose constants were tuned in this world, as an `Actor`."""

    @abc.abstractmethod
    def treat(self, state: PyTree, action: Int[Array, ""], normals: Float[Array, " N"]) -> StepOutcome:
        """The outcome of one step."""

    @property
    def largest_reward(self) -> float:
        """The public bound on the reward of one step."""
        return self.survival or 1.0 / self.horizon

    def behaviour_policy(self) -> Actor:
        """The actor that collected the offline data."""
        return self.practice

    def uniform_policy(self) -> Actor:
        """All actions with equal probability."""
        return UniformActor(self.num_actions)

    @property
    def optimal_value(self) -> Float[Array, ""]:
        """The value of the rule whose constants were tuned in this world, which is known to be attainable."""
        return self.value(self.tuned)

    def draws(self, key: AnyKey, stratum: Float[Array, ""] | None = None) -> Draws:
        """Everything random about one person; `stratum` in [0, 1) replaces the first uniform number."""
        first, first_uniform, normals, uniforms = self.sizes
        keys, rows = jr.split(key, 4), self.horizon + 1
        uniform = jr.uniform(keys[1], (first_uniform,))
        if stratum is not None:
            uniform = uniform.at[0].set(stratum)
        of_steps = jr.normal(keys[2], (rows, normals)), jr.uniform(keys[3], (rows, _UNIFORMS + uniforms))
        return Draws(jr.normal(keys[0], (first,)), uniform, *of_steps)

    def walk(self, actor: Actor | AbstractActor, draws: Draws) -> Walk:
        """One person's steps under `actor`."""
        who = actor if isinstance(actor, AbstractActor) else MemorylessActor(actor)

        def step(carry: tuple[PyTree, PyTree], x: tuple[Array, Array, Array]) -> tuple[tuple[PyTree, PyTree], tuple]:
            (state, memory), (h, normals, uniforms) = carry, x
            observation = self.observe(state, normals, uniforms[_UNIFORMS:])
            action, memory = who.act(memory, h, state, observation, uniforms[:2])
            after = self.treat(state, action, normals)
            return (after.state, memory), (observation, action, after.reward, after.death, after.discharge)

        H = self.horizon
        start = (self.begin(draws.person, draws.uniform), who.begin())
        (last, memory), (seen, *rest) = jax.lax.scan(
            step, start, (jnp.arange(H), draws.normals[:H], draws.uniforms[:H])
        )
        after = self.observe(last, draws.normals[H], draws.uniforms[H, _UNIFORMS:])
        return Walk(jnp.concatenate([seen, after[None]]), *rest)._replace(memory=memory)

    def ends(self, walk: Walk, draws: Draws) -> tuple[Int[Array, ""], Bool[Array, ""], Float[Array, " H"]]:
        """The length of an episode, whether it ended by death, and its rewards."""
        dies, over = self._over(walk, draws)
        length = jnp.where(over.any(), over.argmax() + 1, self.horizon)
        died = dies[length - 1]
        steps = jnp.arange(self.horizon)
        paid = jnp.where(died, 0.0, self.survival) * (steps == length - 1) + walk.rewards
        return length, died, jnp.where(steps < length, paid, 0.0)

    def _over(self, walk: Walk, draws: Draws) -> tuple[Bool[Array, " H"], Bool[Array, " H"]]:
        """The steps at which death would end the episode, and those at which death or discharge would."""
        uniforms = draws.uniforms[: self.horizon]
        dies = uniforms[:, 2] < walk.death
        return dies, dies | (uniforms[:, 3] < walk.discharge)

    def expected(self, walk: Walk) -> Float[Array, ""]:
        """The return of these steps in expectation over the end of the episode: E[return | everything else]."""
        goes_on = (1 - walk.death) * (1 - walk.discharge)
        there = jnp.concatenate([jnp.ones(1), jnp.cumprod(goes_on)[:-1]])
        leaves = walk.discharge.at[-1].set(1.0)
        return jnp.sum(there * (walk.rewards + self.survival * (1 - walk.death) * leaves))

    @eqx.filter_jit
    def _chunk(self, actor: Actor | AbstractActor, keys: Key[Array, " people"]) -> Trajectory:
        def one(key: AnyKey) -> Trajectory:
            draws = self.draws(key)
            walk = self.walk(actor, draws)
            length, _, paid = self.ends(walk, draws)
            ended = self._over(walk, draws)[1].any() | (self.survival > 0)
            last = (jnp.arange(self.horizon) == length - 1)[:, None]
            after = jnp.where(last, jnp.where(ended, ENDED, NOT_RECORDED), walk.observations[1:])
            logged = walk.memory if isinstance(actor, LoggingActor) else None
            return Trajectory(walk.observations[:-1], walk.actions, paid, after, length, logged)

        return jax.vmap(one)(keys)

    def sample(self, policy: MeasuredPolicy | Actor | LoggingActor, people: int, key: AnyKey) -> Trajectory:
        """Episodes of `people` people; states are measurements `[people, H, D]`, NaN if missing.

        The last next state of an episode is `ENDED`, or `NOT_RECORDED` if the horizon has cut it off.
        """
        actor = policy if isinstance(policy, LoggingActor) else as_actor(policy)
        parts = [self._chunk(actor, keys) for keys in key_chunks(key, people)]
        return jax.tree.map(lambda *x: np.concatenate([np.asarray(part) for part in x])[:people], *parts)

    def value(self, policy: MeasuredPolicy | Actor) -> Float[Array, ""]:
        """The mean return over `evaluated` people, the same people for every policy."""
        return self.moments(as_actor(policy), jr.key(self.seed))[0]

    def estimate(self, policy: MeasuredPolicy | Actor) -> KnownValue:
        """`value` with its standard error."""
        mean, variance = eqx.filter_jit(self.moments)(as_actor(policy), jr.key(self.seed))
        return KnownValue(float(mean), float(jnp.sqrt(variance)))

    def gain(self, actor: AbstractActor) -> KnownValue:
        """The gain of an actor over practice, on the same people."""
        mean, variance = eqx.filter_jit(self.moments)(actor, jr.key(self.seed), self.practice)
        return KnownValue(float(mean), float(jnp.sqrt(variance)))

    def moments(
        self, actor: Actor | AbstractActor, key: AnyKey, against: Actor | None = None
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The mean return over mirrored pairs of people, and the variance of that mean; with `against`, the mean
        difference from the returns of the same people under another actor.

        The first uniform number of a person, which a world uses for what matters most, is spread evenly over each
        chunk. The mean is unbiased. The variance is estimated from differences of neighbours. These differ only in the
        other draws, up to the width of two strata, so in expectation it is not underestimated.
        """
        chunks = -(-self.evaluated // (2 * _CHUNK))

        def pair(key: AnyKey, stratum: Array) -> Array:
            draws = self.draws(key, stratum)
            both = jax.tree.map(lambda *x: jnp.stack(x), draws, draws.mirror())
            values = jax.vmap(lambda d: self.expected(self.walk(actor, d)))(both)
            if against is not None:
                values = values - jax.vmap(lambda d: self.expected(self.walk(against, d)))(both)
            return values.mean()

        def chunk(i: Array) -> tuple[Array, Array]:
            own = jr.fold_in(key, i)
            spread = (jnp.arange(_CHUNK) + jr.uniform(jr.fold_in(own, 1), (_CHUNK,))) / _CHUNK
            returns = jax.vmap(pair)(jr.split(own, _CHUNK), spread)
            return returns.mean(), jnp.mean((returns[::2] - returns[1::2]) ** 2) / 2

        means, variances = jax.lax.map(chunk, jnp.arange(chunks))
        return means.mean(), variances.mean() / (chunks * _CHUNK)


def key_chunks(key: AnyKey, people: int) -> list[Key[Array, " people"]]:
    """Keys of people in pieces of one size, so that one compiled program serves all; the last piece may have too
    many."""
    return [jr.split(jr.fold_in(key, i), _CHUNK) for i in range(-(-people // _CHUNK))]
