"""Shards in processes of this machine.

Processes are spawned, not forked, so they hold no copy of this process's memory. Each uses one thread. A shard stays
with one process; if shards have known sizes, all processes have about as many rows. If a process dies, another one
takes its place and repeats what the dead one had done in the current call.
"""

import multiprocessing
import pickle
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import cast, final

from privrl.executors.executor import AbstractExecutor, Returned, add_term, assign_shards, own_argument
from privrl.executors.failures import Failure, ShardError
from privrl.executors.sparse import decompress
from privrl.executors.threads import single_threads
from privrl.executors.worker import END, READY, RUN, TASK, TOTAL, pickle_task, work

_MAX_DEATHS = 3  # workers that may die in one call over one shard, or before they are ready
_TOTAL = -1  # takes the place of a shard's number for the sum that a worker keeps
_NO_START = (
    "Processes end as soon as they are started. In a script, start them under "
    '`if __name__ == "__main__":`; and check that there is enough memory. Nothing was released.'
)
_KILLED = (
    "Shard {} has ended its worker {} times, perhaps because memory ran out. Nothing was released. Use fewer workers, "
    "or split the table into more files of fewer rows (`privrl shard`)."
)


@dataclass(eq=False)
class _Worker:
    """A process, and what the driver knows about it.

    Attributes:
        ready: whether it has started, and receives tasks.
        held: the shards in its memory.
        running: the shard that it works on.
        added: the shards in the sum that it keeps.
        asked: whether it was asked for that sum.
    """

    process: SpawnProcess
    connection: Connection
    ready: bool = False
    held: set[int] = field(default_factory=set)
    running: int | None = None
    added: list[int] = field(default_factory=list)
    asked: bool = False

    @classmethod
    def start(cls) -> "_Worker":
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        with single_threads():
            process = context.Process(target=work, args=(there,), daemon=True)
            process.start()
        # The process now has the only open copy of its end. If it dies, the driver's `recv` raises `EOFError`.
        there.close()
        return cls(process, here)

    def end(self) -> None:
        """Kills the process at once; what it holds is lost."""
        self.connection.close()
        self.process.kill()
        self.process.join()


@final
class Processes(AbstractExecutor):
    """Works on shards with `number` processes on this machine.

    >>> with privrl.Processes(4) as executor:  # doctest: +SKIP
    ...     privrl.fit("stays", "auto", schema="stays.toml", epsilon=1, delta=1e-6, executor=executor)

    Use it in a `with` block, or pass it to `fit`: its processes end when the object is deleted and when this process
    ends. In a script, create it under `if __name__ == "__main__":`, because a spawned process imports the script.

    Raises:
        ValueError: `number` is below 1.
        ShardError: a shard repeatedly ends its worker.
    """

    def __init__(self, number: int) -> None:
        if number < 1:
            raise ValueError(f"`number` is {number}; it must be at least 1.")
        self._workers: list[_Worker | None] = [None] * number
        self._shards: Sequence[object] = ()
        self._home: dict[int, int] = {}  # the worker that keeps each shard
        # The callback must not refer to `self`, or the object would never be deleted.
        weakref.finalize(self, _end_all, self._workers)

    def start(self, shards: Sequence[object]) -> None:
        if shards is self._shards:
            return
        self._shards, self._home = shards, assign_shards(shards, len(self._workers))
        for worker in self._workers:
            if worker is not None:
                worker.held = set()

    def map_shards(
        self, f: Callable[..., Returned], *args: object, own: Sequence[object] | None = None
    ) -> Iterator[tuple[int, Returned]]:
        for i, result in self._call(f, args, own, fold=False):
            yield i, cast(Returned, result)

    def sum_shards(self, f: Callable[..., Returned], *args: object, own: Sequence[object] | None = None) -> Returned:
        total: object = None
        for _, part in self._call(f, args, own, fold=True):
            total = add_term(total, part)
        return cast(Returned, total)

    def close(self) -> None:
        self._shards, self._home = (), {}
        _end_all(self._workers)

    def _call(
        self, f: Callable[..., object], args: tuple[object, ...], own: Sequence[object] | None, *, fold: bool
    ) -> Iterator[tuple[int, object]]:
        for i, worker in enumerate(self._workers):
            if worker is not None and (worker.running is not None or worker.added):
                # The caller stopped an earlier call in the middle, so this worker may still send results of that call.
                worker.end()
                self._workers[i] = None
        call = _Call(self._workers, self._shards, self._home, pickle_task(f, args), own, fold, self._report)
        return call.results()


@dataclass
class _Call:
    """One task on all shards.

    Every shard is in exactly one state: waiting (in `mine` for its worker, or in `free` for any), running, done, or
    failed. If results are summed, each worker keeps the sum over the shards that it has finished, and sends it once,
    after the last shard of all workers. If it dies before, its sum is lost with it, so all shards in that sum wait
    again: each shard is in exactly one of the sums that arrive.
    """

    workers: list[_Worker | None]
    shards: Sequence[object]
    home: dict[int, int]
    task: bytes
    own: Sequence[object] | None
    fold: bool
    watch: Callable[[int, int], None]
    done: set[int] = field(default_factory=set)
    failures: dict[int, Failure] = field(default_factory=dict)
    deaths: Counter[int | None] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.free = deque(i for i in range(len(self.shards)) if i not in self.home)
        self.starting: set[int] = set()
        self.mine = [deque(i for i, home in self.home.items() if home == w) for w in range(len(self.workers))]

    def results(self) -> Iterator[tuple[int, object]]:
        """Yields results with the numbers of their shards; if they are summed, the workers' sums under `_TOTAL`."""
        for w in range(len(self.workers)):
            self._begin(w, spare=w < len(self.free))
        for w in range(len(self.workers)):
            self._feed(w)
        while active := self._active():
            for connection in wait(list(active)):
                w = active[connection]  # type: ignore[index]
                worker = self.workers[w]
                assert worker is not None
                try:
                    kind, *content = worker.connection.recv()
                except (EOFError, OSError):
                    self._replace(w)
                    continue
                if kind == READY:
                    worker.ready = True
                    self.starting.discard(w)
                    self._send(w, TASK, self.task, self.fold)
                elif kind == TOTAL:
                    worker.added, worker.asked = [], False
                    yield _TOTAL, decompress(content[0])
                else:
                    yield from self._finish(worker, *content)
                for other in range(len(self.workers)):
                    self._feed(other)
        if self.failures:
            first = min(self.failures)
            raise self.failures[first].to_error(first)

    def _active(self) -> dict[Connection, int]:
        """The workers that will still send something."""
        return {
            worker.connection: w
            for w, worker in enumerate(self.workers)
            if worker is not None and (worker.running is not None or worker.added or not worker.ready)
        }

    def _begin(self, w: int, *, spare: bool) -> None:
        """Sends the task to a worker, or starts the worker if it has shards of its own or `spare` shards to take."""
        worker = self.workers[w]
        if worker is None:
            if self.mine[w] or spare:
                self.workers[w] = _Worker.start()
                self.starting.add(w)
        elif worker.ready:
            self._send(w, TASK, self.task, self.fold)

    def _feed(self, w: int) -> None:
        """Sends an idle worker its next shard, or asks for its sum if no shard is left for any worker.

        Shards that belong to no worker wait until all workers have started: the first one would take too many.
        """
        worker = self.workers[w]
        if worker is None or not worker.ready or worker.running is not None or (self.starting and not self.mine[w]):
            return
        if self.mine[w] or self.free:
            i = worker.running = (self.mine[w] or self.free).popleft()
            self.home[i] = w
            shard = None if i in worker.held else pickle.dumps(self.shards[i])  # a shard travels once
            worker.held.add(i)
            self._send(w, RUN, i, shard, own_argument(self.own, i))
        elif worker.added and not worker.asked and len(self.done) + len(self.failures) == len(self.shards):
            worker.asked = True
            self._send(w, TOTAL)

    def _send(self, w: int, *message: object) -> None:
        worker = self.workers[w]
        assert worker is not None
        try:
            worker.connection.send(message)
        except OSError:
            self._replace(w)

    def _finish(self, worker: _Worker, i: int, result: object) -> Iterator[tuple[int, object]]:
        worker.running = None
        if isinstance(result, Failure):
            self.failures[i] = result
            return
        self.done.add(i)
        self.watch(len(self.done), len(self.shards))
        if self.fold:
            worker.added.append(i)
        else:
            yield i, result

    def _replace(self, w: int) -> None:
        """Starts a new worker for one that died. What that one had done in this call is done again."""
        worker = self.workers[w]
        assert worker is not None
        worker.end()
        self.workers[w] = None
        self.deaths[worker.running] += 1
        if self.deaths[worker.running] >= _MAX_DEATHS:
            raise ShardError(_NO_START if worker.running is None else _KILLED.format(worker.running, _MAX_DEATHS))
        again = [*worker.added, *([] if worker.running is None else [worker.running])]
        self.done.difference_update(again)
        self.mine[w].extend(again)
        self.workers[w] = _Worker.start()


def _end_all(workers: list[_Worker | None]) -> None:
    """Ends all processes: idle ones are asked to end, and busy ones are killed."""
    for i, worker in enumerate(workers):
        if worker is not None:
            workers[i] = None
            if worker.ready and worker.running is None:
                try:
                    worker.connection.send((END,))
                    worker.process.join(1.0)
                except OSError:
                    pass
            worker.end()
