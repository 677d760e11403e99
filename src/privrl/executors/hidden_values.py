"""What is sent to a cluster, and the functions that run there: nothing shows what it holds, and nothing raises."""

import pickle
import sys
from dataclasses import dataclass, field
from typing import Any

from privrl.executors.executor import added, plus
from privrl.executors.failures import Failure, caught
from privrl.executors.sparse import packed, unpacked
from privrl.executors.worker_state import Versions


class Hidden:
    """A value that no log shows."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "Hidden()"

    def __sizeof__(self) -> int:
        return sys.getsizeof(self.value)


@dataclass(frozen=True, repr=False)
class ShardSum:
    """The sum over some shards that did not fail, and the failures of the others by their numbers."""

    total: Any = None
    failures: dict[int, Failure] = field(default_factory=dict)

    def __getstate__(self) -> tuple[Any, dict[int, Failure]]:
        return packed(self.total), self.failures

    def __setstate__(self, state: tuple[Any, dict[int, Failure]]) -> None:
        object.__setattr__(self, "total", unpacked(state[0]))
        object.__setattr__(self, "failures", state[1])

    def __sizeof__(self) -> int:
        parts = self.total if isinstance(self.total, tuple) else (self.total,)
        return sum(getattr(part, "nbytes", 64) for part in parts)


def held(packed: Hidden) -> Hidden:
    """Unpacks a shard, or a task, into the memory of a worker; a failure if that cannot be done."""
    return Hidden(caught(pickle.loads, packed.value))


def summed_shards(numbers: tuple[int, ...], task: Hidden, own: Hidden, expected: Hidden, *shards: Hidden) -> Hidden:
    """Runs a task on shards, each with its own arguments, and adds up what it gives."""
    total: Any = None
    failures: dict[int, Failure] = {}
    known = caught(Versions.here) == expected.value
    for number, mine, shard in zip(numbers, own.value, shards, strict=True):
        result = _added(total, task.value, shard.value, mine) if known else Failure("VersionMismatch")
        if isinstance(result, Failure):
            failures[number] = result
        else:
            total = result
    return Hidden(ShardSum(total, failures))


def _added(total: Any, task: Any, shard: Any, own: tuple[Any, ...]) -> Any:
    for unreadable in (shard, task):
        if isinstance(unreadable, Failure):
            return unreadable
    f, args = task
    return caught(plus, total, f, shard, *args, *own)


def folded(*sums: Hidden) -> Hidden:
    """The sum of several; terms are other tasks' results, which must not be changed."""
    total: Any = None
    failures: dict[int, Failure] = {}
    for one in sums:
        if one.value.total is not None:
            total = _copied(one.value.total) if total is None else added(total, one.value.total)
        failures |= one.value.failures
    return Hidden(ShardSum(total, failures))


def _copied(total: Any) -> Any:
    return tuple(_copied(part) for part in total) if isinstance(total, tuple) else total + 0
