"""Files and folders that appear whole or not at all, and never over something else.

A command checks its target before it spends anything (`check_file`, `check_folder`): the target is new or may be
overwritten, it is not an input of the command, and a trial file can be written next to it. The content is then written
next to the target and moved into place (`whole_file`, `whole_folder`). An older version is deleted last. If the move
fails, the new content is kept, and the error names the place.
"""

import contextlib
import errno
import fnmatch
import os
import secrets
import shutil
import stat
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

Name = str | os.PathLike[str]


class NotMovedError(OSError):
    """A file or folder was written completely, and could not be moved to its target. The message says where it is."""


# ------------------------------------------------------------------------------------------------------------- checks


def check_file(file: Name, *, overwrite: bool = False, inputs: Iterable[Name] = ()) -> Path:
    """Refuses a file that cannot or must not be written, by a trial. Links are followed.

    Arguments:
        file: the target. Folders that are missing above it may be missing.
        overwrite: whether an existing file may be replaced.
        inputs: files and folders that are read; the target must be none of them.

    Raises:
        ValueError: the target exists, is a folder or an input, or cannot be written.
    """
    target = _target(file)
    if target.is_dir():
        raise ValueError(f"`{file}` is a folder. Give the name of a file.")
    if target.exists() and not overwrite:
        raise ValueError(f"`{file}` exists already. Choose another name, or add `--overwrite` to replace it.")
    _check_apart(file, target, inputs)
    _try_writing(file, target)
    return target


def check_folder(folder: Name, known: Iterable[str], *, overwrite: bool = False, inputs: Iterable[Name] = ()) -> Path:
    """Refuses a folder that cannot or must not be written, by a trial. Links are followed.

    Arguments:
        folder: the target. Folders that are missing above it may be missing.
        known: patterns of the names that an older version holds. A folder that holds anything else is never replaced.
        overwrite: whether an older version may be replaced; an empty folder always may.
        inputs: files and folders that are read; the target must be none of them, and hold none of them.

    Raises:
        ValueError: the target exists, is an input, or cannot be written.
    """
    target = _target(folder)
    if target.exists():
        if not target.is_dir():
            raise ValueError(f"`{folder}` is a file. Give the name of a folder.")
        held = os.listdir(target)
        if any(not _matches(name, known) for name in held):
            raise ValueError(
                f"`{folder}` exists and holds other files, which are never replaced. Choose another folder."
            )
        if held and not overwrite:
            raise ValueError(f"`{folder}` exists already. Choose another folder, or add `--overwrite` to replace it.")
        if os.path.ismount(target):
            raise ValueError(
                f"`{folder}` is a mount point, which cannot be replaced by a new folder. Choose a folder inside it, "
                f"for example `{os.path.join(folder, 'result')}`."
            )
    _check_apart(folder, target, inputs)
    _try_writing(folder, target)
    return target


def check_outside(target: Name, folders: Iterable[Name]) -> None:
    """Refuses a target inside a folder that is read, of which it would become a part."""
    for folder in folders:
        if Path(folder).is_dir() and _real(folder) in (_real(target), *_real(target).parents):
            raise ValueError(f"`{target}` is inside the input `{folder}`. Choose a place outside of it.")


def _real(path: Name) -> Path:
    return Path(os.path.realpath(path))


def _target(shown: Name) -> Path:
    """The place that a name leads to, which must be a name that the system takes."""
    target = _real(shown)
    try:
        if stat.S_ISLNK(os.lstat(target).st_mode):  # all links were followed, so this one leads back to itself
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    except FileNotFoundError:
        pass
    except OSError as error:
        raise _unwritable(shown, target.parent, error) from error
    return target


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _check_apart(shown: Name, target: Path, inputs: Iterable[Name]) -> None:
    """Names are compared, and inodes too: one file may have several names."""
    for given in inputs:
        source = _real(given)
        same = source == target or (source.exists() and target.exists() and source.samefile(target))
        if same or target in source.parents:
            raise ValueError(f"`{shown}` is or holds the input `{given}`, which would be lost. Choose another name.")


def _try_writing(shown: Name, target: Path) -> None:
    """Writes a folder with a file where the target will be, renames it, and removes it."""
    above = next(parent for parent in target.parents if parent.exists())
    try:
        trial = Path(tempfile.mkdtemp(prefix=".privrl-", dir=above))
    except OSError as error:
        raise _unwritable(shown, above, error) from error
    try:
        (trial / "trial").write_bytes(b"\0")
        trial = trial.rename(trial.with_name(f"{trial.name}-renamed"))
    except OSError as error:
        raise _unwritable(shown, above, error) from error
    finally:
        shutil.rmtree(trial, ignore_errors=True)


def _unwritable(shown: Name, above: Path, error: OSError) -> ValueError:
    why = error.strerror or type(error).__name__
    return ValueError(f"`{shown}` cannot be written, because a trial in `{above}` failed: {why}. Choose another place.")


# ------------------------------------------------------------------------------------------------------------ writing


@contextlib.contextmanager
def whole_file(file: Name, *, overwrite: bool = True, secret: bool = False) -> Iterator[Path]:
    """An empty file next to `file` that takes its place if the block ends well, and is removed otherwise.

    Arguments:
        overwrite: if not, an existing file is left alone, and the new one is kept under another name.
        secret: whether only its owner may read the file.
    """
    target = _real(file)
    scratch = _beside(target)
    os.close(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o666))
    try:
        yield scratch
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    try:
        if not overwrite and os.path.lexists(target):
            raise FileExistsError("a file with this name was made in the meantime")
        os.replace(scratch, target)
    except OSError as error:
        raise _not_moved(scratch, file, error) from error


@contextlib.contextmanager
def whole_folder(folder: Name, known: Iterable[str], *, overwrite: bool = True, secret: bool = False) -> Iterator[Path]:
    """An empty folder next to `folder` that takes its place if the block ends well, and is removed otherwise.

    Arguments:
        known: patterns of the names that an older version holds. A folder that holds anything else is never replaced.
        overwrite: whether an older version is replaced; it is deleted last.
        secret: whether only its owner may look into the folder.
    """
    known = tuple(known)
    target = check_folder(folder, known, overwrite=overwrite)
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".privrl-", dir=target.parent))
    try:
        yield scratch
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    try:
        if not secret:
            scratch.chmod(0o755)
        _swap(scratch, target, known, overwrite)
    except OSError as error:
        raise _not_moved(scratch, folder, error) from error


def create_private(file: Path) -> str:
    """Creates an empty file that its owner alone can read (mode 0600), and returns its name for a writer."""
    os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    return str(file)


def _swap(scratch: Path, target: Path, known: tuple[str, ...], overwrite: bool) -> None:
    """Moves a folder into place; an older version is there until the new one is, or again if that fails."""
    if not overwrite or not target.exists() or not os.listdir(target):
        scratch.rename(target)  # refused by the system if another process has written there in the meantime
        return
    if any(not _matches(name, known) for name in os.listdir(target)):
        raise FileExistsError("other files were put there in the meantime")
    older = _beside(target)
    target.rename(older)
    try:
        scratch.rename(target)
    except OSError:
        older.rename(target)
        raise
    try:
        shutil.rmtree(older)
    except OSError as error:
        warnings.warn(f"The older version is left in `{older}`: {error.strerror}.", stacklevel=4)


def _beside(target: Path) -> Path:
    """A hidden name next to the target that no other process can guess."""
    return target.with_name(f".privrl-{secrets.token_hex(8)}{target.suffix}")


def _not_moved(scratch: Path, target: Name, error: OSError) -> NotMovedError:
    why = error.strerror or str(error)
    return NotMovedError(
        f"The result is complete, but it cannot be moved to `{target}`: {why}. It is kept in `{scratch}`. Move it to "
        "another place yourself."
    )
