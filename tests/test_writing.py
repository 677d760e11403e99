"""What is written appears whole or not at all; nothing is lost if it cannot be moved, and inputs are never targets."""

import errno
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from privrl.writing import NotMovedError, check_file, check_folder, check_outside, whole_file, whole_folder

KNOWN = ("policy.npz", "part-*.parquet")


def folder(path: Path, content: str = "old") -> Path:
    path.mkdir(parents=True)
    (path / "policy.npz").write_text(content)
    return path


def write(target: Path, content: str = "new", **options: Any) -> None:
    with whole_folder(target, KNOWN, **options) as scratch:
        (scratch / "policy.npz").write_text(content)


def names(path: Path) -> list[str]:
    return sorted(found.name for found in path.iterdir())


def refuse_renames_to(target: Path, monkeypatch: pytest.MonkeyPatch, code: int = errno.EXDEV) -> None:
    rename = os.rename

    def renamed(source: Any, to: Any, **options: Any) -> None:
        if Path(to) == target and (Path(source) / "policy.npz").read_text() == "new":
            raise OSError(code, os.strerror(code))
        rename(source, to, **options)

    monkeypatch.setattr(os, "rename", renamed)


def test_a_folder_is_replaced_and_the_old_one_is_gone(tmp_path: Path) -> None:
    target = folder(tmp_path / "out")
    check_folder(target, KNOWN, overwrite=True)
    write(target)
    assert (target / "policy.npz").read_text() == "new" and names(tmp_path) == ["out"]
    assert target.stat().st_mode & 0o777 == 0o755


def test_a_link_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    real = folder(tmp_path / "volume" / "real")
    link = tmp_path / "out"
    link.symlink_to(real)
    check_folder(link, KNOWN, overwrite=True)
    write(link)
    assert link.is_symlink() and (real / "policy.npz").read_text() == "new"
    assert names(tmp_path) == ["out", "volume"] and names(tmp_path / "volume") == ["real"]
    (tmp_path / "text").write_text("old")
    (tmp_path / "name").symlink_to(tmp_path / "text")
    with whole_file(tmp_path / "name") as file:
        file.write_text("new")
    assert (tmp_path / "name").is_symlink() and (tmp_path / "text").read_text() == "new"


def test_a_link_to_nothing_yet_is_followed(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(tmp_path / "there" / "real")
    check_folder(tmp_path / "out", KNOWN)
    write(tmp_path / "out")
    assert names(tmp_path / "there" / "real") == ["policy.npz"]


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EBUSY])
def test_if_the_move_fails_both_results_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    target = folder(tmp_path / "out")
    refuse_renames_to(target, monkeypatch, code)
    with pytest.raises(NotMovedError, match="It is kept in") as caught:
        write(target)
    assert (target / "policy.npz").read_text() == "old"
    (kept,) = (found for found in tmp_path.iterdir() if found != target)
    assert (kept / "policy.npz").read_text() == "new" and f"`{kept}`" in str(caught.value)


def test_if_the_old_folder_cannot_be_moved_both_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = folder(tmp_path / "out")
    rename = os.rename

    def renamed(source: Any, to: Any, **options: Any) -> None:
        if Path(source) == target:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        rename(source, to, **options)

    monkeypatch.setattr(os, "rename", renamed)
    with pytest.raises(NotMovedError, match="busy"):
        write(target)
    assert (target / "policy.npz").read_text() == "old" and len(names(tmp_path)) == 2


def test_what_appears_in_the_meantime_is_not_replaced(tmp_path: Path) -> None:
    out, text = tmp_path / "out", tmp_path / "text"

    def race(target: Any, meanwhile: Any) -> None:
        with target:
            meanwhile()

    with pytest.raises(NotMovedError):
        race(whole_folder(out, KNOWN, overwrite=False), lambda: folder(out, "from another process"))
    assert (out / "policy.npz").read_text() == "from another process"
    with pytest.raises(NotMovedError):
        race(whole_folder(out, KNOWN), lambda: (out / "thesis.txt").write_text("years of work"))
    assert (out / "thesis.txt").exists()
    with pytest.raises(NotMovedError):
        race(whole_file(text, overwrite=False), lambda: text.write_text("from another process"))
    assert text.read_text() == "from another process"


def test_a_block_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    target = folder(tmp_path / "out")
    with pytest.raises(RuntimeError), whole_folder(target, KNOWN):
        raise RuntimeError
    with pytest.raises(RuntimeError), whole_file(tmp_path / "text"):
        raise RuntimeError
    assert names(tmp_path) == ["out"] and (target / "policy.npz").read_text() == "old"


@pytest.mark.parametrize("secret", [True, False])
def test_secret_files_are_for_their_owner_alone(tmp_path: Path, secret: bool) -> None:
    with whole_file(tmp_path / "text", secret=secret):
        pass
    write(tmp_path / "out", secret=secret)
    modes = [(tmp_path / name).stat().st_mode & 0o077 for name in ("text", "out")]
    assert (modes == [0, 0]) is secret


def test_existing_targets_are_refused_unless_they_may_be_overwritten(tmp_path: Path) -> None:
    target = folder(tmp_path / "out")
    (tmp_path / "text").write_text("old")
    with pytest.raises(ValueError, match="--overwrite"):
        check_folder(target, KNOWN)
    with pytest.raises(ValueError, match="--overwrite"):
        check_file(tmp_path / "text")
    with pytest.raises(ValueError, match="is a folder"):
        check_file(target, overwrite=True)
    with pytest.raises(ValueError, match="is a file"):
        check_folder(tmp_path / "text", KNOWN, overwrite=True)
    check_folder(target, KNOWN, overwrite=True)
    check_file(tmp_path / "text", overwrite=True)
    (target / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match="holds other files"):
        check_folder(target, KNOWN, overwrite=True)
    (tmp_path / "empty").mkdir()
    check_folder(tmp_path / "empty", KNOWN)
    write(tmp_path / "empty", overwrite=False)
    assert names(tmp_path) == ["empty", "out", "text"]


def test_inputs_are_never_targets(tmp_path: Path) -> None:
    raw = tmp_path / "raw.csv"
    raw.write_text("records")
    (tmp_path / "hard.csv").hardlink_to(raw)
    (tmp_path / "soft.csv").symlink_to(raw)
    (tmp_path / "there").symlink_to(tmp_path)
    for name in ("raw.csv", "hard.csv", "soft.csv", "there/raw.csv", "there/../" + tmp_path.name + "/raw.csv"):
        with pytest.raises(ValueError, match="would be lost"):
            check_file(tmp_path / name, overwrite=True, inputs=[raw])
    target = folder(tmp_path / "out")
    for source in (target, target / "policy.npz", target / "store.db"):
        with pytest.raises(ValueError, match="would be lost"):
            check_folder(target, KNOWN, overwrite=True, inputs=[source])
    with pytest.raises(ValueError, match="inside the input"):
        check_outside(tmp_path / "there" / "out" / "new", [target])
    check_file(tmp_path / "other.csv", inputs=[raw])
    assert raw.read_text() == "records"


def test_a_target_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("old")
    with pytest.raises(ValueError, match="cannot be written"):
        check_folder(tmp_path / "text" / "out", KNOWN)
    with pytest.raises(ValueError, match="cannot be written"):
        check_file(tmp_path / "text" / "out" / "page.html")


@pytest.mark.parametrize("call", ["mkdtemp", "write_bytes", "rename"])
def test_a_trial_that_fails_refuses_the_target_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Where permissions do not stop the owner of the tests, a file system may still be read-only or full."""

    def refused(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    where = {"mkdtemp": "tempfile.mkdtemp", "write_bytes": "pathlib.Path.write_bytes", "rename": "os.rename"}[call]
    monkeypatch.setattr(where, refused)
    with pytest.raises(ValueError, match="Read-only file system"):
        check_folder(tmp_path / "new" / "out", KNOWN)
    with pytest.raises(ValueError, match="Read-only file system"):
        check_file(tmp_path / "text")
    assert names(tmp_path) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not stop root")
def test_a_folder_without_permission_is_refused(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(ValueError, match="cannot be written"):
        check_folder(tmp_path / "locked" / "out", KNOWN)


@pytest.fixture
def mounted(tmp_path: Path) -> Any:
    """A file system of its own, if this process may mount one."""
    place = tmp_path / "volume"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "none", str(place)], capture_output=True)
    if done.returncode:
        pytest.skip("this process may not mount file systems")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_mount_point_is_refused_and_a_folder_on_it_is_not(mounted: Path) -> None:
    (mounted / "policy.npz").write_text("old")
    with pytest.raises(ValueError, match="is a mount point"):
        check_folder(mounted, KNOWN, overwrite=True)
    write(mounted / "out")
    write(mounted / "out")
    assert names(mounted) == ["out", "policy.npz"] and (mounted / "policy.npz").read_text() == "old"


def test_a_mount_point_is_refused_on_every_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == tmp_path / "out")
    folder(tmp_path / "out")
    with pytest.raises(ValueError, match="is a mount point"):
        check_folder(tmp_path / "out", KNOWN, overwrite=True)
