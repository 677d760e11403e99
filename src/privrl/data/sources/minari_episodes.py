"""Minari datasets as episodes in memory: discrete actions, and observations that are numbered or vectors in bounds."""

from typing import Any, Unpack

import numpy as np

from privrl.data.episodes import Episodes, Public
from privrl.data.sources.observed_episodes import Recorder


def from_minari(dataset: Any, *, horizon: int, **public: Unpack[Public]) -> Episodes:
    """The episodes of a Minari dataset, given by its name or as an opened `MinariDataset`.

    An episode of T actions has T + 1 observations, so all next states are known. Without `units` every episode is
    somebody else's; `public` are the other arguments of `Episodes.from_arrays`. Discrete spaces that start at another
    number than 0 are shifted to it. Observations of a `Box` are vectors of measurements: declare `features`, or leave
    them out where all bounds of the space are finite, which then are the public ones.
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
            f"Reading the Minari dataset `{name}` needs the package `minari`. Install `privrl[minari]`, or give the "
            f"data with `privrl.data.Episodes.from_arrays`."
        ) from None
    return minari.load_dataset(name)
