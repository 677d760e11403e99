"""Shards on the workers of a Dask cluster, which are trusted as the driver is.

Shards are futures that stay in the memory of workers; the scheduler computes them again where a worker dies. Nothing
raises on a worker, because Dask logs the arguments of tasks that fail: errors travel as words (`failures.py`), and
whatever is sent hides what it holds from logs.
"""

import functools
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, final
from uuid import uuid4

from privrl.executors.connection import LOST, reached, refuse_plain
from privrl.executors.executor import AbstractExecutor, added, own_of, shares
from privrl.executors.failures import Failure, ShardError
from privrl.executors.hidden_values import Hidden, ShardSum, folded, held, summed_shards
from privrl.executors.worker_state import Versions, worker_state

if TYPE_CHECKING:
    from distributed import Client, Future

_FAILURES = 10  # workers that may die over one shard
_PATIENCE = 120.0  # seconds without any worker
_TRIES = 50  # to fetch a sum
_ASKED = 1.0  # seconds between two looks at who is there
_PLACED = 60.0  # seconds until shards are where they are kept
_FOLD = 8  # shards, or sums, that are added by one task; so many sums are added by the driver
_SPILLS = (
    "Workers would write rows to their disks when memory is short. Start them with the environment variables "
    "DASK_DISTRIBUTED__WORKER__MEMORY__TARGET=False and DASK_DISTRIBUTED__WORKER__MEMORY__SPILL=False."
)


@final
class Dask(AbstractExecutor):
    """The workers of a cluster, through a connected `distributed.Client`.

    Connections beyond this machine must be encrypted (`tls://`); every worker has one thread, spills nothing to its
    disk, reads the files under the same paths as the driver, and has the driver's versions of privrl, JAX, NumPy and
    pyarrow. Otherwise it is refused before any row is read. The client stays open when the executor is closed.
    """

    def __init__(self, client: "Client") -> None:
        if client.asynchronous:
            raise ValueError("The client is asynchronous. Give a `distributed.Client` that was made without it.")
        refuse_plain("" if client.scheduler is None else str(client.scheduler.address), "The scheduler")
        self._client = client
        self._shards: Sequence[Any] = ()
        self._futures: list[Future] = []
        self._home: dict[int, str] = {}
        self._checked: set[str] = set()

    def start(self, shards: Sequence[Any]) -> None:
        if shards is self._shards:
            return
        self.close()
        with reached():
            self._check_workers()
            workers = sorted(self._client.nthreads())
            self._home = {i: workers[w] for i, w in shares(shards, len(workers)).items()}
            self._futures = self._placed([Hidden(pickle.dumps(shard)) for shard in shards])
        self._shards = shards

    def each(self, f: Callable[..., Any], *args: Any, own: Sequence[Any] | None = None) -> Iterator[tuple[int, Any]]:
        failures: dict[int, Failure] = {}
        with reached():
            submitted = self._submitted(f, args, own, [(i,) for i in range(len(self._shards))])
            for future, (i,) in self._completed(submitted):
                result = self._result(future, (i,))
                failures |= result.failures
                if not result.failures:
                    yield i, result.total
        _raise_first(failures)

    def summed(self, f: Callable[..., Any], *args: Any, own: Sequence[Any] | None = None) -> Any:
        with reached():
            submitted = self._submitted(f, args, own, self._together())
            for future, numbers in self._completed(submitted):
                self._refuse_lost(future, numbers)
            futures = list(submitted)
            while len(futures) > _FOLD:
                futures = self._folded(futures)
            results = [self._result(future, ()) for future in futures]
        _raise_first({number: failure for result in results for number, failure in result.failures.items()})
        return functools.reduce(added, (result.total for result in results), None)

    def close(self) -> None:
        self._shards, self._futures, self._home = (), [], {}  # the scheduler forgets what nobody holds

    def _placed(self, shards: list[Hidden]) -> "list[Future]":
        """Shards with the workers that keep them. Once they are there, they may go anywhere: a shard that is bound to a
        worker that died is never computed again."""
        near = {i: {"workers": [worker], "allow_other_workers": True} for i, worker in self._home.items()}
        futures = [self._sent(one, **near.get(i, {})) for i, one in enumerate(shards)]
        latest = time.monotonic() + _PLACED
        while not all(future.done() for future in futures):
            if time.monotonic() > latest:
                return [self._sent(one) for one in shards]
            time.sleep(0.01)
        free = {future.key: None for future in futures}
        self._client.sync(self._client.scheduler.set_restrictions, worker=free)  # type: ignore[union-attr]
        return futures

    def _sent(self, packed: Hidden, **settings: Any) -> "Future":
        """Unpacked on a worker; made again where that one dies."""
        return self._client.submit(held, packed, key=f"privrl-held-{uuid4().hex}", pure=False, **settings)

    def _together(self) -> list[tuple[int, ...]]:
        """Shards that are summed by one task: some of those that are kept by one worker."""
        kept: dict[str, list[int]] = {}
        for i in range(len(self._shards)):
            kept.setdefault(self._home.get(i, str(i)), []).append(i)
        return [tuple(mine[k : k + _FOLD]) for mine in kept.values() for k in range(0, len(mine), _FOLD)]

    def _submitted(
        self, f: Callable[..., Any], args: tuple[Any, ...], own: Sequence[Any] | None, groups: list[tuple[int, ...]]
    ) -> "dict[Future, tuple[int, ...]]":
        """A task for every group of shards."""
        self._check_workers()
        call = uuid4().hex
        try:
            packed = Hidden(pickle.dumps((f, args)))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ValueError(
                f"What is summed cannot be sent to another process ({type(error).__name__}). Define its classes and "
                "functions in a module, not inside a function."
            ) from None
        task, expected = self._sent(packed), Hidden(Versions.here())  # arguments travel once
        return {
            self._client.submit(
                summed_shards,
                *(numbers, task, Hidden([own_of(own, i) for i in numbers]), expected),
                *(self._futures[i] for i in numbers),
                key=f"privrl-{call}-{numbers[0]}",
                pure=False,
            ): numbers
            for numbers in groups
        }

    def _folded(self, futures: "Sequence[Future]") -> "list[Future]":
        """Fewer sums: those of one worker are added there."""
        places: dict[str, list[Future]] = {}
        where = self._client.who_has(list(futures))
        for future in futures:
            places.setdefault(next(iter(where.get(future.key) or ("",))), []).append(future)
        if all(len(group) == 1 for group in places.values()):
            places = {"": list(futures)}
        new = []
        for group in places.values():
            for first in range(0, len(group), _FOLD):
                some, key = group[first : first + _FOLD], f"privrl-sum-{uuid4().hex}"
                new.append(some[0] if len(some) == 1 else self._client.submit(folded, *some, key=key, pure=False))
        return new

    def _completed(self, submitted: "dict[Future, tuple[int, ...]]") -> "Iterator[tuple[Future, tuple[int, ...]]]":
        """Tasks and their shards as they are done; an error where nobody is left to do them."""
        from distributed import as_completed

        numbers = {future.key: found for future, found in submitted.items()}
        coming, done = as_completed(submitted, loop=self._client.loop), 0
        alone = asked = time.monotonic()
        while done < len(self._shards):
            batch = coming.next_batch(block=False)
            for future in batch:
                done += len(numbers[future.key])
                yield future, numbers[future.key]
                self._done(done, len(self._shards))
            if not batch:
                time.sleep(0.01)
                if time.monotonic() - asked > _ASKED:
                    alone, asked = self._patient(alone), time.monotonic()

    def _patient(self, alone: float) -> float:
        """Since when there is no worker; an error if that is too long ago, or the scheduler is gone."""
        if self._client.status != "running":
            raise ShardError(LOST)
        if self._client.nthreads():
            return time.monotonic()
        if time.monotonic() - alone > _PATIENCE:
            raise ShardError(
                f"The cluster has had no worker for {_PATIENCE:.0f} seconds. Nothing was released from this pass. "
                "Start workers, and repeat the command with the same store."
            )
        return alone

    def _result(self, future: "Future", shards: tuple[int, ...]) -> ShardSum:
        """What a task gave, also if its worker dies now and it is computed again."""
        alone, tries = time.monotonic(), _TRIES
        while True:
            self._refuse_lost(future, shards)
            try:
                found: ShardSum = future.result(timeout=2.0).value
                return found
            except TimeoutError:
                alone = self._patient(alone)
            except Exception:
                tries -= 1
                self._refuse_lost(future, shards)
                if not tries:
                    raise ShardError(LOST) from None
                time.sleep(0.1)  # its worker died, and it is being computed again

    def _refuse_lost(self, future: "Future", shards: tuple[int, ...]) -> None:
        if self._client.status != "running" or future.status == "cancelled":
            raise ShardError(LOST)
        if future.status == "error":
            which = f"Shard {shards[0]}" if len(shards) == 1 else "A sum of shards " + ", ".join(map(str, shards))
            raise ShardError(
                f"{which.strip()} has ended its worker again and again, perhaps because memory ran out. Nothing was "
                "released. Give workers more memory, or write the table in more files of fewer rows (`privrl shard`)."
            )

    def _check_workers(self) -> None:
        """Sets up workers that were not seen before, or refuses them."""
        if self._client.status != "running":
            raise ShardError(LOST)
        threads = self._client.nthreads()
        if not threads:
            raise ShardError("The cluster has no workers. Start some, for example with `dask worker`.")
        new = [worker for worker in threads if worker not in self._checked]
        for worker in new:
            refuse_plain(worker, "A worker")
            if threads[worker] != 1:
                raise ValueError(f"A worker has {threads[worker]} threads. Start workers with `--nthreads 1`.")
        if not new:
            return
        expected = Versions.here()
        for state in self._client.run(worker_state, workers=new).values():
            if state.versions != expected:
                raise ValueError(
                    f"A worker has {state.versions}, and the driver has {expected}. Sums are the same on like "
                    "machines alone: install the same versions."
                )
            if state.spills:
                raise ValueError(_SPILLS)
        self._client.run_on_scheduler(_allow_failures, _FAILURES)
        self._checked |= set(new)


def _raise_first(failures: dict[int, Failure]) -> None:
    if failures:
        first = min(failures)
        raise failures[first].error(first)


def _allow_failures(number: int, dask_scheduler: Any = None) -> None:
    dask_scheduler.allowed_failures = number
