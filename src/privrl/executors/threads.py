"""Settings of a worker process: it uses one thread, and its allocator keeps freed memory."""

import contextlib
import ctypes
import os
from collections.abc import Iterator

_ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt
_KEPT_BYTES, _MAPPED_BYTES = 2**29, 2**25  # the second is the largest value that glibc accepts


@contextlib.contextmanager
def single_threads() -> Iterator[None]:
    """Processes that are started inside this block use one thread each, so one process per core fills a machine."""
    flags = {"OMP_NUM_THREADS": "1", "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {_ONE_THREAD}".strip()}
    before = dict(os.environ)
    os.environ.update(flags)
    try:
        yield
    finally:
        for name in flags.keys() - before.keys():
            del os.environ[name]
        os.environ.update({name: before[name] for name in flags if name in before})


def keep_memory() -> None:
    """Keeps freed memory for the next batch, instead of returning it to the system and fetching it page by page.

    Both thresholds are set, because setting one of them turns off the adaptation of the other. Does nothing if the C
    library does not have these settings.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        library.mallopt(_MMAP_THRESHOLD, _MAPPED_BYTES)
