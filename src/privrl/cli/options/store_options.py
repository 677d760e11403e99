"""Where a command keeps its releases, and the log that refuses an older copy."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.store.releases import AfterCrash

StoreLogOption = Annotated[
    Path | None,
    typer.Option("--store-log", help="The audit log of the store, in a file outside it; an older copy is refused."),
]


@dataclass(frozen=True)
class StoreOptions:
    """Where releases are kept, so that an interrupted command can go on."""

    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            help="File (or postgresql:// address) that keeps every release, so that a killed command can go on where "
            "it was.",
        ),
    ] = None
    store_log: StoreLogOption = None
    after_crash: Annotated[
        AfterCrash, typer.Option("--after-crash", help="What becomes of a release that a crash interrupted.")
    ] = "burn"

    def opened(self) -> AbstractContextManager[ReleaseStore | None]:
        """The open store; `None` without a store."""
        if self.store is not None:
            return ReleaseStore(self.store, after_crash=self.after_crash, log=self.store_log)
        if self.store_log is not None:
            raise ValueError("`--store-log` belongs to a store, and `--store` is missing. Leave it out.")
        return nullcontext()
