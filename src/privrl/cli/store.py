"""`privrl store show`, `purge`, `backup`, `restore`, `grant`, `new-log`: a durable store, its copies and its users."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from privrl.cli.commands import App
from privrl.cli.options.store_options import StoreLogOption
from privrl.cli.output import JsonOption, emit, say, show_table
from privrl.privacy.store.release_store import ADDRESSES, ReleaseStore, place_of, restore_store
from privrl.privacy.store.view import StoreView

store = App(name="store", help="Look at a durable store of releases, or purge its raw parts.", no_args_is_help=True)

FileArgument = Annotated[str, typer.Argument(help="A file that `ReleaseStore` made, or a postgresql:// address.")]


@contextlib.contextmanager
def _opened(file: str, log: Path | None = None, *, accept_missing_log: bool = False) -> Iterator[ReleaseStore]:
    """An existing store; what SQLite cannot read is bad input."""
    if not file.startswith(ADDRESSES) and not Path(file).exists():
        raise ValueError(f"There is no file `{file}`.")
    try:
        with ReleaseStore(file, log=log, accept_missing_log=accept_missing_log) as opened:
            yield opened
    except sqlite3.Error as error:
        raise ValueError(f"`{file}` cannot be read: {error}.") from error


@store.command()
def show(file: FileArgument, store_log: StoreLogOption = None, json: JsonOption = False) -> None:
    """Show what was declared, spent, released and burnt; nothing raw, and not how many people were counted."""
    with _opened(file, store_log) as opened:
        shown = opened.describe()
    if json:
        emit({"file": place_of(file), **shown})
    else:
        _print(shown)


def _print(shown: StoreView) -> None:
    if shown["study"] is None:
        say("No study was declared yet.")
    else:
        show_table("study", ["declared", "as"], [[key, _text(value)] for key, value in shown["study"].items()])
        pools = [
            [pool, f"{limit:g}", f"{shown['spent'][pool]:g}", f"{max(0.0, limit - shown['spent'][pool]):g}"]
            for pool, limit in shown["limits"].items()
        ]
        show_table("budget", ["pool", "limit", "spent", "left"], pools, numbers=3)
    if shown["releases"]:
        rows = [
            [row["name"], row["pool"], row["status"], row["date"], _shape(row["shape"]), f"{row['charge']:g}"]
            for row in shown["releases"]
        ]
        show_table("releases", ["name", "pool", "status", "date (UTC)", "shape", "charge"], rows, numbers=2)
    handed_out = [["places", name, f"{number:,}"] for name, number in shown["queues"].items()]
    handed_out += [["numbers", name, f"{number:,}"] for name, number in shown["ranges"].items()]
    if handed_out:
        show_table("issued", ["what", "name", "number"], handed_out, numbers=1)
    if shown["sealed"]:
        show_table("sealed", ["sum"], [[name] for name in shown["sealed"]])
    if shown["purge_unfinished"]:
        say("A purge was interrupted: raw bytes may be left. Run `privrl store purge` again.")
    elif shown["purged"]:
        say("Purged: raw sums are gone and nothing new is accepted.")
    else:
        say("Not purged: the file holds raw sums of people. Keep it private.")


def _text(value: object) -> str:
    return value if isinstance(value, str) else repr(value)


def _shape(shape: list[int] | None) -> str:
    if shape is None:
        return "-"
    return " x ".join(str(length) for length in shape) or "scalar"


@store.command()
def purge(
    file: FileArgument,
    store_log: StoreLogOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove raw sums and keys for good; what was declared, spent and released stays."""
    with _opened(file, store_log) as opened:
        if not yes:
            question = f"Remove all raw sums from `{place_of(file)}`? It then accepts nothing new"
            typer.confirm(question, abort=True, err=True)
        opened.purge()
    say(f"Purged `{place_of(file)}`: what was declared, spent and released is still there.")


@store.command()
def backup(
    file: FileArgument, copy: Annotated[Path, typer.Argument(help="The file to write; there must be none yet.")]
) -> None:
    """Copy a store, also while a service runs on it. The copy holds raw sums: protect it like the store."""
    with _opened(file) as opened:
        opened.backup(copy)
    say(f"Wrote `{copy}`. It holds raw sums; keep it private, and delete it with the study.")


@store.command()
def restore(
    copy: Annotated[Path, typer.Argument(help="A copy that `privrl store backup` wrote.")],
    file: Annotated[Path, typer.Argument(help="The store to restore; there must be no such file.")],
    store_log: Annotated[Path, typer.Option(help="The audit log of the store, which refuses a copy that is too old.")],
) -> None:
    """Put a copy in the place of a lost store, unless the audit log shows that the copy lacks a release."""
    try:
        restore_store(copy, file, store_log)
    except sqlite3.Error as error:
        raise ValueError(f"`{copy}` cannot be read: {error}.") from error
    say(f"Restored `{file}`: it has every event of `{store_log}`.")
    say("Records since the copy are lost. People who arrived since then may arrive again: no person is counted twice.")
    say("Keys that were revoked since the copy are valid again: see `privrl serve key list`.")


@store.command()
def grant(
    file: Annotated[str, typer.Argument(help="The postgresql:// address of a store, as the owner of its tables.")],
    role: Annotated[str, typer.Argument(help="The role under which services connect.")],
) -> None:
    """Let a PostgreSQL role run services on a store: it may read, add and update, and neither delete nor alter."""
    if not file.startswith(ADDRESSES):
        raise ValueError(f"`{file}` is a file; only stores on a PostgreSQL server have roles.")
    from privrl.privacy.store.postgres import grant_service  # an extra, which most people do not have

    with _opened(file):
        grant_service(file, role)
    say(f"{role!r} may run services on `{place_of(file)}`; deleting and altering stay with the owner of the tables.")


@store.command(name="new-log")
def new_log(
    file: FileArgument, log: Annotated[Path, typer.Argument(help="The audit log to write; there must be none yet.")]
) -> None:
    """Begin the audit log of a store that was used before without one here. Confirm only if it is the newest copy."""
    if log.exists():
        raise ValueError(f"There is a log `{log}` already; it is added to by itself. To check it: `--store-log {log}`.")
    with _opened(file, log, accept_missing_log=True):
        say(f"Wrote `{log}`: from now on older copies of `{place_of(file)}` are refused where it is given.")
