"""`privrl demo`: a private sepsis-treatment policy from offline stays, a table, a report and a certificate; with
`vitals`, from a raw export of measurements to a report; with `pilot`, from a policy to the verdict of a trial."""

import dataclasses
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from privrl.cli.compilation import keep_compiled_programs
from privrl.cli.demo_pilot import PEOPLE as PILOT_PEOPLE
from privrl.cli.demo_pilot import QUICK_PEOPLE, QUICK_STAYS, STAYS, pilot_demo
from privrl.cli.demo_vitals import PEOPLE, QUICK, vitals_demo
from privrl.cli.options.parsing import fresh_seed
from privrl.cli.options.targets import OverwriteOption, check_folder
from privrl.cli.output import JsonOption, complain, emit, progress, say, show_table
from privrl.plots.means import format_mean
from privrl.reports.demo_study import DemoStudy
from privrl.reports.pilot_demo import FILES as PILOT_FILES
from privrl.reports.sepsis_demo import FILES, DemoSize, run_sepsis_study, save_study
from privrl.reports.vitals_demo import FILES as VITALS_FILES


def demo(
    context: typer.Context,
    what: Annotated[
        Literal["sepsis", "vitals", "pilot"],
        typer.Argument(
            help="sepsis: what privacy costs; vitals: from raw records with times and gaps to a report; pilot: a trial "
            "of a learnt policy, in a world where it helps and in one where it harms."
        ),
    ] = "sepsis",
    out: Annotated[Path, typer.Option("--out", help="Folder for the report and the policy.")] = Path("privrl-demo"),
    epsilon: Annotated[
        float,
        typer.Option("--epsilon", help="Budget of the policy that is kept; sepsis shows a third and three times it."),
    ] = 3.0,
    episodes: Annotated[
        int | None,
        typer.Option("--episodes", help="How many stays (100,000 unless given, 10,000 in vitals, 30,000 in pilot)."),
    ] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", help="How many repetitions (5 unless given; sepsis).")] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Replays the repetitions, not the policy that is kept.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A toy size: a few steps per stay, too little to learn from.")
    ] = False,
    overwrite: OverwriteOption = False,
    json: JsonOption = False,
) -> None:
    """Learn a private treatment policy for sepsis and show what privacy cost: the main job, about a minute."""
    keep_compiled_programs()
    root = context.find_root().command
    run = partial(root.main, prog_name="privrl", standalone_mode=False)
    if what == "pilot":
        if seeds is not None:
            raise ValueError(
                "`--seeds` repeats the demo of sepsis; `pilot` learns one policy in each world. Leave it out."
            )
        check_folder(context, out, PILOT_FILES, overwrite=overwrite)
        stays = episodes if episodes is not None else QUICK_STAYS if quick else STAYS
        patients = QUICK_PEOPLE if quick else PILOT_PEOPLE
        pilot_demo(run, out, stays, patients, epsilon, seed=fresh_seed(seed), json=json)
        return
    if what == "vitals":
        if seeds is not None:
            raise ValueError("`--seeds` repeats the demo of sepsis; `vitals` learns one policy. Leave it out.")
        check_folder(context, out, VITALS_FILES, overwrite=overwrite)
        people = episodes if episodes is not None else QUICK if quick else PEOPLE
        vitals_demo(run, out, people, epsilon, seed=fresh_seed(seed), json=json)
        return
    check_folder(context, out, FILES, overwrite=overwrite)
    size = DemoSize.quick(epsilon) if quick else DemoSize(epsilon=epsilon)
    given = {name: value for name, value in (("episodes", episodes), ("seeds", seeds)) if value is not None}
    size = dataclasses.replace(size, **given)
    seed = fresh_seed(seed)
    if not json:
        complain(f"Learning treatment policies from {size.episodes:,} simulated ICU stays.")
    with progress("learning", size.fits) as advance:
        study = run_sepsis_study(size, seed=seed, progress=advance)
    save_study(study, out)
    if json:
        emit({**study.to_json(), "out": str(out), "report": str(out / "report.html")})
    else:
        _show(study, out)


def _show(study: DemoStudy, out: Path) -> None:
    rows = [(name, format_mean(values), f"{100 * gap:.0f}%") for name, values, gap in study.list_policies()]
    title = f"Patients who survive ({study.episodes:,} stays, {study.seeds} repetitions, seed {study.seed})"
    show_table(title, ("policy", "survive", "gap closed"), rows, numbers=2)
    say("Gap closed: 0% is what doctors reach, 100% the best possible. Values are exact; ± is a standard error.")
    say()
    say(str(study.result.certificate))
    say()
    say(f"Kept with noise from the operating system: {out / 'policy'} (value {study.value:.4f})")
    say(f"Check it with: privrl certify {out / 'policy'}")
    say(f"The report is in {out / 'report.html'}: open it in a browser.")
