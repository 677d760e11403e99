"""What commands write: an existing target is refused without `--overwrite`, and an input of the command always."""

import glob
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from privrl import writing

OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace an existing target.")]
TARGETS = ("out", "csv", "plot")
"""The parameters of commands that name what is written."""
_TEXTS = ("data", "source", "practice", "store")  # parameters that name inputs, though their type is text


def check_file(context: typer.Context, file: Path, *, overwrite: bool, endings: Sequence[str] = ()) -> None:
    """Refuses a file that cannot or must not be written, before the command spends anything.

    Arguments:
        endings: those that its name may have; if there are any, its folder must exist.
    """
    if endings:
        if file.suffix not in endings:
            raise ValueError(f"The name of `{file}` must end in {', '.join(endings)}.")
        above = Path(os.path.realpath(file)).parent  # links are followed, as `writing` follows them
        if not above.is_dir():
            shown = above if file.is_symlink() else file.parent
            raise ValueError(f"`{file}` cannot be written: there is no folder `{shown}`. Make it first.")
    writing.check_file(file, overwrite=overwrite, inputs=_inputs(context))


def check_folder(context: typer.Context, folder: Path, known: Iterable[str], *, overwrite: bool) -> None:
    """Refuses a folder that cannot or must not be written, before the command spends anything.

    Arguments:
        known: patterns of the names that an older version holds; a folder with others is refused.
    """
    writing.check_folder(folder, known, overwrite=overwrite, inputs=_inputs(context))


def save(target: Path, write: Callable[[Path], object]) -> None:
    """Calls `write` with the target, for a result that a budget was spent on.

    If the target was taken or became unwritable since it was checked, the result is written to a temporary folder
    instead, and the error names the place.
    """
    try:
        write(target)
    except writing.NotMovedError:
        raise
    except (OSError, ValueError) as error:
        elsewhere = Path(tempfile.mkdtemp(prefix="privrl-")) / target.name
        write(elsewhere)
        raise writing.NotMovedError(
            f"The result is complete, but `{target}` cannot be written any more: {error} The result is in "
            f"`{elsewhere}`. Move it to another place yourself."
        ) from error


def _inputs(context: typer.Context) -> Iterator[str]:
    """All files and folders that the arguments of a command name, apart from its targets."""
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if value is None or parameter.name in TARGETS:
            continue
        given = value if isinstance(value, list | tuple) else [value]
        if parameter.name in _TEXTS:
            for text in map(str, given):
                yield from [text] if os.path.exists(text) else glob.glob(text, recursive=True)
                if parameter.name == "store":
                    yield text  # which may not exist yet
        else:
            yield from (str(path) for path in given if isinstance(path, Path))
