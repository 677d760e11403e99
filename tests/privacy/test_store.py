"""A store counts people once, draws noise once, never overspends and forgets on request, whoever dies when."""

import contextlib
import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privrl.privacy.store.errors import (
    BurntError,
    StoreBudgetError,
    StoreError,
    StudyMismatchError,
    SumFullError,
)
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.store.sums import exact_sum

STUDY = {"title": "stays", "clip": [1, 2]}
LIMITS = {"rho": 1.0, "epsilon": 2.0}
INT64 = st.integers(-(2**63), 2**63 - 1)
LOOP = Path(__file__).with_name("kill_loop.py")


Place = Path | str


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "study.db"


@pytest.fixture
def store(place: Place) -> Iterator[ReleaseStore]:
    """On either engine."""
    with ReleaseStore(place) as opened:
        opened.open_study(STUDY, LIMITS)
        yield opened


@pytest.fixture
def file_store(path: Path) -> Iterator[ReleaseStore]:
    with ReleaseStore(path) as opened:
        opened.open_study(STUDY, LIMITS)
        yield opened


@contextlib.contextmanager
def fresh(limits: dict[str, float] = LIMITS) -> Iterator[tuple[ReleaseStore, Path]]:
    """A new store for one example of a property."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "study.db"
        with ReleaseStore(path) as store:
            store.open_study(STUDY, limits)
            yield store, path


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store with rows in all its tables."""
    path = tmp_path_factory.mktemp("used") / "study.db"
    use(path)
    return path


def use(place: Place) -> None:
    with ReleaseStore(place) as store:
        store.open_study(STUDY, LIMITS)
        store.release("done", "rho", 0.25, seven)
        with contextlib.suppress(InterruptedError):
            store.release("lost", "rho", 0.25, fail)
        store.fact("seed", lambda: b"1")
        store.contribute("ended", ["x"], np.array([1]))
        store.seal("ended")
        store.arrive_all("queue", ["x"], at_most=1, contents=lambda new, first: [b""])
        store.reserve_range("tickets", 5)
        store.add_access_key("a", "old", "app")
        store.revoke_access_key("old")
        store.add_access_key("b", "new", "app")


def seven() -> np.ndarray:
    return np.array([[7, -7]])


def never() -> np.ndarray:
    raise AssertionError("drawn again")


def fail() -> np.ndarray:
    raise InterruptedError("the draw failed")


def kill_loop(*arguments: object) -> dict[str, Any]:
    done = subprocess.run([sys.executable, LOOP, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# --------------------------------------------------------------------------------------------------------- the killing


@pytest.mark.parametrize(
    ("kind", "writers", "rounds"),
    [
        ("sound", 2, 95),
        *(pytest.param("sound", writers, 300, marks=pytest.mark.slow) for writers in (1, 2)),
    ],
)
def test_a_store_survives_kill_9(kind: str, writers: int, rounds: int, tmp_path: Path) -> None:
    """At every point of the protocol (`missed` is empty) and at random times, the witnesses find nothing wrong."""
    result = kill_loop("loop", tmp_path, "file", kind, writers, rounds, 1)
    assert result["caught"] is None
    assert result["rounds"] == rounds and result["missed"] == []
    assert result["killed"] > rounds / 2
    assert min(result[word] for word in ("got", "burnt", "refused", "kept", "seated", "sealed", "range")) > 0, result


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ("acknowledges-first", ["acknowledged contribution is lost", "new twice"]),
        pytest.param("counts-twice", ["counted twice"], marks=pytest.mark.slow),
        # A process that writes down late may also be killed between the file and the log: kept, and not in the log.
        ("draws-first", ["drawn and not charged", "not kept", "two values", "before the log knew"]),
        pytest.param("returns-first", ["not kept", "two values", "before the log knew"], marks=pytest.mark.slow),
        ("seats-first", ["a place is lost", "two places", "one place"]),
        ("keeps-its-log", ["before the log knew", "lacks"]),
    ],
)
def test_broken_stores_are_caught(broken: str, words: list[str], tmp_path: Path) -> None:
    result = kill_loop("loop", tmp_path, "file", broken, 1, 70, 1)
    assert any(word in str(result["caught"]) for word in words), result


@pytest.mark.parametrize("after_crash", ["burn", "redraw"])
def test_others_wait_for_a_living_owner_and_for_no_dead_one(after_crash: str, tmp_path: Path) -> None:
    result = kill_loop("owner", tmp_path, after_crash)
    burns = after_crash == "burn"
    assert result["waited"] and result["while_alive"] == "reserved"
    assert result["second"] == ({"burnt": True} if burns else {"got": [7]})
    assert (result["status"], result["burnt"]) == (("burnt", True) if burns else ("redrawn", False))
    assert result["spent"] == 0.1


def test_an_interrupted_purge_is_finished_by_the_next(tmp_path: Path) -> None:
    results = kill_loop("purge", tmp_path)
    assert {point.split(":")[0] for point in results} == {"locked", "purge", "purge-end"}
    for result in results.values():
        assert result["killed"] == 1 and result["before"] == result["secrets"] > 500
        assert result["left"] == 0 and result["purged"] and result["kept"]
    assert results["purge:committed"]["half"] and not results["purge:written"]["half"]


# ------------------------------------------------------------------------------------------------------------ the study


def test_a_study_is_declared_once(store: ReleaseStore, place: Place) -> None:
    store.open_study({"clip": (1, 2), "title": "stays"}, {"epsilon": 2, "rho": 1})
    with pytest.raises(StudyMismatchError) as caught, ReleaseStore(place) as other:
        other.open_study({"title": "other", "clip": [1, 2], "more": 1}, {"rho": 1.5, "delta": 1.0})
    for key in ("`title`", "`more`", "`limits['rho']`", "`limits['epsilon']`", "`limits['delta']`"):
        assert key in str(caught.value)
    assert "clip" not in str(caught.value)
    assert store.describe()["study"] == STUDY and store.describe()["limits"] == LIMITS


@pytest.mark.parametrize("limit", [-1.0, float("nan"), float("inf")])
def test_limits_and_charges_are_finite_and_not_negative(store: ReleaseStore, limit: float, tmp_path: Path) -> None:
    with ReleaseStore(tmp_path / "other.db") as other, pytest.raises(ValueError, match="finite"):
        other.open_study({}, {"rho": limit})
    with pytest.raises(ValueError, match="finite"):
        store.release("x", "rho", limit, never)


def test_a_study_must_be_json(place: Place) -> None:
    with ReleaseStore(place) as store:
        for study in ({"x": object()}, {"x": float("nan")}):
            with pytest.raises(ValueError, match="not JSON"):
                store.open_study(study, LIMITS)
        assert store.describe()["study"] is None


# -------------------------------------------------------------------------------------------------------- contributions

batches = st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(-9, 9)), max_size=6), max_size=6)


@settings(max_examples=20)
@given(batches=batches)
def test_contributions_count_once_per_key(batches: list[list[tuple[int, int]]]) -> None:
    with fresh() as (store, path):
        model: dict[int, int] = {}
        for batch in batches:
            units = np.array([[x, 1] for _, x in batch], np.int64).reshape(-1, 2)
            expected = []
            for key, x in batch:
                expected.append(key not in model)
                model.setdefault(key, x)
            with ReleaseStore(path) as another:  # as if restarted
                assert another.contribute("a", [f"k{key}" for key, _ in batch], units).tolist() == expected
        if batches:
            assert store.total("a").tolist() == [sum(model.values()), len(model)]
        assert store.count("a") == len(model)
        assert store.total("b") is None and store.count("b") == 0


@given(rows=st.lists(st.lists(INT64, min_size=2, max_size=2), max_size=6))
def test_overflow_is_refused_exactly(rows: list[list[int]]) -> None:
    """If and only if the sum leaves int64; sums in between may."""
    units = np.array(rows, np.int64).reshape(-1, 2)
    sums = [sum(row[i] for row in rows) for i in range(2)]
    if all(-(2**63) <= total < 2**63 for total in sums):
        assert exact_sum(units).tolist() == sums
    else:
        with pytest.raises(OverflowError, match="int64"):
            exact_sum(units)


@pytest.mark.parametrize("edge", [2**63 - 1, -(2**63)])
def test_the_edges_of_int64_are_reached_and_not_crossed(edge: int) -> None:
    out = 1 if edge > 0 else -1
    assert exact_sum(np.array([edge - out, out])) == edge
    with pytest.raises(OverflowError):
        exact_sum(np.array([edge, out]))


def test_a_refused_batch_changes_nothing(store: ReleaseStore) -> None:
    store.contribute("a", ["x"], np.array([2**63 - 1]))
    with pytest.raises(OverflowError):
        store.contribute("a", ["y", "z"], np.array([1, 5]))
    assert (store.total("a"), store.count("a")) == (2**63 - 1, 1)
    assert store.contribute("a", ["y", "x"], np.array([-1, -1])).tolist() == [True, False]
    assert store.total("a") == 2**63 - 2


def test_batches_that_do_not_fit_are_refused(store: ReleaseStore) -> None:
    store.contribute("a", ["x"], np.ones((1, 2), np.int64))
    with pytest.raises(ValueError, match="one row for each key"):
        store.contribute("a", ["y", "z"], np.ones((1, 2), np.int64))
    with pytest.raises(ValueError, match=r"shape \(3,\), and the sum `a` has shape \(2,\)"):
        store.contribute("a", ["y"], np.ones((1, 3), np.int64))
    with pytest.raises(TypeError):
        store.contribute("a", ["y"], np.ones((1, 2)))
    assert store.count("a") == 1


def test_a_key_counts_in_each_sum_and_is_not_written_down(file_store: ReleaseStore, path: Path) -> None:
    for stream in ("a", "b"):
        assert file_store.contribute(stream, ["Anna Example"], np.array([1])).all()
    file_store.close()
    assert all(b"Anna" not in file.read_bytes() for file in path.parent.iterdir())
    with contextlib.closing(sqlite3.connect(path)) as database:
        digests = database.execute("SELECT digest FROM contributions").fetchall()
    assert len(set(digests)) == 2  # nobody can see that it is the same person


def test_a_batch_costs_the_same_after_many_others(file_store: ReleaseStore) -> None:
    """Counted in instructions of SQLite's machine: a scan of earlier contributions would show."""
    ticks: list[int] = []
    file_store._engine.db.set_progress_handler(lambda: ticks.append(1), 10)
    costs = []
    for i in range(40):
        ticks.clear()
        file_store.contribute("a", [f"{i} {j}" for j in range(100)], np.ones((100, 3), np.int64))
        costs.append(len(ticks))
    assert costs[1] > 100
    assert abs(costs[-1] - costs[1]) < 0.02 * costs[1]


# ------------------------------------------------------------------------------------------------------------- releases


def test_a_release_is_drawn_once_and_kept(store: ReleaseStore, place: Place) -> None:
    value = store.release("first", "rho", 0.25, seven)
    value[:] = 0  # what the caller does with it is the caller's business
    with ReleaseStore(place) as other:
        again = other.release("first", "rho", 0.25, never)
    assert again.tolist() == [[7, -7]] and again.dtype == np.int64
    assert store.describe()["spent"] == {"rho": 0.25, "epsilon": 0.0}
    (shown,) = store.describe()["releases"]
    assert (shown["status"], shown["shape"], shown["charge"]) == ("released", [1, 2], 0.25)


@pytest.mark.parametrize(("pool", "charge"), [("rho", 0.3), ("epsilon", 0.25)])
def test_a_release_is_asked_for_as_it_was_charged(store: ReleaseStore, pool: str, charge: float) -> None:
    store.release("first", "rho", 0.25, seven)
    with pytest.raises(ValueError, match="charged 0.25 to `rho`"):
        store.release("first", pool, charge, never)


def test_charges_stop_at_the_limit(store: ReleaseStore) -> None:
    for i in range(10):  # ten times 0.1 is more than 1 or less, depending on who adds; both are fine
        store.release(f"{i}", "rho", 0.1, seven)
    with pytest.raises(StoreBudgetError, match="costs 1e-09 and the pool `rho` has spent 1 of 1"):
        store.release("more", "rho", 1e-9, never)
    assert len(store.describe()["releases"]) == 10
    assert store.release("elsewhere", "epsilon", 2.0, seven) is not None
    with pytest.raises(StoreError, match=r"no pool `mu`.*\['epsilon', 'rho'\]"):
        store.release("more", "mu", 0.1, never)


@settings(max_examples=20)
@given(charges=st.lists(st.integers(0, 40), max_size=12))
def test_a_release_is_reserved_if_and_only_if_its_pool_can_pay(charges: list[int]) -> None:
    with fresh({"rho": 1.0}) as (store, _):
        spent = 0
        for i, charge in enumerate(charges):  # in 64ths, so that sums are exact
            affordable = spent + charge <= 64
            with contextlib.nullcontext() if affordable else pytest.raises(StoreBudgetError):
                store.release(f"{i}", "rho", charge / 64, seven)
            spent += charge * affordable
            assert store.describe()["spent"]["rho"] == spent / 64


def test_a_draw_that_fails_is_charged_and_burnt_or_redrawn(store: ReleaseStore, place: Place) -> None:
    with pytest.raises(InterruptedError):
        store.release("first", "rho", 0.25, fail)
    assert store.is_burnt("first") and not store.is_burnt("second")
    assert store.describe()["releases"][0]["status"] == "burnt" and store.describe()["spent"]["rho"] == 0.25
    for _ in range(2):
        with pytest.raises(BurntError, match="charge of 0.25 stays spent"), ReleaseStore(place) as other:
            other.release("first", "rho", 0.25, never)
    with ReleaseStore(place, after_crash="redraw") as other:
        assert other.release("first", "rho", 0.25, seven).tolist() == [[7, -7]]
    assert not store.is_burnt("first")
    assert store.describe()["releases"][0]["status"] == "redrawn" and store.describe()["spent"]["rho"] == 0.25
    assert store.release("first", "rho", 0.25, never).tolist() == [[7, -7]]


@pytest.mark.parametrize("value", [np.ones(2), [1, 2], np.ones(2, np.int32)])
def test_only_integers_are_released(store: ReleaseStore, value: Any) -> None:
    with pytest.raises(TypeError, match="int64"):
        store.release("first", "rho", 0.25, lambda: value)
    assert store.is_burnt("first")


def test_a_draw_cannot_release(store: ReleaseStore) -> None:
    with pytest.raises(StoreError, match="waits for this draw"):
        store.release("outer", "rho", 0.1, lambda: store.release("inner", "rho", 0.1, seven))
    assert [release["name"] for release in store.describe()["releases"]] == ["outer"]


def test_two_threads_that_ask_at_once_get_one_value(store: ReleaseStore, place: Place) -> None:
    asked, values, draws = threading.Event(), [], []

    def draw() -> np.ndarray:
        draws.append(1)
        asked.set()
        thread_b.join(0.2)  # the other one has the time to overtake, and must not
        return np.array([len(draws)])

    def ask(wait: bool) -> None:
        if wait:
            asked.wait(10)
        with ReleaseStore(place, after_crash="redraw") as own:
            values.append(own.release("first", "rho", 0.1, draw).tolist())

    thread_a, thread_b = threading.Thread(target=ask, args=(False,)), threading.Thread(target=ask, args=(True,))
    thread_b.start()
    thread_a.start()
    thread_a.join(20)
    thread_b.join(20)
    assert values == [[1], [1]] and draws == [1]
    assert store.describe()["releases"][0]["status"] == "released"


# ------------------------------------------------------------------------------------------------------- raw SQL, facts


GUARDED = (
    ("UPDATE releases SET value = x'00' WHERE name = 'done'", "written once"),
    ("UPDATE OR REPLACE releases SET value = NULL, shape = NULL, released = NULL WHERE name = 'done'", "once"),
    ("UPDATE releases SET charge = charge / 2 WHERE name = 'lost'", "reservation is not changed"),
    ("UPDATE releases SET charge = 2 * charge WHERE name = 'lost'", "reservation is not changed"),
    ("UPDATE releases SET pool = 'epsilon' WHERE name = 'lost'", "reservation is not changed"),
    ("UPDATE OR REPLACE releases SET name = 'done' WHERE name = 'lost'", "reservation is not changed"),
    ("UPDATE releases SET distribution = x'00' WHERE name = 'lost'", "reservation is not changed"),
    ("DELETE FROM chain", "chain is not cut"),
    ("UPDATE chain SET hash = x'00'", "chain is not changed"),
    ("INSERT INTO chain VALUES (99, 'seal', 'a', x'00')", "one link at a time"),
    ("INSERT OR REPLACE INTO chain VALUES (0, 'file', '', x'00')", "one link at a time"),
    ("UPDATE digest_key SET content = NULL", "digest key is not changed"),
    ("UPDATE digest_key SET content = x'00'", "digest key is not changed"),
    ("INSERT OR REPLACE INTO digest_key VALUES (1, x'00', x'00')", "made with the file"),
    ("DELETE FROM digest_key", "not deleted"),
    ("DELETE FROM seals", "not opened again"),
    ("UPDATE seals SET name = 'other'", "seal is not changed"),
    ("INSERT OR REPLACE INTO seals VALUES ('ended', '')", "sealed once"),
    ("UPDATE sums SET number = 0 WHERE name = 'ended'", "is sealed"),
    ("INSERT OR REPLACE INTO sums VALUES ('ended', 0, '[]', x'00')", "is sealed"),
    ("DELETE FROM sums", "only a purge"),
    ("DELETE FROM contributions", "only a purge"),
    ("DELETE FROM arrivals", "only a purge"),
    ("UPDATE arrivals SET number = 5", "arrival is not changed"),
    ("DELETE FROM places", "place is not deleted"),
    ("UPDATE places SET content = x'00'", "place is not changed"),
    ("INSERT OR REPLACE INTO places VALUES ('queue', 0, x'00')", "one after the other"),
    ("INSERT INTO places VALUES ('queue', 5, x'00')", "one after the other"),
    ("UPDATE ranges SET next = 0", "not given back"),
    ("INSERT OR REPLACE INTO ranges VALUES ('tickets', 0)", "not given back"),
    ("DELETE FROM ranges", "not given back"),
    ("UPDATE access_keys SET revoked = NULL WHERE name = 'old'", "stays revoked"),
    ("UPDATE access_keys SET revoked = '2026-01-01' WHERE name = 'old'", "stays revoked"),
    ("UPDATE access_keys SET revoked = '2026-01-01', role = 'operator' WHERE name = 'new'", "not changed"),
    ("UPDATE access_keys SET revoked = '2026-01-01', expires = 1 WHERE name = 'new'", "not changed"),
    ("INSERT OR REPLACE INTO access_keys VALUES ('a', 'old', 'operator', '', NULL, NULL)", "added once"),
    ("INSERT INTO access_keys VALUES ('c', 'other', 'operator', '', NULL, '2026-01-01')", "added once"),
    ("DELETE FROM access_keys", "not deleted"),
    ("DELETE FROM releases WHERE name = 'lost'", "not deleted"),
    ("DELETE FROM releases", "not deleted"),
    (
        "INSERT OR REPLACE INTO releases (name, pool, charge, distribution, reserved) VALUES ('lost', 'rho', 0,x'','')",
        "once",
    ),
    ("REPLACE INTO releases (name, pool, charge, distribution, reserved) VALUES ('done', 'rho', 0.0, x'', '')", "once"),
    ("INSERT INTO releases VALUES ('new', 'rho', 0.1, x'', '', '', '[]', x'00')", "before it is drawn"),
    (
        "INSERT INTO releases (name, pool, charge, distribution, reserved) VALUES ('new', 'rho', 0.5000001, x'', '')",
        "over the limit",
    ),
    (
        "INSERT OR IGNORE INTO releases (name, pool, charge, distribution, reserved) VALUES ('n', 'rho', 9.0, x'', '')",
        "over the limit",
    ),
    ("INSERT INTO releases (name, pool, charge, distribution, reserved) VALUES ('new', 'rho', -0.1, x'', '')", "CHECK"),
    (
        "INSERT INTO releases (name, pool, charge, distribution, reserved) VALUES ('new', 'rho', 'nothing', x'', '')",
        "CHECK",
    ),
    (
        "INSERT INTO releases (name, pool, charge, distribution, reserved) VALUES ('new', 'free', 0.1, x'', '')",
        "no such pool",
    ),
    ("UPDATE pools SET allowed = 9.0", "limit is not changed"),
    ("DELETE FROM pools WHERE pool = 'rho'", "limit is not deleted"),
    ("INSERT INTO pools VALUES ('free', 9.0)", "declared with the study"),
    ("INSERT OR REPLACE INTO pools VALUES ('rho', 9.0)", "declared with the study"),
    ("UPDATE study SET content = '{}'", "study is not changed"),
    ("DELETE FROM study", "study is not deleted"),
    ("INSERT OR REPLACE INTO study VALUES (1, '{}')", "declared once"),
    ("UPDATE facts SET content = x'00'", "fact is not changed"),
    ("DELETE FROM facts", "fact is not deleted"),
    ("INSERT OR REPLACE INTO facts VALUES ('seed', x'00')", "written once"),
)


@pytest.mark.parametrize(("statement", "words"), GUARDED)
def test_the_file_defends_itself(used: Path, path: Path, statement: str, words: str) -> None:
    shutil.copy(used, path)
    with ReleaseStore(path) as store:
        before = store.describe()
        with (
            contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database,
            pytest.raises(sqlite3.IntegrityError, match=words),
        ):
            database.execute(statement)
        assert store.describe() == before
        assert store.release("done", "rho", 0.25, never).tolist() == [[7, -7]]
        assert store.fact("seed", lambda: b"2") == b"1"
    ReleaseStore(path).close()


def test_the_first_fact_wins(store: ReleaseStore, place: Place) -> None:
    def make() -> bytes:
        with ReleaseStore(place) as quicker:
            quicker.fact("seed", lambda: b"quicker")
        return b"slower"

    assert store.fact("seed", make) == b"quicker"
    assert store.fact("other", lambda: b"") == b""
    assert store.describe()["facts"] == ["other", "seed"]


# --------------------------------------------------------------------------------------------------- files and purging


def test_all_files_are_owner_only_whatever_the_umask(path: Path) -> None:
    modes = {}

    class Looking(ReleaseStore):
        def _reached(self, point: str) -> None:
            for file in path.parent.iterdir():
                modes[file.name] = modes.get(file.name, 0) | stat.S_IMODE(file.stat().st_mode)

    umask = os.umask(0)
    try:
        with Looking(path) as store:
            store.open_study(STUDY, LIMITS)
            store.contribute("a", ["x"], np.array([1]))
            store.release("first", "rho", 0.1, seven)
            store.purge()
    finally:
        os.umask(umask)
    assert modes == dict.fromkeys(["study.db", "study.db-wal", "study.db-shm", "study.db.lock"], 0o600)


@pytest.mark.parametrize("suffix", ["", ".lock"])
def test_a_file_that_others_can_read_is_refused(file_store: ReleaseStore, path: Path, suffix: str) -> None:
    file_store.close()
    Path(f"{path}{suffix}").chmod(0o640)
    with pytest.raises(StoreError, match=f"chmod 600 .*study.db{suffix}"):
        ReleaseStore(path)
    Path(f"{path}{suffix}").chmod(0o600)
    ReleaseStore(path).close()


def make_text(path: Path) -> None:
    path.write_text("people " * 100)


def make_other_database(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE people (name)")


def make_newer(path: Path) -> None:
    ReleaseStore(path).close()
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version=99")


def make_older(path: Path) -> None:
    ReleaseStore(path).close()
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version=1")


def make_unguarded(path: Path) -> None:
    ReleaseStore(path).close()
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("DROP TRIGGER guard_0")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (make_text, "cannot be opened as a store"),
        (make_other_database, "not a store of releases"),
        (make_newer, "has format 99 and .* reads format 4. Update privrl"),
        (make_older, "has format 1 and .* reads format 4. Finish that study"),
        (make_unguarded, "guards of .* were changed"),
        (Path.mkdir, "not a file"),
    ],
)
def test_what_is_not_a_store_is_refused_and_left_alone(make: Any, words: str, path: Path) -> None:
    make(path)
    if path.is_file():
        path.chmod(0o600)
        before = path.read_bytes()
    with pytest.raises(StoreError, match=words):
        ReleaseStore(path)
    assert path.is_dir() or path.read_bytes() == before


def test_commits_are_synchronous(file_store: ReleaseStore, path: Path) -> None:
    for opened in (file_store, ReleaseStore(path)):
        settings = ("journal_mode", "synchronous", "secure_delete", "temp_store")
        assert [opened._engine.execute(f"PRAGMA {setting}").fetchone()[0] for setting in settings] == ["wal", 2, 1, 2]
        opened.close()


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    """It is what a process leaves that is killed just after creating it."""
    path.touch(0o600)
    with ReleaseStore(path) as store:
        assert store.describe()["study"] is None and store.describe()["limits"] == {}


def test_a_link_leads_to_the_same_lock(file_store: ReleaseStore, path: Path) -> None:
    link = path.with_name("link.db")
    link.symlink_to(path)
    with ReleaseStore(link) as other:
        assert other._engine.lock_path == file_store._engine.lock_path


def test_a_forked_child_must_open_its_own(store: ReleaseStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store._engine, "_process", -1)
    with pytest.raises(StoreError, match="Open it again in the child"):
        store.count("a")


def test_a_purged_store_keeps_what_was_released_and_takes_nothing_new(store: ReleaseStore, place: Place) -> None:
    store.contribute("a", ["x"], np.array([5]))
    store.seal("a")
    store.arrive_all("queue", ["x"], at_most=1, contents=lambda new, first: [b"place"])
    store.fact("seed", lambda: b"1")
    store.release("first", "rho", 0.25, seven)
    with pytest.raises(InterruptedError):
        store.release("lost", "rho", 0.25, fail)
    before = store.describe()
    assert not before["purged"]
    with ReleaseStore(place) as idle:  # somebody else may have it open, as long as nobody is reading
        idle.count("a")
        store.purge()
    assert store.describe() == before | {"purged": True}
    assert store.release("first", "rho", 0.25, never).tolist() == [[7, -7]]
    assert (
        store.fact("seed", lambda: b"2") == b"1"
        and store.is_sealed("a")
        and store.places("queue", [0]) == {0: b"place"}
    )
    redrawing = ReleaseStore(place, after_crash="redraw")
    for refused in (
        lambda: store.contribute("b", ["y"], np.array([5])),
        lambda: store.total("a"),
        lambda: store.count("a"),
        lambda: store.seal("b"),
        lambda: store.arrive_all("queue", ["x"], at_most=2, contents=lambda new, first: [b""]),
        lambda: store.reserve_range("tickets", 1),
        lambda: store.fact("new", lambda: b""),
        lambda: store.release("second", "rho", 0.1, never),
        lambda: redrawing.release("lost", "rho", 0.25, never),
    ):
        with pytest.raises(StoreError, match="was purged"):
            refused()
    redrawing.close()
    store.purge()
    assert store.describe()["purged"] and len(store.describe()["releases"]) == 2


def test_a_purge_under_a_reader_says_that_it_is_unfinished(file_store: ReleaseStore, path: Path) -> None:
    file_store.contribute("a", ["x"], np.array([5]))
    file_store._engine.db.execute("PRAGMA busy_timeout=50")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT total FROM sums").fetchall()
        with pytest.raises(StoreError, match="purge again"):
            file_store.purge()
        assert file_store.describe()["purge_unfinished"] and not file_store.describe()["purged"]
    file_store.purge()
    assert file_store.describe()["purged"] and not file_store.describe()["purge_unfinished"]


def test_a_key_counts_once_in_a_scope_and_a_full_sum_takes_no_more(store: ReleaseStore) -> None:
    rows = np.arange(6, dtype=np.int64).reshape(3, 2)
    assert store.contribute("block 0", ["a", "b", "c"], rows, scope="people", at_most=3).all()
    new = store.contribute("block 1", ["b", "d"], rows[:2], scope="people", at_most=1)
    assert new.tolist() == [False, True]
    assert store.contribute("block 1", ["b"], rows[:1], at_most=2).all()  # without the scope it is another key
    with pytest.raises(SumFullError, match="accepts 2"):
        store.contribute("block 1", ["e"], rows[:1], scope="people", at_most=2)
    assert store.count("block 1") == 2
    assert store.contribute("block 2", ["e"], rows[:1], scope="people").all()  # the refused key was not used up


def test_values_are_read_without_drawing_and_crashes_are_noted(store: ReleaseStore, place: Place) -> None:
    assert store.value("x") is None
    store.release("x", "rho", 0.1, lambda: np.array([4]))
    assert store.value("x") == np.array([4])
    assert store.notes() == ()

    def fail() -> Any:
        raise RuntimeError("power cut")

    for name in ("y", "z"):
        with pytest.raises(RuntimeError, match="power cut"):
            store.release(name, "rho", 0.1, fail)
    assert store.value("y") is None
    with ReleaseStore(place, after_crash="redraw") as second:
        second.release("z", "rho", 0.1, lambda: np.array([5]))
    burnt, drawn = store.notes()
    assert burnt == "burnt by a crash, with their budget spent: y"
    assert drawn.endswith("drawn again: z")


def test_a_contribution_that_is_known_is_committed_like_a_new_one(tmp_path: Path) -> None:
    """Otherwise how long a call takes would tell who was counted before; with marks that is no secret."""
    path = tmp_path / "study.db"

    def written(key: str, **more: Any) -> int:
        before = log.stat().st_size
        store.contribute("visits", [key], np.array([[1, 2]]), **more)
        return log.stat().st_size - before

    with ReleaseStore(path) as store:
        store.open_study(STUDY, LIMITS)
        log = path.with_name("study.db-wal")
        assert written("anna") > 0 and written("anna") > 0 and written("ben") > 0
        assert store.count("visits") == 2 and store.total("visits").tolist() == [2, 4]
        assert written("carl", scope="marked", marks=[b"1"]) > 0
        assert written("carl", scope="marked", marks=[b"1"]) == 0


# ------------------------------------------------------------------------------------------------------------- the keys


def test_keys_are_added_revoked_and_kept(place: Place) -> None:
    """Also after a purge. A name is free again once its key is revoked."""
    with ReleaseStore(place) as store, ReleaseStore(place) as other:
        store.open_study(STUDY, LIMITS)
        store.add_access_key("a" * 64, "web shop", "app")
        with pytest.raises(ValueError, match="already"):
            other.add_access_key("b" * 64, "web shop", "app", 2_000_000_000)
        other.revoke_access_key("web shop")
        with pytest.raises(ValueError, match="The keys are: none"):
            store.revoke_access_key("web shop")
        store.purge()
        store.add_access_key("b" * 64, "web shop", "app", 2_000_000_000)
        kept = other.access_keys()
        assert [(key.sha256[0], key.expires, key.revoked is None) for key in kept] == [
            ("a", None, False),
            ("b", 2_000_000_000, True),
        ]


def test_the_page_about_stability_states_the_formats() -> None:
    from privrl.privacy.store.sqlite_schema import FORMAT
    from privrl.studies.local import wire

    page = (Path(__file__).parents[2] / "docs" / "stability.md").read_text()
    assert f"| format {FORMAT}, in the store |" in page and f"| format {wire.FORMAT}, in every message |" in page
