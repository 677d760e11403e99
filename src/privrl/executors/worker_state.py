"""What the driver checks about a Dask worker before it sends a row, and how a worker is set up."""

import functools
import hashlib
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Protocol, runtime_checkable

from privrl.executors.threads import keep_memory

_SOURCE = Path(__file__).parents[1]
_PACKAGES = ("privrl", "jax", "jaxlib", "numpy", "pyarrow")


@dataclass(frozen=True)
class Versions:
    """The versions on which sums depend, with a digest of the source of privrl."""

    python: str
    packages: tuple[tuple[str, str], ...]
    source: str

    @classmethod
    @functools.cache
    def here(cls) -> "Versions":
        """The versions in this process."""
        digest = hashlib.sha256()
        for path in sorted(_SOURCE.rglob("*.py")):
            digest.update(path.relative_to(_SOURCE).as_posix().encode() + b"\0" + path.read_bytes())
        packages = tuple((name, version(name)) for name in _PACKAGES)
        return cls(platform.python_version(), packages, digest.hexdigest()[:16])

    def __str__(self) -> str:
        named = (("Python", self.python), *self.packages, ("source", self.source))
        return ", ".join(f"{name} {number}" for name, number in named)


@dataclass(frozen=True)
class WorkerState:
    """What a worker reports about itself: its versions, and whether it may write rows to its disk."""

    versions: Versions
    spills: bool


@runtime_checkable
class _Callback(Protocol):
    def stop(self) -> None: ...


@runtime_checkable
class _DaskWorker(Protocol):
    """The attributes of `distributed.Worker` that are used here."""

    periodic_callbacks: Mapping[str, _Callback]
    data: object


def set_up_worker(dask_worker: _DaskWorker) -> WorkerState:
    """Runs on a worker, which Dask passes as `dask_worker`: sets it up and returns its state.

    The worker keeps its memory for the next pass. Its profiler is stopped, because a profile shows what it works on.
    """
    keep_memory()
    for name in ("profile", "profile-cycle"):
        callback = dask_worker.periodic_callbacks.get(name)
        if callback is not None:
            callback.stop()
    return WorkerState(Versions.here(), not isinstance(dask_worker.data, dict))
