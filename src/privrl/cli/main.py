"""The commands together, and what becomes of errors."""

import os
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated

import typer

from privrl.cli.audit import audit
from privrl.cli.bench import bench
from privrl.cli.demo import demo
from privrl.cli.evaluate import evaluate
from privrl.cli.fit import fit
from privrl.cli.look import certify, cite, list_
from privrl.cli.lookalike import lookalike
from privrl.cli.output import complain
from privrl.cli.prepare import prepare
from privrl.cli.report import report
from privrl.cli.reproduce import reproduce
from privrl.cli.run import run
from privrl.cli.schema import schema
from privrl.cli.serve import serve
from privrl.cli.serve_demo import serve_demo
from privrl.cli.shard import shard
from privrl.cli.store import store
from privrl.executors.failures import ShardError

_EXAMPLES = """
Reinforcement learning that keeps its users' secrets.

[bold]Examples[/bold]

privrl demo

privrl list recipes

privrl fit stays.parquet --recipe dp-tdfp --epsilon 1 --delta 1e-6 --unit patient_id --episode stay_id --step hour
--state state --action action --reward reward --horizon 20 --num-states 716 --num-actions 25 --out policy

privrl prepare raw.csv stays.parquet --unit patient_id --time charttime --every 4h --horizon 20 --last lactate
--mean map --action dose --reward survived

privrl fit stays.parquet --schema stays.toml --recipe dp-lap --epsilon 1 --delta 1e-6 --out policy

privrl fit env:icu-sepsis --recipe dp-tdfp --episodes 10000 --rho 1 --seeds 3

privrl run dp-ucbvi --env riverswim --env-arg states=3 --episodes 10000 --epsilon 5 --delta 1e-6 --seeds 10

privrl audit dp-pevi --epsilon 1 --delta 1e-6

privrl certify policy
"""

app = typer.Typer(
    name="privrl",
    help=_EXAMPLES,
    no_args_is_help=True,
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"privrl {version('privrl')}")
        raise typer.Exit()
    return wanted


@app.callback()
def _root(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    del show_version


_TABLES = (prepare, shard, lookalike)
for _command in (demo, list_, *_TABLES, fit, evaluate, run, audit, reproduce, report, certify, cite, bench):
    app.command(_command.__name__.rstrip("_"))(_command)
serve.command("demo")(serve_demo)
app.add_typer(serve)
app.add_typer(store)
app.add_typer(schema)

# Refused, and refused again until something is changed: 2. Other faults of the system (a full disk, a port in use, a
# database that cannot be reached) may pass, so whoever starts a service again after a while should: 1.
_WRONG_FILE = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; `arguments` are those of the process unless given."""
    try:
        typer.main.get_command(app).main(args=None if arguments is None else list(arguments), prog_name="privrl")
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0
    except (OSError, ValueError, ImportError, ShardError) as error:
        _trace()
        complain(f"Error: {error}")
        return 1 if isinstance(error, OSError) and not isinstance(error, _WRONG_FILE) else 2
    except Exception as error:
        _trace()
        complain(
            f"privrl failed: {type(error).__name__}. This looks like a mistake in privrl. Set PRIVRL_TRACEBACK=1 and "
            "run it again to see where; what is printed then may hold values of your data: look before you share it."
        )
        return 1
    return 0


def _trace() -> None:
    if os.environ.get("PRIVRL_TRACEBACK"):
        traceback.print_exc(file=sys.stderr)
