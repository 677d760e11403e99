"""Strict numbers in every test: float64, and no silent broadcasting across ranks; plots need no screen.

Shapes are checked too by `make test-slow`: `--jaxtyping-packages` wraps all of privrl before anything imports it.
"""

import os
from collections.abc import Iterator
from pathlib import Path

os.environ["MPLBACKEND"] = "Agg"
# Tests compile far more than they compute, so the compiler need not try hard.
os.environ["XLA_FLAGS"] = " ".join(
    [
        "--xla_backend_optimization_level=0",
        "--xla_llvm_disable_expensive_passes=true",
        "--xla_cpu_multi_thread_eigen=false",
        os.environ.get("XLA_FLAGS", ""),
    ]
)

import hypothesis
import jax
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")

# Examples stay random, since a privacy bound must hold for all inputs; a failure prints the line that replays it.
hypothesis.settings.register_profile("privrl", deadline=None, print_blob=True)
hypothesis.settings.load_profile("privrl")

_MAPS = Path("/proc/self/maps")


@pytest.fixture(autouse=True, scope="module")
def room_for_compiled_code() -> Iterator[None]:
    """Every compiled function holds a few memory maps, of which Linux allows 65,530: beyond that, compiling crashes."""
    yield
    if _MAPS.exists() and _MAPS.read_bytes().count(b"\n") > 15_000:
        jax.clear_caches()
