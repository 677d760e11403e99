"""What grows with the number of people, and must not: starting again, and memory."""

import asyncio
import ctypes
import gc
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from service.serving import CENTRAL, LOCAL, Service, serving, study_file

import privrl
from privrl.mdp.types import Trajectory
from privrl.service.opening import open_store, start_learning
from privrl.service.study_file import StudyFile
from privrl.studies.local.wire import Message, SignedTicket

START = """
import sys, time
from pathlib import Path
from privrl.service.listening import make_studies
from privrl.service.study_file import read_study_file
began = time.process_time()
studies = make_studies([read_study_file(Path(sys.argv[1]))])
studies.start()
studies.wait(300.0)
print(time.process_time() - began)
studies.stop()
"""


def seconds_to_start(file: StudyFile) -> float:
    """Processor time until a study is ready, after imports, in a new process with compiled programs; the best of 3."""
    command = [sys.executable, "-c", START, str(file.path)]
    found = [float(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(4)]
    return min(found[1:])


def fill(file: StudyFile, begin: int, end: int) -> None:
    """People who take part without a network."""
    record = Trajectory.from_steps([{"state": 0, "action": 1, "reward": 0.0}], horizon=4)
    with open_store(file) as store:
        work = start_learning(file, store)
        for first in range(begin, end, 1_000):
            if isinstance(work, privrl.Agent):
                work.end_episodes([(ticket, record) for ticket in work.begin_episodes(range(first, first + 1_000))])
            else:
                work.absorb_all([Message(work.ticket(), (np.array([0]),)) for _ in range(1_000)])


@pytest.mark.slow
@pytest.mark.parametrize("text", [CENTRAL, LOCAL], ids=["central", "local"])
def test_starting_again_does_not_depend_on_how_many_took_part(tmp_path: Path, text: str) -> None:
    file = study_file(tmp_path, text, users=200_000)
    fill(file, 0, 1_000)
    few = seconds_to_start(file)
    fill(file, 1_000, 100_000)
    many = seconds_to_start(file)
    print(f"seconds of processor time to start after 1,000: {few:.2f}, after 100,000: {many:.2f}")  # noqa: T201
    assert many <= 1.5 * few and many <= 3.0


def resident() -> int:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def take_part(phone: Service, number: int, document: bytes) -> None:
    """So many devices, 64 at a time."""
    study = hashlib.sha256(document).digest()

    async def one() -> None:
        found = (await phone.asking("POST", "tickets")).json
        mac = bytes.fromhex(found["mac"])
        leave = SignedTicket(study, int(found["number"]), found["plan"], int(found["expires"]), mac)
        assert (await phone.asking("POST", "reports", Message(leave, (np.array([1]),)).to_bytes())).status == 201

    for _ in range(0, number, 64):
        await asyncio.gather(*(one() for _ in range(64)))


@pytest.mark.slow
def test_memory_does_not_grow_with_tickets_and_reports(tmp_path: Path) -> None:
    with serving(study_file(tmp_path, LOCAL, users=300_000, ticket_rate=1e9)) as phone:
        document = phone.ask("GET", "").body
        assert json.loads(document)["parts"][0]["size"] == 1
        phone.run(take_part(phone, 10_000, document))
        before = resident()
        phone.run(take_part(phone, 190_000, document))
        grown = resident() - before
        print(f"memory grew by {grown / 2**20:.1f} MB from 10,000 to 200,000 tickets and reports")  # noqa: T201
        assert grown <= 16 * 2**20
