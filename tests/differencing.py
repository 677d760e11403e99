"""An attack on what is published over time: subtract consecutive releases.

What is left of two consecutive releases is the person who came in between. The attacker sees
everything that is published, user by user: policies, queries, releases and the noise distributions. For every user
they guess the first (state, action) as the one whose contribution, together with some next state, is nearest to the
differences. Where noise is fresh this is no better than a guess; where it is drawn once and used again it finds
everybody.
"""

from dataclasses import asdict, dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from privrl.contracts.learner import AbstractOnlineLearner
from privrl.contracts.release import Release
from privrl.envs.base import Env
from privrl.mdp.types import Trajectory
from privrl.privacy.trust.channels import AbstractChannel, AbstractCuratorChannel, RoundsChannel, RunningChannel
from privrl.privacy.trust.privatizers import AbstractPrivatizer, PairingError
from privrl.studies.loop import State
from privrl.studies.simulation.simulated_loop import Simulation, SimulationKeys
from privrl.studies.study import Study


@dataclass(frozen=True)
class DifferencingReport:
    """How often the first (state, action) of the user in between was guessed, and how often by chance.

    Chance is the same guesses held against shuffled users: neither guesses nor users are spread evenly over the pairs.
    (A few more than by chance are right without any leak: a user's policy is made from public noise.)
    """

    users: int
    success: float
    chance: float

    @property
    def broken(self) -> bool:
        """Whether guesses are right more than twice as often as by chance."""
        return self.success > 2 * self.chance

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"broken": self.broken}


def differencing(
    env: Env, learner: AbstractOnlineLearner, privatizer: AbstractPrivatizer, *, users: int, key: PRNGKeyArray
) -> DifferencingReport:
    """Attacks everything that an online learner publishes, users released one by one (the worst schedule)."""
    if len(learner.blocks(users)) != users:
        raise PairingError(
            f"`{type(learner).__name__}` publishes {len(learner.blocks(users))} times for {users} users, and the "
            "attack needs a release after every user. Give the learner such a schedule (`every_episode=True`, say)."
        )
    differences, explained, first = published_differences(env, learner, privatizer, users, key)
    distance = ((differences[:, None] - explained) ** 2).sum(axis=-1)
    S, A = env.num_states, env.num_actions
    guessed = distance.argmin(axis=1) // S  # candidates are (s, a, next state), the last running fastest
    shares = [np.bincount(pairs, minlength=S * A) / len(pairs) for pairs in (guessed, first)]
    return DifferencingReport(users, float((guessed == first).mean()), float(shares[0] @ shares[1]))


def published_differences(
    env: Env, learner: AbstractOnlineLearner, privatizer: AbstractPrivatizer, users: int, key: PRNGKeyArray
) -> tuple[Float[np.ndarray, "K n"], Float[np.ndarray, "K c n"], Int[np.ndarray, " K"]]:
    """For each user the releases after them minus those before, what each candidate would add, and the true s A + a.

    Both are in units of the noise of the difference. Answers to queries are subtracted where the query stayed
    the same.
    """
    channels = Study.online(learner, privatizer, users).channels()
    for name, channel in channels.items():
        if not isinstance(channel, AbstractCuratorChannel):
            raise PairingError(f"`{name}` leaves people with noise of their own; attack their reports instead.")
    simulation = Simulation(env, learner, channels, SimulationKeys.of(key))
    candidates, state = _first_steps(env), simulation.first()
    previous: Any = None
    differences, explained, first = [], [], []
    for t in range(users):
        state, (seen, plan, record) = _user(simulation, state, jnp.asarray(t))
        if previous is not None:
            left, right = _compared(channels, candidates, previous[0], previous[1], seen)
            differences.append(np.asarray(left))
            explained.append(np.asarray(right))
            first.append(int(previous[2].states[0]) * env.num_actions + int(previous[2].actions[0]))
        previous = (seen, plan, record)
    return np.asarray(differences), np.asarray(explained), np.asarray(first)


@eqx.filter_jit
def _user(simulation: Simulation, state: State, t: Int[Array, ""]) -> tuple[State, Any]:
    """One user: what was published before them, the plan that they acted on, and what they did."""
    seen: dict[tuple[str, int], Any] = {(name, 0): (release, None) for name, release in state.released.items()}

    def listen(name: str, index: int, query: Any, release: Release) -> None:
        seen[name, index] = (release, query)

    state, plan, _ = simulation.plan(state, t, t, listen)
    record, terms = simulation.person(plan, t, t)
    return simulation.publish(state, terms, t), (seen, plan, record)


@eqx.filter_jit
def _compared(
    channels: dict[str, AbstractChannel], candidates: Trajectory, seen: Any, plan: Any, later: Any
) -> tuple[Float[Array, " n"], Float[Array, "c n"]]:
    left, right = [], []
    for (name, index), (release, query) in seen.items():
        channel = channels[name]
        after, query_after = later[name, index]

        def add(x: Trajectory, s: Any = channel.statistic, q: Any = query) -> Array:
            return s.answer(s.contribution(x, plan), q).ravel()

        usable = jnp.ones(())
        if isinstance(channel, RoundsChannel):
            same = jax.tree.map(lambda x, y: jnp.all(jnp.asarray(x) == jnp.asarray(y)), query, query_after)
            usable = jnp.stack([usable, *(leaf.astype(float) for leaf in jax.tree.leaves(same))]).min()
        accumulates = isinstance(channel, RunningChannel | RoundsChannel)
        before = release.value if accumulates else jnp.zeros_like(release.value)
        scale = jnp.sqrt(release.noise.variance * accumulates + after.noise.variance).max()
        left.append(usable * (after.value - before).ravel() / scale)
        right.append(usable * jax.vmap(add)(candidates) / scale)
    return jnp.concatenate(left), jnp.concatenate(right, axis=1)


def _first_steps(env: Env) -> Trajectory:
    """Every first step that a user can take: state, action, next state."""
    H = env.horizon
    s, a, after = (x.ravel() for x in np.indices((env.num_states, env.num_actions, env.num_states)))

    def first(x: np.ndarray) -> Array:
        return jnp.zeros((len(x), H), int).at[:, 0].set(x)

    return Trajectory(first(s), first(a), jnp.zeros((len(s), H)), first(after), jnp.ones(len(s), int))
