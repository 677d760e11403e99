"""Several machines on one database, as a role that owns nothing: both are killed while they are used."""

import concurrent.futures
import contextlib
import http.client
import random
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from postgres import Cluster
from service.kills import FAILED, PEOPLE, STUDY, Witness, running

from privrl.service.opening import begin_study
from privrl.service.study_file import StudyFile, read_study_file

KINDS = {"central": ("dp-ucbvi", "delta = 1e-6\npatience = 1.5"), "local": ("ldp-ucbvi", "")}
ROLE = "machines"


class Machine:
    """A service in a process of its own, which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: Any = None
        self.port = 0

    def start(self) -> None:
        self.kill()
        self._running = running(self._folder)
        _, ports = self._running.__enter__()
        self.port = ports["apps and devices"]

    def kill(self) -> None:
        if self._running is not None:
            self._running.__exit__(None, None, None)
            self._running = None

    def wait(self) -> None:
        """Waits until it can be used."""
        end = time.monotonic() + 60.0
        while time.monotonic() < end:
            with contextlib.suppress(*FAILED), contextlib.closing(self.connection()) as connection:
                connection.request("GET", "/readyz")
                if connection.getresponse().status == 200:
                    return
            time.sleep(0.1)
        raise TimeoutError("a machine did not come back")

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)


def begun(postgres: Cluster, folders: list[Path]) -> tuple[StudyFile, StudyFile]:
    """Both kinds of study, as their owner sees them; each folder has a machine's files, for the role of the service."""
    from privrl.privacy.store.postgres import grant_service

    files = []
    for kind, (recipe, rest) in KINDS.items():
        address = postgres.new()
        text = STUDY.format(kind=kind, recipe=recipe, rest=rest, people=PEOPLE).replace(f"{kind}.db", address)
        path = folders[0] / "owner" / f"{kind}.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        files.append(read_study_file(path))
        begin_study(files[-1])
        grant_service(address, ROLE)
        for folder in folders:
            (folder / f"{kind}.toml").write_text(text.replace("user=owner", f"user={ROLE}"))
            shutil.copy(path.with_suffix(".audit.log"), folder)
    return files[0], files[1]


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 4])
def test_machines_and_their_database_are_killed_and_nothing_is_lost(
    postgres: Cluster, tmp_path: Path, number: int
) -> None:
    import psycopg

    with psycopg.connect(postgres.address("public"), autocommit=True) as database:
        database.execute(f"DROP ROLE IF EXISTS {ROLE}; CREATE ROLE {ROLE} LOGIN")
    folders = [tmp_path / str(i) for i in range(number)]
    for folder in folders:
        folder.mkdir()
    files = begun(postgres, folders)
    witness = Witness(folders[0], number, files[1])
    machines, rng, ended = [Machine(folder) for folder in folders], random.Random(number), threading.Event()

    def client(name: int) -> None:
        own = random.Random(f"{number} {name}")
        while not ended.is_set():
            with contextlib.suppress(*FAILED), contextlib.closing(own.choice(machines).connection()) as connection:
                for _ in range(5):
                    (witness._central if own.random() < 0.5 else witness._local)(connection, own)
            time.sleep(0.02)

    with contextlib.ExitStack() as stack, concurrent.futures.ThreadPoolExecutor(6) as pool:
        for machine in machines:
            stack.callback(machine.kill)
            machine.start()
        using = [pool.submit(client, name) for name in range(6)]
        stack.callback(ended.set)
        for life in range(8):
            time.sleep(rng.uniform(0.3, 1.5))
            if life % 3 == 2:
                postgres.kill()
                time.sleep(rng.uniform(0.0, 1.0))
                postgres.start()
            else:
                rng.choice(machines).start()
            for machine in machines:
                machine.wait()
        ended.set()
        for one in using:
            one.result()
    found = witness.look(*files)
    assert witness.faults == []
    assert found["records"] > 50 and found["reports"] > 50
    with psycopg.connect(postgres.address("public"), autocommit=True) as database:
        database.execute(f"DROP OWNED BY {ROLE}; DROP ROLE {ROLE}")
