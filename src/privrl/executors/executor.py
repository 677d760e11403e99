"""The interface of all executors: an executor holds shards and runs functions on them."""

import abc
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

from privrl.executors.failures import call_safely, raise_failure

Term = int | np.ndarray | tuple[int | np.ndarray, ...]
"""What can be summed over shards: whole numbers, arrays of whole numbers, or a tuple of them."""
Watch = Callable[[int, int], None]
"""Receives the number of finished shards and the number of all shards, and nothing about their content or size."""
Returned = TypeVar("Returned")


@runtime_checkable
class SizedShard(Protocol):
    """A shard of known size: `kept_rows` rows stay in the memory of its worker."""

    kept_rows: int


class AbstractExecutor(abc.ABC):
    """Runs functions on shards. Each shard stays with one worker.

    A function receives a shard, then the arguments, then the shard's own argument if shards have one. Its result must
    follow from these alone. What a shard keeps between calls is only a cache, so if a worker dies, another one takes
    over its shards and computes their results again. Sums are sums of whole numbers, which are the same in any order.

    **Formal guarantee.** An executor adds no noise and decides nothing; the driver draws whatever is released. A
    shard is counted exactly once in `sum_shards`, however often workers die, or an error is raised.

    Attributes:
        watch: called after each shard, for example to show progress.
    """

    watch: Watch | None = None

    @abc.abstractmethod
    def start(self, shards: Sequence[object]) -> None:
        """Replaces the shards by these. Does nothing if the executor already holds this very sequence."""

    @abc.abstractmethod
    def map_shards(
        self, f: Callable[..., Returned], *args: object, own: Sequence[object] | None = None
    ) -> Iterator[tuple[int, Returned]]:
        """Yields the number of each shard i with `f(shard, *args, own[i])`, in the order in which shards finish.

        Raises:
            ShardError: or an error of privrl's own, after the last shard: the error of the first shard that failed.
        """

    @abc.abstractmethod
    def sum_shards(self, f: Callable[..., Returned], *args: object, own: Sequence[object] | None = None) -> Returned:
        """Returns the sum over shards of what `f` returns, which must be a `Term`.

        Raises:
            ShardError: or an error of privrl's own: the error of the first shard that failed.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Drops all shards, and ends the processes that the executor has started."""

    def __enter__(self) -> "AbstractExecutor":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def _report(self, done: int, total: int) -> None:
        if self.watch is not None:
            self.watch(done, total)


class InProcess(AbstractExecutor):
    """Works on one shard after another in this process.

    >>> with InProcess() as executor:
    ...     executor.start([1, 2, 3])
    ...     executor.sum_shards(pow, 2)
    14
    """

    def __init__(self) -> None:
        self._shards: Sequence[object] = ()

    def start(self, shards: Sequence[object]) -> None:
        self._shards = shards

    def map_shards(
        self, f: Callable[..., Returned], *args: object, own: Sequence[object] | None = None
    ) -> Iterator[tuple[int, Returned]]:
        for i, shard in enumerate(self._shards):
            yield i, raise_failure(i, call_safely(f, shard, *args, *own_argument(own, i)))
            self._report(i + 1, len(self._shards))

    def sum_shards(self, f: Callable[..., Returned], *args: object, own: Sequence[object] | None = None) -> Returned:
        total: Returned | None = None
        for i, shard in enumerate(self._shards):
            total = raise_failure(i, call_safely(accumulate, total, f, shard, *args, *own_argument(own, i)))
            self._report(i + 1, len(self._shards))
        return total  # type: ignore[return-value]  # there is at least one shard

    def close(self) -> None:
        self._shards = ()


def assign_shards(shards: Sequence[object], workers: int) -> dict[int, int]:
    """Assigns each shard of known size to one of `workers` workers, so that all workers have about as many rows.

    The largest shard comes first, and each goes to the worker that has the fewest rows so far. Shards of unknown size
    (see `SizedShard`) are left out: the next free worker takes them.
    """
    sizes = {i: shard.kept_rows for i, shard in enumerate(shards) if isinstance(shard, SizedShard)}
    load, places = [0] * workers, {}
    for i in sorted(sizes, key=lambda i: -sizes[i]):
        places[i] = load.index(min(load))
        load[places[i]] += sizes[i]
    return places


def own_argument(own: Sequence[object] | None, shard: int) -> tuple[object, ...]:
    """The shard's own argument as a tuple, which is empty if shards have none."""
    return () if own is None else (own[shard],)


def in_place(f: Callable[..., Returned]) -> Callable[..., Returned]:
    """Marks a function that takes the sum so far as its last argument and returns it with its own term added.

    The sum so far is `None` before the first term. A large sum is then not copied for every shard. If a call raises,
    the sum that it may have changed is never used.
    """
    f.in_place = True  # type: ignore[attr-defined]
    return f


def accumulate(total: Returned | None, f: Callable[..., Returned], *args: object) -> Returned:
    """Calls `f` and adds its result to `total`."""
    return f(*args, total) if getattr(f, "in_place", False) else add_term(total, f(*args))


def add_term(total: Returned | None, term: Returned) -> Returned:
    """Adds a `Term` to a sum, which may be changed in place. `None` is the sum of no terms."""
    if total is None:
        return term
    return _add(total, term)  # type: ignore[arg-type, return-value]


def _add(total: Term, term: Term) -> Term:
    if isinstance(total, tuple):
        assert isinstance(term, tuple)
        return tuple(_add(one, other) for one, other in zip(total, term, strict=True))  # type: ignore[misc]
    assert not isinstance(term, tuple)
    if isinstance(total, np.ndarray) and total.shape == np.shape(term) and total.flags.writeable:
        total += term
        return total
    return total + term
