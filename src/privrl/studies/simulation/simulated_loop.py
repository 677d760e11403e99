"""People who are simulated: the loop of an online study with an environment in their place and seeded noise."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from privrl.contracts.learner import AbstractOnlineLearner, Plan
from privrl.privacy.noise.sources import white_noise
from privrl.privacy.trust.channels import AbstractChannel, AbstractCuratorChannel, Number
from privrl.privacy.trust.symbol_channels import SymbolChannel
from privrl.studies.loop import Listener, Queries, State, planned, publish


class SimulationKeys(NamedTuple):
    """The randomness of one seed of a simulation: each purpose has a key of its own."""

    people: PRNGKeyArray
    noise: PRNGKeyArray
    reports: PRNGKeyArray
    ties: PRNGKeyArray
    plans: PRNGKeyArray

    @classmethod
    def of(cls, key: PRNGKeyArray) -> "SimulationKeys":
        people, noise, reports, ties = jax.random.split(key, 4)
        return cls(people, noise, reports, ties, jax.random.fold_in(key, 4))

    def plan(self, t: Number) -> PRNGKeyArray:
        """For the plan of block t, where a learner plans at random; public."""
        return jax.random.fold_in(self.plans, t)

    def white(self, number: int, t: Number, i: Number) -> PRNGKeyArray:
        """For the i-th draw of noise in block t of the statistic with this number."""
        return jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(self.noise, number), t), i)

    def block(self, t: Number) -> PRNGKeyArray:
        """For the people of block t."""
        return jax.random.fold_in(self.people, t)

    def person(self, t: Number, index: Number) -> PRNGKeyArray:
        """For what happens to one of them."""
        return jax.random.fold_in(self.block(t), index)

    def report(self, t: Number, index: Number) -> PRNGKeyArray:
        """For the noise that one of them adds on their own device."""
        return jax.random.fold_in(jax.random.fold_in(self.reports, t), index)


class Simulation(eqx.Module):
    """One seed of a study in an environment.

    Arguments:
        noisy: whether noise is drawn at all; without privacy it would be multiplied by 0.
    """

    env: Any
    learner: AbstractOnlineLearner
    channels: dict[str, AbstractChannel]
    keys: SimulationKeys
    noisy: bool = eqx.field(static=True, default=True)

    def first(self) -> State:
        """Before anybody took part."""
        return State.first(self.learner, self.channels)

    def plan(
        self, state: State, t: Number, seen: Int[Array, ""], listen: Listener | None = None
    ) -> tuple[State, Plan, Mapping[str, int]]:
        """The plan of block `t`, and how many releases it made."""
        queries = Queries(self.channels, state.kept, functools.partial(self._noise, t), listen)
        ties = jax.random.fold_in(self.keys.ties, t) if self._by_symbol else None
        state, made = planned(self.learner, state, seen, queries, key=self.keys.plan(t), ties=ties)
        return state, made, queries.counts

    def publish(self, state: State, totals: Mapping[str, object], t: Number) -> State:
        """The releases at the end of block `t`."""
        return publish(self.channels, state, totals, t, functools.partial(self._noise, t))

    def person(self, published: Plan, t: Number, index: Number) -> tuple[object, dict[str, object]]:
        """What happens to one person of block `t` who acts on this plan, and what leaves them for every statistic."""
        record = self.env.rollout(published.policy, self.keys.person(t, index))
        own = self.keys.report(t, index)
        terms = {
            name: channel.term(record, published, index, jax.random.fold_in(own, c))
            for c, (name, channel) in enumerate(self.channels.items())
        }
        for name, channel in self.channels.items():
            found, claimed = jax.tree.leaves(terms[name])[0].shape, channel.statistic.raw_shape
            if found != claimed:
                raise ValueError(f"`{name}`: a contribution has shape {found}, not the {claimed} it claims.")
        return record, terms

    @property
    def _by_symbol(self) -> bool:
        return any(isinstance(channel, SymbolChannel) for channel in self.channels.values())

    def _noise(self, t: Number, name: str) -> Callable[[Number], Array]:
        number, channel = sorted(self.channels).index(name), self.channels[name]
        if not self.noisy or not isinstance(channel, AbstractCuratorChannel):
            return lambda i: jnp.zeros(channel.statistic.shape)
        return lambda i: white_noise(channel.white, self.keys.white(number, t, i), channel.statistic.shape)


Lagging = tuple[tuple[object, Plan], ...]
"""The plans that are out where plans lag behind, each with the memory that came with it: people act on the oldest."""


def lag(older: Lagging, memory: object, made: Plan, t: Int[Array, ""]) -> Lagging:
    """The same after the plan of block `t` was made; until there are enough plans, people act on the first."""
    newest = (memory, made)
    kept = jax.tree.map(lambda new, old: jnp.where(t == 0, new, old), (newest,) * (len(older) - 1), older[1:])
    return (*kept, newest)
