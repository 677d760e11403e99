"""Which Parquet files make up a table, what the names of their folders say, and whether one has changed since."""

import glob
import hashlib
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from privrl.data.schema.guard import guarded
from privrl.data.schema.table_schema import TableError

if TYPE_CHECKING:
    import pyarrow as pa

Paths = str | Path | Sequence[str | Path]
"""A file, a folder, a pattern, or several of them."""

_MAGIC = b"PAR1"
_EMPTY = "__HIVE_DEFAULT_PARTITION__"


def parquet_files(paths: Paths) -> tuple[Path, ...]:
    """The Parquet files of a table in the order in which they are read.

    A file is itself; a folder is all `*.parquet` files in it and below it, by name; a text with `*`, `?` or `[` that
    names no file is a pattern (`**` for folders of any depth), in the order of names. Several of them follow each
    other. Names that begin with `.` or `_` are left out of folders: other programs keep their own notes there.
    """
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    if not given:
        raise TableError("No path was given. Give a Parquet file, a folder of them, or a pattern.")
    files = [file for path in given for file in _files_of(path)]
    places: set[Path] = set()
    for file in files:
        if file.resolve() in places:
            raise TableError(f"`{file.name}` is given twice, so its people would count twice. Give every file once.")
        places.add(file.resolve())
    return tuple(files)


def _files_of(path: str | Path) -> list[Path]:
    exact = Path(path)
    if exact.is_dir():
        return _files_below(exact)
    if exact.is_file():
        return [exact]
    if not glob.has_magic(str(path)):
        raise TableError(f"There is no file or folder `{path}`. Give a Parquet file or a folder of them.")
    found = [Path(name) for name in sorted(glob.glob(str(path), recursive=True))]
    folders = [folder for folder in found if folder.is_dir() and not any(folder in file.parents for file in found)]
    files = [file for file in found if file.is_file()] + [file for folder in folders for file in _files_below(folder)]
    if not files:
        raise TableError(f"The pattern `{path}` matches no file. Give another one, or a folder.")
    return sorted(files)


def _files_below(folder: Path) -> list[Path]:
    found = sorted(folder.rglob("*.parquet"))
    files = [
        file
        for file in found
        if file.is_file() and not any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)
    ]
    if not files:
        raise TableError(f"The folder `{folder.name}` holds no `*.parquet` file. Give another one, or a file.")
    return files


def words_for(files: Sequence[Path], number: int) -> str:
    """What one of the files is called in an error: its name, and its number where others have the same name. Never its
    folder, which may be named after somebody."""
    name = files[number].name
    alone = sum(file.name == name for file in files) == 1
    return f"`{name}`" if alone else f"`{name}` (file {number + 1} of {len(files)})"


@dataclass(frozen=True)
class FolderColumns:
    """Columns that are written into the names of folders, `NAME=VALUE`, and nowhere else.

    Attributes:
        whole: the columns whose every value is a whole number; the others are text.
    """

    files: tuple[Path, ...]
    whole: frozenset[str]

    @classmethod
    def of(cls, files: tuple[Path, ...]) -> "FolderColumns":
        texts: dict[str, list[str | None]] = {}
        for file in files:
            for name, text in _folders(file).items():
                texts.setdefault(name, []).append(text)
        return cls(files, frozenset(name for name, given in texts.items() if all(map(_is_whole, given))))

    def types(self, number: int) -> dict[str, "pa.DataType"]:
        """The columns that the folders of a file give it."""
        import pyarrow as pa

        return {name: pa.int64() if name in self.whole else pa.string() for name in _folders(self.files[number])}

    def added(self, batch: "pa.RecordBatch", number: int, columns: Sequence[str]) -> "pa.RecordBatch":
        """The batch with those of the columns that it lacks."""
        import pyarrow as pa

        folders, types = _folders(self.files[number]), self.types(number)
        for name in columns:
            if name not in batch.schema.names:
                text = folders[name]
                value = text if text is None or name not in self.whole else int(text)
                with guarded(f"Column `{name}`, which is the name of a folder, cannot be read"):
                    batch = batch.append_column(name, pa.repeat(pa.scalar(value, types[name]), batch.num_rows))
        return batch


def _folders(file: Path) -> dict[str, str | None]:
    pairs = (part.partition("=") for part in file.parts[:-1])
    texts = {name: urllib.parse.unquote(text) for name, equals, text in pairs if name and equals}
    return {name: None if text == _EMPTY else text for name, text in texts.items()}


def _is_whole(text: str | None) -> bool:
    return text is None or (text.removeprefix("-").isdecimal() and text.isascii() and -(2**63) <= int(text) < 2**63)


@dataclass(frozen=True)
class Stamp:
    """What is noted of a file to notice that it was written to: its size, its time and a hash of its footer, which has
    the sizes and the smallest and largest values of all row groups; and its inode. In another process the inode is not
    compared: mounts number files as they like."""

    content: str
    inode: str | None

    @classmethod
    def of(cls, path: Path) -> "Stamp":
        with guarded(f"`{path.name}` cannot be read", "Give a Parquet file that can be read."), path.open("rb") as file:
            stat = path.stat()
            file.seek(max(0, stat.st_size - 8))
            tail = file.read(8)
            length = int.from_bytes(tail[:4], "little") if tail[4:] == _MAGIC else 0
            file.seek(max(0, stat.st_size - 8 - length))
            footer = hashlib.sha256(file.read(length + 8)).hexdigest()
        return cls(f"{stat.st_size} {stat.st_mtime_ns} {footer}", str(stat.st_ino))

    def __reduce__(self) -> tuple[type["Stamp"], tuple[str, None]]:
        return Stamp, (self.content, None)

    def matches(self, other: "Stamp") -> bool:
        return self.content == other.content and (None in (self.inode, other.inode) or self.inode == other.inode)
