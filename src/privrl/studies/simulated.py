"""Tables of simulated people, and what policies that learn nothing are worth in their world."""

from jaxtyping import PRNGKeyArray

from privrl.data.episodes import Episodes
from privrl.envs.recorded import OfflineEnv


def sampled(env: OfflineEnv, episodes: int, key: PRNGKeyArray) -> Episodes:
    """Episodes of so many people, under the environment's behaviour policy."""
    people = env.sample(env.behaviour_policy(), episodes, key)
    return Episodes.of(people, num_states=env.num_states, num_actions=env.num_actions)


def baseline_values(env: OfflineEnv) -> dict[str, float]:
    """Values of policies that learn nothing: `optimal`, `uniform`, `behaviour`, `mode`; exact in an `Env`."""
    return {
        "optimal": float(env.optimal_value),
        "uniform": float(env.value(env.uniform_policy())),
        "behaviour": float(env.value(env.behaviour_policy())),
        "mode": float(env.value(env.mode_policy())),
    }
