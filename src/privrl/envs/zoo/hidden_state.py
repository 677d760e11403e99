"""A finite world behind a table: each full state is recorded as one of fewer states, and all values are exact.

A policy on the current recorded state and the step is also a policy on full states, so one backward pass over full
states gives its value. Practice sees the full state.
"""

from collections.abc import Hashable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from privrl.envs.base import Env
from privrl.envs.recorded_world import AbstractRecorded
from privrl.mdp.assisted import AssistedPolicy, SimulatedGain, simulate_gain
from privrl.mdp.multinomial import AnyKey
from privrl.mdp.planning import Stage, scan_stages
from privrl.mdp.types import TabularPolicy, Trajectory


class FullPolicy(eqx.Module):
    """A policy that sees the full state: probabilities `[H, X, A]`."""

    probabilities: Float[Array, "H X A"]


class HiddenEnv(AbstractRecorded):
    """A finite world of which a table records `observation[x]` instead of the full state x.

    Arguments:
        full: the world of the full states; its behaviour policy is practice.
        observation: the recorded state of each full state; ends of episodes are recorded as ends.
        num_states: the number of recorded states.
        name, arguments, seed: the arguments with which `make` builds this world again.
    """

    full: Env
    observation: Int[Array, " X"]
    num_states: int = eqx.field(static=True)
    name: str = eqx.field(static=True)
    arguments: tuple[tuple[str, Hashable], ...] = eqx.field(static=True, default=())
    seed: int = eqx.field(static=True, default=0)
    terminal: tuple[int, ...] = eqx.field(static=True, default=())
    arrival: Float[Array, " S"] | None = None

    def __check_init__(self) -> None:
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(self)):
            return
        seen = np.asarray(self.observation)
        if seen.shape != (self.full.num_states,) or seen.min() < 0 or seen.max() >= self.num_states:
            raise ValueError(
                f"`observation` of environment `{self.name}` must be {self.full.num_states} states below "
                f"{self.num_states}."
            )
        ends = np.isin(np.arange(self.full.num_states), self.full.terminal)
        if not np.array_equal(ends, np.isin(seen, self.terminal)):
            raise ValueError(f"Environment `{self.name}` must record exactly the ends of episodes as `terminal`.")
        paid, full = self.arrival, self.full.arrival
        if (paid is None) != (full is None) or (
            paid is not None and not np.array_equal(np.asarray(paid)[seen], np.asarray(full))
        ):
            raise ValueError(f"`arrival` of environment `{self.name}` must equal the payments of the full states.")

    @property
    def num_actions(self) -> int:
        return self.full.num_actions

    @property
    def horizon(self) -> int:
        return self.full.horizon

    @property
    def optimal_value(self) -> Float[Array, ""]:
        """The largest expected return of policies that see the full state: an upper bound for all others."""
        return self.full.optimal_value

    @property
    def behaviour(self) -> Float[Array, "S A"]:
        taken = self.full.occupancy(TabularPolicy(self.behaviour_policy().probabilities)).sum(axis=0)
        live = jnp.zeros(self.num_states, bool).at[jnp.asarray(self.terminal, int)].set(True)
        counted = jnp.zeros((self.num_states, self.num_actions)).at[self.observation].add(taken)
        total = counted.sum(axis=-1, keepdims=True)
        unseen = (total <= 0) | live[:, None]
        return jnp.where(unseen, 1 / self.num_actions, counted / jnp.where(unseen, 1.0, total))

    def behaviour_policy(self) -> FullPolicy:
        return FullPolicy(self.full.behaviour_policy().probabilities)

    def _on_full_states(self, policy: TabularPolicy | FullPolicy) -> TabularPolicy:
        if isinstance(policy, FullPolicy):
            return TabularPolicy(policy.probabilities)
        return TabularPolicy(policy.probabilities[:, self.observation])

    def value(self, policy: TabularPolicy | FullPolicy) -> Float[Array, ""]:
        """A policy's expected return, exactly."""
        return self.full.value(self._on_full_states(policy))

    def gain(self, policy: AssistedPolicy, episodes: int, *, key: PRNGKeyArray) -> SimulatedGain:
        """The gain of an assisted policy on recorded states over practice, which still sees the full state."""
        seen = self.observation
        advised = (policy.advice[seen], policy.support[seen], policy.max_ratio, policy.max_weight)
        full = AssistedPolicy(*advised, strength=policy.strengths[seen], horizon=policy.horizon)
        return simulate_gain(self.full.mdp, self.full.behaviour, full, episodes, key=key)

    def sample(self, policy: TabularPolicy | FullPolicy, episodes: int, key: AnyKey) -> Trajectory:
        """Recorded episodes of `episodes` people, drawn on the host."""
        drawn = self.full.sample(self._on_full_states(policy), episodes, key)
        seen = np.asarray(self.observation).astype(np.int32)
        states, after = seen[np.asarray(drawn.states)], seen[np.asarray(drawn.next_states)]
        return Trajectory(states, drawn.actions, drawn.rewards, after, drawn.length)

    def best_policy(self, sweeps: int = 10) -> TabularPolicy:
        """A deterministic policy on (step, recorded state) that no change at one step improves.

        Each sweep goes back through the steps. With mu_h(x) the probability of being in x under the choices of earlier
        steps, and Q_h those of later ones, step h takes argmax_a sum_{x recorded as s} mu_h(x) Q_h(x, a): the value
        never falls. The best policy of all that see only recorded states is at least as good.
        """
        mdp, S = self.full.mdp, self.num_states

        def back(V: Array, mu: Array, stage: Stage) -> tuple[Array, Array]:
            P, r = stage
            Q = r + P @ V
            choice = jnp.zeros((S, Q.shape[1])).at[self.observation].add(mu[:, None] * Q).argmax(axis=-1)
            pi = jax.nn.one_hot(choice, Q.shape[1], dtype=float)
            return jnp.sum(pi[self.observation] * Q, axis=-1), pi

        def sweep(pi: Array, _: None) -> tuple[Array, None]:
            mu = self.full.occupancy(self._on_full_states(TabularPolicy(pi))).sum(axis=-1)
            return scan_stages(mdp, back, jnp.zeros(mdp.num_states), mu, reverse=True)[1], None

        return TabularPolicy(jax.lax.scan(sweep, self.mode_policy().probabilities, length=sweeps)[0])
