"""Tables of simulated people, and what policies that learn nothing are worth in their world."""

from collections.abc import Sequence
from typing import Any

from jaxtyping import PRNGKeyArray

from privrl.data.episodes import Episodes
from privrl.envs.base import Env
from privrl.envs.patients.actors import AssistedActor
from privrl.envs.patients.grid_table import GridTable
from privrl.envs.patients.patient_world import AbstractPatients, KnownValue
from privrl.envs.recorded_world import OfflineEnv
from privrl.envs.zoo.hidden_state import HiddenEnv
from privrl.mdp.assistance import AbstractAssisted
from privrl.mdp.assisted import AssistedPolicy, simulate_gain
from privrl.mdp.types import Trajectory


def sampled(env: OfflineEnv | AbstractPatients, episodes: int, key: PRNGKeyArray) -> Episodes:
    """Samples the episodes of this number of people under the environment's behaviour policy."""
    practice: Any = env.behaviour_policy()
    return table_of(env, env.sample(practice, episodes, key))


def table_of(env: OfflineEnv | AbstractPatients, people: Trajectory, units: Sequence[str] | None = None) -> Episodes:
    """Sampled people as a table of this environment."""
    if isinstance(env, AbstractPatients):
        return Episodes.from_trajectories(people, features=env.columns, num_actions=env.num_actions, units=units)
    return Episodes.from_trajectories(people, num_states=env.num_states, num_actions=env.num_actions, units=units)


def assisted_gain(
    env: OfflineEnv | AbstractPatients, policy: AbstractAssisted, stays: int, *, key: PRNGKeyArray
) -> KnownValue:
    """What an assisted policy adds to practice in a known world, with the standard error of the simulation."""
    if isinstance(env, AbstractPatients):
        return env.gain(AssistedActor(policy, env.practice))
    assert isinstance(policy, AssistedPolicy)
    if isinstance(env, GridTable):
        return env.gain(policy)
    if isinstance(env, HiddenEnv):
        found = env.gain(policy, stays, key=key)
    else:
        assert isinstance(env, Env)
        found = simulate_gain(env.mdp, env.behaviour, policy, stays, key=key)
    return KnownValue(found.gain, found.se)


def baseline_values(env: OfflineEnv | AbstractPatients) -> dict[str, float]:
    """Values of policies that learn nothing: `optimal`, `uniform`, `behaviour`, `mode`; exact in an `Env`.

    Among measurements, `optimal` is a rule whose constants were tuned in the simulator, and there is no `mode`.
    """
    uniform: Any = env.uniform_policy()
    practice: Any = env.behaviour_policy()
    values = {
        "optimal": float(env.optimal_value),
        "uniform": float(env.value(uniform)),
        "behaviour": float(env.value(practice)),
    }
    return values if isinstance(env, AbstractPatients) else values | {"mode": float(env.value(env.mode_policy()))}
