"""Episodes played in a Gymnasium environment, as a dataset in memory."""

from collections.abc import Callable
from typing import Any, Unpack

import numpy as np

from privrl.data.episodes import Episodes, Public
from privrl.data.sources.observed_episodes import Recorder


def from_gymnasium(
    env: Any,
    policy: Callable[[Any], object] | None = None,
    *,
    episodes: int,
    horizon: int,
    env_seed: int,
    **public: Unpack[Public],
) -> Episodes:
    """Play a policy in a Gymnasium environment; every episode belongs to a different person.

    Arguments:
        env: an environment with discrete actions, and observations that are discrete or a `Box`.
        policy: maps an observation to an action. By default, actions are uniformly random.
        episodes: the number of people to simulate.
        horizon: the largest number of steps; an episode that the environment ends is shorter.
        env_seed: the seed of the environment and of the random actions.
        **public: the other arguments of `Episodes.from_arrays`. Observations of a `Box` are vectors of measurements:
            declare `features`, or leave them out if all bounds of the space are finite, which then are the public
            bounds. Rewards must lie in `reward_range`, by default [0, 1].
    """
    recorder = Recorder.from_spaces(env, "environment", episodes, horizon, public)
    rng = np.random.default_rng(env_seed)
    first, count = int(env.action_space.start), int(env.action_space.n)
    for k in range(episodes):
        observation, _ = env.reset(seed=env_seed if k == 0 else None)
        seen, ended = [observation], False
        done: list[object] = []
        paid: list[object] = []
        while len(done) < horizon and not ended:
            action = int(rng.integers(count)) + first if policy is None else policy(observation)
            observation, reward, ended, truncated, _ = env.step(action)
            seen.append(observation)
            done.append(action)
            paid.append(reward)
            if truncated:
                break
        recorder.add(k, seen, done, paid, bool(ended))
    return recorder.episodes()
