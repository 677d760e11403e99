"""Strict numbers in every test: float64, and no silent broadcasting across ranks; plots need no screen.

Shapes are checked too by `make test-slow`: `--jaxtyping-packages` wraps all of privrl before anything imports it.
"""

import contextlib
import ctypes
import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["MPLBACKEND"] = "Agg"
# Tests compile far more than they compute, so the compiler need not try hard: the older emitters of fused loops need
# half the time and memory of the newer ones, and one core gains nothing from many small modules.
os.environ["XLA_FLAGS"] = " ".join(
    [
        "--xla_backend_optimization_level=0",
        "--xla_llvm_disable_expensive_passes=true",
        "--xla_cpu_use_fusion_emitters=false",
        "--xla_cpu_parallel_codegen_split_count=1",
        "--xla_cpu_multi_thread_eigen=false",
        os.environ.get("XLA_FLAGS", ""),
    ]
)
# Workers, processes that tests start and later runs share what was compiled; `make clean` removes it.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "compiled"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# Without source lines in it a program is the same wherever it comes from, and need not be copied to leave them out.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
os.environ.setdefault("JAX_COMPILATION_CACHE_INCLUDE_METADATA_IN_KEY", "true")

import hypothesis
import jax
import pytest
from clocks import Clock
from postgres import MISSING, Cluster, programs
from tiers import FIRST

gc.disable()  # until all tests are imported: a fifth of the time, and imports make no garbage
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")

# Examples stay random, since a privacy bound must hold for all inputs; a failure prints the line that replays it.
hypothesis.settings.register_profile("privrl", deadline=None, print_blob=True)
hypothesis.settings.load_profile("privrl")

_MAPS, _STATM = Path("/proc/self/maps"), Path("/proc/self/statm")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_ROOM, _STEP = 1_500 * 2**20, 200 * 2**20
_KEPT = pytest.StashKey[int]()  # what the worker held after it forgot the last time


def _resident() -> int:
    """Bytes of memory that this process holds; 0 where the system does not tell."""
    return int(_STATM.read_text().split()[1]) * _PAGE if _STATM.exists() else 0


def _forget() -> None:
    """Drops compiled functions, and gives freed memory back to the system."""
    jax.clear_caches()
    gc.collect()
    if _STATM.exists() and hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the first tier: the tests that `tiers.py` names, and those marked `smoke`; none of them is slow."""
    tests = Path(__file__).parent
    for item in items:
        named = f"{item.path.relative_to(tests).as_posix()}::{getattr(item, 'originalname', None) or item.name}"
        if (named in FIRST or item.get_closest_marker("smoke")) and not item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.first)


def pytest_collection_finish() -> None:
    """What was imported stays: collecting garbage need not look at it again, nor after every 700 new objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()


@pytest.fixture(autouse=True, scope="module")
def room_for_compiled_code() -> Iterator[None]:
    """Every compiled function holds a few memory maps, of which Linux allows 65,530: beyond that, compiling crashes."""
    yield
    if _MAPS.exists() and _MAPS.read_bytes().count(b"\n") > 15_000:
        _forget()


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Compiled functions of earlier tests go before a worker outgrows 2 GB, and again after some growth."""
    if _resident() > max(_ROOM, item.config.stash.get(_KEPT, 0) + _STEP):
        _forget()
        item.config.stash[_KEPT] = _resident()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """A PostgreSQL server of this worker."""
    if programs() is None:
        pytest.skip(MISSING)
    with contextlib.closing(Cluster()) as cluster:
        yield cluster


@pytest.fixture(params=["file", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """Where a store may be, on either engine: a file, or an address."""
    return tmp_path / "study.db" if request.param == "file" else request.getfixturevalue("postgres").new()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    """A new store in a file."""
    from privrl.privacy.store.release_store import ReleaseStore

    with ReleaseStore(tmp_path / "s.db") as store:
        yield store


@pytest.fixture
def clock() -> Clock:
    """At 0 seconds."""
    return Clock()


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases that do not depend on the sums: two worlds are compared given that all releases agree."""
    from privrl.privacy.trust.exact_channels import ExactChannel

    noisy = ExactChannel.add_noise
    monkeypatch.setattr(ExactChannel, "add_noise", lambda self, encoded, key: noisy(self, 0 * encoded, key))
