"""Ways to spend twice or to learn from what is left behind, as an outsider tried them on a store."""

import os
import sqlite3

import numpy as np
import pytest
from contract import tiny_data, tiny_world
from test_durable import FatalError, Mortal

import privrl
from privrl.privacy import StoreError
from privrl.privacy.store.chain import ChainedEvent
from privrl.privacy.store.log import AuditLog

ENV = tiny_world()


def fitted(store):
    learner = privrl.VAPVI(ENV.features, ENV.horizon, split=True)
    return privrl.fit(tiny_data(ENV), learner, privrl.Central(epsilon=3.0, delta=1e-5), store=store)


def test_a_second_name_of_the_file_is_refused(tmp_path):
    """Locks and logs go by name: under two names two processes would each spend the whole budget."""
    with privrl.ReleaseStore(tmp_path / "a.db") as store:
        store.open_study({}, {"rho": 1.0})
    os.link(tmp_path / "a.db", tmp_path / "b.db")
    for name in ("a.db", "b.db"):
        with pytest.raises(StoreError, match="hard link"):
            privrl.ReleaseStore(tmp_path / name)


@pytest.mark.parametrize("linked", ["a.db.lock", "a.log"])
def test_a_link_in_place_of_a_lock_or_a_log_leads_nowhere(tmp_path, linked):
    """What it leads to stays as it was: a lock is emptied when it is taken."""
    (tmp_path / "diary").write_text("mine")
    (tmp_path / "diary").chmod(0o600)
    where = {"path": tmp_path / "a.db", "log": tmp_path / "a.log"}
    log = AuditLog(where["log"])
    (tmp_path / linked).symlink_to(tmp_path / "diary")  # after the path of the log was resolved
    if linked == "a.log":
        with pytest.raises(OSError, match="symbolic links"):
            log.append([ChainedEvent(0, "study", "", bytes(32))], lambda point: None)
    else:
        with pytest.raises(StoreError, match=r"`.*a\.db\.lock` is a symbolic link"):
            privrl.ReleaseStore(**where)
    assert (tmp_path / "diary").read_text() == "mine"


def test_nothing_that_purge_leaves_can_test_a_guess(tmp_path):
    """Keys of digests, groups and tickets are derived from the key that `purge` removes."""
    with privrl.ReleaseStore(tmp_path / "s.db") as store:
        fitted(store)
        secrets = [store.secret(purpose) for purpose in ("digest of the data", "groups", "tickets")]
        assert len(set(secrets)) == 3
        store.purge()
        with pytest.raises(StoreError, match="purged"):
            store.secret("groups")
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert not any(secret in content for secret in secrets)


def test_the_log_knows_what_another_process_is_told(tmp_path):
    """Its owner dies between keeping a value and logging it; a process that reads the value completes the log first."""
    where = {"path": tmp_path / "s.db", "log": tmp_path / "s.log"}
    with privrl.ReleaseStore(**where) as store:
        store.open_study({}, {"rho": 1.0})
    with pytest.raises(FatalError), Mortal(where["path"], "persist:committed", 1, log=where["log"]) as store:
        store.release("r", "rho", 0.5, lambda: np.array([1]))
    behind = (tmp_path / "s.log").read_bytes()
    with privrl.ReleaseStore(**where) as store:
        assert (tmp_path / "s.log").read_bytes() != behind  # opening completes it too
        (tmp_path / "s.log").write_bytes(behind)
        assert store.release("r", "rho", 0.5, lambda: np.array([2])).tolist() == [1]
        assert (tmp_path / "s.log").read_bytes() != behind


def test_durations_are_not_shown(tmp_path):
    with privrl.ReleaseStore(tmp_path / "s.db") as store:
        fitted(store)
        assert all(len(release["date"]) == len("2026-01-31") for release in store.describe()["releases"])


def test_a_place_cannot_be_given_to_another_id(tmp_path):
    with privrl.ReleaseStore(tmp_path / "s.db") as store:
        store.open_study({}, {})
        for key in ("anna", "ben"):
            store.arrive_all("people", [key], at_most=5, contents=lambda new, first: [b""])
    with sqlite3.connect(tmp_path / "s.db") as db:
        (row,) = db.execute("SELECT * FROM arrivals ORDER BY number LIMIT 1").fetchall()
        marks = ", ".join("?" * len(row))
        with pytest.raises(sqlite3.IntegrityError, match="one place"):
            db.execute(f"INSERT OR REPLACE INTO arrivals VALUES ({marks})", row)
