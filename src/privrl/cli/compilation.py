"""Compiled programs of simulations are kept in the user's cache folder, so that the same command starts quicker again.

Only simulations do this. The shapes in a compiled program can tell how large a table is, so those of real people's
tables are not kept.
"""

import contextlib
import os
from pathlib import Path

VARIABLE = "PRIVRL_COMPILATION_CACHE"
"""Another folder, or "off"."""


def keep_compiled_programs() -> None:
    """Turns the cache on, unless it is off, JAX has one already, or its folder cannot be created."""
    import jax

    wanted = os.environ.get(VARIABLE, "")
    if wanted == "off" or jax.config.jax_compilation_cache_dir:  # type: ignore[attr-defined]
        return
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(wanted) if wanted else cache / "privrl" / "compiled"
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
