"""An environment: a finite world with public features, a behaviour policy and exact answers."""

from collections.abc import Hashable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Real

from privrl.mdp.features import AbstractFeatures, OneHotFeatures
from privrl.mdp.multinomial import AnyKey
from privrl.mdp.planning import occupancy, optimal_value, policy_value
from privrl.mdp.simulation import flow, flow_transitions, rollout, sample_episodes
from privrl.mdp.types import TabularMDP, TabularPolicy, Trajectory, Transitions

_TOLERANCE = 1e-9


class Drift(eqx.Module):
    """The target of a drift, and its speed.

    After n people the kernel is (1 - w) times the world's own plus w times the other one, w = (1 - cos(2 pi n /
    period))/2: it is the other one after half a period, and the world's own again after a whole one.

    Arguments:
        kernel: the other kernel.
        period: the period, in people.
    """

    kernel: Float[Array, "G S A S"]
    period: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        if self.period < 1:
            raise ValueError(f"`period` is {self.period}; it must be at least 1 person.")

    def share(self, seen: Real[Array, "..."] | int) -> Float[Array, "..."]:
        """w after `seen` people."""
        return (1.0 - jnp.cos(2.0 * jnp.pi * jnp.asarray(seen, float) / self.period)) / 2.0

    def mix(self, own: Float[Array, "G S A S"], seen: Real[Array, ""] | int) -> Float[Array, "G S A S"]:
        """The kernel after `seen` people."""
        w = self.share(seen)
        return (1.0 - w) * own + w * self.kernel


class Env(eqx.Module):
    """A finite world that can be simulated and evaluated exactly, inside `jit` and `vmap` too.

    Arguments:
        mdp: transitions, mean rewards in [0, 1], first state, horizon.
        features: public features of (state, action), norm at most 1.
        behaviour: action probabilities `[S, A]` of the behaviour policy, which collected offline data.
        name, arguments, seed: the arguments with which `make` builds this world again.
        terminal: public set of states whose entry ends an episode; absorbing, without further reward.
        arrival: the payment on entering each state, if rewards are paid on arrival. The mean reward of (s, a) is then
            sum_s' P(s'|s,a) arrival(s'), and sampled rewards are the payments themselves.
        constant: actions, by name, whose constant policies are worth comparing with.
        rescaled: the smallest and the largest original reward, which 0 and 1 stand for, if rewards were rescaled.
        drift: how the kernel changes as people arrive. `at` gives the world at a later time; everything else here is
            about the world before the first person.
    """

    mdp: TabularMDP
    features: AbstractFeatures
    behaviour: Float[Array, "S A"]
    name: str = eqx.field(static=True)
    arguments: tuple[tuple[str, Hashable], ...] = eqx.field(static=True, default=())
    seed: int = eqx.field(static=True, default=0)
    terminal: tuple[int, ...] = eqx.field(static=True, default=())
    arrival: Float[Array, " S"] | None = None
    constant: tuple[tuple[str, int], ...] = eqx.field(static=True, default=())
    rescaled: tuple[float, float] | None = eqx.field(static=True, default=None)
    drift: Drift | None = None

    def __check_init__(self) -> None:
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(self)):
            return
        P, r = np.asarray(self.mdp.transition), np.asarray(self.mdp.reward)
        rows = {"transition": P, "initial": np.asarray(self.mdp.initial), "behaviour": np.asarray(self.behaviour)}
        if self.drift is not None:
            rows["drift"] = np.asarray(self.drift.kernel)
        for what, p in rows.items():
            if not (np.min(p) >= 0 and np.max(np.abs(p.sum(axis=-1) - 1)) <= _TOLERANCE):
                raise ValueError(
                    f"`{what}` of environment `{self.name}` has rows that are not probabilities. Each row must be "
                    "nonnegative and add up to 1."
                )
        if not (np.min(r) >= 0 and np.max(r) <= 1 + _TOLERANCE):
            raise ValueError(
                f"Rewards of environment `{self.name}` lie in [{np.min(r):.6g}, {np.max(r):.6g}], but sensitivities "
                "assume [0, 1]. Rescale them with a public map."
            )
        if (self.features.num_states, self.features.num_actions) != P.shape[1:3]:
            raise ValueError(
                f"`features` of environment `{self.name}` are for {self.features.num_states} states and "
                f"{self.features.num_actions} actions; the world has {P.shape[1]} and {P.shape[2]}."
            )
        ends = list(self.terminal)
        if np.any(r[:, ends] > 0) or np.any(np.delete(P[:, ends], ends, axis=-1) > 0):
            raise ValueError(f"`terminal` states of environment `{self.name}` must be absorbing and pay nothing.")
        if self.arrival is not None:
            paid = P @ np.asarray(self.arrival)
            paid[:, ends] = 0.0
            if np.max(np.abs(paid - r)) > _TOLERANCE:
                raise ValueError(
                    f"`arrival` and `mdp.reward` of environment `{self.name}` disagree. The reward of (s, a) must be "
                    "the mean of `arrival` over next states."
                )

    @property
    def horizon(self) -> int:
        return self.mdp.horizon

    @property
    def num_states(self) -> int:
        return self.mdp.num_states

    @property
    def num_actions(self) -> int:
        return self.mdp.num_actions

    @property
    def stationary(self) -> bool:
        """Whether all steps share one kernel and one reward table."""
        return self.mdp.transition.shape[0] == 1

    @property
    def rewards(self) -> Float[Array, "G S A"]:
        """The mean rewards, one stage or H of them."""
        return self.mdp.reward

    @property
    def optimal_value(self) -> Float[Array, ""]:
        """The largest expected return."""
        return optimal_value(self.mdp)

    def value(self, policy: TabularPolicy) -> Float[Array, ""]:
        """A policy's expected return, exactly."""
        return policy_value(self.mdp, policy)

    def regret(self, policy: TabularPolicy) -> Float[Array, ""]:
        """The expected loss of one episode of the policy against the optimum, exactly."""
        return self.optimal_value - self.value(policy)

    def at(self, seen: int | Real[Array, ""]) -> "Env":
        """The world after `seen` people; the same world unless it drifts."""
        if self.drift is None:
            return self
        kernel = self.drift.mix(self.mdp.transition, seen)
        return eqx.tree_at(lambda env: (env.mdp.transition, env.drift), self, (kernel, None))

    def total_regret(self, policy: TabularPolicy, episodes: int) -> float:
        """The expected loss of `episodes` people who all follow one policy, each against the best policy of their time.

        If the world drifts, this is a mean over 256 points in time.
        """
        if self.drift is None:
            return episodes * float(self.regret(policy))
        moments = jnp.asarray(episodes * (np.arange(256) + 0.5) / 256)
        return episodes * float(_mean_regret(self, policy, moments))

    def occupancy(self, policy: TabularPolicy) -> Float[Array, "H S A"]:
        """Probability of (state, action) at each step."""
        return occupancy(self.mdp, policy)

    def rollout(self, policy: TabularPolicy, key: AnyKey) -> Trajectory:
        """Simulate one episode; `vmap` it over keys."""
        return rollout(self.mdp, policy, key, terminal=self.terminal, arrival=self.arrival)

    def flow(self, policy: TabularPolicy, episodes: int | Real[Array, ""], key: AnyKey) -> Float[Array, "H S A S"]:
        """Draw counts of (step, state, action, next state) over a block of episodes; the cost does not depend on its
        length."""
        return flow(self.mdp, policy, episodes, key)

    def transitions(self, counts: Float[Array, "H S A S"]) -> Transitions:
        """The counts of a `flow` as rows."""
        return flow_transitions(self.mdp, counts, terminal=self.terminal, arrival=self.arrival)

    def sample(self, policy: TabularPolicy, episodes: int, key: AnyKey) -> Trajectory:
        """Draw very many whole episodes on the host (not inside `jit`), as offline data."""
        return sample_episodes(self.mdp, policy, episodes, key, terminal=self.terminal, arrival=self.arrival)

    def _every_step(self, probabilities: Float[Array, "S A"]) -> TabularPolicy:
        return TabularPolicy(jnp.broadcast_to(probabilities, (self.horizon, self.num_states, self.num_actions)))

    def behaviour_policy(self) -> TabularPolicy:
        """The policy that collected the offline data."""
        return self._every_step(self.behaviour)

    def mode_policy(self) -> TabularPolicy:
        """The most frequent action of the behaviour policy, the first in a tie.

        In states in which all actions are equally frequent, the behaviour policy is kept.
        """
        return self._every_step(most_frequent(self.behaviour))

    def myopic_policy(self) -> TabularPolicy:
        """Greedy on the mean rewards of the current step, ties shared. It needs no data if rewards are known.

        If rewards are paid on arrival, their means contain the kernel, so this baseline then uses unknown quantities.
        """
        return TabularPolicy.greedy(
            jnp.broadcast_to(self.mdp.reward, (self.horizon, self.num_states, self.num_actions))
        )

    def uniform_policy(self) -> TabularPolicy:
        """All actions with equal probability."""
        return TabularPolicy.uniform(self.horizon, self.num_states, self.num_actions)

    def fixed_policies(self) -> dict[str, TabularPolicy]:
        """Policies that never learn, by name; the first uses no knowledge at all."""
        nothing = jnp.zeros_like(self.behaviour)
        return {
            "uniform": self.uniform_policy(),
            "myopic": self.myopic_policy(),
            "behaviour": self.behaviour_policy(),
            "mode": self.mode_policy(),
            **{name: self._every_step(nothing.at[:, action].set(1.0)) for name, action in self.constant},
        }


@eqx.filter_jit
def _mean_regret(env: Env, policy: TabularPolicy, moments: Float[Array, " n"]) -> Float[Array, ""]:
    return jax.vmap(lambda seen: env.at(seen).regret(policy))(moments).mean()


@eqx.filter_jit
def most_frequent(behaviour: Float[Array, "S A"]) -> Float[Array, "S A"]:
    """All weight on the most frequent action, the first in a tie; unchanged if all actions are equally frequent."""
    first = jax.nn.one_hot(behaviour.argmax(axis=-1), behaviour.shape[-1], dtype=float)
    return jnp.where(jnp.ptp(behaviour, axis=-1, keepdims=True) <= _TOLERANCE, behaviour, first)


def make_finite_env(name: str, mdp: TabularMDP, **given: object) -> Env:
    """An environment with one-hot features and a uniform behaviour policy, unless others are given."""
    S, A = mdp.num_states, mdp.num_actions
    defaults: dict[str, Any] = {"features": OneHotFeatures(S, A), "behaviour": jnp.full((S, A), 1.0 / A)}
    return Env(mdp, name=name, **defaults | given)


def check_at_least(name: str, value: int, low: int) -> int:
    """Return `value`, or raise an error that states what is allowed."""
    if value < low:
        raise ValueError(f"`{name}` is {value}; it must be at least {low}.")
    return value
