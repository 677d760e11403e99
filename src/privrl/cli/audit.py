"""`privrl audit`: try to break a recipe's claim, or see what a broken claim looks like."""

import dataclasses
import json as json_module
import os
import time
from pathlib import Path
from typing import Annotated, Any

import jax
import typer

from privrl.audit import known_bad
from privrl.audit.audit_report import AuditReport, plot_reports
from privrl.audit.empirical import lower_bound
from privrl.audit.protocol.protocol_attacks import protocol_attacks
from privrl.cli.options.grouped import given, grouped, refuse
from privrl.cli.options.parsing import DeltaOption, EpsilonOption, RhoOption, fresh_seed
from privrl.cli.options.targets import OverwriteOption, check_file
from privrl.cli.options.worker_options import WorkerOptions
from privrl.cli.output import JsonOption, emit, progress, say, show_table, waiting
from privrl.recipes.all_recipes import find, recipes
from privrl.writing import whole_file

_FILES = ("audit.json", "audit.svg", "audit.png")


@grouped
def audit(
    context: typer.Context,
    crew: WorkerOptions,
    recipe: Annotated[str | None, typer.Argument(help="What to attack; see `privrl list recipes`.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Attack every recipe.")] = False,
    bad: Annotated[
        bool, typer.Option("--known-bad", help="Attack mechanisms that are not private: what being caught looks like.")
    ] = False,
    epsilon: EpsilonOption = None,
    delta: DeltaOption = None,
    rho: RhoOption = None,
    max_episodes_per_unit: Annotated[
        int,
        typer.Option("--max-episodes-per-unit", help="The largest number of episodes of one person, if people return."),
    ] = 1,
    min_block_distance: Annotated[
        int, typer.Option("--min-block-distance", help="The least number of blocks from one of them to the next.")
    ] = 0,
    open_ended: Annotated[
        bool, typer.Option("--open-ended", help="In a study without a known end, over the ends of short epochs.")
    ] = False,
    trials: Annotated[
        int, typer.Option("--trials", help="Runs of each of the two neighbouring worlds; more make tighter bounds.")
    ] = 100_000,
    confidence: Annotated[
        float, typer.Option("--confidence", help="That no bound is wrong, all recipes together.")
    ] = 0.95,
    seed: Annotated[int | None, typer.Option("--seed", help="Replays an audit; random unless given.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write audit.json, audit.svg and audit.png into this folder.")
    ] = None,
    overwrite: OverwriteOption = False,
    json: JsonOption = False,
) -> None:
    """Attack a recipe and prove how large its epsilon is, at least; and attack how it makes its releases.

    A bound below the claim proves nothing; a bound above it proves the claim false, and the command fails. Without a
    budget, epsilon is 1 and delta 1e-5.
    """
    if (recipe is not None) + every + bad != 1:
        raise ValueError("Give one recipe, or `--all`, or `--known-bad`.")
    if not every:
        refuse(given(crew), "shares out the recipes of `--all`")
    if trials < 2 or not 0.0 < confidence < 1.0:
        raise ValueError(f"`--trials` is {trials} and `--confidence` {confidence}; give at least 2, and within (0, 1).")
    if out is not None:
        for name in _FILES:
            check_file(context, out / name, overwrite=overwrite)
        out.mkdir(parents=True, exist_ok=True)
    seed = fresh_seed(seed)
    if bad:
        _known_bad(seed, out, json)
        return
    names = list(recipes) if recipe is None else [recipe if ":" in recipe else find(recipe).name]
    settings = {"epsilon": epsilon, "delta": delta, "rho": rho, "trials": trials}
    settings |= {"max_episodes_per_unit": max_episodes_per_unit, "min_block_distance": min_block_distance}
    settings["open_ended"] = open_ended
    if every and (epsilon, delta, rho) == (None, None, None):
        settings |= {"epsilon": 1.0, "delta": 1e-5}
    settings["confidence"] = 1.0 - (1.0 - confidence) / len(names)
    if every:
        reports = _all(names, seed, settings, crew)
    else:
        with waiting(f"attacking {names[0]}: {trials:,} runs of each world"):
            reports = [_attack(names[0], seed, settings)]
    contents = [report.to_json() | {"seed": seed} for report in reports]
    if out is not None:
        _write(out, contents if every else contents[0])
        for name in _FILES[1:]:
            with whole_file(out / name) as file:
                plot_reports(reports, file)
    broken = [report.recipe for report in reports if report.broken]
    if json:
        emit({"audits": contents, "broken": broken} if every else contents[0])
    elif every:
        _table(reports)
        say(f"Broken: {', '.join(broken)}." if broken else "No claim was broken. That is not a proof; the proofs are.")
    else:
        say(str(reports[0]))
    if broken:
        raise typer.Exit(1)


def _attack(name: str, seed: int, settings: dict[str, Any]) -> AuditReport:
    """One recipe; each has randomness of its own, whichever others are attacked."""
    key = jax.random.fold_in(jax.random.key(seed), [*recipes, name].index(name))
    private = find(name).trust != "none"
    budget = {name: settings[name] if private else None for name in ("epsilon", "delta", "rho")}
    started = time.perf_counter()
    found = protocol_attacks(name, key=jax.random.fold_in(key, 1), **budget)
    report = lower_bound(name, key=key, **(settings | budget))
    return dataclasses.replace(report, attacks=found, seconds=time.perf_counter() - started)


def _all(names: list[str], seed: int, settings: dict[str, Any], crew: WorkerOptions) -> list[AuditReport]:
    """All recipes, by workers; one process per core unless said otherwise."""
    if not given(crew, ("workers", "dask")):
        crew = dataclasses.replace(crew, workers=os.cpu_count() or 1)
    found = {}
    with crew.opened() as executor, progress("attacking", len(names)) as done:
        assert executor is not None
        executor.start(names)
        for i, report in executor.map_shards(_attack, seed, settings):
            found[i] = report
            done(names[i])
    return [found[i] for i in range(len(names))]


def _known_bad(seed: int, out: Path | None, json: bool) -> None:
    with progress("attacking", len(known_bad.CASES)) as done:
        cases = known_bad.run_cases(known_bad.CASES, jax.random.key(seed), done)
    if out is not None:
        _write(out, {"cases": cases, "seed": seed})
    if json:
        emit({"cases": cases, "seed": seed})
    else:
        rows = [
            (c["name"], c["unit"], f"{c['claimed']:.3g}", f"{c['audited']:.3g}", "yes" if c["caught"] else "NO")
            for c in cases
        ]
        show_table(f"Known to be bad, seed {seed}", ("case", "in", "claimed", "audited", "caught"), rows, numbers=3)
        for case in cases:
            say(f"{case['name']} ({case['paper']}): {case['flaw']}; {case['proof']}.")
    if not all(case["caught"] for case in cases):
        raise typer.Exit(1)


def _table(reports: list[AuditReport]) -> None:
    rows = [
        (
            report.recipe,
            f"{report.epsilon_claimed:.3g}",
            f"{report.epsilon_exact:.3g}",
            f"{report.epsilon_lower:.3g}",
            report.bound,
            f"{sum(finding.tried for finding in report.attacks):,}" if report.attacks else "-",
            "BROKEN" if report.broken else "",
        )
        for report in reports
    ]
    columns = ("recipe", "claimed", "exact", "audited, at least", "bound", "protocol", "verdict")
    show_table(f"epsilon, {reports[0].trials:,} runs of each world; comparisons of the protocol", columns, rows)
    for report in reports:
        for line in (line for finding in report.attacks for line in finding.found):
            say(f"{report.recipe}: {line}.")
        for finding in report.attacks:
            if finding.not_run:
                say(f"{report.recipe}: {finding}.")


def _write(out: Path, content: Any) -> None:
    with whole_file(out / _FILES[0]) as file:
        file.write_text(json_module.dumps(content, indent=1, allow_nan=False) + "\n")
