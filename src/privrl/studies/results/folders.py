"""Folders that are written all or nothing, and never over anything else."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Set
from pathlib import Path


def check_folder(folder: str | Path, known: Set[str]) -> Path:
    """The folder, if it can be written anew: it does not exist yet, or holds nothing but `known` files."""
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or set(os.listdir(folder)) - known):
        raise ValueError(f"`{folder}` exists and is not a saved result. Choose another folder, or remove it.")
    check_writable(folder)
    return folder


def check_writable(folder: Path) -> None:
    """Refuses a folder that cannot be made, before anything is spent."""
    above = next(parent for parent in folder.absolute().parents if parent.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise ValueError(f"`{folder}` cannot be made: `{above}` is not a folder that you can write to.")


@contextlib.contextmanager
def replacing(folder: str | Path, known: Set[str]) -> Iterator[Path]:
    """An empty folder that becomes `folder` if the block ends well, and vanishes otherwise."""
    folder = check_folder(folder, known).absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield scratch
        scratch.chmod(0o755)
        if folder.exists():
            shutil.rmtree(folder)
        scratch.rename(folder)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
