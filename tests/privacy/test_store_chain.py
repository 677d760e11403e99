"""A store that was changed behind its back is refused, and so is an older copy of it if a log was kept outside."""

import contextlib
import json
import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from privrl.privacy.store.errors import AuditLogError, BehindLogError, StoreError, TamperedError
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.store.sqlite_schema import SCHEMA

PURGED = "UPDATE digest_key SET content = NULL; INSERT INTO purges VALUES (1, 'now', 'now')"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "study.db"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "elsewhere.log"


def seven() -> np.ndarray:
    return np.array([7, -7])


def fail() -> np.ndarray:
    raise InterruptedError


def fill(store: ReleaseStore) -> None:
    """A store with an event of every kind but a purge."""
    store.open_study({"title": "stays"}, {"rho": 1.0})
    store.contribute("block 0", ["anna"], np.array([5]))
    store.seal("block 0")
    store.fact("key of a split", lambda: b"secret")
    store.release("first", "rho", 0.25, seven, distribution=b"scale 3")
    for name in ("burnt", "redrawn"):
        with contextlib.suppress(InterruptedError):
            store.release(name, "rho", 0.25, fail, distribution=b"scale 3")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    path, log = folder / "study.db", folder / "elsewhere.log"
    with ReleaseStore(path, log=log) as store:
        fill(store)
    with ReleaseStore(path, log=log, after_crash="redraw") as store:
        store.release("redrawn", "rho", 0.25, seven, distribution=b"scale 3")
    return folder


@pytest.fixture
def filled(template: Path, path: Path, log: Path) -> Path:
    for file in (path, log):
        shutil.copy(template / file.name, file)
    return path


@contextlib.contextmanager
def unguarded(path: Path) -> Iterator[sqlite3.Connection]:
    """A program that drops all guards, changes rows, and puts the guards back as they were."""
    guards = [statement for statement in SCHEMA.split(";\n") if "CREATE TRIGGER" in statement]
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        for statement in guards:
            database.execute(f"DROP TRIGGER {statement.split()[2]}")
        yield database
        for statement in guards:
            database.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM releases",
        "DELETE FROM releases WHERE name = 'burnt'",
        "UPDATE releases SET charge = 0.0 WHERE name = 'first'",
        "UPDATE releases SET charge = 0.25000000000000006 WHERE name = 'first'",
        "UPDATE releases SET pool = 'other' WHERE name = 'first'",
        "UPDATE releases SET distribution = x'00' WHERE name = 'first'",
        "UPDATE releases SET name = 'second' WHERE name = 'first'",
        "UPDATE releases SET reserved = '2020-01-01' WHERE name = 'first'",
        "UPDATE releases SET released = '2020-01-01' WHERE name = 'first'",
        "UPDATE releases SET shape = '[2, 1]' WHERE name = 'first'",
        "UPDATE releases SET value = zeroblob(16) WHERE name = 'first'",
        "UPDATE releases SET value = NULL, shape = NULL, released = NULL WHERE name = 'first'",
        "UPDATE releases SET value = zeroblob(16), shape = '[2]', released = '' WHERE name = 'burnt'",
        "INSERT INTO releases VALUES ('second', 'rho', 0.1, x'', '', NULL, NULL, NULL)",
        "UPDATE pools SET allowed = 9.0",
        "INSERT INTO pools VALUES ('other', 9.0)",
        "DELETE FROM pools",
        "UPDATE study SET content = '{}'",
        "DELETE FROM study",
        "DELETE FROM study; DELETE FROM pools",
        "UPDATE facts SET content = x'00'",
        "DELETE FROM facts",
        "INSERT INTO facts VALUES ('other', x'00')",
        "DELETE FROM seals",
        "UPDATE seals SET name = 'block 1'",
        "UPDATE seals SET sealed = ''",
        "INSERT INTO seals VALUES ('block 1', '')",
        "UPDATE digest_key SET content = x'00'",
        "UPDATE digest_key SET content = x'00', fingerprint = x'00'",
        "UPDATE digest_key SET content = NULL",
        "DELETE FROM digest_key; INSERT INTO digest_key VALUES (1, NULL, x'00')",
        PURGED,
        "DELETE FROM chain",
        "DELETE FROM chain WHERE kind = 'redraw'",
        "DELETE FROM chain WHERE number = (SELECT MAX(number) FROM chain)",
        "DELETE FROM chain; DELETE FROM releases; DELETE FROM facts; DELETE FROM seals; DELETE FROM study;"
        " DELETE FROM pools",
        "UPDATE chain SET subject = 'burnt' WHERE kind = 'redraw'",
        "UPDATE chain SET kind = 'other' WHERE kind = 'redraw'",
        "INSERT INTO chain SELECT MAX(number) + 1, 'redraw', 'burnt', x'00' FROM chain",
    ],
)
def test_guards_that_were_dropped_and_put_back_are_found_out(filled: Path, statement: str) -> None:
    """On the code before, all of these opened as if nothing had happened."""
    ReleaseStore(filled).close()
    with unguarded(filled) as database:
        database.executescript(statement)
    with pytest.raises(TamperedError, match="changed by another program"):
        ReleaseStore(filled)


def test_a_purged_store_is_not_made_to_forget_its_purge(filled: Path) -> None:
    with ReleaseStore(filled) as store:
        store.purge()
    ReleaseStore(filled).close()
    with unguarded(filled) as database:
        database.execute("UPDATE digest_key SET content = x'00'")
    with pytest.raises(TamperedError):
        ReleaseStore(filled)


def test_an_older_copy_is_refused_by_the_log_alone(path: Path, log: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with ReleaseStore(path, log=log) as store:
        store.open_study({}, {"rho": 1.0})
        store.release("first", "rho", 0.25, seven)
    shutil.copy(path, copy)
    with ReleaseStore(path, log=log) as store:
        store.release("second", "rho", 0.75, seven)
    shutil.copy(copy, path)
    with pytest.raises(BehindLogError, match="older copy was restored"):
        ReleaseStore(path, log=log)
    with ReleaseStore(path) as store:  # without a log nobody can know
        assert store.describe()["spent"] == {"rho": 0.25}


def test_a_chain_that_was_written_anew_is_refused_by_the_log_alone(path: Path, log: Path, tmp_path: Path) -> None:
    for name, charge in (("true", 0.75), ("forged", 0.25)):  # the same number of events, another charge
        with ReleaseStore(tmp_path / f"{name}.db", log=tmp_path / f"{name}.log") as store:
            store.open_study({}, {"rho": 1.0})
            store.release("first", "rho", charge, seven)
    with pytest.raises(BehindLogError, match="belongs to another store"):
        ReleaseStore(tmp_path / "forged.db", log=tmp_path / "true.log")
    ReleaseStore(tmp_path / "forged.db").close()


def test_a_store_that_is_swapped_under_a_running_process_is_noticed(path: Path, log: Path, tmp_path: Path) -> None:
    """Another store's log in the place of ours stands for it: the next event finds lines that its chain lacks."""
    with ReleaseStore(tmp_path / "other.db", log=tmp_path / "other.log") as other:
        fill(other)
    with ReleaseStore(path, log=log) as store:
        store.open_study({}, {"rho": 1.0})
        shutil.copy(tmp_path / "other.log", log)
        with pytest.raises((BehindLogError, AuditLogError)):
            store.release("first", "rho", 0.25, fail)
        log.unlink()
        with pytest.raises(AuditLogError, match="it is missing"):
            store.fact("seed", lambda: b"1")


def test_a_missing_log_is_accepted_deliberately(filled: Path, log: Path) -> None:
    before = log.read_text()
    for remove in (log.unlink, lambda: log.write_text("")):
        remove()
        with pytest.raises(StoreError, match=r"is missing.*accept it once.*`accept_missing_log=True`"):
            ReleaseStore(filled, log=log)
        log.unlink(missing_ok=True)
        ReleaseStore(filled, log=log, accept_missing_log=True).close()
        assert log.read_text() == before
    filled.unlink()
    with pytest.raises(BehindLogError, match="so there was one"):
        ReleaseStore(filled, log=log)
    assert not filled.exists()


@pytest.mark.parametrize("content", ["{}\n", "[]\n", "\n", '{"number": 0}\n', '{"number": 0, "hash": "xy"}\n', "hello"])
def test_a_log_that_cannot_be_read_is_refused(filled: Path, log: Path, content: str) -> None:
    log.write_text(content)
    with pytest.raises(AuditLogError, match="is not what was written"):
        ReleaseStore(filled, log=log, accept_missing_log=True)
    assert log.read_text() == content


def test_a_store_that_is_one_event_ahead_of_its_log_completes_it(filled: Path, log: Path) -> None:
    """A crash between the commit and the log leaves that, and no more than that."""
    newest = log.read_text()
    lines = newest.splitlines(keepends=True)
    for known in range(1, len(lines) + 1):
        log.write_text("".join(lines[:known]))
        if known < len(lines) - 1:
            with pytest.raises(AuditLogError, match="lacks"):
                ReleaseStore(filled, log=log)
        else:
            ReleaseStore(filled, log=log).close()
            assert log.read_text() == newest


def test_the_log_grows_before_an_effect_is_returned(path: Path, log: Path) -> None:
    """Every event of a release is in the log when the next step begins."""
    known: dict[str, int] = {}

    def last() -> int:
        return json.loads(log.read_text().splitlines()[-1])["number"]

    def look(point: str) -> None:
        known[point] = last() if log.exists() else -1

    class Looking(ReleaseStore):
        def _reached(self, point: str) -> None:
            look(point)

    def draw() -> np.ndarray:
        look("drawing")
        return seven()

    with Looking(path, log=log) as store, ReleaseStore(path, log=log) as other:
        store.open_study({}, {"rho": 1.0})
        store.release("first", "rho", 0.25, draw)
        assert (known["reserve:committed"], known["drawing"], known["persist:committed"]) == (1, 2, 2)
        assert last() == 3
        other.seal("block")
        assert last() == 4
        store.fact("seed", lambda: b"1")
        assert last() == 5
        store.fact("seed", lambda: b"1")  # nothing new, no event
    assert last() == 5 and log.stat().st_mode & 0o777 == 0o600


def test_the_chain_says_nothing_about_its_content_from_outside(tmp_path: Path) -> None:
    """Two stores with equal content have different logs: the digest key's fingerprint is in every hash."""
    logs = set()
    for i in range(2):
        with ReleaseStore(tmp_path / f"{i}.db", log=tmp_path / f"{i}.log") as store:
            store.fact("small", lambda: b"1")
        logs.add((tmp_path / f"{i}.log").read_text())
    assert len(logs) == 2


def test_opening_costs_the_same_whatever_the_number_of_contributions(path: Path) -> None:
    costs = []
    for size in (1, 20_000):
        with ReleaseStore(path) as store:
            store.contribute("a", [f"{size} {i}" for i in range(size)], np.ones((size, 2), np.int64))
        began = time.process_time()
        for _ in range(5):
            ReleaseStore(path).close()
        costs.append(time.process_time() - began)
    assert costs[1] < 3 * costs[0]


def test_a_store_in_memory_does_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with ReleaseStore.in_memory() as store:
        fill(store)
        assert store.release("first", "rho", 0.25, fail, distribution=b"scale 3").tolist() == [7, -7]
        assert store.is_burnt("burnt") and store.total("block 0") == 5
    assert list(tmp_path.iterdir()) == []
