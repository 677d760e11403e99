"""The program of a worker process: it holds shards, and runs one task at a time on them."""

import pickle
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection

from privrl.executors.executor import accumulate
from privrl.executors.failures import Failure, call_safely
from privrl.executors.sparse import compress
from privrl.executors.threads import keep_memory

READY, TASK, RUN, TOTAL, END = "ready", "task", "run", "total", "end"
"""Kinds of messages: a worker is READY, receives a TASK, RUNs it on shards, sends the TOTAL that it keeps, and ENDs."""
WorkerTask = tuple[Callable[..., object], tuple[object, ...]]
"""A function, and the arguments that it receives after the shard."""


def work(connection: Connection) -> None:
    """Answers messages until the driver sends END or closes the connection. Never prints anything."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the driver decides what it means
    keep_memory()
    shards: dict[int, object] = {}
    task: WorkerTask | Failure = Failure("no task")
    fold, total = False, None
    try:
        connection.send((READY,))
        while True:
            kind, *content = connection.recv()
            if kind == END:
                return
            if kind == TASK:
                task, fold, total = call_safely(pickle.loads, content[0]), content[1], None
            elif kind == TOTAL:
                connection.send((TOTAL, compress(total)))
                total = None
            else:
                i, shard, own = content
                if shard is not None:  # the driver sends a shard once, with the first task on it
                    shards[i] = call_safely(pickle.loads, shard)
                result = _run(task, shards[i], own, total, fold=fold)
                if fold and not isinstance(result, Failure):
                    # The sum stays here until the driver asks for it: one transfer per worker, not one per shard.
                    total, result = result, None
                connection.send((RUN, i, result))
    except (EOFError, OSError):
        return  # the driver is gone


def pickle_task(f: Callable[..., object], args: tuple[object, ...]) -> bytes:
    """The bytes by which a task is sent."""
    try:
        return pickle.dumps((f, args))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(
            f"The function or its arguments cannot be sent to another process ({type(error).__name__}). Define their "
            "classes and functions in a module, not inside a function."
        ) from None


def _run(task: WorkerTask | Failure, shard: object, own: tuple[object, ...], total: object, *, fold: bool) -> object:
    if isinstance(task, Failure):
        return task
    if isinstance(shard, Failure):
        return shard
    f, args = task
    return call_safely(accumulate, total, f, shard, *args, *own) if fold else call_safely(f, shard, *args, *own)
