"""How much memory a learner will need, from public sizes alone, before a record is read."""

import math
import os
from collections.abc import Sequence
from pathlib import Path

import jax

from privrl.contracts.learner import AbstractAnalysis
from privrl.contracts.release import Declared
from privrl.contracts.statistic import AbstractStatistic

BYTES = 8  # of a number
COPIES = 6  # of the largest array: a sum, its noise, the release, and what is planned from it
_LIMIT = Path("/sys/fs/cgroup/memory.max")


def check_memory(learner: AbstractAnalysis, declared: Sequence[Declared]) -> None:
    """Refuses a learner whose arrays do not fit into the memory of this machine.

    What is counted is the largest array, of a declared sum or of the learner's own (`largest_array`), a few times over.
    It depends on public sizes alone, so whether a study is refused says nothing about anybody.
    """
    sums = [math.prod(d.statistic.raw_shape) for d in declared if d.statistic is not None]
    _refuse_beyond_memory(f"`{type(learner).__name__}`", max([learner.largest_array, *sums]), "Nothing was read.")


def check_sum(statistic: AbstractStatistic) -> None:
    """The same for one sum, whose size earlier releases may have decided."""
    what = f"The sum `{type(statistic).__name__}` of shape {statistic.raw_shape}"
    _refuse_beyond_memory(what, math.prod(statistic.raw_shape), "This sum was not made.")


def _refuse_beyond_memory(what: str, entries: int, so_far: str) -> None:
    needed, available = COPIES * BYTES * entries, machine_memory()
    if needed > available:
        raise ValueError(
            f"{what} needs about {_gigabytes(needed)} of memory for a world of this size, and this machine has "
            f"{_gigabytes(available)}. {so_far} Merge states or actions with public rules, or use a recipe that keeps "
            "tables of states and actions alone, such as `dp-tdfp` or `dp-fqi`."
        )


def machine_memory() -> int:
    """Bytes of this machine, or of the container that it runs in."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = _LIMIT.read_text().strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdigit() else total


def device_memory() -> int:
    """Bytes of the first device that JAX uses; of this machine, if the device does not report its memory."""
    reported = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    return machine_memory() if reported is None else int(reported)


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"
