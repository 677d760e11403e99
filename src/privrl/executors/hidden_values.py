"""What is sent to a Dask cluster, and the functions that run there. Logs show none of the content; nothing raises."""

import pickle
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from privrl.executors.executor import accumulate, add_term
from privrl.executors.failures import Failure, call_safely
from privrl.executors.sparse import compress, decompress
from privrl.executors.worker import WorkerTask
from privrl.executors.worker_state import Versions

_Value = TypeVar("_Value")


class Hidden(Generic[_Value]):
    """A value that no log shows."""

    def __init__(self, value: _Value) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "Hidden()"

    def __sizeof__(self) -> int:
        return sys.getsizeof(self.value)


@dataclass(frozen=True, repr=False)
class ShardSum:
    """The sum over those of some shards that did not fail, and the failures of the others by their numbers."""

    total: object = None
    failures: dict[int, Failure] = field(default_factory=dict)

    def __getstate__(self) -> tuple[object, dict[int, Failure]]:
        return compress(self.total), self.failures

    def __setstate__(self, state: tuple[object, dict[int, Failure]]) -> None:
        object.__setattr__(self, "total", decompress(state[0]))
        object.__setattr__(self, "failures", state[1])

    def __sizeof__(self) -> int:
        # Dask decides by the size of a result where it keeps it; without this every sum would seem small.
        parts = self.total if isinstance(self.total, tuple) else (self.total,)
        return sum(getattr(part, "nbytes", 64) for part in parts)


def unpickle(packed: Hidden[bytes]) -> Hidden[object]:
    """Unpacks a shard or a task in the memory of a worker. The value is a `Failure` if that is not possible."""
    return Hidden(call_safely(pickle.loads, packed.value))


def sum_group(
    numbers: tuple[int, ...],
    task: Hidden[WorkerTask | Failure],
    own: Hidden[list[tuple[object, ...]]],
    expected: Hidden[Versions],
    *shards: Hidden[object],
) -> Hidden[ShardSum]:
    """Runs a task on some shards, each with its own argument, and sums the results."""
    total: object = None
    failures: dict[int, Failure] = {}
    # A worker that joined the cluster after the driver's check may have other versions, so each task checks again.
    known = call_safely(Versions.here) == expected.value
    for number, mine, shard in zip(numbers, own.value, shards, strict=True):
        result = _accumulate(total, task.value, shard.value, mine) if known else Failure("VersionMismatch")
        if isinstance(result, Failure):
            failures[number] = result
        else:
            total = result
    return Hidden(ShardSum(total, failures))


def _accumulate(total: object, task: WorkerTask | Failure, shard: object, own: tuple[object, ...]) -> object:
    if isinstance(shard, Failure):
        return shard
    if isinstance(task, Failure):
        return task
    f, args = task
    return call_safely(accumulate, total, f, shard, *args, *own)


def add_sums(*sums: Hidden[ShardSum]) -> Hidden[ShardSum]:
    """Adds up several sums. They are results of other tasks, which may be read again, so none of them is changed."""
    total = add_totals((one.value.total for one in sums), copy=True)
    failures = {number: failure for one in sums for number, failure in one.value.failures.items()}
    return Hidden(ShardSum(total, failures))


def add_totals(totals: Iterable[object], *, copy: bool = False) -> object:
    """Adds up sums; `None` is the sum of no terms. The first one may be changed unless `copy` is set."""
    total: object = None
    for one in totals:
        if one is not None:
            total = (_copy(one) if copy else one) if total is None else add_term(total, one)
    return total


def _copy(total: object) -> object:
    return tuple(_copy(part) for part in total) if isinstance(total, tuple) else total + 0  # type: ignore[operator]
