"""Worlds of people whose measurements are real numbers, some of them missing: simulated, and valued by simulation.

One person is written as functions of the draws behind them, so that two policies can be compared on the same people.
A stay ends by death, by discharge, or at the horizon; leaving alive pays `survival`, and every step may pay besides.
"""

import abc
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from privrl.envs.base import check_at_least
from privrl.envs.patients.actors import AbstractActor, Actor, MemorylessActor, UniformActor, as_actor
from privrl.mdp.measured_policy import MeasuredPolicy
from privrl.mdp.measurements import ENDED, NOT_RECORDED, Measurement
from privrl.mdp.multinomial import AnyKey
from privrl.mdp.types import Trajectory

_CHUNK = 2048  # people (or mirrored pairs of people) that are simulated at once
_COINS = 4  # of every step: two for who acts, one for death, one for discharge


@dataclass(frozen=True)
class KnownValue:
    """A value with its standard error; 0 where it is exact."""

    value: float
    error: float = 0.0


class Draws(NamedTuple):
    """Everything random about one person; row h is for step h, and one row more for the last observation."""

    person: Float[Array, " first"]
    uniform: Float[Array, " first_uniform"]
    normals: Float[Array, "rows N"]
    uniforms: Float[Array, "rows U"]

    def mirror(self) -> "Draws":
        """As probable, and opposite: the mean over a person and their mirror image varies less."""
        return Draws(-self.person, 1 - self.uniform, -self.normals, 1 - self.uniforms)


class StepOutcome(NamedTuple):
    """What a step leads to: the state of who goes on, what the step paid, and the probabilities of the two ends."""

    state: Any
    reward: Float[Array, ""]
    death: Float[Array, ""]
    discharge: Float[Array, ""]


class Walk(NamedTuple):
    """The steps that a person would take if nothing ended their stay."""

    observations: Float[Array, "rows D"]
    actions: Int[Array, " H"]
    rewards: Float[Array, " H"]
    death: Float[Array, " H"]
    discharge: Float[Array, " H"]


class AbstractPatients(eqx.Module):
    """A real-valued world: people, what is measured of them, who treats them now.

    `survival` is what leaving alive pays. Where it is 0, steps pay at most `largest_reward` each; elsewhere nothing but
    the end pays, and who is there at the horizon leaves alive.
    """

    name: eqx.AbstractClassVar[str]
    num_actions: eqx.AbstractClassVar[int]
    columns: eqx.AbstractClassVar[tuple[Measurement, ...]]
    survival: eqx.AbstractClassVar[float]
    sizes: eqx.AbstractClassVar[tuple[int, int, int, int]]  # normal and uniform numbers of a person, then of a step
    horizon: eqx.AbstractVar[int]
    evaluated: eqx.AbstractVar[int]  # people of whom `value` is the mean
    seed: int = eqx.field(static=True, default=0, kw_only=True)  # of these people

    def __check_init__(self) -> None:
        check_at_least("horizon", self.horizon, 1)
        check_at_least("evaluated", self.evaluated, 1)

    @property
    def arguments(self) -> tuple[tuple[str, Hashable], ...]:
        """How `make` builds this world again."""
        return (("horizon", self.horizon), ("evaluated", self.evaluated))

    @abc.abstractmethod
    def begin(self, normals: Float[Array, " first"], uniforms: Float[Array, " first_uniform"]) -> Any:
        """A person at the first step."""

    @abc.abstractmethod
    def observe(self, state: Any, normals: Float[Array, " N"], uniforms: Float[Array, " U"]) -> Float[Array, " D"]:
        """What is measured; NaN where it is missing."""

    @abc.abstractmethod
    def practice(
        self, step: Int[Array, ""], state: Any, observation: Float[Array, " D"], coins: Float[Array, " coins"]
    ) -> Int[Array, ""]:
        """What is done today: an `Actor`."""

    @abc.abstractmethod
    def tuned(
        self, step: Int[Array, ""], state: Any, observation: Float[Array, " D"], coins: Float[Array, " coins"]
    ) -> Int[Array, ""]:
        """A good rule on the observation alone, whose constants were found by trying them in this world: an `Actor`."""

    @abc.abstractmethod
    def treat(self, state: Any, action: Int[Array, ""], normals: Float[Array, " N"]) -> StepOutcome:
        """One step."""

    @property
    def largest_reward(self) -> float:
        """The public bound on what one step pays."""
        return self.survival or 1.0 / self.horizon

    def behaviour_policy(self) -> Actor:
        """Whoever collected the offline data."""
        return self.practice

    def uniform_policy(self) -> Actor:
        """Every action alike."""
        return UniformActor(self.num_actions)

    @property
    def optimal_value(self) -> Float[Array, ""]:
        """The value of the rule whose constants were tuned in this world: what is known to be attainable."""
        return self.value(self.tuned)

    def draws(self, key: AnyKey, stratum: Float[Array, ""] | None = None) -> Draws:
        """Everything random about one person; `stratum` in [0, 1) replaces the first uniform number."""
        first, first_uniform, normals, uniforms = self.sizes
        keys, rows = jr.split(key, 4), self.horizon + 1
        uniform = jr.uniform(keys[1], (first_uniform,))
        if stratum is not None:
            uniform = uniform.at[0].set(stratum)
        of_steps = jr.normal(keys[2], (rows, normals)), jr.uniform(keys[3], (rows, _COINS + uniforms))
        return Draws(jr.normal(keys[0], (first,)), uniform, *of_steps)

    def walk(self, actor: Actor | AbstractActor, draws: Draws) -> Walk:
        """One person's steps under `actor`."""
        who = actor if isinstance(actor, AbstractActor) else MemorylessActor(actor)

        def step(carry: tuple[Any, Any], x: tuple[Array, Array, Array]) -> tuple[tuple[Any, Any], tuple]:
            (state, memory), (h, normals, uniforms) = carry, x
            observation = self.observe(state, normals, uniforms[_COINS:])
            action, memory = who.act(memory, h, state, observation, uniforms[:2])
            after = self.treat(state, action, normals)
            return (after.state, memory), (observation, action, after.reward, after.death, after.discharge)

        H = self.horizon
        start = (self.begin(draws.person, draws.uniform), who.begin())
        (last, _), (seen, *rest) = jax.lax.scan(step, start, (jnp.arange(H), draws.normals[:H], draws.uniforms[:H]))
        after = self.observe(last, draws.normals[H], draws.uniforms[H, _COINS:])
        return Walk(jnp.concatenate([seen, after[None]]), *rest)

    def ends(self, walk: Walk, draws: Draws) -> tuple[Int[Array, ""], Bool[Array, ""], Float[Array, " H"]]:
        """The length of a stay, whether it ended by death, and its rewards."""
        dies, over = self._over(walk, draws)
        length = jnp.where(over.any(), over.argmax() + 1, self.horizon)
        died = dies[length - 1]
        steps = jnp.arange(self.horizon)
        paid = jnp.where(died, 0.0, self.survival) * (steps == length - 1) + walk.rewards
        return length, died, jnp.where(steps < length, paid, 0.0)

    def _over(self, walk: Walk, draws: Draws) -> tuple[Bool[Array, " H"], Bool[Array, " H"]]:
        """At which steps death would end the stay, and at which anything would."""
        coins = draws.uniforms[: self.horizon]
        dies = coins[:, 2] < walk.death
        return dies, dies | (coins[:, 3] < walk.discharge)

    def expected(self, walk: Walk) -> Float[Array, ""]:
        """The return of these steps in expectation over when the stay ends: E[return | everything else]."""
        goes_on = (1 - walk.death) * (1 - walk.discharge)
        there = jnp.concatenate([jnp.ones(1), jnp.cumprod(goes_on)[:-1]])
        leaves = walk.discharge.at[-1].set(1.0)
        return jnp.sum(there * (walk.rewards + self.survival * (1 - walk.death) * leaves))

    @eqx.filter_jit
    def _chunk(self, actor: Actor, keys: Key[Array, " people"]) -> Trajectory:
        def one(key: AnyKey) -> Trajectory:
            draws = self.draws(key)
            walk = self.walk(actor, draws)
            length, _, paid = self.ends(walk, draws)
            ended = self._over(walk, draws)[1].any() | (self.survival > 0)
            last = (jnp.arange(self.horizon) == length - 1)[:, None]
            after = jnp.where(last, jnp.where(ended, ENDED, NOT_RECORDED), walk.observations[1:])
            return Trajectory(walk.observations[:-1], walk.actions, paid, after, length)

        return jax.vmap(one)(keys)

    def sample(self, policy: MeasuredPolicy | Actor, people: int, key: AnyKey) -> Trajectory:
        """So many stays; states are measurements `[people, H, D]`, NaN where they are missing. The last next state of a
        stay is `ENDED`, or `NOT_RECORDED` where the horizon has cut it."""
        actor = as_actor(policy)
        parts = [self._chunk(actor, keys) for keys in key_chunks(key, people)]
        return jax.tree.map(lambda *x: np.concatenate([np.asarray(part) for part in x])[:people], *parts)

    def value(self, policy: MeasuredPolicy | Actor) -> Float[Array, ""]:
        """The mean return over `evaluated` people, the same ones for every policy."""
        return self.moments(as_actor(policy), jr.key(self.seed))[0]

    def estimate(self, policy: MeasuredPolicy | Actor) -> KnownValue:
        """`value` with its standard error."""
        mean, variance = eqx.filter_jit(self.moments)(as_actor(policy), jr.key(self.seed))
        return KnownValue(float(mean), float(jnp.sqrt(variance)))

    def gain(self, actor: AbstractActor) -> KnownValue:
        """What somebody adds to practice, for the same people."""
        mean, variance = eqx.filter_jit(self.moments)(actor, jr.key(self.seed), self.practice)
        return KnownValue(float(mean), float(jnp.sqrt(variance)))

    def moments(
        self, actor: Actor | AbstractActor, key: AnyKey, against: Actor | None = None
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The mean return over mirrored pairs of people, and the variance of that mean; with `against`, the mean
        difference from what the same people would have under another actor.

        The first uniform number of a person (a world uses it for what matters most) is spread evenly over each chunk.
        The mean is unbiased; the variance comes from differences of neighbours, which differ in the rest alone up to
        the width of two strata, so it is not underestimated in expectation.
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
    """Keys of people in pieces of one size, so that one program serves all; the last may have too many."""
    return [jr.split(jr.fold_in(key, i), _CHUNK) for i in range(-(-people // _CHUNK))]
