"""A store on PostgreSQL: its guards, its roles, a server that dies, and several writers at once."""

import contextlib
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from postgres import Cluster
from tests.privacy.test_store import GUARDED, LIMITS, STUDY, kill_loop, never, seven, use

from privrl.privacy.store.errors import (
    BehindLogError,
    BurntError,
    StoreError,
    SumSealedError,
    TamperedError,
    UnreachableError,
)
from privrl.privacy.store.postgres_schema import tables
from privrl.privacy.store.release_store import ReleaseStore

psycopg = pytest.importorskip("psycopg")


@pytest.fixture
def address(postgres: Cluster) -> str:
    return postgres.new()


@pytest.fixture(scope="module")
def used(postgres: Cluster) -> Iterator[tuple[ReleaseStore, Any]]:
    """A store with rows in all its tables, and its owner."""
    address = postgres.new()
    use(address)
    with ReleaseStore(address) as store, sql(address) as database:
        yield store, database


@contextlib.contextmanager
def sql(address: str) -> Iterator[Any]:
    with psycopg.connect(address, autocommit=True) as connection:
        yield connection


def until_it_waits(thread: threading.Thread, database: Any) -> None:
    """Until the thread, which was started, waits for a lock or has ended."""
    while thread.is_alive() and database.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone() is None:
        time.sleep(0.002)


def translated(statement: str) -> str:
    """A statement of SQLite with the bytes of PostgreSQL."""
    return re.sub(r"x'(\w*)'", r"'\\\\x\1'::bytea", statement).replace("'nothing'", "'-1'")


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        *((statement, words) for statement, words in GUARDED if "REPLACE" not in statement and " OR " not in statement),
        *((f"TRUNCATE {table}", "not emptied") for table in tables),
        (
            "INSERT INTO releases (name, pool, charge, distribution, reserved) VALUES ('n', 'rho', 'NaN', '', '')",
            "over the",
        ),
        ("SET session_replication_role = replica; DELETE FROM releases", "not deleted"),
    ],
)
def test_the_database_defends_itself(used: tuple[ReleaseStore, Any], statement: str, words: str) -> None:
    """Against its owner too, as long as the guards are there."""
    store, database = used
    before = store.describe()
    refused = (psycopg.errors.RaiseException, psycopg.errors.CheckViolation)
    with pytest.raises(refused, match=words.replace("CHECK", "charge_check")):
        database.execute(translated(statement))
    assert store.describe() == before


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TRIGGER guard_12 ON releases",
        "ALTER TABLE releases DISABLE TRIGGER guard_12",
        "ALTER TABLE releases ENABLE TRIGGER guard_12",
        "CREATE OR REPLACE FUNCTION guard_12() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        "ALTER FUNCTION guard_12() RESET search_path",
        "ALTER TABLE releases DROP CONSTRAINT releases_charge_check",
        "ALTER TABLE contributions DROP CONSTRAINT contributions_pkey",
        "DROP TRIGGER guard_1 ON chain; CREATE TRIGGER guard_1 BEFORE UPDATE OF kind ON chain FOR EACH ROW"
        " EXECUTE FUNCTION guard_1(); ALTER TABLE chain ENABLE ALWAYS TRIGGER guard_1",
        "ALTER TABLE releases DROP CONSTRAINT releases_charge_check,"
        " ADD CONSTRAINT releases_charge_check CHECK (charge > -1)",
        "ALTER TABLE facts DROP CONSTRAINT facts_pkey, ADD CONSTRAINT facts_pkey PRIMARY KEY (name, content)",
        "ALTER TABLE releases SET UNLOGGED",
        "ALTER TABLE releases ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE releases ALTER name TYPE text COLLATE pg_catalog.default",
        "ALTER TABLE sums ALTER number SET DEFAULT 0",
        "CREATE RULE nothing AS ON INSERT TO contributions DO INSTEAD NOTHING",
        "CREATE TEMPORARY TABLE child () INHERITS (releases)",
        "ALTER TABLE releases ADD COLUMN more text",
        "CREATE TABLE more (name text)",
    ],
)
def test_changed_guards_and_tables_are_refused(address: str, statement: str) -> None:
    ReleaseStore(address).close()
    with sql(address) as database:
        database.execute(statement)
    with pytest.raises(StoreError, match="tables or guards .* were changed"):
        ReleaseStore(address)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM releases WHERE name = 'lost'",
        "UPDATE releases SET charge = 0 WHERE name = 'done'",
        "UPDATE releases SET value = '\\x00' WHERE name = 'done'",
        "UPDATE pools SET allowed = 9.0",
        "DELETE FROM seals",
        "DELETE FROM chain WHERE number = (SELECT MAX(number) FROM chain)",
        "UPDATE digest_key SET content = NULL",
    ],
)
def test_guards_that_were_dropped_and_put_back_are_found_out(address: str, statement: str) -> None:
    use(address)
    table = re.findall(r"(?:FROM|UPDATE) (\w+)", statement)[0]
    with sql(address) as database:
        guards = [
            name for (name,) in database.execute("SELECT tgname FROM pg_trigger WHERE tgrelid = %s::regclass", (table,))
        ]
        for word in ("DISABLE", "ENABLE ALWAYS"):
            for guard in guards:
                database.execute(f"ALTER TABLE {table} {word} TRIGGER {guard}")
            if word == "DISABLE":
                database.execute(statement)
    with pytest.raises(TamperedError, match="changed by another program"):
        ReleaseStore(address)


def test_a_schema_of_something_else_and_an_unknown_server_are_refused(address: str) -> None:
    with sql(address) as database:
        database.execute("CREATE TABLE people (name text)")
    with pytest.raises(StoreError, match="tables of another program"):
        ReleaseStore(address)
    for wrong, words in (
        ("postgresql://someone:secret@/none?host=/nowhere", "`postgresql:///nowhere/none` cannot be reached"),
        ("postgresql://someone:secret@[::1/none", "is malformed"),
        ("postgresql://someone:secret@/none?sslmood=require", "is malformed"),
    ):
        with pytest.raises(StoreError, match=words) as caught:
            ReleaseStore(wrong)
        assert "secret" not in str(caught.value) and "someone" not in str(caught.value)
        assert isinstance(caught.value, UnreachableError) == ("reached" in words)
    with pytest.raises(StoreError, match="has no schema"):
        ReleaseStore(address.rsplit("%3D", 1)[0] + "%3Dmissing")


def test_the_role_of_a_service_can_run_a_study_and_remove_nothing(address: str, postgres: Cluster) -> None:
    from privrl.privacy.store.postgres import grant_service

    with ReleaseStore(address) as owner, sql(address) as database:
        owner.open_study(STUDY, LIMITS)
        database.execute("DROP ROLE IF EXISTS service; CREATE ROLE service LOGIN")
        serving = address.replace("user=owner", "user=service")
        with pytest.raises(StoreError, match="privrl store grant"):
            ReleaseStore(serving)
        grant_service(address, "service")
        with ReleaseStore(serving) as store:
            assert store.contribute("a", ["x"], np.array([5])).all()
            store.seal("a")
            assert store.release("first", "rho", 0.25, seven).tolist() == [[7, -7]]
            assert store.arrive_all("queue", ["x"], at_most=1, contents=lambda new, first: [b""]) == [(0, b"")]
            assert store.reserve_range("tickets", 5) == range(5) and store.fact("seed", lambda: b"1") == b"1"
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                store.purge()
            assert not store.describe()["purge_unfinished"]
        with sql(serving) as allowed:
            for statement in (
                "DELETE FROM sums",
                "INSERT INTO purges VALUES (1, 'now', NULL)",
                "UPDATE digest_key SET content = NULL",
                "INSERT INTO pools VALUES ('more', 1.0)",
                "UPDATE pools SET allowed = 9.0",
                "UPDATE study SET content = '{}'",
                "UPDATE seals SET name = 'other'",
                "TRUNCATE contributions",
                "DROP TRIGGER guard_0 ON chain",
                "ALTER TABLE releases DISABLE TRIGGER ALL",
                "CREATE TRIGGER t BEFORE INSERT ON sums FOR EACH ROW EXECUTE FUNCTION guard_0()",
                "DROP TABLE sums",
                "CREATE OR REPLACE FUNCTION guard_0() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    allowed.execute(statement)
        owner.purge()
        database.execute("DROP OWNED BY service; DROP ROLE service")


def test_rights_are_granted_by_a_command_that_shows_no_password(address: str) -> None:
    from test_cli import call

    with ReleaseStore(address) as owner, sql(address) as database:
        owner.open_study(STUDY, LIMITS)
        database.execute("DROP ROLE IF EXISTS clinic; CREATE ROLE clinic LOGIN; GRANT ALL ON sums TO clinic")
        granted = call("store", "grant", address + "&password=secret", "clinic")
        assert granted.code == 0 and "'clinic' may run services" in granted.out and "secret" not in granted.out
        serving = address.replace("user=owner", "user=clinic")
        with sql(serving) as allowed, pytest.raises(psycopg.errors.InsufficientPrivilege):
            allowed.execute("DELETE FROM sums")
        database.execute("DROP OWNED BY clinic; DROP ROLE clinic")
    assert call("store", "grant", "study.db", "clinic").code == 2
    gone = call("store", "show", "postgresql:///none?host=/nowhere")
    assert gone.code == 1 and "cannot be reached" in gone.err  # whoever starts it again may find it


def test_an_older_copy_is_refused_by_the_log(address: str, postgres: Cluster, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with ReleaseStore(address, log=log) as store:
        store.open_study(STUDY, LIMITS)
        store.release("first", "rho", 0.25, seven)
    with pytest.raises(BehindLogError, match="so there was one"):
        ReleaseStore(postgres.new(), log=log)
    other = postgres.new()
    with ReleaseStore(other) as store:
        store.open_study(STUDY, LIMITS)
    with pytest.raises(BehindLogError, match="older copy was restored"):
        ReleaseStore(other, log=log)


def test_a_database_that_forgets_is_refused_when_it_is_reached_again(address: str, tmp_path: Path) -> None:
    """As a replica that lags does which takes over from its source: before anybody arrives there."""
    log = tmp_path / "log"
    with ReleaseStore(address, log=log) as store, sql(address) as database:
        store.open_study(STUDY, LIMITS)
        store.seal("block 0")
        for table, statement in (
            ("chain", "DELETE FROM chain WHERE number = (SELECT MAX(number) FROM chain)"),
            ("seals", "DELETE FROM seals"),
        ):
            find = "SELECT tgname FROM pg_trigger WHERE tgrelid = %s::regclass"
            guards = [name for (name,) in database.execute(find, (table,))]
            for word in ("DISABLE", "ENABLE ALWAYS"):
                for guard in guards:
                    database.execute(f"ALTER TABLE {table} {word} TRIGGER {guard}")
                if word == "DISABLE":
                    database.execute(statement)
        ReleaseStore(address).close()  # nothing is wrong with it by itself
        store._engine._connection.close()
        for _ in range(2):
            with pytest.raises(BehindLogError, match="a replica lags"):
                store.arrive_all("people", ["anna"], at_most=9, contents=lambda new, first: [b""])


def test_each_machine_has_a_log_of_its_own(address: str, tmp_path: Path) -> None:
    """It learns of the others' events when it is next told of one; copied or begun anew, it is the same."""
    one, two = tmp_path / "one", tmp_path / "two"
    with ReleaseStore(address, log=one) as here:
        here.open_study(STUDY, LIMITS)
        with pytest.raises(StoreError, match="is missing"):
            ReleaseStore(address, log=two)
        with ReleaseStore(address, log=two, accept_missing_log=True) as there:
            for number in range(4):
                (here if number % 2 else there).release(f"release {number}", "rho", 0.0, seven)
            for number in range(3):
                there.seal(f"block {number}")
            assert len(one.read_bytes()) < len(two.read_bytes()) and two.read_bytes().startswith(one.read_bytes())
        np.testing.assert_array_equal(here.value("release 2"), seven())
        assert one.read_bytes() == two.read_bytes()


def test_many_writers_on_keys_of_each_other_count_everybody_once(address: str) -> None:
    """Four threads, the same people in another order, into sums that share a scope; unsorted digests would deadlock."""
    with ReleaseStore(address) as store:
        store.open_study(STUDY, LIMITS)
    new, failures = [], []

    def write(writer: int) -> None:
        try:
            rng = np.random.default_rng(writer)
            with ReleaseStore(address) as own:
                for _ in range(10):
                    keys = [f"person {i}" for i in rng.permutation(40)]
                    stream = f"sum {rng.integers(3)}"
                    new.append(int(own.contribute(stream, keys, np.ones((40, 2), np.int64), scope="people").sum()))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with ReleaseStore(address) as store:
        assert not failures and sum(new) == 40
        assert sum(store.count(f"sum {i}") for i in range(3)) == 40


def test_two_releases_are_drawn_side_by_side_and_one_pool_is_not_overspent(address: str) -> None:
    """The draw of one name does not wait for that of another; charges that together exceed a pool are refused."""
    with ReleaseStore(address) as store:
        store.open_study(STUDY, {"rho": 1.0})
        with ReleaseStore(address) as other:

            def draw() -> np.ndarray:
                assert other.release("second", "rho", 0.3, seven).tolist() == [[7, -7]]
                assert {r["name"]: r["status"] for r in other.describe()["releases"]}["first"] == "reserved"
                with pytest.raises(StoreError, match="over the limit"):
                    other.release("third", "rho", 0.3, never)
                return seven()

            store.release("first", "rho", 0.6, draw)


def test_what_is_decided_under_a_lock_is_refused_to_a_transaction_that_sees_an_older_state(address: str) -> None:
    """After its lock it would still not see what the one before it wrote: charges would pass the limit together."""
    reserve = "INSERT INTO releases (name, pool, charge, distribution, reserved) VALUES ('{}', 'rho', 0.9, '', '')"
    with ReleaseStore(address) as store, sql(address) as database, sql(address) as older:
        store.open_study(STUDY, {"rho": 1.0})
        for name in "ab":
            store.contribute(name, ["x"], np.array([1]))
        for first, second in (
            (reserve.format("first"), reserve.format("second")),
            ("INSERT INTO seals VALUES ('a', '')", "UPDATE sums SET number = 9 WHERE name = 'a'"),
            ("UPDATE sums SET number = 2 WHERE name = 'b'", "INSERT INTO seals VALUES ('b', '')"),
            ("INSERT INTO seals VALUES ('c', '')", "INSERT INTO sums VALUES ('c', 1, '[]', '')"),
        ):
            older.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            older.execute("SELECT 1 FROM releases")
            database.execute(first)
            with pytest.raises(psycopg.errors.RaiseException, match="READ COMMITTED"):
                older.execute(second)
            older.execute("ROLLBACK")
        assert database.execute("SELECT SUM(charge) FROM releases").fetchone() == (0.9,)


def test_a_store_chooses_its_isolation_itself(address: str) -> None:
    with ReleaseStore(address + "%20-cdefault_transaction_isolation%3Dserializable") as store:
        store.open_study(STUDY, LIMITS)
        store.contribute("a", ["x"], np.array([5]))
        store.seal("a")
        assert store.release("first", "rho", 0.25, seven).tolist() == [[7, -7]]


def test_a_purge_waits_for_a_draw_under_way(address: str) -> None:
    """And nothing is drawn or kept after it."""

    def purge() -> None:
        with ReleaseStore(address) as other:
            other.purge()

    thread = threading.Thread(target=purge)
    with ReleaseStore(address) as store, sql(address) as database:
        store.open_study(STUDY, LIMITS)

        def draw() -> np.ndarray:
            thread.start()
            until_it_waits(thread, database)
            assert database.execute("SELECT 1 FROM purges").fetchone() is None
            return seven()

        try:
            store.release("first", "rho", 0.25, draw)
        finally:
            thread.join()
        assert store.describe()["purged"] and store.value("first") is not None
        kinds = [kind for (kind,) in database.execute("SELECT kind FROM chain ORDER BY number")]
        assert kinds[-2:] == ["value", "purge"]
        with pytest.raises(StoreError, match="was purged"):
            store.release("second", "rho", 0.25, never)


def test_a_sum_is_not_changed_by_others_while_it_is_sealed(address: str) -> None:
    """The guard of sums waits for a seal under way, of whatever program."""
    with ReleaseStore(address) as store, sql(address) as database:
        store.contribute("a", ["x"], np.array([1]))
        order: list[str] = []

        def write() -> None:
            with sql(address) as own, contextlib.suppress(psycopg.errors.RaiseException):
                own.execute("UPDATE sums SET number = 9 WHERE name = 'a'")
                order.append("changed")

        database.execute("BEGIN")
        database.execute("INSERT INTO seals VALUES ('a', '')")
        thread = threading.Thread(target=write)
        thread.start()
        until_it_waits(thread, database)
        database.execute("COMMIT")
        thread.join()
        assert order == [] and store.count("a") == 1
        with pytest.raises(SumSealedError):
            store.contribute("a", ["y"], np.array([1]))


def test_a_store_goes_on_when_its_server_was_killed_and_started_again(tmp_path: Path, postgres: Cluster) -> None:
    """What was acknowledged is there, what was lost on the way is sent again and counts once."""
    address = postgres.new()
    with ReleaseStore(address, log=tmp_path / "log") as store:
        store.open_study(STUDY, LIMITS)
        store.contribute("a", ["x"], np.array([5]))
        store.release("first", "rho", 0.25, seven)
        postgres.kill()
        with pytest.raises(StoreError, match="connection .* was lost"):
            store.contribute("a", ["y"], np.array([6]))
        postgres.start()
        assert store.contribute("a", ["x", "y"], np.array([5, 6])).tolist() == [False, True]
        assert store.total("a") == 11 and store.release("first", "rho", 0.25, never).tolist() == [[7, -7]]


def test_a_draw_whose_connection_was_lost_is_not_kept(postgres: Cluster) -> None:
    """Its lock was free in between, so somebody else may have been told that it is burnt."""
    address = postgres.new()
    with ReleaseStore(address) as store:
        store.open_study(STUDY, LIMITS)

        def draw() -> np.ndarray:
            postgres.kill()
            postgres.start()
            with ReleaseStore(address) as other:
                assert other.is_burnt("first")
            return seven()

        with pytest.raises(StoreError, match="was lost"):
            store.release("first", "rho", 0.25, draw)
        assert store.is_burnt("first") and store.value("first") is None
        with pytest.raises(BurntError):
            store.release("first", "rho", 0.25, never)


# --------------------------------------------------------------------------------------------------------- the killing


@pytest.mark.parametrize(
    ("kind", "writers", "rounds"),
    [
        ("sound", 2, 4),
        *(pytest.param("sound", *more, marks=pytest.mark.slow) for more in ((1, 90), (2, 95))),
    ],
)
def test_a_store_survives_kill_9_of_its_writers(
    kind: str, writers: int, rounds: int, tmp_path: Path, postgres: Cluster
) -> None:
    result = kill_loop("loop", tmp_path, postgres.folder, kind, writers, rounds, 1)
    assert result["caught"] is None and result["rounds"] == rounds and result["killed"] > rounds / 2
    if rounds >= 90:
        assert result["missed"] == []
        assert min(result[word] for word in ("got", "refused", "kept", "seated", "sealed", "range")) > 0, result


@pytest.mark.slow
@pytest.mark.usefixtures("postgres")
def test_a_store_survives_kills_of_its_server(tmp_path: Path) -> None:
    result = kill_loop("server", tmp_path, 50, 1)
    assert result["caught"] is None and result["rounds"] == 50
    assert result["lost"] > 25 and min(result[word] for word in ("got", "kept", "seated")) > 0, result


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ("acknowledges-first", ["acknowledged contribution is lost", "new twice"]),
        ("counts-twice", ["counted twice"]),
        ("returns-first", ["not kept", "two values", "before the log knew"]),
        ("seats-first", ["a place is lost", "two places", "one place"]),
    ],
)
def test_broken_stores_are_caught(broken: str, words: list[str], tmp_path: Path, postgres: Cluster) -> None:
    result = kill_loop("loop", tmp_path, postgres.folder, broken, 1, 70, 1)
    assert any(word in str(result["caught"]) for word in words), result
