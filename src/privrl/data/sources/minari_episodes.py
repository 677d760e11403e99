"""Minari datasets as episodes in memory, with discrete actions and observations that are discrete or bounded
vectors."""

from typing import Any, Unpack

import numpy as np

from privrl.data.episodes import Episodes, Public
from privrl.data.sources.observed_episodes import Recorder


def from_minari(dataset: Any, *, horizon: int, **public: Unpack[Public]) -> Episodes:
    """Read the episodes of a Minari dataset, given by its name or as an opened `MinariDataset`.

    An episode of T actions has T + 1 observations, so all next states are known. Discrete spaces that start at another
    number than 0 are shifted to it. Observations of a `Box` are vectors of measurements: declare `features`, or leave
    them out if all bounds of the space are finite, which then are the public bounds.

    Arguments:
        dataset: the dataset or its name.
        horizon: the largest number of steps of an episode.
        **public: the other arguments of `Episodes.from_arrays`. Without `units`, every episode belongs to a different
            person.

    Raises:
        ImportError: if a name is given and the package `minari` is not installed.
        TableError: if an episode is too long or a space is not supported.
    """
    if isinstance(dataset, str):
        dataset = _loaded(dataset)
    recorder = Recorder.from_spaces(dataset, "dataset", int(dataset.total_episodes), horizon, public)
    for k, episode in enumerate(dataset.iterate_episodes()):
        ended = np.asarray(getattr(episode, "terminations", False)).reshape(-1)
        recorder.add(k, episode.observations, episode.actions, episode.rewards, bool(ended.size and ended[-1]))
    return recorder.episodes()


def _loaded(name: str) -> Any:
    try:
        import minari
    except ImportError:
        raise ImportError(
            f"Reading the Minari dataset `{name}` requires the package `minari`. Install `privrl[minari]`, or use "
            f"`privrl.data.Episodes.from_arrays`."
        ) from None
    return minari.load_dataset(name)
