"""A pilot whose service is killed again and again has the arms, looks and releases of one that is not.

The processes draw arms and noise from a test key, and read the time from a file that the test writes.
"""

import contextlib
import http.client
import json
import os
import random
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from service.test_pilot_service import PATIENCE, PEOPLE, pilot_file, policy, seeded

from privrl.privacy.store.release_store import ReleaseStore

__all__ = ["policy", "seeded"]  # fixtures

_SERVE = """
from pathlib import Path
from privrl.cli import main
from privrl.service import listening, opening
from privrl.service.served_studies import ServedStudies
from privrl.studies.live.live_pilot import Pilot
clock = lambda: float(Path("clock").read_text())
opening.Pilot = lambda protocol, **how: Pilot(protocol, key=5, **how)
listening.make_studies = lambda files: ServedStudies([listening.make_study(file, clock) for file in files])
raise SystemExit(main(["serve", "run", "pilot.toml", "--listen", "127.0.0.1:0", "--operator", "127.0.0.1:0"]))
"""
_FAILED = (OSError, http.client.HTTPException)


class Killed:
    """A service in a process of its own, which is started again whenever it does not answer."""

    def __init__(self, folder: Path, key: str) -> None:
        self.folder, self.key, self.starts = folder, key, 0
        self.process: subprocess.Popen[str] | None = None
        self.set_time(1000.0)

    def set_time(self, time: float) -> None:
        (self.folder / "new").write_text(str(time))
        os.replace(self.folder / "new", self.folder / "clock")

    def start(self) -> None:
        self.close()
        self.starts += 1
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SERVE], stdout=subprocess.PIPE, text=True, cwd=self.folder
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.fullmatch(r"Listening for apps and devices: http://127.0.0.1:(\d+)\n", line):
                self.port = int(found[1])
            if line == "Ready.\n":
                return
        raise AssertionError("The service did not start.")

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None

    def ask(self, method: str, what: str, content: Any = None) -> Any:
        """Ask until there is an answer."""
        body = None if content is None else json.dumps(content)
        for _ in range(20):
            if self.process is None or self.process.poll() is not None:
                self.start()
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
            with contextlib.suppress(*_FAILED), contextlib.closing(connection):
                connection.request(method, f"/v1/studies/trial{what}", body, {"authorization": f"Bearer {self.key}"})
                answer = connection.getresponse()
                found = answer.read()
                if answer.status < 300:
                    return json.loads(found or "null")
                assert answer.status in (500, 503), found
        raise AssertionError("The service does not answer.")


def conducted(folder: Path, policy: Path, kills: frozenset[int]) -> tuple[Any, ...]:
    """A trial over HTTP; the process is killed while these people arrive, at a random moment."""
    folder.mkdir()
    file, rng, arms = pilot_file(folder, policy), random.Random(7), []
    service = Killed(folder, file.keys.add("app", "app"))
    try:
        for i in range(PEOPLE):
            service.set_time(1000.0 + i)
            if i in kills:
                service.ask("GET", "")
                assert service.process is not None
                threading.Timer(rng.uniform(0.0, 0.06), service.process.kill).start()
            ticket = service.ask("POST", "/tickets", {"user": str(i)})
            assert service.ask("POST", "/tickets", {"user": str(i)}) == ticket
            service.ask("POST", "/outcomes", {"ticket": ticket["ticket"], "outcomes": {"survival": i % 2}})
            arms.append(ticket["arm"])
        service.set_time(1000.0 + PEOPLE + PATIENCE)
        service.start()
        shown = service.ask("GET", "")
        assert service.starts > len(kills)
    finally:
        service.close()
    with ReleaseStore(folder / "trial.db") as store:
        names = sorted(name for (name,) in store._engine.execute("SELECT name FROM sums").fetchall())
        sums = {name: np.asarray(store.total(name)).tolist() for name in names}
        released = {row["name"]: np.asarray(store.value(row["name"])).tolist() for row in store.describe()["releases"]}
    return arms, shown, sums, released


@pytest.mark.slow
def test_kills_change_neither_arms_nor_sums_nor_releases(tmp_path: Path, policy: Path, seeded: None) -> None:
    kills = (frozenset[int](), frozenset({3, 9, 10, 22, 39}))
    undisturbed, killed = (conducted(tmp_path / str(len(some)), policy, some) for some in kills)
    assert undisturbed == killed
    assert len(killed[1]["looks"]) == 4 and set(killed[0]) == {"practice", "advice"}
