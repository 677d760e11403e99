"""An environment: a finite world with public features, a behaviour policy and exact answers."""

from collections.abc import Hashable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Real

from privrl.envs.drifting import Drift
from privrl.mdp.features import AbstractFeatures, OneHotFeatures
from privrl.mdp.multinomial import AnyKey
from privrl.mdp.planning import occupancy, optimal_value, policy_value
from privrl.mdp.simulation import flow, flow_transitions, rollout, sample_episodes
from privrl.mdp.types import TabularMDP, TabularPolicy, Trajectory, Transitions

_TOLERANCE = 1e-9


class Env(eqx.Module):
    """A finite world that can be walked through and evaluated exactly, inside `jit` and `vmap` too.

    Arguments:
        mdp: transitions, mean rewards in [0, 1], first state, horizon.
        features: public features of (state, action), norm at most 1.
        behaviour: action probabilities `[S, A]` of whoever collected offline data.
        name, arguments, seed: how `make` builds this world again.
        terminal: public set of states whose entry ends an episode; absorbing, without further reward.
        arrival: where the reward is paid on entering a state, that payment per state. The mean reward of (s, a) is then
            sum_s' P(s'|s,a) arrival(s'), and sampled rewards are the payments themselves.
        constant: actions that are worth comparing with when they are always taken, by name.
        rescaled: the smallest and the largest reward that 0 and 1 stand for, where rewards were rescaled.
        drift: how the kernel changes while people come; `at` is the world after so many, and everything else here is
            about the world before the first.
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
                raise ValueError(f"`{what}` of environment `{self.name}` has rows that are not probabilities.")
        if not (np.min(r) >= 0 and np.max(r) <= 1 + _TOLERANCE):
            raise ValueError(
                f"Rewards of environment `{self.name}` lie in [{np.min(r):.6g}, {np.max(r):.6g}]; sensitivities assume "
                "[0, 1]. Rescale them with a public map."
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
                raise ValueError(f"`arrival` and `mdp.reward` of environment `{self.name}` disagree.")

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
        """Whether all steps share one kernel (and one reward table)."""
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
        """What one episode of the policy loses in expectation, exactly."""
        return self.optimal_value - self.value(policy)

    def at(self, seen: int | Real[Array, ""]) -> "Env":
        """The world after so many people: itself, unless it drifts."""
        if self.drift is None:
            return self
        kernel = self.drift.mix(self.mdp.transition, seen)
        return eqx.tree_at(lambda env: (env.mdp.transition, env.drift), self, (kernel, None))

    def total_regret(self, policy: TabularPolicy, episodes: int) -> float:
        """What so many people lose who all follow one policy, each against the best policy of their moment; in a world
        that drifts from a mean over 256 of these moments."""
        if self.drift is None:
            return episodes * float(self.regret(policy))
        moments = jnp.asarray(episodes * (np.arange(256) + 0.5) / 256)
        return episodes * float(_mean_regret(self, policy, moments))

    def occupancy(self, policy: TabularPolicy) -> Float[Array, "H S A"]:
        """Probability of (state, action) at each step."""
        return occupancy(self.mdp, policy)

    def rollout(self, policy: TabularPolicy, key: AnyKey) -> Trajectory:
        """One episode; `vmap` it over keys."""
        return rollout(self.mdp, policy, key, terminal=self.terminal, arrival=self.arrival)

    def flow(self, policy: TabularPolicy, episodes: int | Real[Array, ""], key: AnyKey) -> Float[Array, "H S A S"]:
        """Counts of (step, state, action, next state) over a block of episodes; a long block costs no more."""
        return flow(self.mdp, policy, episodes, key)

    def transitions(self, counts: Float[Array, "H S A S"]) -> Transitions:
        """The counts of a `flow` as rows."""
        return flow_transitions(self.mdp, counts, terminal=self.terminal, arrival=self.arrival)

    def sample(self, policy: TabularPolicy, episodes: int, key: AnyKey) -> Trajectory:
        """Very many whole episodes, drawn on the host (not inside `jit`): offline data."""
        return sample_episodes(self.mdp, policy, episodes, key, terminal=self.terminal, arrival=self.arrival)

    def _every_step(self, probabilities: Float[Array, "S A"]) -> TabularPolicy:
        return TabularPolicy(jnp.broadcast_to(probabilities, (self.horizon, self.num_states, self.num_actions)))

    def behaviour_policy(self) -> TabularPolicy:
        """Whoever collected the offline data."""
        return self._every_step(self.behaviour)

    def mode_policy(self) -> TabularPolicy:
        """The behaviour's most frequent action, the first of them in a tie.

        Where every action is as frequent as any other nothing is most frequent, and the behaviour is kept.
        """
        return self._every_step(most_frequent(self.behaviour))

    def myopic_policy(self) -> TabularPolicy:
        """Greedy on the mean rewards of the step at hand, ties shared: needs no data where rewards are known.

        Where rewards are paid on arrival their means contain the kernel, so this is then no data-free baseline.
        """
        return TabularPolicy.greedy(
            jnp.broadcast_to(self.mdp.reward, (self.horizon, self.num_states, self.num_actions))
        )

    def uniform_policy(self) -> TabularPolicy:
        """Every action alike."""
        return TabularPolicy.uniform(self.horizon, self.num_states, self.num_actions)

    def fixed_policies(self) -> dict[str, TabularPolicy]:
        """Policies that never learn, by name; the first knows nothing at all."""
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
    """All weight on the first of the most frequent actions, where one is more frequent than another."""
    first = jax.nn.one_hot(behaviour.argmax(axis=-1), behaviour.shape[-1], dtype=float)
    return jnp.where(jnp.ptp(behaviour, axis=-1, keepdims=True) <= _TOLERANCE, behaviour, first)


def make_finite_env(name: str, mdp: TabularMDP, **given: Any) -> Env:
    """An environment with one-hot features and a uniform behaviour policy, unless others are given."""
    S, A = mdp.num_states, mdp.num_actions
    defaults: dict[str, Any] = {"features": OneHotFeatures(S, A), "behaviour": jnp.full((S, A), 1.0 / A)}
    return Env(mdp, name=name, **defaults | given)


def check_at_least(name: str, value: int, low: int) -> int:
    """`value`, or an error that says what is allowed."""
    if value < low:
        raise ValueError(f"`{name}` is {value}; it must be at least {low}.")
    return value
