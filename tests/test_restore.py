"""A store that has lost its last arrivals and records, and no release: nobody is counted twice, on either engine.

What is lost: a copy was restored (`privrl store restore`), or a replica that lags has taken over. The audit log accepts
such a store, because it has every release.
"""

import contextlib
import hashlib
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from clocks import Clock
from postgres import Cluster
from service.serving import CENTRAL, LOCAL, Service, serving, study_file
from service.test_local_service import report, ticket
from test_agent import some
from test_agent_arrivals import ENDS, ENV, PATIENCE, live, sums
from tests.privacy.test_store_postgres import sql

import privrl
from privrl.mdp.types import Trajectory
from privrl.privacy.store.errors import BehindLogError, StoreError
from privrl.privacy.store.release_store import ReleaseStore, restore_store
from privrl.service.study_file import StudyFile

assert ENDS[0] == 2  # the first block has two people


def counted(store: ReleaseStore, agent: privrl.Agent) -> dict[tuple[int, int], list[int]]:
    return {name: total.tolist() for name, total in sums(store, agent).items()}


def terms(agent: privrl.Agent, records: list[Trajectory]) -> list[int]:
    """What records of the first block add up to."""
    return sum(agent.plans.to_steps(jax.tree.map(lambda *all_: np.stack(all_), *records), 0)[0]).tolist()


def test_a_person_with_a_lost_record_is_counted_once(tmp_path: Path) -> None:
    path, copy, log = tmp_path / "s.db", tmp_path / "copy.db", tmp_path / "s.log"
    clock, records = Clock(), [some(i) for i in range(3)]
    with ReleaseStore(path, log=log) as store:
        agent = live(store, clock)
        zoe = agent.begin_episode("zoe")
        store.backup(copy)
        lost = agent.begin_episode("anna")
        agent.end_episodes([(lost, records[0]), (zoe, records[1])])
    path.unlink()
    restore_store(copy, path, log)
    with ReleaseStore(path, log=log) as store:
        agent = live(store, clock)
        assert counted(store, agent) == {} and agent.begin_episode("zoe") == zoe
        with pytest.raises(ValueError, match="1 of 1 records"):
            agent.end_episode(lost, records[0])  # nobody has this number yet
        ben = agent.begin_episode("ben")
        assert ben.number == lost.number and agent.begin_episode("anna").number == 2
        with pytest.raises(ValueError, match="1 of 2 records"):
            agent.end_episodes([(lost, records[0]), (zoe, records[1])])  # now it is another person's
        agent.end_episode(ben, records[2])
        assert counted(store, agent) == {(0, 0): terms(agent, [records[1], records[2]])}
        clock.time += PATIENCE
        assert agent.policy is not None and agent.plans.closed == 1
    path.unlink()
    with pytest.raises(BehindLogError):
        restore_store(copy, path, log)  # it lacks a release now


@pytest.mark.parametrize("left", ["-wal", "-shm", "-journal"])
def test_what_is_left_of_a_lost_store_is_not_written_into_the_copy(tmp_path: Path, left: str) -> None:
    path, copy, log = tmp_path / "s.db", tmp_path / "copy.db", tmp_path / "s.log"
    beside = Path(f"{path}{left}")
    with ReleaseStore(path, log=log) as store:
        store.open_study({"verb": "test"}, {"pool": 1.0})
        store.contribute("block", ["p0"], np.array([[1]]), scope="people")
        store.backup(copy)
        store.contribute("block", ["p1"], np.array([[1]]), scope="people")
        kept = Path(f"{path}-wal").read_bytes()  # as a process that is killed leaves it
    path.unlink()
    beside.write_bytes(kept)
    with pytest.raises(StoreError, match="Nothing was restored"):
        restore_store(copy, path, log)
    assert not path.exists() and beside.read_bytes() == kept
    beside.unlink()
    restore_store(copy, path, log)
    with ReleaseStore(path, log=log) as store:
        again = [bool(store.contribute("block", [one], np.array([[1]]), scope="people")[0]) for one in ("p0", "p1")]
        assert again == [False, True] and np.asarray(store.total("block")).tolist() == [2]


def test_a_copy_that_was_put_beside_the_log_of_a_lost_store_is_refused(tmp_path: Path) -> None:
    """As `cp` restores it. The log of the lost store has its newest pages, and not all that differ from the copy."""
    path, copy = tmp_path / "s.db", tmp_path / "copy.db"

    def count(store: ReleaseStore, people: range) -> None:
        store.contribute("block", [f"p{i}" for i in people], np.ones((len(people), 1), np.int64), scope="people")

    with ReleaseStore(path) as store:
        count(store, range(300))
        store.backup(copy)
        count(store, range(300, 700))
        store._engine.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        count(store, range(700, 701))  # one page of the list, of several
        kept = Path(f"{path}-wal").read_bytes()
    with ReleaseStore(path) as store:
        assert store.count("block") == 701
    shutil.copyfile(copy, path)
    beside = Path(f"{path}-wal")
    beside.write_bytes(kept)
    beside.chmod(0o600)
    with pytest.raises(StoreError, match="mixes two states|malformed"):
        ReleaseStore(path)


def forget_since(address: str, number: int) -> None:
    """Deletes the arrivals from a number on, and all records, as in a replica that lags."""
    with sql(address) as database:
        for table, statement in (
            ("places", f"DELETE FROM places WHERE number >= {number}"),
            ("arrivals", f"DELETE FROM arrivals WHERE number >= {number}"),
            ("contributions", "DELETE FROM contributions"),
            ("sums", "DELETE FROM sums"),
        ):
            find = "SELECT tgname FROM pg_trigger WHERE tgrelid = %s::regclass"
            guards = [name for (name,) in database.execute(find, (table,))]
            for word in ("DISABLE", "ENABLE ALWAYS"):
                for guard in guards:
                    database.execute(f"ALTER TABLE {table} {word} TRIGGER {guard}")
                if word == "DISABLE":
                    database.execute(statement)


def test_a_server_that_lags_is_asked_again_for_every_ticket(postgres: Cluster, tmp_path: Path) -> None:
    """Its agent had read the lost ticket over the connection before."""
    pytest.importorskip("psycopg")
    address, clock, records = postgres.new(), Clock(), [some(i) for i in range(3)]
    with (
        ReleaseStore(address, log=tmp_path / "one.log") as store,
        ReleaseStore(address, log=tmp_path / "two.log", accept_missing_log=True) as other_store,
    ):
        agent, other = live(store, clock), live(other_store, clock)
        zoe, lost = agent.begin_episodes(["zoe", "anna"])
        agent.end_episode(lost, records[0])
        forget_since(address, lost.number)
        store._engine._connection.close()
        ben = other.begin_episode("ben")
        assert ben.number == lost.number
        with pytest.raises(ValueError, match="1 of 2 records"):
            agent.end_episodes([(lost, records[0]), (zoe, records[1])])
        assert agent.begin_episode("anna").number == 2
        other.end_episode(ben, records[2])
        assert counted(store, agent) == {(0, 0): terms(agent, [records[1], records[2]])}


def test_a_copy_that_another_program_made_is_refused(tmp_path: Path) -> None:
    """It may be half of one state and half of another."""
    path, log, copy, made = (tmp_path / name for name in ("s.db", "s.log", "raw.db", "made.db"))
    with ReleaseStore(path, log=log) as store:
        live(store, Clock()).begin_episode("anna")
        shutil.copy(path, copy)
    for bad in (copy, log):
        with pytest.raises(StoreError, match="was not written by `privrl store backup`"):
            restore_store(bad, tmp_path / "new.db", log)
    assert not (tmp_path / "new.db").exists()
    with ReleaseStore(path) as store:  # at rest a file is whole, and its copy can be restored
        store.backup(made)
    path.unlink()
    restore_store(made, path, log)
    with ReleaseStore(path, log=log) as store:
        assert store._engine.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert live(store, Clock()).num_arrived == 1


@contextlib.contextmanager
def restored(file: StudyFile, clock: Clock):
    """A service whose store is lost after the block, which gets the service and a function that makes the copy."""
    path = Path(file.place)
    copy = path.with_name("copy.db")

    def back_up() -> None:
        with ReleaseStore(path) as store:
            store.backup(copy)

    with serving(file, clock) as service:
        yield service, back_up
    path.unlink()
    restore_store(copy, path, file.log_place)


def test_an_app_with_a_lost_ticket_gets_the_usual_answers_and_counts_nobody(tmp_path: Path) -> None:
    clock, file = Clock(), study_file(tmp_path, CENTRAL)
    record = [{"state": 0, "action": 1, "reward": 0.0, "next_state": 1}]
    with restored(file, clock) as (service, back_up):
        kept = service.ask("POST", "tickets", {"user": "zoe"}).json
        back_up()
        lost = service.ask("POST", "tickets", {"user": "anna"}).json
        assert service.ask("POST", "episodes", {"ticket": lost["ticket"], "steps": record}).status == 204
    with serving(file, clock) as service:
        assert service.ask("POST", "tickets", {"user": "zoe"}).json == kept
        assert service.ask("POST", "actions", {"ticket": lost["ticket"], "state": 0, "step": 0}).status == 200
        new = service.ask("POST", "tickets", {"user": "anna"}).json
        assert new["number"] == lost["number"] and new["ticket"] != lost["ticket"]
        for text in (lost["ticket"], new["ticket"], lost["ticket"]):
            assert service.ask("POST", "episodes", {"ticket": text, "steps": record}).status == 204
        assert numbers_counted(service) == 1


def numbers_counted(service: Service) -> int:
    query = "SELECT SUM(number) FROM sums"
    return service.run(service.served.run_in_writer(lambda store: store._engine.execute(query).fetchone()[0]))


def test_devices_whose_numbers_are_issued_again_all_count(tmp_path: Path) -> None:
    clock, file = Clock(), study_file(tmp_path, LOCAL)
    with restored(file, clock) as (service, back_up):
        back_up()
        service.served._numbers.clear()  # those that were reserved before the copy
        before = ticket(service)
        waiting = report(service, before)
    clock.time += 1.0
    with serving(file, clock) as service:
        after = ticket(service)
        assert after.number == before.number and after != before
        for content in (waiting, report(service, after)):
            assert [service.ask("POST", "reports", content).status for _ in range(2)] == [201, 200]
        assert numbers_counted(service) == 2
        assert hashlib.sha256(service.ask("GET", "").body).digest() == before.study


def test_a_server_reserves_again_after_a_lost_connection(postgres: Cluster) -> None:
    pytest.importorskip("psycopg")
    with ReleaseStore(postgres.new()) as store:
        server = privrl.Server("ldp-ucbvi", world=ENV, epsilon=1.0, num_users=10, store=store)
        first = server.ticket().number
        store._engine._connection.close()
        assert server.ticket().number == first + 1_000
        assert np.all(np.diff([server.ticket().number for _ in range(3)]) == 1)
