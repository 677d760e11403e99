"""The Parquet files of a table, the columns in their folder names, and stamps that reveal later changes."""

import glob
import hashlib
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from privrl.data.schema.columns import describe_type
from privrl.data.schema.guard import redact_errors
from privrl.data.schema.table_schema import TableError

if TYPE_CHECKING:
    import pyarrow as pa

Paths = str | Path | Sequence[str | Path]
"""A file, a folder, a pattern, or several of them."""

_MAGIC = b"PAR1"
_EMPTY = "__HIVE_DEFAULT_PARTITION__"  # a folder name that stands for null


def parquet_files(paths: Paths) -> tuple[Path, ...]:
    """List the Parquet files of a table in the order in which they are read.

    A file stands for itself. A folder stands for all `*.parquet` files in it and below it, sorted by name. A text with
    `*`, `?` or `[` that names no file is a pattern (`**` for folders of any depth), sorted by name. Several paths are
    read one after another. Names in folders that begin with `.` or `_` are skipped, because other programs store
    metadata there.

    Raises:
        TableError: if a path matches nothing, or a file is given twice.
    """
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    if not given:
        raise TableError("No path was given. Give a Parquet file, a folder of Parquet files, or a pattern.")
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
        raise TableError(f"There is no file or folder `{path}`. Give a Parquet file or a folder of Parquet files.")
    found = [Path(name) for name in sorted(glob.glob(str(path), recursive=True))]
    folders = [folder for folder in found if folder.is_dir() and not any(folder in file.parents for file in found)]
    files = [file for file in found if file.is_file()] + [file for folder in folders for file in _files_below(folder)]
    if not files:
        raise TableError(f"The pattern `{path}` matches no file. Give another pattern, or a folder.")
    return sorted(files)


def _files_below(folder: Path) -> list[Path]:
    found = sorted(folder.rglob("*.parquet"))
    files = [
        file
        for file in found
        if file.is_file() and not any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)
    ]
    if not files:
        # The message leaves out the folder's name, which may be that of a person.
        raise TableError("One of the folders holds no `*.parquet` file. Give another folder, or a file.")
    return files


def describe_file(files: Sequence[Path], number: int) -> str:
    """The name of a file in errors, with its number if several files have this name. The folder is left out, because
    its name may be that of a person."""
    name = files[number].name
    alone = sum(file.name == name for file in files) == 1
    return f"`{name}`" if alone else f"`{name}` (file {number + 1} of {len(files)})"


@dataclass(frozen=True)
class FolderColumns:
    """Columns whose values are in folder names, `NAME=VALUE`, and not in the files.

    **Formal guarantee.** Types are arguments and never follow from the names, so a value is a function of the folders
    of its own file.

    Attributes:
        files: the files of the table.
        declared: the type of each column; a column that is not declared is text.
    """

    files: tuple[Path, ...]
    declared: Mapping[str, "pa.DataType"]

    def types(self, number: int) -> dict[str, "pa.DataType"]:
        """The columns that the folders of a file provide."""
        import pyarrow as pa

        return {name: self.declared.get(name, pa.string()) for name in self._texts(number)}

    def add_to(self, batch: "pa.RecordBatch", number: int, columns: Sequence[str]) -> "pa.RecordBatch":
        """Add those of the columns that the batch lacks."""
        import pyarrow as pa

        texts, types = self._texts(number), self.types(number)
        for name in columns:
            if name not in batch.schema.names:
                problem = (
                    f"Column `{name}` is read from folder names, and the folder of {describe_file(self.files, number)} "
                    f"does not hold {describe_type(types[name])}"
                )
                with redact_errors(problem, "Rename the folder, or write the column into the files."):
                    value = pa.scalar(texts[name], pa.string()).cast(types[name])
                    batch = batch.append_column(name, pa.repeat(value, batch.num_rows))
        return batch

    def _texts(self, number: int) -> dict[str, str | None]:
        pairs = (part.partition("=") for part in self.files[number].parts[:-1])
        problem = f"A folder of {describe_file(self.files, number)} has a name that is not text in UTF-8"
        with redact_errors(problem, "Rename the folder."):
            texts = {
                name: urllib.parse.unquote(text, errors="strict") for name, equals, text in pairs if name and equals
            }
        return {name: None if text == _EMPTY else text for name, text in texts.items()}


@dataclass(frozen=True)
class Stamp:
    """A fingerprint of a file, by which a later change is noticed: its size, its time of modification, its inode, and a
    hash of its footer.

    The footer holds the sizes and the smallest and largest values of all row groups. In another process the inode is
    not compared, because mounts number files differently.
    """

    content: str
    inode: str | None

    @classmethod
    def from_path(cls, path: Path) -> "Stamp":
        with (
            redact_errors(f"`{path.name}` cannot be read", "Give a Parquet file that can be read."),
            path.open("rb") as file,
        ):
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
