"""How long something takes."""

import time
from collections.abc import Callable
from typing import Any

import jax


def seconds(work: Callable[[], Any], repeats: int = 5) -> float:
    """The best of several runs, after one that may compile."""
    jax.block_until_ready(work())
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        jax.block_until_ready(work())
        times.append(time.perf_counter() - started)
    return min(times)
