"""Kills processes that use a store, at random times and at every point of its protocol, and checks what they left.

    python kill_loop.py loop DIRECTORY file|FOLDER STORE WRITERS ROUNDS SEED     (of the socket of a PostgreSQL server)
    python kill_loop.py server DIRECTORY ROUNDS SEED
    python kill_loop.py purge DIRECTORY
    python kill_loop.py owner DIRECTORY burn|redraw

Each prints one JSON object. The parent loads the store without the rest of its package, so without JAX, and can fork
workers quickly. In each round of the loop, workers contribute, seal, release, arrive and reserve numbers until they are
killed, and write what they were told into a witness file *before* they go on. Then all of them are dead, and a copy of
the files (so that the next round still meets what the kill left; of a database, one state of it) is read with plain SQL
and compared with the witnesses; opened as a store, its chain must fit its tables and hold all that its log says.
`server` kills the PostgreSQL server under its writers instead, and starts it again.
"""

import contextlib
import functools
import importlib
import json
import os
import random
import shutil
import signal
import sqlite3
import sys
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from postgres import Cluster, Running

SOURCE = Path(__file__).parents[2] / "src" / "privrl"
for package, place in (("privrl", SOURCE), ("privrl.privacy", SOURCE / "privacy")):
    sys.modules[package] = types.ModuleType(package)
    sys.modules[package].__path__ = [str(place)]
stores, errors, sums = (
    importlib.import_module(f"privrl.privacy.store.{name}") for name in ("release_store", "errors", "sums")
)
assert "jax" not in sys.modules  # its threads would not survive a fork

LIMITS = {"wide": 1e3, "tight": 1.2}
CHARGE = 0.1
ROUNDS_PER_FILE = 24
WORK_SECONDS = {"file": 0.03, "postgres": 0.3}  # about what a worker needs for a round
ANY_TIME, NEVER = "any time", "never"
PLACES = 60
WORDS = ("got", "burnt", "refused", "kept", "seated", "sealed", "range")
CELLS, DIGITS = 33, 31  # key number i adds one to the i-th base-4 digit, so the sum shows which keys are in, how often


class AcknowledgesFirst(stores.ReleaseStore):
    """Broken: acknowledges a batch that it commits with the next one."""

    _late: tuple[Any, ...] | None = None

    def contribute(self, stream, keys, units):
        if self._late is not None:
            super().contribute(*self._late)
        self._late = (stream, keys, units)
        return np.ones(len(keys), bool)


class CountsTwice(stores.ReleaseStore):
    """Broken: a key that is sent again is new again."""

    def contribute(self, stream, keys, units):
        return super().contribute(stream, [f"{key} {os.urandom(8).hex()}" for key in keys], units)


class DrawsFirst(stores.ReleaseStore):
    """Broken: draws before it reserves, and writes down what it drew at the next call."""

    _late: tuple[Any, ...] | None = None

    def release(self, name, pool, charge, draw, *, distribution=b""):
        if self._late is not None:
            super().release(*self._late)
        if self._stored(name, pool, charge, distribution) is not None:
            return super().release(name, pool, charge, draw)
        value = draw()
        self._late = (name, pool, charge, lambda: value)
        return value


class ReturnsFirst(stores.ReleaseStore):
    """Broken: reserves and draws in order but returns the value before it is kept, and draws again after a crash."""

    _late: tuple[str, Any] | None = None

    def release(self, name, pool, charge, draw, *, distribution=b""):
        if self._late is not None:
            late, value = self._late
            with self._engine.transaction("late", f"release {late}"):
                update = "UPDATE releases SET shape = ?, value = ?, released = ? WHERE name = ?"
                self._engine.execute(update, *sums.columns(value), "now", late)
                self._engine.chain("value", late)
            self._late = None
        stored = self._stored(name, pool, charge, distribution)
        if stored is not None and stored[1] is not None:
            return sums.integers(*stored)
        if stored is None:
            self._reserve(name, pool, charge, distribution)
        self._late = (name, draw())
        return self._late[1]


class SeatsFirst(stores.ReleaseStore):
    """Broken: says a number before it is written, and writes it at the next call."""

    _late: str | None = None

    def arrive_all(self, queue, keys, *, at_most, contents):
        if self._late is not None:
            super().arrive_all(queue, [self._late], at_most=at_most, contents=contents)
        (self._late,) = keys
        number = self.count_places(queue)
        return [(number, *contents([0], number))]


class KeepsItsLog(stores.ReleaseStore):
    """Broken: completes its log when it is opened only."""

    def __init__(self, path, **arguments):
        super().__init__(path, **arguments)
        self._engine._log = None


KINDS = {
    "sound": stores.ReleaseStore,
    "acknowledges-first": AcknowledgesFirst,
    "counts-twice": CountsTwice,
    "draws-first": DrawsFirst,
    "returns-first": ReturnsFirst,
    "seats-first": SeatsFirst,
    "keeps-its-log": KeepsItsLog,
}
Tell = Callable[..., None]


class WrongError(Exception):
    """What a store must never do."""


def must(fine: bool, what: str) -> None:
    if not fine:
        raise WrongError(what)


# ------------------------------------------------------------------------------------------------------- the workers


def dying(kind: type, death: str, tell: Tell) -> type:
    """A store that kills its own process when it first reaches this point."""

    class Dying(kind):
        def _reached(self, point: str) -> None:
            if point == death:
                tell(died=point)
                os.kill(os.getpid(), signal.SIGKILL)

    return Dying


def units_of(numbers: list[int]) -> np.ndarray:
    units = np.zeros((len(numbers), CELLS), np.int64)
    for row, number in zip(units, numbers, strict=True):
        row[number // DIGITS] = 1 << (2 * (number % DIGITS))
    return units


def place_of(number: int) -> bytes:
    return f"place {number}".encode()


def places_of(new: Sequence[int], first: int) -> list[bytes]:
    return [place_of(number) for number, _ in enumerate(new, first)]


def work(open_store: Callable[[], Any], tell: Tell, rng: random.Random, here: int, writer: int) -> None:
    """What one process does in one round: open, declare, then a mixture of everything, also of older rounds."""
    with open_store() as store:
        store.open_study({"title": "kill"}, LIMITS)
        tell(fact=store.fact(f"seed {here}", lambda: os.urandom(8)).hex())

        def contribute() -> None:
            base = 40 * here
            own, common = range(base + 12 * writer, base + 12 * writer + 12), range(base + 24, base + 40)
            numbers = rng.sample(own, 3) + rng.sample(common, 3) + rng.choices(range(base + 40), k=3)
            tell(sent=numbers)
            new = store.contribute("visits", [f"person {number}" for number in numbers], units_of(numbers))
            tell(kept=numbers, new=new.tolist())

        def release(name: str) -> None:
            def draw() -> np.ndarray:
                value = np.frombuffer(os.urandom(32), np.int64)
                tell(drawn=name)
                time.sleep(rng.choice([0, 0, 0.0005]))
                return value

            try:
                tell(got=name, value=store.release(name, name.split()[1], CHARGE, draw).tobytes().hex())
            except errors.BurntError:
                tell(burnt=name)
            except errors.StoreBudgetError:
                tell(refused=name)

        def arrive() -> None:
            key = f"guest {rng.randrange(4 * here + 4)}"
            try:
                ((number, content),) = store.arrive_all("guests", [key], at_most=PLACES, contents=places_of)
                tell(seated=key, number=number, content=content.decode())
            except errors.QueueFullError:
                tell(full=True)

        def add() -> None:
            block = f"block {max(0, here - rng.randrange(2))}"
            keys = [f"{writer} {rng.randrange(9)}" for _ in range(3)]
            with contextlib.suppress(errors.SumSealedError):
                tell(into=block, new=int(store.contribute(block, keys, np.ones(3, np.int64)).sum()))

        def seal() -> None:
            store.seal(f"block {here}")
            tell(sealed=f"block {here}")

        def number() -> None:
            tell(range=store.reserve_range("tickets", 5).start)

        names = [f"{past} {pool} {i}" for past in {here, max(0, here - 1)} for pool in sorted(LIMITS) for i in (0, 1)]
        tasks: list[Callable[[], None]] = [functools.partial(release, name) for name in names + rng.choices(names, k=4)]
        tasks += 8 * [contribute] + 3 * [arrive] + 2 * [add] + [seal, number]
        rng.shuffle(tasks)
        for task in tasks:
            task()


@contextlib.contextmanager
def witness(path: Path) -> Iterator[Tell]:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def tell(**what: Any) -> None:
        os.write(descriptor, json.dumps(what).encode() + b"\n")

    yield tell
    os.close(descriptor)


def forked(task: Callable[[Tell], None], path: Path) -> int:
    """Runs a task in a child with its own witness file and returns the child's process id."""
    child = os.fork()
    if child:
        return child
    with witness(path) as tell:
        try:
            task(tell)
        except BaseException as error:
            tell(error=f"{type(error).__name__}: {error}")
        finally:
            os._exit(0)


def told(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.glob("witness-*")) for line in path.read_text().splitlines()]


def join(children: list[int], seconds: float = 20) -> int:
    """Waits for children and returns how many of them were killed; none may hang."""
    killed, end = 0, time.monotonic() + seconds
    for child in children:
        while (status := os.waitpid(child, os.WNOHANG))[0] == 0:
            if time.monotonic() > end:
                for other in children:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(other, signal.SIGKILL)
                raise WrongError("a process waits for ever")
            time.sleep(0.0005)
        killed += os.WIFSIGNALED(status[1])
    return killed


# -------------------------------------------------------------------------------------------------------- the checks


class Checker:
    """What must hold in one file for ever, given what its processes were told."""

    def __init__(self, folder: Path, after_crash: str, cluster: Running | None = None, kind: str = "sound") -> None:
        self.folder, self.after_crash = folder, after_crash
        self.sound = stores.ReleaseStore
        self.place = folder / "store.db" if cluster is None else cluster.new()
        self.values: dict[str, bytes] = {}
        self.sealed: dict[str, tuple[Any, ...]] = {}
        self.lost: set[str] = set()
        self.spent = dict.fromkeys(LIMITS, 0.0)

    def check(self) -> None:
        lines = told(self.folder)
        for line in lines:
            must("error" not in line, f"a process failed: {line.get('error')}")
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        for path in [*self.folder.glob("store.db*"), *self.folder.glob("log")]:
            shutil.copy(path, copy)
        with self.opened(copy) as database:
            if database is None:
                told_nothing = all(set(line) <= {"died", "gone"} for line in lines)
                must(told_nothing, "something was acknowledged before the file existed")
                return
            self.check_releases(database, lines)
            self.check_contributions(database, lines)
            self.check_sums(database, lines)
            self.check_numbers(database, lines)
            self.check_log(database, lines, copy / "log")
        place = copy / "store.db" if isinstance(self.place, Path) else self.place
        try:
            self.sound(place, log=copy / "log").close()
        except errors.StoreError as error:
            raise WrongError(f"the chain does not hold: {error}") from error

    @contextlib.contextmanager
    def opened(self, copy: Path) -> Iterator[Any]:
        """One state of the store for plain SQL; None before it has tables."""
        if isinstance(self.place, Path):
            with contextlib.closing(sqlite3.connect(copy / "store.db")) as database:
                must(database.execute("PRAGMA integrity_check").fetchall() == [("ok",)], "the file is damaged")
                yield database if database.execute("SELECT 1 FROM sqlite_master").fetchall() else None
        else:
            import psycopg

            with psycopg.connect(self.place) as database:
                database.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                yield database if database.execute("SELECT to_regclass('chain')").fetchone() != (None,) else None

    def check_releases(self, database: Any, lines: list[dict[str, Any]]) -> None:
        rows = database.execute("SELECT name, pool, charge, value FROM releases").fetchall()
        charged = {row[0] for row in rows}
        values = {row[0]: row[3] for row in rows if row[3] is not None}
        for pool, limit in LIMITS.items():
            spent = sum(row[2] for row in rows if row[1] == pool)
            must(spent <= limit * (1 + 1e-9), f"`{pool}` is overspent")
            must(spent >= self.spent[pool] - 1e-9, f"`{pool}` got a refund")
            self.spent[pool] = spent
        must(all(row[2] == CHARGE and row[1] == row[0].split()[1] for row in rows), "a charge changed")
        for name, value in self.values.items():
            must(values.get(name) == value, "a kept value changed")
        draws = Counter(line["drawn"] for line in lines if "drawn" in line)
        must(draws.keys() <= charged, "something was drawn and not charged")
        for line in lines:
            if "got" in line:
                value = values.get(line["got"])
                must(value is not None, "a returned value is not kept")
                must(value == bytes.fromhex(line["value"]), "two values for one name")
            if "refused" in line:
                tight = line["refused"].split()[1] == "tight" and self.spent["tight"] > LIMITS["tight"] - 1e-9
                must(tight, "a release was refused without need")
        if self.after_crash == "burn":
            told_burnt = {line["burnt"] for line in lines if "burnt" in line}
            must(not draws or max(draws.values()) == 1, "a name was drawn twice")
            must(not (self.lost | told_burnt) & values.keys(), "a burnt release got a value")
            must(told_burnt <= charged, "a burnt release is not charged")
        self.lost, self.values = charged - values.keys(), values

    def check_contributions(self, database: Any, lines: list[dict[str, Any]]) -> None:
        found = database.execute("SELECT number, total FROM sums WHERE name = 'visits'").fetchone()
        number, total = (0, bytes(8 * CELLS)) if found is None else found
        cells = np.frombuffer(total, "<i8")
        times = [int(cells[i // DIGITS] >> (2 * (i % DIGITS))) & 3 for i in range(CELLS * DIGITS)]
        held = {i for i, often in enumerate(times) if often}
        kept = [pair for line in lines if "kept" in line for pair in zip(line["kept"], line["new"], strict=True)]
        must(max(times) <= 1, "a contribution is counted twice")
        must({i for i, _ in kept} <= held, "an acknowledged contribution is lost")
        must(held <= {i for line in lines for i in line.get("sent", ())}, "a contribution came from nowhere")
        must(max(Counter(i for i, new in kept if new).values(), default=1) == 1, "a key was new twice")
        must(number == len(held), "the number of contributions is wrong")
        (digests,) = database.execute("SELECT COUNT(*) FROM contributions").fetchone()
        (counted,) = database.execute("SELECT COALESCE(SUM(number), 0) FROM sums").fetchone()
        must(digests == counted, "digests and sums disagree")

    def check_sums(self, database: Any, lines: list[dict[str, Any]]) -> None:
        seals = dict(database.execute("SELECT name, sealed FROM seals"))
        must({line["sealed"] for line in lines if "sealed" in line} <= seals.keys(), "a seal is lost")
        sums = {row[0]: row for row in database.execute("SELECT name, number, total FROM sums")}
        for stream, row in self.sealed.items():
            must(sums.get(stream, ()) == row, "a sealed sum changed")
        self.sealed = {stream: sums.get(stream, ()) for stream in seals}
        told_new = Counter[str]()
        for line in lines:
            told_new.update({line["into"]: line["new"]} if "into" in line else {})
        for stream, new in told_new.items():
            must(new == 0 or (stream in sums and sums[stream][1] >= new), "an acknowledged contribution is lost")

    def check_numbers(self, database: Any, lines: list[dict[str, Any]]) -> None:
        places = database.execute("SELECT number, content FROM places ORDER BY number").fetchall()
        must(places == [(i, place_of(i)) for i in range(len(places))] and len(places) <= PLACES, "places are wrong")
        seated: dict[str, int] = {}
        for line in lines:
            if "seated" in line:
                must(line["number"] < len(places), "a place is lost")
                must(seated.setdefault(line["seated"], line["number"]) == line["number"], "a key has two places")
                must(line["content"].encode() == place_of(line["number"]), "a place has the wrong content")
            must("full" not in line or len(places) == PLACES, "a place was refused without need")
        must(len(set(seated.values())) == len(seated), "two keys have one place")
        starts = [line["range"] for line in lines if "range" in line]
        (next_number,) = database.execute("SELECT COALESCE(MAX(next), 0) FROM ranges").fetchone()
        fine = len(set(starts)) == len(starts) and max(starts, default=-5) + 5 <= next_number
        must(fine, "a number is handed out twice")
        facts = {name: content.hex() for name, content in database.execute("SELECT name, content FROM facts")}
        must({line["fact"] for line in lines if "fact" in line} <= set(facts.values()), "a fact is lost or changed")

    def check_log(self, database: Any, lines: list[dict[str, Any]], path: Path) -> None:
        """What a process was told, the log outside knew before."""
        whole = path.read_text().split("\n")[:-1] if path.exists() else []  # a log may end with a part of a line
        known = json.loads(whole[-1])["number"] if whole else -1
        events = {row[:2]: row[2] for row in database.execute("SELECT kind, subject, number FROM chain")}
        returned = [("value", line["got"]) for line in lines if "got" in line]
        returned += [("seal", line["sealed"]) for line in lines if "sealed" in line]
        must(all(events[event] <= known for event in returned), "an effect was returned before the log knew of it")


# ---------------------------------------------------------------------------------------------------- what is called


def all_points(folder: Path, place: Path | str, kind: type) -> list[str]:
    """Every point of the protocol, found by passing through all of it, but for the points of purging."""
    seen: list[str] = []

    class Recording(kind):  # type: ignore[misc, valid-type]
        def _reached(self, point: str) -> None:
            seen.append(point)

    def fail() -> np.ndarray:
        raise InterruptedError

    with Recording(place, after_crash="redraw", log=folder / "points.log") as store:
        store.open_study({}, LIMITS)
        store.fact("seed", lambda: b"1")
        store.contribute("visits", ["one"], units_of([1]))
        store.seal("block")
        store.arrive_all("guests", ["one"], at_most=1, contents=places_of)
        store.reserve_range("tickets", 5)
        with contextlib.suppress(InterruptedError):
            store.release("one", "wide", CHARGE, fail)
        store.release("one", "wide", CHARGE, lambda: np.zeros(1, np.int64))
    return list(dict.fromkeys(seen))


def agenda(points: list[str]) -> list[tuple[str, str | None]]:
    """One cycle of rounds: where all workers die, and, if the round needs a new file, what it does after a crash."""
    making, drawing, redrawing, others = [], [], [], []
    for point in points:
        if point.startswith(("create", "study")):
            making += [(point, "burn" if len(making) % 4 else "redraw"), (ANY_TIME, None)]
        elif point.startswith(("reserve", "drawn", "persist")):
            drawing += [(point, None if drawing else "burn"), (NEVER, None), (ANY_TIME, None)]
        elif point.startswith("redraw"):  # needs a draw that was lost in the round before
            redrawing += [("drawn", "redraw"), (point, None), (NEVER, None), (ANY_TIME, None)]
        else:
            others += [(point, None)] + [(ANY_TIME, None)] * (len(others) % 4 == 2)
    return making + others + drawing + redrawing


def loop(folder: Path, cluster: Running | None, kind: str, writers: int, rounds: int, seed: int) -> dict[str, Any]:
    """Rounds of killing and checking, stopped when the store does something that it must never do."""
    rng = random.Random(seed)
    sound = stores.ReleaseStore
    points = all_points(folder, folder / "points.db" if cluster is None else cluster.new(), sound)
    deaths: list[tuple[str, str | None]] = []
    files: list[Checker] = []
    caught, killed, here, number = None, 0, ROUNDS_PER_FILE, 0
    began = time.perf_counter()
    while caught is None and number < rounds:
        number += 1
        deaths = deaths or agenda(points)
        death, opened = deaths.pop(0)
        if opened is not None or here >= ROUNDS_PER_FILE:
            (folder / f"file-{number}").mkdir()
            files.append(Checker(folder / f"file-{number}", opened or rng.choice(["burn", "redraw"]), cluster, kind))
            here = 0
        try:
            killed += one_round(files[-1], KINDS[kind], death, writers, here, rng)
            files[-1].check()
        except WrongError as wrong:
            caught = str(wrong)
        here += 1
    lines = [line for file in files for line in told(file.folder)]
    died = {line["died"] for line in lines if "died" in line}
    return {
        "caught": caught,
        "rounds": number,
        "killed": killed,
        "missed": [point for point in points if point not in died],
        **{word: sum(word in line for line in lines) for word in WORDS},
        "seconds": round(time.perf_counter() - began, 2),
    }


def one_round(file: Checker, kind: type, death: str, writers: int, here: int, rng: random.Random) -> int:
    """Starts workers, kills them, and returns how many were killed when all are dead."""

    def task(tell: Tell, writer: int, seed: float) -> None:
        mortal = dying(kind, death, tell)
        work(
            lambda: mortal(file.place, after_crash=file.after_crash, log=file.folder / "log"),
            tell,
            random.Random(seed),
            here,
            writer,
        )

    children = [
        forked(functools.partial(task, writer=writer, seed=rng.random()), file.folder / f"witness-{here}-{writer}")
        for writer in range(writers)
    ]
    if death == ANY_TIME:
        started = time.perf_counter()
        seconds = WORK_SECONDS["file" if isinstance(file.place, Path) else "postgres"]
        for moment, child in sorted((rng.uniform(0, seconds), child) for child in children):
            time.sleep(max(0.0, started + moment - time.perf_counter()))
            os.kill(child, signal.SIGKILL)
    return join(children)


def server(folder: Path, cluster: Cluster, rounds: int, seed: int) -> dict[str, Any]:
    """Kills the server under two writers, who may lose their connection and must lose nothing else; starts it again."""
    rng, lost, caught, number = random.Random(seed), 0, None, 0
    file = Checker(folder, "redraw", cluster)
    while caught is None and number < rounds:

        def task(tell: Tell, writer: int, drawn: float, here: int) -> None:
            try:
                opened = functools.partial(stores.ReleaseStore, file.place, after_crash="redraw", log=folder / "log")
                work(opened, tell, random.Random(drawn), here, writer)
            except errors.StoreError as error:
                must("was lost" in str(error) or "cannot be reached" in str(error), str(error))
                tell(gone=True)

        children = [
            forked(
                functools.partial(task, writer=writer, drawn=rng.random(), here=number % ROUNDS_PER_FILE),
                folder / f"witness-{number}-{writer}",
            )
            for writer in range(2)
        ]
        time.sleep(rng.uniform(0.0, WORK_SECONDS["postgres"]))
        cluster.kill()
        try:
            join(children)
            cluster.start()
            file.check()
        except WrongError as wrong:
            caught = str(wrong)
        number += 1
    lines = told(folder)
    lost = sum("gone" in line for line in lines)
    words = {word: sum(word in line for line in lines) for word in WORDS}
    return {"caught": caught, "rounds": number, "lost": lost, **words}


def purge(folder: Path) -> dict[str, Any]:
    """Dies at every point of purging; whatever is left, purging again removes every raw byte."""
    seen: list[str] = []
    batches, raw = 10, 0x5EC2E7_5EC2E7_5E
    distinctive = [(i * raw).to_bytes(8, "little") for i in range(1, batches + 1)]

    class Recording(stores.ReleaseStore):
        def _reached(self, point: str) -> None:
            seen.append(point)

    def fill(path: Path, kind: type) -> Any:
        store = kind(path)
        store.open_study({}, LIMITS)
        for i in range(batches):  # older sums stay in the write-ahead log
            units = np.zeros((50, 3), np.int64)
            units[0] = raw
            store.contribute("visits", [f"person {i} {j}" for j in range(50)], units)
        store.arrive_all("guests", ["one"], at_most=1, contents=places_of)
        store.release("one", "wide", CHARGE, lambda: np.arange(5))
        return store

    def content(path: Path) -> bytes:
        return b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))

    with fill(folder / "points.db", Recording) as store:
        seen.clear()
        store.purge()
    results = {}
    for point in dict.fromkeys(seen):
        path = folder / point / "store.db"
        path.parent.mkdir()

        def fill_and_die(tell: Tell, path: Path = path) -> None:
            fill(path, stores.ReleaseStore)
            os.kill(os.getpid(), signal.SIGKILL)

        def purge_and_die(tell: Tell, path: Path = path, point: str = point) -> None:
            store = stores.ReleaseStore(path)
            store.__class__ = dying(stores.ReleaseStore, point, tell)
            store.purge()

        join([forked(fill_and_die, path.parent / "witness-0")])
        copy = path.parent / "copy"
        copy.mkdir()
        for file in path.parent.glob("store.db*"):
            shutil.copy(file, copy)
        with contextlib.closing(sqlite3.connect(copy / "store.db")) as database:
            tables = ("digest FROM contributions", "digest FROM arrivals", "content FROM digest_key")
            kept = database.execute(" UNION ALL ".join(f"SELECT {table}" for table in tables))
            secrets = [*distinctive, *(row[0] for row in kept)]
        before = content(path)
        killed = join([forked(purge_and_die, path.parent / "witness-1")])
        with stores.ReleaseStore(path) as store:
            half = store.describe()["purge_unfinished"]
            store.purge()
            purged = store.describe()["purged"]
            kept = store.release("one", "wide", CHARGE, lambda: np.zeros(5, np.int64)).tolist() == [0, 1, 2, 3, 4]
        left = content(path)
        results[point] = {
            "killed": killed,
            "half": half,
            "purged": purged,
            "kept": kept,
            "secrets": len(secrets),
            "before": sum(secret in before for secret in secrets),
            "left": sum(secret in left for secret in secrets),
        }
    return results


def owner(folder: Path, after_crash: str) -> dict[str, Any]:
    """One process draws and hangs; another asks for the same name, waits, and goes on when the first is killed."""
    path = folder / "store.db"

    def ask(tell: Tell, hangs: bool) -> None:
        def draw() -> np.ndarray:
            tell(drawing=True)
            if hangs:
                time.sleep(60)
            return np.array([7])

        with stores.ReleaseStore(path, after_crash=after_crash) as store:
            store.open_study({}, LIMITS)
            tell(asking=True)
            try:
                tell(got=store.release("one", "wide", CHARGE, draw).tolist())
            except errors.BurntError:
                tell(burnt=True)

    first = forked(functools.partial(ask, hangs=True), folder / "witness-0")
    while {"drawing": True} not in told(folder):
        time.sleep(0.001)
    with stores.ReleaseStore(path) as store:
        while_alive = store.describe()["releases"][0]["status"]
    second = forked(functools.partial(ask, hangs=False), folder / "witness-1")
    time.sleep(0.2)
    waited = told(folder)[-1] == {"asking": True} and os.waitpid(second, os.WNOHANG) == (0, 0)
    os.kill(first, signal.SIGKILL)
    join([first, second])
    with stores.ReleaseStore(path) as store:
        shown = store.describe()
        burnt = store.is_burnt("one")
    return {
        "while_alive": while_alive,
        "waited": waited,
        "second": told(folder)[-1],
        "status": shown["releases"][0]["status"],
        "burnt": burnt,
        "spent": shown["spent"]["wide"],
    }


if __name__ == "__main__":
    command, directory, *rest = sys.argv[1:]
    with contextlib.ExitStack() as stack:
        if command == "loop":
            where = None if rest[0] == "file" else Running(Path(rest[0]))
            result = loop(Path(directory), where, rest[1], *(int(number) for number in rest[2:]))
        elif command == "server":
            cluster = stack.enter_context(contextlib.closing(Cluster()))
            result = server(Path(directory), cluster, *(int(number) for number in rest))
        elif command == "purge":
            result = purge(Path(directory))
        else:
            result = owner(Path(directory), rest[0])
    sys.stdout.write(json.dumps(result) + "\n")
