"""Shards on the workers of a Dask cluster, which are trusted as the driver is.

Shards are futures that stay in the memory of workers. If a worker dies, the scheduler computes its shards again. Tasks
never raise on a worker, because Dask logs the arguments of tasks that fail: errors travel as messages (`failures.py`).
Everything that is sent is wrapped so that logs do not show it (`hidden_values.py`).
"""

import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, cast, final, runtime_checkable
from uuid import uuid4

from privrl.executors.connection import LOST, refuse_plain, replace_connection_errors
from privrl.executors.executor import AbstractExecutor, Returned, assign_shards, own_argument
from privrl.executors.failures import Failure, ShardError
from privrl.executors.hidden_values import Hidden, ShardSum, add_sums, add_totals, sum_group, unpickle
from privrl.executors.worker import pickle_task
from privrl.executors.worker_state import Versions, set_up_worker

if TYPE_CHECKING:
    from distributed import Client, Future

_MAX_DEATHS = 10  # workers that may die while they work on one shard
_NO_WORKER_SECONDS = 120.0  # how long the driver waits while the cluster has no worker
_MAX_FETCHES = 50  # attempts to fetch a sum
_POLL_SECONDS = 1.0  # between two checks whether the cluster still has workers
_PLACEMENT_SECONDS = 60.0  # how long shards may take to arrive at the workers that are to keep them
_FOLD = 8  # shards or sums that one task adds up, and the largest number of sums that the driver adds up
_SPILLS = (
    "A worker would write rows to its disk when memory is short. Start workers with the environment variables "
    "DASK_DISTRIBUTED__WORKER__MEMORY__TARGET=False and DASK_DISTRIBUTED__WORKER__MEMORY__SPILL=False."
)


@final
class Dask(AbstractExecutor):
    """Works on shards with the workers of a cluster, through a connected `distributed.Client`.

    >>> with privrl.Dask(client) as executor:  # doctest: +SKIP
    ...     privrl.fit("stays", "auto", schema="stays.toml", epsilon=1, delta=1e-6, executor=executor)

    Connections beyond this machine must be encrypted (`tls://`). Every worker must have one thread, write nothing to
    its disk, and have the driver's versions of privrl, JAX, NumPy and pyarrow; other workers are refused before any
    row is read. Workers read files under the same paths as the driver. The client stays open when the executor is
    closed.

    Raises:
        ValueError: a worker does not meet these conditions, or the client is asynchronous.
        ShardError: a shard repeatedly ends its worker.
    """

    def __init__(self, client: "Client") -> None:
        if client.asynchronous:
            raise ValueError("`client` is asynchronous. Create it without `asynchronous=True`.")
        refuse_plain("" if client.scheduler is None else str(client.scheduler.address), "The scheduler")
        self._client = client
        self._shards: Sequence[object] = ()
        self._futures: list[Future] = []
        self._home: dict[int, str] = {}
        self._checked: set[str] = set()

    def start(self, shards: Sequence[object]) -> None:
        if shards is self._shards:
            return
        self.close()
        with replace_connection_errors():
            self._check_workers()
            workers = sorted(self._client.nthreads())
            self._home = {i: workers[w] for i, w in assign_shards(shards, len(workers)).items()}
            self._futures = self._place([Hidden(pickle.dumps(shard)) for shard in shards])
        self._shards = shards

    def map_shards(
        self, f: Callable[..., Returned], *args: object, own: Sequence[object] | None = None
    ) -> Iterator[tuple[int, Returned]]:
        failures: dict[int, Failure] = {}
        with replace_connection_errors():
            submitted = self._submit(f, args, own, [(i,) for i in range(len(self._shards))])
            for future, (i,) in self._completed(submitted):
                result = self._fetch(future, (i,))
                failures |= result.failures
                if not result.failures:
                    yield i, cast(Returned, result.total)
        _raise_first(failures)

    def sum_shards(self, f: Callable[..., Returned], *args: object, own: Sequence[object] | None = None) -> Returned:
        with replace_connection_errors():
            submitted = self._submit(f, args, own, self._group_shards())
            for future, numbers in self._completed(submitted):
                self._refuse_lost(future, numbers)
            futures = list(submitted)
            while len(futures) > _FOLD:
                futures = self._fold(futures)
            results = [self._fetch(future, ()) for future in futures]
        _raise_first({number: failure for result in results for number, failure in result.failures.items()})
        return cast(Returned, add_totals(result.total for result in results))

    def close(self) -> None:
        self._shards, self._futures, self._home = (), [], {}  # the scheduler drops a value when no future refers to it

    def _place(self, shards: list[Hidden[bytes]]) -> "list[Future]":
        """Sends each shard to the worker that is to keep it."""
        near = {i: [worker] for i, worker in self._home.items()}
        futures = [self._send(one, near.get(i)) for i, one in enumerate(shards)]
        latest = time.monotonic() + _PLACEMENT_SECONDS
        while not all(future.done() for future in futures):
            if time.monotonic() > latest:
                return [self._send(one) for one in shards]
            time.sleep(0.01)
        # A shard that is bound to a worker is never computed again if that worker dies. So once the shards are where
        # they should be, the binding is removed.
        free = {future.key: None for future in futures}
        self._client.sync(self._client.scheduler.set_restrictions, worker=free)  # type: ignore[union-attr]
        return futures

    def _send(self, packed: Hidden[bytes], workers: list[str] | None = None) -> "Future":
        """Sends a value to a worker, if possible one of `workers`; if it dies, the scheduler sends it to another."""
        key, elsewhere = f"privrl-held-{uuid4().hex}", workers is not None
        return self._client.submit(
            unpickle, packed, key=key, pure=False, workers=workers, allow_other_workers=elsewhere
        )

    def _group_shards(self) -> list[tuple[int, ...]]:
        """Groups of shards that one task sums: up to `_FOLD` shards of one worker."""
        kept: dict[str, list[int]] = {}
        for i in range(len(self._shards)):
            kept.setdefault(self._home.get(i, str(i)), []).append(i)
        return [tuple(mine[k : k + _FOLD]) for mine in kept.values() for k in range(0, len(mine), _FOLD)]

    def _submit(
        self,
        f: Callable[..., object],
        args: tuple[object, ...],
        own: Sequence[object] | None,
        groups: list[tuple[int, ...]],
    ) -> "dict[Future, tuple[int, ...]]":
        """Submits one task for every group of shards."""
        self._check_workers()
        call = uuid4().hex
        task = self._send(Hidden(pickle_task(f, args)))  # a future, so that the arguments travel once
        expected = Hidden(Versions.here())
        return {
            self._client.submit(
                sum_group,
                *(numbers, task, Hidden([own_argument(own, i) for i in numbers]), expected),
                *(self._futures[i] for i in numbers),
                key=f"privrl-{call}-{numbers[0]}",
                pure=False,
            ): numbers
            for numbers in groups
        }

    def _fold(self, futures: "Sequence[Future]") -> "list[Future]":
        """Adds up sums where they are: one task per worker, so that only its result has to travel."""
        places: dict[str, list[Future]] = {}
        where = self._client.who_has(list(futures))
        for future in futures:
            places.setdefault(next(iter(where.get(future.key) or ("",))), []).append(future)
        if all(len(group) == 1 for group in places.values()):  # one sum on each worker: now some must travel
            places = {"": list(futures)}
        new = []
        for group in places.values():
            for first in range(0, len(group), _FOLD):
                some, key = group[first : first + _FOLD], f"privrl-sum-{uuid4().hex}"
                new.append(some[0] if len(some) == 1 else self._client.submit(add_sums, *some, key=key, pure=False))
        return new

    def _completed(self, submitted: "dict[Future, tuple[int, ...]]") -> "Iterator[tuple[Future, tuple[int, ...]]]":
        """Yields tasks with their shards as they finish; raises if no worker is left to finish them."""
        from distributed import as_completed

        numbers = {future.key: found for future, found in submitted.items()}
        coming, done = as_completed(submitted, loop=self._client.loop), 0
        last_seen = polled = time.monotonic()
        while done < len(self._shards):
            batch = coming.next_batch(block=False)
            for future in batch:
                done += len(numbers[future.key])
                yield future, numbers[future.key]
                self._report(done, len(self._shards))
            if not batch:
                time.sleep(0.01)
                if time.monotonic() - polled > _POLL_SECONDS:
                    last_seen, polled = self._check_alive(last_seen), time.monotonic()

    def _check_alive(self, last_seen: float) -> float:
        """When the cluster last had a worker; raises if that is too long ago, or the scheduler is gone."""
        if self._client.status != "running":
            raise ShardError(LOST)
        if self._client.nthreads():
            return time.monotonic()
        if time.monotonic() - last_seen > _NO_WORKER_SECONDS:
            raise ShardError(
                f"The cluster has had no worker for {_NO_WORKER_SECONDS:.0f} seconds. Nothing was released from this "
                "pass. Start workers, and repeat the command with the same store."
            )
        return last_seen

    def _fetch(self, future: "Future", shards: tuple[int, ...]) -> ShardSum:
        """Fetches the result of a task. If its worker dies meanwhile, the scheduler computes it again."""
        last_seen, tries = time.monotonic(), _MAX_FETCHES
        while True:
            self._refuse_lost(future, shards)
            try:
                found: ShardSum = future.result(timeout=2.0).value
                return found
            except TimeoutError:
                last_seen = self._check_alive(last_seen)
            except Exception:
                tries -= 1
                self._refuse_lost(future, shards)
                if not tries:
                    raise ShardError(LOST) from None
                time.sleep(0.1)  # its worker died, and the scheduler computes it again

    def _refuse_lost(self, future: "Future", shards: tuple[int, ...]) -> None:
        if self._client.status != "running" or future.status == "cancelled":
            raise ShardError(LOST)
        if future.status == "error":
            which = f"Shard {shards[0]}" if len(shards) == 1 else "A sum of shards " + ", ".join(map(str, shards))
            raise ShardError(
                f"{which} has ended its worker again and again, perhaps because memory ran out. Nothing was released. "
                "Give workers more memory, or split the table into more files of fewer rows (`privrl shard`)."
            )

    def _check_workers(self) -> None:
        """Sets up workers that joined since the last check, or refuses them."""
        if self._client.status != "running":
            raise ShardError(LOST)
        threads = self._client.nthreads()
        if not threads:
            raise ShardError("The cluster has no workers. Start workers, for example with `dask worker`.")
        new = [worker for worker in threads if worker not in self._checked]
        for worker in new:
            refuse_plain(worker, "A worker")
            if threads[worker] != 1:
                raise ValueError(f"A worker has {threads[worker]} threads. Start workers with `--nthreads 1`.")
        if not new:
            return
        expected = Versions.here()
        for state in self._client.run(set_up_worker, workers=new).values():
            if state.versions != expected:
                raise ValueError(
                    f"A worker has {state.versions}, and the driver has {expected}. Install the same versions: sums "
                    "are the same only on machines that are alike."
                )
            if state.spills:
                raise ValueError(_SPILLS)
        self._client.run_on_scheduler(_allow_failures, _MAX_DEATHS)
        self._checked |= set(new)


def _raise_first(failures: dict[int, Failure]) -> None:
    if failures:
        first = min(failures)
        raise failures[first].to_error(first)


@runtime_checkable
class _DaskScheduler(Protocol):
    """The attribute of `distributed.Scheduler` that is set here."""

    allowed_failures: int


def _allow_failures(number: int, dask_scheduler: _DaskScheduler) -> None:
    """Runs on the scheduler, which Dask passes as `dask_scheduler`."""
    dask_scheduler.allowed_failures = number
