"""Whoever is killed in the middle of a fit, every release is drawn once and the policy is that of one process."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from executors.cluster import ROOT, Cluster
from executors.driver import drawn, fitted
from sharded_tables import rows, written

from privrl.executors.dask import Dask
from privrl.executors.failures import ShardError
from privrl.executors.processes import Processes

pytestmark = pytest.mark.slow
PASS = 6  # the passes before check the rows, count people in two shards, digest, and make the first releases


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("table") / "stays", rows())


@pytest.fixture(scope="module")
def alone(table: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[np.ndarray, int]:
    """The policy of one process, and how many releases it takes."""
    draws = tmp_path_factory.mktemp("alone") / "draws"
    result = fitted(table, None, draws, None)
    return np.asarray(result.policy.probabilities), drawn(draws)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    started: list[Cluster] = []

    def start(name: str = "cluster", **settings: Any) -> Cluster:
        (tmp_path / name).mkdir()
        started.append(Cluster(tmp_path / name, **settings))
        return started[-1]

    yield start
    for one in started:
        one.close()


def once(action: Callable[[], None], at: int = PASS) -> Callable[[int], None]:
    return lambda number: action() if number == at else None


def test_a_process_is_killed(table: Path, alone: tuple[np.ndarray, int], tmp_path: Path) -> None:
    with Processes(2) as executor:

        def kill() -> None:
            worker = next(one for one in executor._workers if one is not None)
            os.kill(worker.process.pid, signal.SIGKILL)

        result = fitted(table, tmp_path / "study.db", tmp_path / "draws", executor, once(kill))
    np.testing.assert_array_equal(result.policy.probabilities, alone[0])
    assert drawn(tmp_path / "draws") == alone[1]


def test_a_worker_is_killed(table: Path, alone: Any, tmp_path: Path, cluster: Callable[..., Cluster]) -> None:
    started = cluster()
    with started.client() as client, Dask(client) as executor:
        kill = once(lambda: os.killpg(started.workers[0].pid, signal.SIGKILL))
        result = fitted(table, tmp_path / "study.db", tmp_path / "draws", executor, kill)
    np.testing.assert_array_equal(result.policy.probabilities, alone[0])
    assert drawn(tmp_path / "draws") == alone[1]


def test_all_workers_are_killed(table: Path, alone: Any, tmp_path: Path, cluster: Callable[..., Cluster]) -> None:
    started = cluster()

    def kill() -> None:
        for worker in started.workers:
            os.killpg(worker.pid, signal.SIGKILL)
        started.workers += [started.add(), started.add()]

    with started.client() as client, Dask(client) as executor:
        result = fitted(table, tmp_path / "study.db", tmp_path / "draws", executor, once(kill))
    np.testing.assert_array_equal(result.policy.probabilities, alone[0])
    assert drawn(tmp_path / "draws") == alone[1]


def test_the_scheduler_is_killed(table: Path, alone: Any, tmp_path: Path, cluster: Callable[..., Cluster]) -> None:
    """A new cluster on the same store goes on."""
    first = cluster("first")
    files = table, tmp_path / "study.db", tmp_path / "draws"
    with first.client() as client, Dask(client) as executor:
        kill = once(lambda: os.killpg(first.scheduler.pid, signal.SIGKILL))
        with pytest.raises(ShardError, match="repeat the command with the same store"):
            fitted(*files, executor, kill)
    assert 0 < drawn(tmp_path / "draws") < alone[1]
    second = cluster("second")
    with second.client() as client, Dask(client) as executor:
        result = fitted(*files, executor)
    np.testing.assert_array_equal(result.policy.probabilities, alone[0])
    assert drawn(tmp_path / "draws") == alone[1]


def test_the_driver_is_killed(table: Path, alone: Any, tmp_path: Path, cluster: Callable[..., Cluster]) -> None:
    """Another driver with the same store and the same cluster goes on."""
    started = cluster()
    started.client().close()
    command = [sys.executable, str(ROOT / "tests" / "executors" / "driver.py"), str(table), str(tmp_path / "study.db")]
    command += [str(tmp_path / "draws"), started.address]
    path = os.pathsep.join([*os.environ.get("PYTHONPATH", "").split(os.pathsep), str(ROOT / "tests"), str(ROOT)])
    for last, code in ((str(PASS), -signal.SIGKILL), ("0", 0)):
        done = subprocess.run(
            [*command, last], env={**os.environ, "PYTHONPATH": path}, capture_output=True, timeout=300
        )
        assert done.returncode == code, done.stderr.decode()[-2000:]
        assert (code == 0) == (drawn(tmp_path / "draws") == alone[1])
    np.testing.assert_array_equal(np.load(tmp_path / "draws.npy"), alone[0])
