"""Executors run functions on shards: all of them once, whoever dies."""

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from executors.shard_tasks import (
    CANARY,
    Shard,
    Sized,
    environment,
    fail,
    kill_always,
    kill_once,
    meet,
    pair,
    slow,
    square,
    used,
)

from privrl.data.schema.table_schema import TableError
from privrl.executors.executor import AbstractExecutor, InProcess, add_term, assign_shards
from privrl.executors.failures import ShardError
from privrl.executors.hidden_values import ShardSum
from privrl.executors.processes import Processes
from privrl.executors.sparse import compress, decompress

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with Processes(2) as executor:
        yield executor


@pytest.fixture(params=["here", "processes"])
def executor(request: pytest.FixtureRequest, processes: Processes) -> AbstractExecutor:
    chosen = InProcess() if request.param == "here" else processes
    chosen.start([Shard(i) for i in range(5)])
    return chosen


def test_every_shard_is_used_once_with_its_own_argument(executor: AbstractExecutor) -> None:
    assert dict(executor.map_shards(square, 10)) == {i: i * i + 10 for i in range(5)}
    assert dict(executor.map_shards(square, 10, own=[100, 200, 300, 400, 500]))[3] == 419
    assert executor.sum_shards(square, 1) == 30 + 5
    total, number = executor.sum_shards(pair)
    np.testing.assert_array_equal(total, [10, 15, 20])
    assert number == 5 and total.dtype == np.int64


def test_a_shard_stays_where_it_is(executor: AbstractExecutor) -> None:
    first, second = dict(executor.map_shards(used)), dict(executor.map_shards(used))
    for i in range(5):
        assert (first[i][0], first[i][1] + 1) == second[i]


def test_all_workers_get_shards(processes: Processes, tmp_path: Path) -> None:
    """At the same time: no shard is done before both work. How many each gets depends on the load of the machine."""
    processes.start([Shard(i) for i in range(6)])
    homes = dict(processes.map_shards(meet, tmp_path, 2))
    assert len(homes) == 6 and len(set(homes.values())) == 2


def test_workers_get_equal_shares_of_what_is_kept(processes: Processes) -> None:
    sizes = [5, 1, 1, 1, 5, 1, 1, 1]
    assert assign_shards([Sized(i, size) for i, size in enumerate(sizes)], 3) == {
        0: 0,
        4: 1,
        1: 2,
        2: 2,
        3: 2,
        5: 2,
        6: 2,
        7: 0,
    }
    assert not assign_shards([Shard(0)], 2)
    processes.start([Sized(i, size) for i, size in enumerate(sizes)])
    load: dict[int, int] = {}
    for i, (pid, _) in processes.map_shards(used):
        load[pid] = load.get(pid, 0) + sizes[i]
    assert sorted(load.values()) == [8, 8]


def test_progress_is_a_number_of_shards(executor: AbstractExecutor) -> None:
    seen: list[tuple[int, int]] = []
    executor.watch = lambda done, total: seen.append((done, total))
    try:
        executor.sum_shards(pair)
    finally:
        executor.watch = None
    assert seen == [(i, 5) for i in range(1, 6)]


def test_our_words_travel_and_no_others(executor: AbstractExecutor) -> None:
    with pytest.raises(TableError, match="Column `x` is out of range at row 3."):
        executor.sum_shards(fail, 3, True)
    with pytest.raises(
        ShardError, match="Shard 3 failed with ValueError on its worker. Nothing was released."
    ) as found:
        executor.sum_shards(fail, 3, False)
    shown, error = [], found.value
    while error is not None:
        shown += [str(error), repr(error)]
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    assert CANARY not in "".join(shown)
    assert executor.sum_shards(pair)[1] == 5  # and it goes on


def test_a_worker_that_dies_is_replaced_and_counts_once(processes: Processes, tmp_path: Path) -> None:
    processes.start([Shard(i) for i in range(6)])
    total, number = processes.sum_shards(kill_once, tmp_path, 3)
    np.testing.assert_array_equal(total, [15, 21, 27])
    assert number == 6


@pytest.mark.slow
@pytest.mark.parametrize("who", range(6))
def test_whichever_shard_it_dies_over(processes: Processes, tmp_path: Path, who: int) -> None:
    processes.start([Shard(i) for i in range(6)])
    assert processes.sum_shards(kill_once, tmp_path, who)[1] == 6
    (tmp_path / "killed").unlink()
    assert sorted(i for i, _ in processes.map_shards(kill_once, tmp_path, who)) == list(range(6))


@pytest.mark.slow
def test_a_shard_that_always_kills_ends_in_words(processes: Processes) -> None:
    processes.start([Shard(i) for i in range(3)])
    with pytest.raises(ShardError, match="Shard 1 has ended its worker 3 times"):
        processes.sum_shards(kill_always, 1)
    assert processes.sum_shards(pair)[1] == 3


@pytest.mark.slow
def test_a_call_that_is_given_up_leaves_nothing_behind(processes: Processes) -> None:
    processes.start([Shard(i) for i in range(4)])
    results = processes.map_shards(slow, 0.05)
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert processes.sum_shards(pair)[1] == 4


def test_workers_have_one_thread(processes: Processes) -> None:
    processes.start([Shard(0), Shard(1)])
    assert set(dict(processes.map_shards(environment)).values()) == {("1", True)}


def test_what_cannot_be_sent_is_refused(processes: Processes) -> None:
    processes.start([Shard(0)])
    with pytest.raises(ValueError, match="cannot be sent to another process"):
        processes.sum_shards(lambda shard: 0)
    with pytest.raises(ValueError, match="at least 1"):
        Processes(0)


def test_nearly_empty_sums_travel_as_their_entries() -> None:
    total = np.zeros((300, 300), np.int64)
    total[7, 9], total[299, 299] = -(2**60), 3
    sent = pickle.dumps(ShardSum((total, 5)))
    assert len(sent) < 1000
    back = pickle.loads(sent).total
    np.testing.assert_array_equal(back[0], total)
    assert back[0].dtype == np.int64 and back[0].flags.writeable and back[1] == 5
    full = np.arange(90_000)
    assert compress(full) is full and compress(full[:3]) is not None and compress(3) == 3
    assert not decompress(compress(np.zeros(2**17, np.int64))).any()


def test_sums_are_added_in_place_where_they_can_be() -> None:
    start = np.zeros(3, np.int64)
    assert add_term(None, start) is start
    assert add_term(start, np.ones(3, np.int64)) is start
    frozen = np.ones(3, np.int64)
    frozen.flags.writeable = False
    np.testing.assert_array_equal(add_term(frozen, start), [2, 2, 2])
    assert add_term((1, 2), (3, 4)) == (4, 6)


DRIVER = """
import os, sys
from executors.shard_tasks import Shard, slow, used
from privrl.executors.processes import Processes
if __name__ == "__main__":
    executor = Processes(2)
    executor.start([Shard(0), Shard(1)])
    print(*(pid for pid, _ in dict(executor.map_shards(used)).values()), flush=True)
    executor.sum_shards(slow, 0.3 if sys.argv[1] == "wait" else 0.0)
    if sys.argv[1] == "wait":
        import time
        time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["wait", "leave"])
def test_workers_end_with_the_driver(tmp_path: Path, how: str) -> None:
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    path = os.pathsep.join([str(ROOT / "tests"), str(ROOT)])
    driver = subprocess.Popen(
        [sys.executable, str(script), how], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert driver.stdout is not None
    pids = [int(pid) for pid in driver.stdout.readline().split()]
    if how == "wait":
        driver.kill()
    driver.wait(60)
    driver.stdout.close()
    deadline = time.monotonic() + 20
    while any(_alive(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert len(pids) == 2


def _alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    try:
        return "State:\tZ" not in status.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
