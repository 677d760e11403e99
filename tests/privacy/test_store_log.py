"""The audit log names every event before its effect is returned, and refuses an older copy of the store."""

import contextlib
import errno
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from privacy.test_store_chain import unguarded

from privrl.privacy.store.errors import AuditLogError, BehindLogError, StoreError
from privrl.privacy.store.release_store import ReleaseStore


def seven() -> np.ndarray:
    return np.array([7, -7])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "study.db"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "elsewhere.log"


def lines(log: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def open_once(path: Path, log: Path) -> None:
    ReleaseStore(path, log=log).close()


def fill(path: Path, log: Path) -> None:
    with ReleaseStore(path, log=log) as store:
        store.open_study({"title": "stays"}, {"rho": 1.0})
        store.contribute("block 0", ["anna"], np.array([5]))
        store.seal("block 0")
        store.release("first", "rho", 0.25, seven, distribution=b"scale 3")


def restored(path: Path, copy: Path) -> None:
    for file in path.parent.glob(f"{path.name}-*"):
        file.unlink()
    shutil.copy(copy, path)


def test_every_event_is_in_the_log_before_its_effect_is_returned(path: Path, log: Path) -> None:
    with ReleaseStore(path, log=log) as store:
        store.open_study({}, {"rho": 1.0})
        assert [line["kind"] for line in lines(log)] == ["file", "study"]

        def draw() -> np.ndarray:
            assert lines(log)[-1]["kind"] == "reserve"
            return seven()

        store.release("first", "rho", 0.25, draw)
        assert lines(log)[-1]["kind"] == "value" and lines(log)[-1]["subject"] == "first"
    assert log.stat().st_mode & 0o777 == 0o600
    with contextlib.closing(sqlite3.connect(path)) as database:
        chain = database.execute("SELECT number, kind, subject, hash FROM chain ORDER BY number").fetchall()
    assert [(n, k, s, h.hex()) for n, k, s, h in chain] == [
        (line["number"], line["kind"], line["subject"], line["hash"]) for line in lines(log)
    ]


def test_the_log_names_no_person_and_no_sum(path: Path, log: Path) -> None:
    """Two stores that differ in who came and what they brought have the same events."""
    for folder, people in (("a", ["anna"]), ("b", ["ben", "carl"])):
        place = path.parent / folder
        place.mkdir()
        with ReleaseStore(place / "s.db", log=place / "s.log") as store:
            store.open_study({}, {"rho": 1.0})
            for person in people:
                store.arrive_all("people", [person], at_most=9, contents=lambda new, first: [b""])
            store.contribute("block 0", people, np.array([[len(p)] for p in people]))
            store.seal("block 0")
            store.release("first", "rho", 0.25, seven)
    one, other = (
        [(line["number"], line["kind"], line["subject"]) for line in lines(path.parent / f / "s.log")] for f in "ab"
    )
    assert one == other


@pytest.mark.parametrize("after", ["reserve", "value", "seal", "fact"])
def test_an_older_copy_is_refused_with_what_it_lacks(path: Path, log: Path, after: str) -> None:
    fill(path, log)
    copy = path.with_name("backup.db")
    with contextlib.closing(sqlite3.connect(path)) as source, contextlib.closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    copy.chmod(0o600)
    with ReleaseStore(path, log=log) as store:
        if after == "seal":
            store.seal("block 1")
        elif after == "fact":
            store.fact("sums of block 1", lambda: b"1")
        else:
            with contextlib.suppress(InterruptedError):
                store.release("second", "rho", 0.25, seven if after == "value" else _interrupted)
    events = len(lines(log))
    restored(path, copy)
    for _ in range(2):
        with pytest.raises(BehindLogError, match=r"behind its audit log.*older copy was restored"):
            open_once(path, log)
    assert len(lines(log)) == events
    ReleaseStore(path).close()  # without its log nobody would have noticed


def _interrupted() -> np.ndarray:
    raise InterruptedError


def test_a_store_that_forgets_while_it_is_open_is_refused_at_the_next_event(path: Path, log: Path) -> None:
    """As a database does whose connections end at a replica that lags."""
    fill(path, log)
    with ReleaseStore(path, log=log) as store:
        with unguarded(path) as database:
            database.execute("DELETE FROM chain WHERE number = (SELECT MAX(number) FROM chain)")
            database.execute("UPDATE releases SET value = NULL, shape = NULL, released = NULL WHERE name = 'first'")
        before = log.read_bytes()
        with pytest.raises(BehindLogError, match="a replica lags"):
            store.release("second", "rho", 0.25, seven)
        with pytest.raises(BehindLogError, match="a replica lags"):
            store.seal("block 1")
        assert log.read_bytes() == before and store.describe()["spent"] == {"rho": 0.25}


def test_a_store_with_another_value_under_the_same_name_is_refused(path: Path, log: Path) -> None:
    fill(path, log)
    copy = path.with_name("backup.db")
    with contextlib.closing(sqlite3.connect(path)) as source, contextlib.closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    copy.chmod(0o600)
    with ReleaseStore(path, log=log) as store:
        store.release("second", "rho", 0.25, seven)
    restored(path, copy)
    with ReleaseStore(path) as store:  # the same name drawn again, on a machine without the log
        store.release("second", "rho", 0.25, lambda: np.array([8, -8]))
    with pytest.raises(BehindLogError):
        open_once(path, log)


def test_a_lost_store_is_not_begun_anew(path: Path, log: Path) -> None:
    fill(path, log)
    for file in path.parent.glob("study.db*"):
        file.unlink()
    with pytest.raises(BehindLogError, match="so there was one"):
        open_once(path, log)
    assert not path.exists()


EDITS: dict[str, Callable[[list[str]], list[str]]] = {
    "a line removed": lambda all_: all_[:2] + all_[3:],
    "two lines exchanged": lambda all_: [*all_[:2], all_[3], all_[2], *all_[4:]],
    "a name changed": lambda all_: [line.replace('"first"', '"fierst"') for line in all_],
    "a hash changed": lambda all_: [all_[0].replace("a", "b", 1), *all_[1:]],
    "a space added": lambda all_: [all_[0].replace(",", ", ", 1), *all_[1:]],
    "a line that is none": lambda all_: [*all_[:2], "hello", *all_[2:]],
    "an empty line": lambda all_: [*all_, ""],
    "the end cut off": lambda all_: all_[:-2],
    "all but the first cut off": lambda all_: all_[:1],
    "emptied": lambda all_: [],
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_log_that_was_edited_or_cut_is_refused(path: Path, log: Path, edit: str) -> None:
    fill(path, log)
    log.write_text("".join(f"{line}\n" for line in EDITS[edit](log.read_text().splitlines())))
    with pytest.raises(StoreError, match=r"was changed|lacks|is missing"):
        open_once(path, log)


def test_a_log_cut_in_the_middle_of_a_line_is_completed_or_refused(path: Path, log: Path) -> None:
    """Wherever a crash stopped the writing of the last line, the log becomes what it would have been."""
    fill(path, log)
    whole = log.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for end in range(last, len(whole)):
        log.write_bytes(whole[:end])
        if end % 20 == 0 or end in (last, len(whole) - 1):
            open_once(path, log)
            assert log.read_bytes() == whole
    log.write_bytes(whole[: last + 40] + b"x")
    with pytest.raises(AuditLogError, match="not what was written"):
        open_once(path, log)
    log.write_bytes(whole + b'{"num')
    with pytest.raises(BehindLogError):
        open_once(path, log)


def test_a_log_that_is_cut_while_it_is_used_stops_the_next_release(path: Path, log: Path) -> None:
    fill(path, log)
    with ReleaseStore(path, log=log) as store:
        os.truncate(log, 100)
        with pytest.raises(AuditLogError, match="removed while it was in use"):
            store.release("second", "rho", 0.25, seven)
        assert store.describe()["spent"] == {"rho": 0.25}


def test_on_a_full_disk_nothing_is_returned_and_later_the_log_is_completed(
    path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(path, log)
    write = os.write

    def half(descriptor: int, content: bytes) -> int:
        if not content.startswith(b'{"number":'):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, content[:30])

    with ReleaseStore(path, log=log, after_crash="redraw") as store:
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", half)
            for _ in range(2):
                with pytest.raises(OSError, match="No space left"):
                    store.release("second", "rho", 0.25, seven)
        assert not log.read_bytes().endswith(b"\n") and store.describe()["spent"] == {"rho": 0.5}
    with ReleaseStore(path, log=log, after_crash="redraw") as store:
        np.testing.assert_array_equal(store.release("second", "rho", 0.25, seven), seven())
    assert [line["kind"] for line in lines(log)][-3:] == ["reserve", "redraw", "value"]


def test_two_stores_in_one_process_share_a_log(path: Path, log: Path) -> None:
    fill(path, log)
    with ReleaseStore(path, log=log) as one, ReleaseStore(path, log=log) as other:
        for i, store in enumerate((one, other, other, one)):
            store.release(f"r{i}", "rho", 0.125, seven)
        np.testing.assert_array_equal(one.value("r2"), seven())
    open_once(path, log)
    assert [line["number"] for line in lines(log)] == list(range(len(lines(log))))


def test_a_log_of_another_store_is_refused(path: Path, log: Path) -> None:
    fill(path, log)
    fill(path.with_name("other.db"), log.with_name("other.log"))
    with pytest.raises(BehindLogError, match="belongs to another store"):
        open_once(path, log.with_name("other.log"))


def test_a_missing_log_is_accepted_once_by_who_vouches(path: Path, log: Path) -> None:
    fill(path, log)
    before = log.read_bytes()
    log.unlink()
    with pytest.raises(StoreError, match=r"audit log .* is missing, .* `privrl store new-log STORE LOG`"):
        open_once(path, log)
    ReleaseStore(path, log=log, accept_missing_log=True).close()
    assert log.read_bytes() == before
