"""What a driver must know of a worker before it is given a row, and what a worker is set up with."""

import functools
import hashlib
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from privrl.executors.threads import keep_memory

_SOURCE = Path(__file__).parents[1]
_PACKAGES = ("privrl", "jax", "jaxlib", "numpy", "pyarrow")


@dataclass(frozen=True)
class Versions:
    """The versions on which sums depend; of privrl itself also a digest of its source."""

    python: str
    packages: tuple[tuple[str, str], ...]
    source: str

    @classmethod
    @functools.cache
    def here(cls) -> "Versions":
        """Those of this process."""
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
