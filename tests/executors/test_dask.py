"""Executors on a Dask cluster of real processes: the same contract, and nothing of anybody in what it logs."""

import json
import os
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from executors.cluster import Cluster
from executors.shard_tasks import CANARY, Shard, Sized, fail, kill_always, kill_once, pair, square, used
from sharded_tables import TABLE, A, H, S, opened, rows, written

from privrl.cli.main import main
from privrl.data.schema.table_schema import TableError
from privrl.data.tables.shards import ShardedEpisodes
from privrl.executors import dask as dask_module
from privrl.executors.connection import connect
from privrl.executors.dask import Dask
from privrl.executors.failures import ShardError


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    started = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield started
    finally:
        started.close()


@pytest.fixture(scope="module")
def executor(cluster: Cluster) -> Iterator[Dask]:
    with cluster.client() as client, Dask(client) as dask:
        yield dask


def test_a_cluster_keeps_the_contract(executor: Dask, cluster: Cluster) -> None:
    executor.start([Shard(i) for i in range(5)])
    assert dict(executor.map_shards(square, 10)) == {i: i * i + 10 for i in range(5)}
    assert dict(executor.map_shards(square, 10, own=[100, 200, 300, 400, 500]))[3] == 419
    total, number = executor.sum_shards(pair)
    np.testing.assert_array_equal(total, [10, 15, 20])
    assert number == 5
    first, second = dict(executor.map_shards(used)), dict(executor.map_shards(used))
    assert all(first[i][1] < second[i][1] for i in range(5) if first[i][0] == second[i][0])
    seen: list[tuple[int, int]] = []
    executor.watch = lambda done, of: seen.append((done, of))
    executor.sum_shards(pair)
    executor.watch = None
    assert seen == [(i, 5) for i in range(1, 6)]
    with pytest.raises(TableError, match="Column `x` is out of range at row 3."):
        executor.sum_shards(fail, 3, True)
    with pytest.raises(ShardError, match="Shard 3 failed with ValueError"):
        dict(executor.map_shards(fail, 3, False))
    with pytest.raises(ValueError, match="cannot be sent"):
        executor.sum_shards(lambda shard: 0)
    assert CANARY not in cluster.log.read_text()


def test_workers_keep_equal_shares(executor: Dask) -> None:
    executor.start([Sized(i, size) for i, size in enumerate([5, 1, 1, 1, 5, 1, 1, 1])])
    kept = executor._client.who_has(executor._futures)
    homes = [kept[future.key] for future in executor._futures]
    assert homes[0] != homes[4]
    assert sorted(homes.count(home) for home in {*homes}) == [4, 4]


def test_no_value_of_anybody_is_sent_or_logged(executor: Dask, cluster: Cluster, tmp_path: Path) -> None:
    """Neither ids nor cells are in what goes to the scheduler, in its log, in those of workers, or in an error."""
    columns = {name: np.array(column) for name, column in rows().items() if name in TABLE}
    columns["unit"] = np.array([f"{CANARY}-{name}" for name in columns["unit"]])
    bad = columns | {"state": columns["state"].copy()}
    bad["state"][-3] = 83162577
    sent: list[bytes] = []
    submit = executor._client.submit

    def listening(*args: Any, **settings: Any) -> Any:
        sent.append(cloudpickle.dumps([arg for arg in args if not hasattr(arg, "release")]) + repr(args).encode())
        return submit(*args, **settings)

    executor._client.submit = listening
    try:
        data = ShardedEpisodes.from_dataset(opened(written(tmp_path / "good", columns)), executor, 40)
        assert data.check() == data.whole.check()
        assert data.digest(bytes(32)) == data.whole.digest(bytes(32))
        refused = ShardedEpisodes.from_dataset(opened(written(tmp_path / "bad", bad)), executor, 40)
        with pytest.raises(TableError, match="Column `state` is out of range at row") as found:
            refused.check()
    finally:
        executor._client.submit = submit
    everything = b"".join(sent) + cluster.log.read_bytes() + repr(found.value).encode() + repr(data).encode()
    assert len(sent) > 10 and CANARY.encode() not in everything and b"83162577" not in everything
    assert all(
        number not in everything for number in ((83162577).to_bytes(8, "little"), np.float64(83162577).tobytes())
    )


@pytest.mark.parametrize(
    "address", ["tcp://10.0.0.7:8786", "tcp://scheduler:8786", "ws://127.0.0.1:1", "10.0.0.7:8786"]
)
def test_nothing_travels_in_the_clear(address: str) -> None:
    with pytest.raises(ValueError, match="would travel in the clear"):
        connect(address)


def test_certificates_are_needed() -> None:
    with pytest.raises(ValueError, match="--dask-ca"):
        connect("tls://scheduler:8786")


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced_by_the_others(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 2, nanny=True)
    try:
        with cluster.client() as client, Dask(client) as executor:
            executor.start([Shard(i) for i in range(6)])
            for who in (0, 3, 5):
                (tmp_path / "killed").unlink(missing_ok=True)
                total, number = executor.sum_shards(kill_once, tmp_path, who)
                np.testing.assert_array_equal(total, [15, 21, 27])
                assert number == 6
    finally:
        cluster.close()


@pytest.mark.slow
def test_all_workers_die_and_others_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(tmp_path, 2)
    try:
        with cluster.client() as client, Dask(client) as executor:
            executor.start([Shard(i) for i in range(4)])
            assert executor.sum_shards(pair)[1] == 4
            for worker in cluster.workers:
                os.killpg(worker.pid, signal.SIGKILL)
            deadline = time.monotonic() + 60
            while client.nthreads():
                assert time.monotonic() < deadline
                time.sleep(0.1)
            with pytest.raises(ShardError, match="has no workers"):
                executor.sum_shards(pair)
            cluster.workers += [cluster.add(), cluster.add()]
            client.wait_for_workers(2, timeout=120)
            assert executor.sum_shards(pair)[1] == 4
    finally:
        cluster.close()


@pytest.mark.slow
def test_a_shard_that_always_kills_ends_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_module, "_MAX_DEATHS", 1)
    cluster = Cluster(tmp_path, 2, nanny=True)
    try:
        with cluster.client() as client, Dask(client) as executor:
            executor.start([Shard(i) for i in range(3)])
            with pytest.raises(ShardError, match="has ended its worker again and again"):
                executor.sum_shards(kill_always, 1)
    finally:
        cluster.close()


@pytest.mark.slow
def test_a_scheduler_that_dies_ends_in_words(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 1)
    try:
        with cluster.client() as client, Dask(client) as executor:
            executor.start([Shard(i) for i in range(3)])
            assert executor.sum_shards(pair)[1] == 3
            os.killpg(cluster.scheduler.pid, signal.SIGKILL)
            with pytest.raises(ShardError, match="scheduler was lost"):
                executor.sum_shards(pair)
    finally:
        cluster.close()


@pytest.mark.slow
def test_workers_that_spill_or_have_threads_are_refused(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 1, settings={})
    try:
        with cluster.client() as client, Dask(client) as executor, pytest.raises(ValueError, match="to its disk"):
            executor.start([Shard(0)])
        cluster.workers.append(cluster.add("--nthreads", "2"))
        with cluster.client() as client, Dask(client) as executor, pytest.raises(ValueError, match="has 2 threads"):
            executor.start([Shard(0)])
    finally:
        cluster.close()


def certificate(folder: Path) -> tuple[str, str]:
    """A certificate for this machine that is its own authority: the file of the authority, and one with its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    public = made.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "ca.pem").write_bytes(public)
    (folder / "me.pem").write_bytes(private + public)
    return str(folder / "ca.pem"), str(folder / "me.pem")


@pytest.mark.slow
def test_the_command_line_fits_on_an_encrypted_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From several files that are named from where the driver is; workers are elsewhere. No path is saved."""
    ca, me = certificate(tmp_path)
    monkeypatch.chdir(written(tmp_path / "stays", rows()))
    (tmp_path / "cluster").mkdir()
    cluster = Cluster(tmp_path / "cluster", 2, tls=(ca, me))
    arguments = [
        "fit",
        "0.parquet",
        "1.parquet",
        "2.parquet",
        "--recipe",
        "dp-apvi",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--spend-anyway",  # there are few people
        "--json",
    ]
    for name in ("unit", "episode", "step", "state", "action", "reward", "next-state"):
        arguments += [f"--{name}", name.replace("-", "_")]
    arguments += ["--horizon", str(H), "--num-states", str(S), "--num-actions", str(A), "--out", str(tmp_path / "out")]
    try:
        assert cluster.address.startswith("tls://")
        assert main([*arguments, "--dask", cluster.address, "--dask-ca", ca]) == 2
        assert "--dask-ca" in capsys.readouterr().err
        deadline = time.monotonic() + 120
        while main([*arguments, "--dask", cluster.address, "--dask-ca", ca, "--dask-cert", me]) != 0:
            assert "no workers" in capsys.readouterr().err and time.monotonic() < deadline  # they are just coming up
        content = json.loads(capsys.readouterr().out)
        assert content["certificate"]["noise_source"] == "system" and content["users"] == 90
        for path in (tmp_path / "out").iterdir():
            assert str(tmp_path).encode() not in path.read_bytes() and b".parquet" not in path.read_bytes()
    finally:
        cluster.close()
