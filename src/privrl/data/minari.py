"""Minari datasets with discrete observations and actions as episodes in memory."""

from typing import Any, Unpack

import numpy as np
from jaxtyping import Int

from privrl.data.columns import whole_numbers
from privrl.data.episodes import Episodes, Public
from privrl.data.guard import guarded
from privrl.data.schema import TableError


def from_minari(dataset: Any, *, horizon: int, **public: Unpack[Public]) -> Episodes:
    """The episodes of a Minari dataset, given by its name or as an opened `MinariDataset`.

    An episode of T actions has T + 1 observations, so all next states are known. Without `units` every episode is
    somebody else's; `public` are the other arguments of `Episodes.from_arrays`. Spaces that start at another number
    than 0 are shifted to it.
    """
    if isinstance(dataset, str):
        dataset = _loaded(dataset)
    first_state = _first_of(dataset.observation_space, "observation")
    first_action = _first_of(dataset.action_space, "action")
    count = int(dataset.total_episodes)
    states = np.zeros((count, horizon + 1), np.int64)
    actions = np.zeros((count, horizon), np.int64)
    rewards = np.zeros((count, horizon), np.float64)
    lengths = np.zeros(count, np.int64)
    for k, episode in enumerate(dataset.iterate_episodes()):
        T = len(episode.rewards)
        if horizon < T:
            raise TableError(
                f"Episode {k} is longer than the horizon, which is {horizon}. "
                f"Give a larger `horizon` or filter the dataset."
            )
        states[k, : T + 1] = _flat(episode.observations, T + 1, "observations", k) - first_state
        actions[k, :T] = _flat(episode.actions, T, "actions", k) - first_action
        with guarded(f"Episode {k} has no numbers as rewards"):
            rewards[k, :T] = np.asarray(episode.rewards, float)
        lengths[k] = T
    return Episodes.from_arrays(states[:, :-1], actions, rewards, states[:, 1:], lengths, horizon=horizon, **public)


def _loaded(name: str) -> Any:
    try:
        import minari
    except ImportError:
        raise ImportError(
            f"Reading the Minari dataset `{name}` needs the package `minari`. Install `privrl[minari]`, or give the "
            f"data with `privrl.data.Episodes.from_arrays`."
        ) from None
    return minari.load_dataset(name)


def _first_of(space: Any, what: str) -> int:
    """The smallest element of a discrete space, told by its `n` and `start` so that `gymnasium` is not needed."""
    if not (isinstance(getattr(space, "n", None), int | np.integer) and hasattr(space, "start")):
        raise TableError(
            f"The {what} space of the dataset is `{type(space).__name__}`; it must be `Discrete`. Number its elements "
            f"0, 1, ... and use `privrl.data.Episodes.from_arrays`."
        )
    return int(space.start)


def _flat(values: Any, count: int, name: str, k: int) -> Int[np.ndarray, " T"]:
    """One whole number per step; some writers store a discrete element as an array of one number."""
    array = np.asarray(values)
    if array.size != count:
        raise TableError(f"Episode {k} has {array.size} entries where {count} are expected. Collect the dataset again.")
    return whole_numbers(array.reshape(count), name, lambda i: f"episode {k}, step {i}")
