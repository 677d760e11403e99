"""Who does the work: this process, several on this machine, or a Dask cluster."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from privrl.cli.options.grouped import given, refuse
from privrl.cli.output import waiting
from privrl.executors.connection import connect
from privrl.executors.dask import Dask
from privrl.executors.executor import AbstractExecutor
from privrl.executors.processes import Processes

_PANEL = "Several workers"


@contextlib.contextmanager
def waiting_for(what: str, executor: AbstractExecutor | None) -> Iterator[None]:
    """A line on standard error that says how many shards of the present pass are done, where there are shards."""
    with waiting(what) as say_more:
        if executor is not None:
            executor.watch = lambda done, of: say_more(f"{done} of {of} shards")
        try:
            yield
        finally:
            if executor is not None:
                executor.watch = None


@dataclass(frozen=True)
class WorkerOptions:
    """Processes on this machine, or the workers of a cluster; the numbers are the same."""

    workers: Annotated[
        int | None,
        typer.Option("--workers", help="Processes on this machine that share the work.", rich_help_panel=_PANEL),
    ] = None
    dask: Annotated[
        str | None,
        typer.Option(
            "--dask",
            metavar="tls://HOST:PORT",
            help="The scheduler of a Dask cluster, trusted with the data; needs privrl[dask].",
            rich_help_panel=_PANEL,
        ),
    ] = None
    dask_ca: Annotated[
        Path | None,
        typer.Option(
            "--dask-ca", help="PEM file: the authority of the cluster's certificates.", rich_help_panel=_PANEL
        ),
    ] = None
    dask_cert: Annotated[
        Path | None,
        typer.Option("--dask-cert", help="PEM file: your certificate, and its key.", rich_help_panel=_PANEL),
    ] = None

    def check_seed(self, seed: int | None) -> None:
        """Refuses a seed of the noise on a table, where workers add up."""
        if seed is not None and given(self, ("workers", "dask")):
            raise ValueError("`--seed` simulates noise in floating point, which workers do not. Leave out one of them.")

    @contextlib.contextmanager
    def opened(self) -> Iterator[AbstractExecutor | None]:
        """The executor, ready; nothing where this process does the work."""
        if self.dask is None:
            refuse(given(self, ("dask_ca", "dask_cert")), "belongs to `--dask`, which is missing")
            if self.workers is None:
                yield None
                return
            if self.workers < 1:
                raise ValueError(f"`--workers` is {self.workers}; it must be at least 1.")
            with Processes(self.workers) as executor:
                yield executor
            return
        refuse(given(self, ("workers",)), "means processes on this machine, and `--dask` a cluster")
        files = [None if path is None else str(path) for path in (self.dask_ca, self.dask_cert)]
        with connect(self.dask, *files) as client, Dask(client) as executor:
            yield executor
