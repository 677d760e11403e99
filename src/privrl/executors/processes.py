"""Shards in processes of this machine.

Processes are spawned, so nothing that this one holds is copied into them; they use one thread each. A shard stays with
one process: where shards say how large they are, all processes have equal shares. A process that dies is replaced, and
what it had done in this call is done again.
"""

import multiprocessing
import pickle
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, final

from privrl.executors.executor import AbstractExecutor, added, own_of, shares
from privrl.executors.failures import Failure, ShardError
from privrl.executors.sparse import unpacked
from privrl.executors.threads import single_threads
from privrl.executors.worker import END, READY, RUN, TASK, TOTAL, work

_DEATHS = 3  # of workers over one shard, or over none
_NO_START = (
    "Processes end as soon as they are started. In a script, put what starts them under "
    '`if __name__ == "__main__":`; and see that there is memory for them. Nothing was released.'
)
_KILLED = (
    "Shard {} has ended its worker {} times, perhaps because memory ran out. Nothing was released. Use fewer workers, "
    "or more files of fewer rows (`privrl shard`)."
)


@dataclass(eq=False)
class _Worker:
    """A process, and what it has: `held` shards, the one that is `running`, and those in the sum that it keeps."""

    process: Any
    connection: Connection
    ready: bool = False
    held: set[int] = field(default_factory=set)
    running: int | None = None
    added: list[int] = field(default_factory=list)
    asked: bool = False  # for that sum

    @classmethod
    def started(cls) -> "_Worker":
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        with single_threads():
            process = context.Process(target=work, args=(there,), daemon=True)
            process.start()
        there.close()  # so that the end of the process is noticed
        return cls(process, here)

    def end(self) -> None:
        """At once; whatever it has is lost."""
        self.connection.close()
        self.process.kill()
        self.process.join()


@final
class Processes(AbstractExecutor):
    """`number` processes on this machine.

    Use it in a `with` block, or pass it to `fit` and forget it: its processes end with the object, and with this
    process. In a script, start under `if __name__ == "__main__":`, for a process that is spawned imports the script.
    """

    def __init__(self, number: int) -> None:
        if number < 1:
            raise ValueError(f"`number` is {number}; give at least one process.")
        self._workers: list[_Worker | None] = [None] * number
        self._shards: Sequence[Any] = ()
        self._home: dict[int, int] = {}  # which worker has a shard
        weakref.finalize(self, _end_all, self._workers)

    def start(self, shards: Sequence[Any]) -> None:
        if shards is self._shards:
            return
        self._shards, self._home = shards, shares(shards, len(self._workers))
        for worker in self._workers:
            if worker is not None:
                worker.held = set()

    def each(self, f: Callable[..., Any], *args: Any, own: Sequence[Any] | None = None) -> Iterator[tuple[int, Any]]:
        yield from self._call(f, args, own, fold=False)

    def summed(self, f: Callable[..., Any], *args: Any, own: Sequence[Any] | None = None) -> Any:
        total = None
        for _, part in self._call(f, args, own, fold=True):
            total = added(total, part)
        return total

    def close(self) -> None:
        self._shards, self._home = (), {}
        _end_all(self._workers)

    def _call(
        self, f: Callable[..., Any], args: tuple[Any, ...], own: Sequence[Any] | None, *, fold: bool
    ) -> Iterator[tuple[int, Any]]:
        for i, worker in enumerate(self._workers):
            if worker is not None and (worker.running is not None or worker.added):
                worker.end()  # an earlier call was given up in the middle
                self._workers[i] = None
        call = _Call(self._workers, self._shards, self._home, _packed(f, args), own, fold, self._done)
        return call.results()


@dataclass
class _Call:
    """One task on all shards.

    Every shard is in exactly one place: waiting (for its worker, or for any), running, done, or failed. A worker that
    keeps a sum gives it away once, when nothing is waiting or running any more; one that dies before takes its shards
    back to waiting.
    """

    workers: list[_Worker | None]
    shards: Sequence[Any]
    home: dict[int, int]
    task: bytes
    own: Sequence[Any] | None
    fold: bool
    watch: Callable[[int, int], None]
    done: set[int] = field(default_factory=set)
    failures: dict[int, Failure] = field(default_factory=dict)
    deaths: Counter[int | None] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.free = deque(i for i in range(len(self.shards)) if i not in self.home)
        self.starting: set[int] = set()
        self.mine = [deque(i for i, home in self.home.items() if home == w) for w in range(len(self.workers))]

    def results(self) -> Iterator[tuple[int, Any]]:
        """The results with their shards' numbers; where they are folded, the sums that workers keep, under -1."""
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
                    yield -1, unpacked(content[0])
                else:
                    yield from self._finished(worker, *content)
                for other in range(len(self.workers)):
                    self._feed(other)
        if self.failures:
            first = min(self.failures)
            raise self.failures[first].error(first)

    def _active(self) -> dict[Connection, int]:
        """The workers of which something is still to come."""
        return {
            worker.connection: w
            for w, worker in enumerate(self.workers)
            if worker is not None and (worker.running is not None or worker.added or not worker.ready)
        }

    def _begin(self, w: int, *, spare: bool) -> None:
        worker = self.workers[w]
        if worker is None:
            if self.mine[w] or spare:
                self.workers[w] = _Worker.started()
                self.starting.add(w)
        elif worker.ready:
            self._send(w, TASK, self.task, self.fold)

    def _feed(self, w: int) -> None:
        """Gives an idle worker its next shard; when there is nothing left for anybody, takes its sum.

        Nobody takes what belongs to none before all are there: the first worker would take too many.
        """
        worker = self.workers[w]
        if worker is None or not worker.ready or worker.running is not None or (self.starting and not self.mine[w]):
            return
        if self.mine[w] or self.free:
            i = worker.running = (self.mine[w] or self.free).popleft()
            self.home[i] = w
            shard = None if i in worker.held else pickle.dumps(self.shards[i])
            worker.held.add(i)
            self._send(w, RUN, i, shard, own_of(self.own, i))
        elif worker.added and not worker.asked and len(self.done) + len(self.failures) == len(self.shards):
            worker.asked = True
            self._send(w, TOTAL)

    def _send(self, w: int, *message: Any) -> None:
        worker = self.workers[w]
        assert worker is not None
        try:
            worker.connection.send(message)
        except OSError:
            self._replace(w)

    def _finished(self, worker: _Worker, i: int, result: Any) -> Iterator[tuple[int, Any]]:
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
        """A new worker for one that died; what it has done in this call is done again."""
        worker = self.workers[w]
        assert worker is not None
        worker.end()
        self.workers[w] = None
        self.deaths[worker.running] += 1
        if self.deaths[worker.running] >= _DEATHS:
            raise ShardError(_NO_START if worker.running is None else _KILLED.format(worker.running, _DEATHS))
        again = [*worker.added, *([] if worker.running is None else [worker.running])]
        self.done.difference_update(again)
        self.mine[w].extend(again)
        self.workers[w] = _Worker.started()


def _packed(f: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    try:
        return pickle.dumps((f, args))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(
            f"What is summed cannot be sent to another process ({type(error).__name__}). Define its classes and "
            "functions in a module, not inside a function."
        ) from None


def _end_all(workers: list[_Worker | None]) -> None:
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
