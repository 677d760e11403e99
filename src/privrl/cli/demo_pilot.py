"""`privrl demo pilot`: from a learnt policy to the verdict of a pilot, in two worlds, by the commands of a user."""

import contextlib
import io
import shlex
from collections.abc import Callable
from pathlib import Path

from privrl.cli.output import complain, emit, progress, say
from privrl.reports.pilot_demo import FILES, WORLDS, conduct_pilot, learn_policy
from privrl.writing import whole_folder

STAYS, QUICK_STAYS = 30_000, 300
PEOPLE, QUICK_PEOPLE = 5_000, 200


def pilot_demo(
    run: Callable[[list[str]], int | None], out: Path, stays: int, people: int, epsilon: float, *, seed: int, json: bool
) -> None:
    """Learns a policy in each world, declares a pilot, takes simulated patients through it, and writes its report.

    Arguments:
        run: runs the command with these arguments and returns its exit code (`None` means success).
        stays: the number of stays that a policy is learnt from.
        people: the largest number of patients in a pilot.
        epsilon: the budget of the policy; that of the pilot is 1.
        seed: of stays and patients; arms and noise come from the operating system.
    """
    shown: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    if json:
        shown = contextlib.redirect_stdout(io.StringIO())
    found = []
    with whole_folder(out, FILES) as scratch:
        for name in WORLDS:
            folder = scratch / name
            folder.mkdir()
            if not json:
                complain(f"Learning a policy from {stays:,} simulated stays, in the world where the advice {name}.")
            learn_policy(folder, name, stays, epsilon, seed=seed)
            looks = ["--looks", "20" if people >= PEOPLE else "4"]
            size = ["--people", str(people), "--epsilon", "1", "--delta", "1e-6", *looks]
            with contextlib.chdir(folder), shown:
                _run(run, ["pilot", "init", "policy", *size, "--outcome", "survival", "--out", "pilot.toml"])
                if not json:
                    complain(f"Randomising up to {people:,} simulated patients.")
                with progress("patients", -(-people // 50)) as advance:
                    found.append(conduct_pilot(Path(), name, seed=seed, advance=advance))
                _run(run, ["report", "pilot"])
                say(found[-1].record.sentence)
                say(f"The true gain of the advice is {found[-1].gain:+.3f}.\n")
    if json:
        content = {one.world: {"gain": one.gain, **one.record.to_json()} for one in found}
        emit({"stays": stays, "people": people, "seed": seed, "out": str(out), "pilots": content})
        return
    say("True gains are unknown for real patients. These worlds are invented and must not guide treatment.")
    for name in WORLDS:
        say(f"The report of the world where the advice {name}: {out / name / 'pilot.html'}")


def _run(run: Callable[[list[str]], int | None], words: list[str]) -> None:
    say(f"\n$ privrl {shlex.join(words)}")
    if code := run(words):
        raise ValueError(f"`privrl {words[0]}` ended with exit code {code}.")
