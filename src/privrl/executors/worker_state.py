"""What a driver must know of a worker before it is given a row, and what a worker is set up with."""

import functools
import platform
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from privrl.executors.threads import keep_memory

_PACKAGES = ("privrl", "jax", "jaxlib", "numpy", "pyarrow")


@dataclass(frozen=True)
class Versions:
    """The versions on which sums depend."""

    python: str
    packages: tuple[tuple[str, str], ...]

    @classmethod
    @functools.cache
    def here(cls) -> "Versions":
        """Those of this process."""
        return cls(platform.python_version(), tuple((name, version(name)) for name in _PACKAGES))

    def __str__(self) -> str:
        return ", ".join(f"{name} {number}" for name, number in (("Python", self.python), *self.packages))


@dataclass(frozen=True)
class WorkerState:
    """What a worker says of itself."""

    versions: Versions
    spills: bool


def worker_state(dask_worker: Any = None) -> WorkerState:
    """Runs on a worker: its memory is kept for the next pass, and nobody samples what it does."""
    keep_memory()
    for name in ("profile", "profile-cycle"):
        callback = dask_worker.periodic_callbacks.get(name)
        if callback is not None:
            callback.stop()
    return WorkerState(Versions.here(), not isinstance(dask_worker.data, dict))
