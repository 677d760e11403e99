"""The keys that noise is drawn from: a recorder in the place of the random functions of `noise/sources.py`."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
from jax.experimental.xla_metadata import set_xla_metadata

from privrl.privacy.noise import sources

_NUMBERS = itertools.count()


@contextlib.contextmanager
def record_draws() -> Iterator[list[tuple[int, ...]]]:
    """Lists the raw data of every key that noise is drawn from, also inside jit, vmap and scan.

    The recorder enters a compiled function when it is traced, so functions compiled earlier must be traced again, and
    not be used afterwards: each recording is a context of its own to JAX, which compiles once per context. Read the
    list after leaving.
    """
    if sources.jax is not jax:
        raise RuntimeError("`record_draws` is already active; recordings cannot be nested.")
    drawn: list[tuple[int, ...]] = []

    def append(data: np.ndarray) -> None:
        words = np.asarray(data)
        drawn.extend(tuple(row) for row in words.reshape(-1, words.shape[-1]).tolist())

    def recorded(draw: Callable[..., Any]) -> Callable[..., Any]:
        def drawing(key: jax.Array, *arguments: Any) -> Any:
            jax.debug.callback(append, jax.random.key_data(key))
            return draw(key, *arguments)

        return drawing

    draws = {name: recorded(getattr(jax.random, name)) for name in ("normal", "laplace", "uniform", "bits")}
    sources.jax = SimpleNamespace(random=SimpleNamespace(fold_in=jax.random.fold_in, **draws))
    try:
        with set_xla_metadata(privrl_recording=str(next(_NUMBERS))):
            yield drawn
    finally:
        jax.effects_barrier()
        sources.jax = jax
