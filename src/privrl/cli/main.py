"""The commands together, and what becomes of errors."""

import os
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated

import typer
from typer.core import TyperGroup

from privrl.cli.commands import Deferred
from privrl.cli.output import complain_of
from privrl.executors.failures import ShardError
from privrl.privacy.store.errors import may_pass

_EXAMPLES = """
[bold]Examples[/bold]

privrl demo

privrl prepare raw.csv stays.parquet --unit patient_id --time charttime --every 4h --horizon 20 --last lactate
--mean map --action dose --reward survived --good high

privrl fit stays.parquet --schema stays.toml --recipe dp-lap --epsilon 1 --delta 1e-6 --out policy

privrl fit stays.parquet --recipe dp-tdfp --epsilon 1 --delta 1e-6 --unit patient_id --episode stay_id --step hour
--state state --action action --reward reward --horizon 20 --num-states 716 --num-actions 25 --out policy

privrl report policy

privrl run dp-ucbvi --env riverswim --env-arg states=3 --episodes 10000 --epsilon 5 --delta 1e-6 --seeds 10
"""

# The commands by their panels, with one line on each: `privrl --help` imports none of them.
_PANELS = {
    "First day": {
        "demo": (
            "demo:demo",
            "Try privrl on invented patients, in about a minute.",
        ),
        "list": ("list:list_", "List the recipes, the simulated worlds and the figures."),
        "prepare": ("prepare:prepare", "Turn raw records with times into a table of steps."),
        "schema": ("schema:schema", "Draft a schema file, or check a table against one."),
        "fit": ("fit:fit", "Learn a policy from a table of people and certify what it reveals."),
        "report": ("report:report", "Write one HTML page about a saved result."),
        "certify": ("certify:certify", "Check the certificate of a saved result."),
    },
    "Studies": {
        "lookalike": (
            "lookalike:lookalike",
            "Invent a table in the shape of yours, to try commands on.",
        ),
        "evaluate": ("evaluate:evaluate", "Compare a policy with current practice on people who were held out."),
        "pilot": ("pilot:pilot", "Plan, declare and simulate a randomised trial of a policy."),
        "shard": ("shard:shard", "Rewrite a table with each person in one file, for several workers."),
        "budget": ("budget:budget", "Make or show one budget for all studies of the same people."),
        "store": ("store:store", "Look at a durable store of releases, or purge its raw sums."),
    },
    "Service": {"serve": ("serve_demo:serve", "Serve live studies to apps and devices over HTTP.")},
    "Research": {
        "run": ("run:run", "Simulate online learning and report the exact regret."),
        "audit": ("audit:audit", "Attack a recipe and bound its epsilon from below."),
        "reproduce": ("reproduce:reproduce", "Reproduce a figure and judge the claims about it."),
        "cite": ("cite:cite", "Print BibTeX for privrl or a recipe."),
        "bench": ("bench:bench", "Measure privrl against plain baselines."),
    },
}

_app = typer.Typer(
    name="privrl",
    help="Reinforcement learning that keeps its users' secrets.",
    epilog=_EXAMPLES,
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


@_app.callback()
def _root(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    del show_version


def root(*, loaded: bool = False) -> TyperGroup:
    """The command `privrl` with all others below it; each is imported when it is called, or now if `loaded`."""
    group = typer.main.get_command(_app)
    assert isinstance(group, TyperGroup)
    for panel, commands in _PANELS.items():
        for name, (place, summary) in commands.items():
            command = Deferred(name, f"privrl.cli.{place}", panel=panel, summary=summary)
            group.add_command(command.load() if loaded else command)
    return group


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; `arguments` are those of the process unless given."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        root().main(args=given, prog_name="privrl")
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0
    except (OSError, ValueError, ImportError, ShardError) as error:
        _trace()
        complain_of(f"Error: {_describe(error)}", given)
        return 1 if may_pass(error) else 2  # after 1 a supervisor should start the service again
    except Exception as error:
        _trace()
        complain_of(
            f"privrl failed: {type(error).__name__}. This looks like a mistake in privrl. Set PRIVRL_TRACEBACK=1 and "
            "run it again to see where; what is printed then may hold values of your data: look before you share it.",
            given,
        )
        return 1
    return 0


def _describe(error: Exception) -> str:
    """An error as a sentence; one of the system as the file, the reason and a remedy."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"`{os.fsdecode(error.filename)}`: {error.strerror}. Check the path, and who may read or write it."
    return str(error)


def _trace() -> None:
    if os.environ.get("PRIVRL_TRACEBACK"):
        traceback.print_exc(file=sys.stderr)
