"""`privrl demo vitals`: from a raw export to a report, by the commands that a user would type."""

import contextlib
import io
import shlex
from collections.abc import Callable
from pathlib import Path

from privrl.cli.output import complain, emit, say, show_table
from privrl.plots.means import format_mean
from privrl.reports.vitals_demo import FILES, compute_values, list_commands, write_export, write_schema
from privrl.writing import whole_folder

PEOPLE, QUICK = 10_000, 300
DELTA = 1e-6
EVALUATE: float | None = 0.3
"""The share of people who are held out to compare the policy with practice; `None`: it is not compared."""


def vitals_demo(
    run: Callable[[list[str]], int | None], out: Path, people: int, epsilon: float, *, seed: int, json: bool
) -> None:
    """Writes the export of this number of invented people, runs the commands on it, and prints the value of the policy.

    Arguments:
        run: runs the command with these arguments and returns its exit code (`None` means success).
        seed: of the people; the noise of the policy comes from the operating system.
    """
    if people < 1:
        raise ValueError(f"`episodes` is {people}; it must be at least 1.")
    shown: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    if json:
        shown = contextlib.redirect_stdout(io.StringIO())
    else:
        complain(f"Inventing the records of {people:,} patients.")
    with whole_folder(out, FILES) as scratch:
        write_export(scratch / "raw.csv", people, seed=seed)
        write_schema(scratch / "stays.toml")
        with contextlib.chdir(scratch), shown:
            for words in list_commands(epsilon, DELTA, EVALUATE):
                say(f"\n$ privrl {shlex.join(words)}")
                if code := run(words):
                    raise ValueError(f"`privrl {words[0]}` ended with exit code {code}.")
        values = compute_values(scratch)
    if json:
        emit({"people": people, "epsilon": epsilon, "delta": DELTA, "seed": seed, **values, "out": str(out)})
        return
    say()
    rows = [] if values["value"] is None else [("all advice of the policy", format_mean([values["value"]]))]
    rows += [(_NAMES[name], format_mean([value])) for name, value in values["baselines"].items()]
    show_table(
        f"Patients who survive, by simulation ({people:,} in the table, seed {seed})", ("policy", "survive"), rows
    )
    say("These numbers are unknown for real patients. This world is invented and must not guide treatment.")
    say(f"The commands can be run again in {out}. The report is in {out / 'report.html'}: open it in a browser.")


_NAMES = {"optimal": "a rule tuned in the simulator", "uniform": "random treatment", "behaviour": "doctors"}
