"""A service that is killed again and again while apps and devices use it, and what it must have kept.

    python kills.py FOLDER ROUNDS SEED [BROKEN [PEOPLE]]        prints one JSON object

With one of `BROKEN` the service is broken on purpose, and faults must be found. `PEOPLE` is how the file of the central
study says how many people there are.

Everything that the service has answered is written down: a ticket must be the same after every kill, a record or a
report that was answered must be in the sums, once, and nothing else but what was sent and not answered. Releases have
one value, and every process makes the same plans of them.
"""

import concurrent.futures
import contextlib
import hashlib
import http.client
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import privrl
from privrl.cli import main
from privrl.mdp.types import Trajectory
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.store.sums import digests
from privrl.service.opening import begin_study, open_store, start_learning
from privrl.service.served_studies import AbstractServedStudy
from privrl.service.study_file import StudyFile, read_study_file
from privrl.studies.local.wire import Message, SignedTicket

STUDY = """
kind = "{kind}"
name = "{kind}"
recipe = "{recipe}"
{people}
epsilon = 1.0
{rest}
store = "{kind}.db"
[world]
env = "riverswim"
arguments = {{ states = 3, horizon = 4 }}
"""
PEOPLE, OPEN = "users = 100000", "open_ended = { first = 1 }"
FAILED = (OSError, http.client.HTTPException)


def _answers_first() -> None:
    """Answers what it commits with the next batch."""
    inner, late = AbstractServedStudy.commit, {}

    def commit(self: Any, jobs: Any) -> Any:
        kept = late.get(id(self), [])
        late[id(self)] = [job for job in jobs if job.kind in ("count", "report")]
        others = [job for job in jobs if job not in late[id(self)]]
        answers = dict(zip(map(id, kept + others), inner(self, kept + others), strict=True))
        return [answers.get(id(job), [job.kind == "report"] * len(job.people)) for job in jobs]

    AbstractServedStudy.commit = commit  # type: ignore[method-assign]


def _counts_twice() -> None:
    """What is sent again counts again."""
    inner = ReleaseStore.contribute

    def contribute(self: Any, name: str, keys: Any, units: Any, **options: Any) -> Any:
        return inner(self, name, [os.urandom(8).hex() for _ in keys], units, **options)

    ReleaseStore.contribute = contribute  # type: ignore[method-assign]


def _forgets_people() -> None:
    """Who comes again has another place."""
    inner = ReleaseStore.arrive_all

    def arrive_all(self: Any, queue: str, keys: Any, **options: Any) -> Any:
        return inner(self, queue, [os.urandom(8).hex() for _ in keys], **options)

    ReleaseStore.arrive_all = arrive_all  # type: ignore[method-assign]


BROKEN = {"answers first": _answers_first, "counts twice": _counts_twice, "forgets people": _forgets_people}


def serve(broken: str, *more: str) -> None:
    """The service's process."""
    if broken:
        BROKEN[broken]()
    listeners = ["--listen", "127.0.0.1:0", "--operator", "127.0.0.1:0"]
    raise SystemExit(main(["serve", "run", "central.toml", "local.toml", *listeners, *more]))


@contextlib.contextmanager
def running(
    folder: Path, broken: str = "", more: Sequence[str] = ()
) -> Iterator[tuple[subprocess.Popen[str], dict[str, int]]]:
    """A service in a process of its own, ready, and the ports of its listeners; `more` are options of the command."""
    command = [sys.executable, __file__, "--serve", broken, *more]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder)
    assert process.stdout is not None
    try:
        ports = {}
        for line in process.stdout:
            if found := re.fullmatch(r"Listening for (.+): https?://127.0.0.1:(\d+)\n", line):
                ports[found[1]] = int(found[2])
            if line == "Ready.\n":
                break
        yield process, ports
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class Witness:
    """What was sent, and what was answered; written down before anything else happens."""

    def __init__(self, folder: Path, seed: int, local: StudyFile) -> None:
        self.key = read_study_file(folder / "central.toml").keys.add("app", "witness")
        self.tickets: dict[str, dict[str, Any]] = {}
        self.records: dict[str, list[dict[str, Any]]] = {}
        self.recorded: set[str] = set()
        self.reports: dict[int, bytes] = {}
        self.reported: set[int] = set()
        self.new: set[int] = set()
        self.plans: dict[str, bytes] = {}
        self.values: dict[str, bytes] = {}
        self.faults: list[str] = []
        with open_store(local) as store:
            self.document = store.fact("document", bytes)
        self._lock = threading.Lock()
        self._seed, self._people = seed, 0

    def person(self) -> str:
        with self._lock:
            self._people += 1
            return f"person {self._people}"

    def check(self, what: str, fine: bool) -> None:
        if not fine:
            self.faults.append(what)

    def use(self, port: int, life: int, number: int) -> None:
        """One client of a life of the service: people arrive and leave records, devices report, until it dies."""
        rng = random.Random(f"{self._seed} {life} {number}")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        with contextlib.suppress(*FAILED), contextlib.closing(connection):
            while True:
                (self._central if rng.random() < 0.5 else self._local)(connection, rng)

    def ask(self, connection: Any, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        connection.request(method, f"/v1/studies/{path}", body, {"authorization": f"Bearer {self.key}"})
        answer = connection.getresponse()
        return answer.status, answer.read()

    def _central(self, connection: Any, rng: random.Random) -> None:
        user = self.person() if rng.random() < 0.7 or not self.tickets else rng.choice(list(self.tickets))
        status, body = self.ask(connection, "POST", "central/tickets", json.dumps({"user": user}).encode())
        if status != 200:
            return
        ticket = json.loads(body)
        self.check(f"another ticket for {user}", self.tickets.setdefault(user, ticket) == ticket)
        fresh = [
            {"state": rng.randrange(3), "action": rng.randrange(2), "reward": rng.random()}
            for _ in range(rng.randrange(5))
        ]
        steps = self.records.setdefault(user, fresh)
        record = json.dumps({"ticket": ticket["ticket"], "steps": steps}).encode()
        if self.ask(connection, "POST", "central/episodes", record)[0] == 204:
            self.recorded.add(user)

    def _local(self, connection: Any, rng: random.Random) -> None:
        if rng.random() < 0.7 or not self.reports:
            status, body = self.ask(connection, "POST", "local/tickets")
            if status != 200:
                return
            found = json.loads(body)
            number = int(found["number"])
            self.check(f"ticket {number} twice", number not in self.reports)
            study = hashlib.sha256(self.document).digest()
            leave = SignedTicket(study, number, found["plan"], int(found["expires"]), bytes.fromhex(found["mac"]))
            (part,) = json.loads(self.document)["parts"]
            symbols = sorted(rng.sample(range(part["symbols"]), part["size"]))
            self.reports[number] = Message(leave, (np.array(symbols, np.int64),)).to_bytes()
            status, body = self.ask(connection, "GET", f"local/plans/{found['plan']}")
            if status == 200:
                self.check("another plan", self.plans.setdefault(found["plan"], body) == body)
        else:
            number = rng.choice(list(self.reports))
        status, _ = self.ask(connection, "POST", "local/reports", self.reports[number])
        if status in (200, 201):
            with self._lock:  # two clients may send one report at once: one of them is told that it is new
                self.check("counted twice", status == 200 or number not in self.new)
                self.new |= {number} if status == 201 else set()
            self.reported.add(number)

    # ---------------------------------------------------------------------------------------- what the stores must hold

    def look(self, central: StudyFile, local: StudyFile) -> dict[str, int]:
        """Compares the stores with all that was answered, and their sums with what is in them."""
        with open_store(central) as store:
            self._look_at_records(central, store)
            for name in (row["name"] for row in store.describe()["releases"]):
                value = store.value(name)
                if value is not None:
                    self.check("two values", self.values.setdefault(name, value.tobytes()) == value.tobytes())
        with open_store(local) as store:
            self._look_at_reports(local, store)
        return {"records": len(self.recorded), "reports": len(self.reported), "releases": len(self.values)}

    def _look_at_records(self, file: StudyFile, store: ReleaseStore) -> None:
        agent = start_learning(file, store, clock=lambda: 0.0)
        assert isinstance(agent, privrl.Agent)
        kept = {bytes(row[0]) for row in store._engine.execute("SELECT digest FROM contributions")}
        users = list(self.records)
        keys = digests(store._engine.digest_key(), "scope people", [self.tickets[user]["number"] for user in users])
        counted = [user for user, key in zip(users, keys, strict=True) if key in kept]
        self.check("a record that nobody sent", len(counted) == len(kept))
        expected: dict[str, Any] = {}
        blank = 0
        for user in counted:
            number, plan = int(self.tickets[user]["number"]), self.tickets[user]["plan"]
            record = Trajectory.from_steps(self.records[user], horizon=4)
            units, _ = agent.plans.to_steps(jax.tree.map(lambda x: np.asarray(x)[None], record), plan)
            ends = agent.plans._arrivals._ends
            name = f"block {int(np.searchsorted(ends, number, side='right'))}, plan {plan}"
            expected[name] = expected.get(name, blank) + units[0]
        found = {name: store.total(name) for (name,) in store._engine.execute("SELECT name FROM sums").fetchall()}
        found = {
            name: total for name, total in found.items() if total is not None and (total.any() or name in expected)
        }
        self.check("other blocks", found.keys() == expected.keys())
        for name in found.keys() & expected.keys():
            self.check(f"another sum of {name}", np.array_equal(found[name], expected[name]))
        sealed = set(store.describe()["sealed"])
        for user in self.recorded - set(counted):  # answered, and too late: its block had closed
            ends, number = agent.plans._arrivals._ends, int(self.tickets[user]["number"])
            block = int(np.searchsorted(ends, number, side="right"))
            self.check(f"{user} is lost", f"block {block}, plan {self.tickets[user]['plan']}" in sealed)

    def _look_at_reports(self, file: StudyFile, store: ReleaseStore) -> None:
        server = start_learning(file, store)
        assert isinstance(server, privrl.Server)
        kept = {bytes(row[0]) for row in store._engine.execute("SELECT digest FROM contributions")}
        tickets = [Message.from_bytes(report).ticket for report in self.reports.values()]
        keys = digests(store._engine.digest_key(), "scope reports", [ticket.key for ticket in tickets])
        counted = [number for number, key in zip(self.reports, keys, strict=True) if key in kept]
        self.check("a report that nobody sent", len(counted) == len(kept) == server.num_reports)
        self.check("a report is lost", self.reported <= set(counted))
        (reports,) = server._reports.values()
        expected = np.zeros(reports.length, np.int64)
        for number in counted:
            message = Message.from_bytes(self.reports[number])
            expected += reports.to_steps(message.parts[0], server.plans[message.ticket.plan], number)
        names = [name for (name,) in store._engine.execute("SELECT name FROM sums").fetchall()]
        self.check("another sum", np.array_equal(sum(store.total(name) for name in names), expected))


def begun(folder: Path, people: str = PEOPLE) -> tuple[StudyFile, StudyFile]:
    """A central study of so many people, and a local one."""
    files = []
    for kind, recipe, rest in (("central", "dp-ucbvi", "delta = 1e-6\npatience = 1.5"), ("local", "ldp-ucbvi", "")):
        path = folder / f"{kind}.toml"
        many = people if kind == "central" else PEOPLE
        path.write_text(STUDY.format(kind=kind, recipe=recipe, rest=rest, people=many))
        files.append(read_study_file(path))
        begin_study(files[-1])
    return files[0], files[1]


def used_and_killed(process: Any, port: int, witness: Witness, life: int, seconds: float, clients: int = 6) -> None:
    """Clients use a service, which is killed while they do."""
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        using = [pool.submit(witness.use, port, life, number) for number in range(clients)]
        time.sleep(seconds)
        process.kill()
        for client in using:
            client.result()


def killed(folder: Path, rounds: int, seed: int, broken: str = "", people: str = PEOPLE) -> dict[str, Any]:
    """Kills a service `rounds` times while clients use it; what was found."""
    rng, files = random.Random(seed), begun(folder, people)
    witness = Witness(folder, seed, files[1])
    found: dict[str, int] = {}
    for life in range(rounds):
        with running(folder, broken) as (process, ports):
            used_and_killed(process, ports["apps and devices"], witness, life, rng.uniform(0.3, 2.5))
        found = witness.look(*files)
    return {"rounds": rounds, "faults": witness.faults, "tickets": len(witness.tickets), **found}


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(*sys.argv[2:])
    _, place, rounds, seed, *more = sys.argv
    sys.stdout.write(json.dumps(killed(Path(place), int(rounds), int(seed), *more)) + "\n")
