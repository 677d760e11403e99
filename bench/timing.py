"""How long something takes, how that grows, and whether two sides agree."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

Row = tuple[str, float, float]  # what, plainly, by privrl


def same(left: Any, right: Any, tolerance: float = 1e-8) -> None:
    """Stops the run unless both sides of a row are the same numbers."""
    if not np.allclose(left, right, atol=tolerance, rtol=tolerance):
        raise SystemExit("a benchmark's two sides disagree")


def seconds(work: Callable[[], Any], repeats: int = 5) -> float:
    """The best of several runs, after one that may compile."""
    jax.block_until_ready(work())
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        jax.block_until_ready(work())
        times.append(time.perf_counter() - started)
    return min(times)


def once(work: Callable[[], Any], repeats: int = 2) -> tuple[Any, float]:
    """A result and the best time of several runs, for plain NumPy, which has nothing to compile."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - started)
    return result, min(times)


def exponent(cost: Mapping[int, float]) -> float:
    """The slope of log cost against log size, by least squares: cost grows like size to this power."""
    return float(np.polyfit(np.log(list(cost)), np.log(list(cost.values())), 1)[0])
