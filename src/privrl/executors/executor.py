"""What every executor does: it holds shards, and runs functions on them."""

import abc
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from privrl.executors.failures import caught, raised

Watch = Callable[[int, int], None]
"""Is told how many shards are done, of how many; never whose or how large they are."""


class AbstractExecutor(abc.ABC):
    """Runs functions on shards, each of which stays with one worker.

    A function gets a shard, then the arguments, then the shard's own argument where there is one. What a shard keeps
    between calls is a cache: results follow from these alone, so that a worker that dies is replaced, and its shards
    are computed again. Sums are sums of whole numbers, which are the same in any order.

    **Formal guarantee.** An executor adds no noise and decides nothing; whatever is released is drawn by the driver. A
    shard is counted exactly once in `summed`, however often workers die, or an error is raised.
    """

    watch: Watch | None = None

    @abc.abstractmethod
    def start(self, shards: Sequence[Any]) -> None:
        """Takes these shards in the place of those before; nothing happens if it has this very sequence already."""

    @abc.abstractmethod
    def each(self, f: Callable[..., Any], *args: Any, own: Sequence[Any] | None = None) -> Iterator[tuple[int, Any]]:
        """`f(shard, *args, own[i])` for every shard i, with its number, in the order in which they are done.

        After the last of them, the error of the first shard that failed is raised.
        """

    @abc.abstractmethod
    def summed(self, f: Callable[..., Any], *args: Any, own: Sequence[Any] | None = None) -> Any:
        """The sum over shards of what `f` gives (`plus`): an array of whole numbers, a number, or a tuple of them."""

    @abc.abstractmethod
    def close(self) -> None:
        """Lets go of all shards, and ends what was started."""

    def __enter__(self) -> "AbstractExecutor":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def _done(self, number: int, total: int) -> None:
        if self.watch is not None:
            self.watch(number, total)


class InProcess(AbstractExecutor):
    """One shard after another, in this process."""

    def __init__(self) -> None:
        self._shards: Sequence[Any] = ()

    def start(self, shards: Sequence[Any]) -> None:
        self._shards = shards

    def each(self, f: Callable[..., Any], *args: Any, own: Sequence[Any] | None = None) -> Iterator[tuple[int, Any]]:
        for i, shard in enumerate(self._shards):
            yield i, raised(i, caught(f, shard, *args, *own_of(own, i)))
            self._done(i + 1, len(self._shards))

    def summed(self, f: Callable[..., Any], *args: Any, own: Sequence[Any] | None = None) -> Any:
        total = None
        for i, shard in enumerate(self._shards):
            total = raised(i, caught(plus, total, f, shard, *args, *own_of(own, i)))
            self._done(i + 1, len(self._shards))
        return total

    def close(self) -> None:
        self._shards = ()


def shares(shards: Sequence[Any], number: int) -> dict[int, int]:
    """Which of `number` workers keeps each shard, so that all have about as much to add up in every pass: the largest
    shard first, each to whoever has least.

    Only shards that say how many rows are kept of them (`kept_rows`) have such a place; others are taken by whoever is
    free."""
    sizes = {i: shard.kept_rows for i, shard in enumerate(shards) if hasattr(shard, "kept_rows")}
    load, places = [0] * number, {}
    for i in sorted(sizes, key=lambda i: -sizes[i]):
        places[i] = load.index(min(load))
        load[places[i]] += sizes[i]
    return places


def own_of(own: Sequence[Any] | None, shard: int) -> tuple[Any, ...]:
    """The shard's own argument, if shards have any."""
    return () if own is None else (own[shard],)


def in_place(f: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a function that takes a sum as its last argument (`None`: of nothing) and gives it back with its own term
    added: a large sum is then not made again for every shard. What a call that raises has done to it is never used."""
    f.in_place = True  # type: ignore[attr-defined]
    return f


def plus(total: Any, f: Callable[..., Any], *args: Any) -> Any:
    """A sum with what `f` gives in it."""
    return f(*args, total) if getattr(f, "in_place", False) else added(total, f(*args))


def added(total: Any, term: Any) -> Any:
    """A sum of whole numbers with one more term; `None` is the sum of nothing. The sum may be changed in place."""
    if total is None:
        return term
    if isinstance(total, tuple):
        return tuple(added(one, other) for one, other in zip(total, term, strict=True))
    if isinstance(total, np.ndarray) and total.shape == np.shape(term) and total.flags.writeable:
        total += term
        return total
    return total + term
