"""A Dask cluster of real processes on this machine, which can be killed one by one."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SETTINGS = {
    "DASK_DISTRIBUTED__WORKER__MEMORY__TARGET": "False",
    "DASK_DISTRIBUTED__WORKER__MEMORY__SPILL": "False",
    "DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE": "False",
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
}


class Cluster:
    """A scheduler and some workers; their output is kept in `log`."""

    def __init__(
        self,
        folder: Path,
        workers: int = 2,
        *,
        nanny: bool = False,
        settings: dict[str, str] | None = None,
        tls: tuple[str, str] | None = None,
    ):
        self.folder, self.log = folder, folder / "cluster.log"
        self._environment = {
            **os.environ,
            **(SETTINGS if settings is None else settings),
            "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT / "tests"), str(ROOT)]),
            "OMP_NUM_THREADS": "1",
            "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "None",
        }
        self._nanny = nanny
        self._tls = () if tls is None else ("--tls-ca-file", tls[0], "--tls-cert", tls[1], "--tls-key", tls[1])
        where = ("--protocol", "tls" if tls else "tcp", "--host", "127.0.0.1", "--port", "0")
        self.scheduler = self._started("dask_scheduler", *where, "--scheduler-file", self.file)
        deadline = time.monotonic() + 120
        while not Path(self.file).exists():
            assert self.scheduler.poll() is None and time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)
        self.workers = [self.add() for _ in range(workers)]

    @property
    def file(self) -> str:
        return str(self.folder / "scheduler.json")

    @property
    def address(self) -> str:
        return json.loads(Path(self.file).read_text())["address"]

    def add(self, *options: str) -> subprocess.Popen[bytes]:
        """One more worker."""
        nanny = "--nanny" if self._nanny else "--no-nanny"
        where = ("--scheduler-file", self.file, "--host", "127.0.0.1", "--nthreads", "1", "--death-timeout", "120")
        return self._started("dask_worker", *where, nanny, *options)

    def client(self) -> Any:
        from privrl.executors.connection import connect

        client = connect(self.address)
        client.wait_for_workers(len(self.workers), timeout=180)
        return client

    def _started(self, command: str, *options: str) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            arguments = [sys.executable, "-m", f"distributed.cli.{command}", "--no-dashboard", *self._tls, *options]
            return subprocess.Popen(
                arguments, stdout=log, stderr=log, env=self._environment, cwd=self.folder, start_new_session=True
            )

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
