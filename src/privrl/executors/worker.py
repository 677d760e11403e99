"""What a spawned process does: it holds shards, and runs one task at a time on them."""

import pickle
import signal
from multiprocessing.connection import Connection
from typing import Any

from privrl.executors.executor import plus
from privrl.executors.failures import Failure, caught
from privrl.executors.sparse import packed
from privrl.executors.threads import keep_memory

READY, TASK, RUN, TOTAL, END = "ready", "task", "run", "total", "end"


def work(connection: Connection) -> None:
    """Answers until the driver says END, or is gone. Nothing is printed, whatever happens."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides
    keep_memory()
    shards: dict[int, Any] = {}
    task: Any = None
    fold, total = False, None
    try:
        connection.send((READY,))
        while True:
            kind, *content = connection.recv()
            if kind == END:
                return
            if kind == TASK:
                task, fold, total = caught(pickle.loads, content[0]), content[1], None
            elif kind == TOTAL:
                connection.send((TOTAL, packed(total)))
                total = None
            else:
                i, shard, own = content
                if shard is not None:
                    shards[i] = caught(pickle.loads, shard)
                result = _result(task, shards[i], own, total, fold=fold)
                if fold and not isinstance(result, Failure):
                    total, result = result, None
                connection.send((RUN, i, result))
    except (EOFError, OSError):
        return  # the driver is gone


def _result(task: Any, shard: Any, own: tuple[Any, ...], total: Any, *, fold: bool) -> Any:
    for unreadable in (task, shard):
        if isinstance(unreadable, Failure):
            return unreadable
    f, args = task
    return caught(plus, total, f, shard, *args, *own) if fold else caught(f, shard, *args, *own)
