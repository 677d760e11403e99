"""`privrl store` shows what was spent and released, purges on request, and explains what is wrong."""

import contextlib
import io
import json
import shutil
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from postgres import Cluster, programs

from privrl.cli import main
from privrl.privacy.store.release_store import ReleaseStore

RAW = 7_423_511_982_345


def call(*arguments: str | Path, answer: str = "") -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr("sys.stdin", io.StringIO(answer))
        patch.setenv("COLUMNS", "120")
        code = main(["store", *(str(argument) for argument in arguments)])
    return code, out.getvalue(), err.getvalue()


def fail() -> np.ndarray:
    raise InterruptedError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "study.db"
    with ReleaseStore(path) as store:
        store.open_study({"title": "[bold]stays", "horizon": 20}, {"rho": 0.5, "epsilon": 1.0})
        store.contribute("visits", ["Anna", "Ben"], np.array([[RAW, 0], [0, 1]]))
        store.arrive_all("people", ["Anna"], at_most=5, contents=lambda new, first: [b""])
        store.reserve_range("tickets", 1000)
        store.seal("visits")
        store.release("January", "rho", 0.125, lambda: np.zeros((2, 3), np.int64))
        store.release("one number", "rho", 0.0, lambda: np.array(3))
        with contextlib.suppress(InterruptedError):
            store.release("February", "rho", 0.25, fail)
    return path


def shown(path: Path) -> dict[str, Any]:
    code, out, err = call("show", path, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_json_has_everything_that_is_not_raw(path: Path) -> None:
    content = shown(path)
    assert content["file"] == str(path) and not content["purged"]
    assert content["study"] == {"title": "[bold]stays", "horizon": 20}
    assert content["limits"] == {"epsilon": 1.0, "rho": 0.5} and content["spent"] == {"epsilon": 0.0, "rho": 0.375}
    assert content["sealed"] == ["visits"]
    assert (content["queues"], content["ranges"]) == ({"people": 1}, {"tickets": 1000})
    assert [(row["name"], row["status"], row["charge"], row["shape"]) for row in content["releases"]] == [
        ("January", "released", 0.125, [2, 3]),
        ("one number", "released", 0.0, []),
        ("February", "burnt", 0.25, None),
    ]


def test_the_table_has_limits_charges_and_what_was_burnt(path: Path) -> None:
    code, out, err = call("show", path)
    assert (code, err) == (0, "")
    rows = {
        tuple(line.replace("│", "|").split("|")[1].split()): line.split() for line in out.splitlines() if "│" in line
    }
    assert [cell for cell in rows["rho",] if cell != "│"] == ["rho", "0.5", "0.375", "0.125"]
    assert {"released", "2", "3", "0.125"} <= set(rows["January",])
    assert {"burnt", "-", "0.25"} <= set(rows["February",])
    assert "scalar" in rows["one", "number"] and "[bold]stays" in out
    assert "Not purged" in out


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_nothing_raw_is_shown(path: Path, options: tuple[str, ...]) -> None:
    out = call("show", path, *options)[1]
    assert not [word for word in ("Anna", "Ben", str(RAW), f"{RAW:,}") if word in out]


def test_how_many_were_counted_is_not_shown(tmp_path: Path) -> None:
    """Two stores that differ in who was counted print the same."""
    printed = []
    for people in (0, 1, 701):
        folder = tmp_path / f"{people}"
        folder.mkdir()
        with ReleaseStore(folder / "study.db") as store:
            if people:
                store.contribute("visits", [f"{i}" for i in range(people)], np.ones((people, 1), np.int64))
        with contextlib.chdir(folder):
            printed.append((call("show", "study.db"), call("show", "study.db", "--json")))
    assert printed[0] == printed[1] == printed[2]


def test_a_store_without_a_study_is_shown(tmp_path: Path) -> None:
    ReleaseStore(tmp_path / "new.db").close()
    code, out, _ = call("show", tmp_path / "new.db")
    assert code == 0 and "No study was declared yet." in out


@pytest.mark.parametrize(("answer", "options", "purged"), [("y\n", (), True), ("", ("--yes",), True)])
def test_purge_removes_what_is_raw(path: Path, answer: str, options: tuple[str, ...], purged: bool) -> None:
    before = shown(path)
    code, out, err = call("purge", path, *options, answer=answer)
    assert code == 0 and out.strip().startswith("Purged"), err
    assert shown(path) == before | {"purged": purged}
    assert "Purged" in call("show", path)[1]
    left = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert RAW.to_bytes(8, "little") not in left


@pytest.mark.parametrize("answer", ["n\n", ""])
def test_purge_asks_first(path: Path, answer: str) -> None:
    code, out, err = call("purge", path, answer=answer)
    assert code == 1 and out.strip() == "" and "accepts nothing new" in err
    assert not shown(path)["purged"]


def test_an_unfinished_purge_is_shown(path: Path) -> None:
    class Interrupted(ReleaseStore):
        def _reached(self, point: str) -> None:
            if point == "purge:rewritten":
                raise InterruptedError

    with pytest.raises(InterruptedError), Interrupted(path) as store:
        store.purge()
    assert "raw bytes may be left" in call("show", path)[1]


def test_a_store_that_was_changed_is_explained(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as database:
        (guard,) = database.execute(
            "SELECT sql FROM sqlite_master WHERE sql LIKE '%a release is not deleted%'"
        ).fetchone()
        database.execute(f"DROP TRIGGER {guard.split()[2]}")
        database.execute("DELETE FROM releases WHERE name = 'January'")
        database.execute(guard)
        database.commit()
    code, out, err = call("show", path)
    assert (code, out) == (2, "") and "changed by another program" in err and "Traceback" not in err


@pytest.mark.parametrize("command", [("show",), ("show", "--json"), ("purge", "--yes")])
def test_bad_files_are_explained_and_left_alone(command: tuple[str, ...], tmp_path: Path) -> None:
    text, damaged, open_to_all = tmp_path / "text.db", tmp_path / "damaged.db", tmp_path / "open.db"
    text.write_text("not a database, " * 100)
    for path in (damaged, open_to_all):
        ReleaseStore(path).close()
    damaged.write_bytes(damaged.read_bytes()[:5000])
    for path in (text, damaged):
        path.chmod(0o600)
    open_to_all.chmod(0o644)
    for path, words in [
        (tmp_path / "missing.db", "no file"),
        (tmp_path, "not a file"),
        (text, "cannot be opened"),
        (damaged, "cannot be"),
        (open_to_all, "chmod 600"),
    ]:
        code, out, err = call(command[0], path, *command[1:])
        assert code == 2 and words in err and "Traceback" not in err, (path, err)
        assert (json.loads(out).keys() == {"error"}) if "--json" in command else out == ""
    assert not (tmp_path / "missing.db").exists()


def test_a_log_is_begun_once_and_refuses_an_older_copy(path: Path, tmp_path: Path) -> None:
    log, copy = tmp_path / "study.log", tmp_path / "copy.db"
    for command in (("show",), ("purge", "--yes")):
        code, _, err = call(command[0], path, *command[1:], "--store-log", log)
        assert code == 2 and "privrl store new-log STORE LOG" in err
    assert call("new-log", path, log)[0] == 0
    code, _, err = call("new-log", path, log)
    assert code == 2 and "already" in err
    shutil.copy(path, copy)
    assert call("purge", path, "--yes", "--store-log", log)[0] == 0
    assert json.loads(log.read_text().splitlines()[-1])["kind"] == "purge"
    assert call("show", path, "--store-log", log)[0] == 0
    code, _, err = call("show", copy, "--store-log", log)
    assert code == 2 and "older copy" in err


def test_a_store_in_use_is_backed_up_and_the_newest_copy_restored(tmp_path: Path) -> None:
    path, copy, log = tmp_path / "study.db", tmp_path / "copy.db", tmp_path / "study.audit.log"
    with ReleaseStore(path, log=log) as store:
        store.open_study({}, {"rho": 1.0})
        store.release("January", "rho", 0.5, lambda: np.array([3]))
        store.contribute("visits", ["Anna"], np.array([[RAW]]))  # in the write-ahead log, not in the file
        code, out, err = call("backup", path, copy)
        assert (code, err) == (0, "") and "raw sums" in out
        assert copy.stat().st_mode & 0o777 == 0o600
        assert call("backup", path, copy)[0] == 2  # a copy is not overwritten
    assert call("restore", copy, path, "--store-log", log)[0] == 2  # nor is a store
    path.unlink()
    code, out, err = call("restore", copy, path, "--store-log", log)
    assert (code, err) == (0, "") and "Restored" in out
    with ReleaseStore(path, log=log) as store:
        assert store.release("January", "rho", 0.5, fail).tolist() == [3]
        assert store.contribute("visits", ["Anna"], np.array([[RAW]])) == [False]
        store.release("February", "rho", 0.25, lambda: np.array([4]))

    path.unlink()
    before = log.read_bytes()
    code, _, err = call("restore", copy, path, "--store-log", log)
    assert code == 2 and "older copy was restored" in err
    assert log.read_bytes() == before and not list(tmp_path.glob("study.db*"))
    assert call("restore", copy, path, "--store-log", tmp_path / "none")[0] == 2 and not path.exists()


def test_a_store_on_a_server_is_backed_up_by_the_servers_tools(postgres: Cluster, tmp_path: Path) -> None:
    """The commands of the refusal, run: a dump that lacks a release is refused by the log, and the newest is not."""
    psycopg = pytest.importorskip("psycopg")
    address, log = postgres.new(), tmp_path / "study.audit.log"
    schema = address.rsplit("%3D", 1)[1]
    with ReleaseStore(address, log=log) as store:
        store.open_study({}, {"rho": 1.0})
        store.release("January", "rho", 0.5, lambda: np.array([3]))
    code, _, err = call("backup", address, tmp_path / "copy.db")
    assert code == 2 and "pg_dump" in err and "pg_restore" in err
    server = postgres.address("public")

    def dump(name: str) -> Path:
        path = tmp_path / name
        tool("pg_dump", "--format=custom", f"--schema={schema}", f"--file={path}", server)
        return path

    def restore(path: Path) -> tuple[int, str, str]:
        with psycopg.connect(server, autocommit=True) as database:
            database.execute(f"DROP SCHEMA {schema} CASCADE")
        tool("pg_restore", f"--dbname={server}", path)
        return call("show", address, "--store-log", log)

    old = dump("old")
    assert restore(old)[0] == 0
    with ReleaseStore(address, log=log) as store:
        store.release("February", "rho", 0.25, lambda: np.array([4]))
    new = dump("new")
    code, _, err = restore(old)
    assert code == 2 and "older copy was restored" in err
    assert restore(new)[0] == 0


def tool(name: str, *arguments: str | Path) -> None:
    """Runs one of the server's programs."""
    folder = programs()
    assert folder is not None
    subprocess.run([folder / name, *arguments], check=True, capture_output=True, timeout=60)
