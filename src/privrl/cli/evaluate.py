"""`privrl evaluate`: a policy against practice on people who were held out, or the widths to expect from it."""

import dataclasses
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import jax
import typer

import privrl
from privrl.cli.options.evaluation_options import (
    ComparisonOptions,
    evaluation_json,
    practice_of,
    refuse_practice,
    return_bound_of,
    show_evaluation,
)
from privrl.cli.options.grouped import grouped
from privrl.cli.options.parsing import DeltaOption, EpsilonOption, RhoOption, check_budget, fresh_seed
from privrl.cli.options.store_options import StoreOptions
from privrl.cli.options.study_options import StatedOptions, StudyNameOptions
from privrl.cli.options.table_options import PATHS, TableOptions
from privrl.cli.options.targets import OverwriteOption, check_file, save
from privrl.cli.options.worker_options import WorkerOptions, waiting_for
from privrl.cli.output import JsonOption, complain, emit, say, show_table
from privrl.evaluation.widths import plan_widths
from privrl.privacy.accounting.signature import read_private_key, read_public_key
from privrl.studies.offline.evaluate import policy_arrays
from privrl.studies.results.binding import EVALUATION, REPORT, policy_sha256
from privrl.studies.results.certified_evaluation import check_evaluation_folder
from privrl.studies.results.result import Result

_PLANNED_DELTA = 1e-6


@grouped
def evaluate(
    context: typer.Context,
    comparison: ComparisonOptions,
    table: TableOptions,
    kept: StoreOptions,
    named: StudyNameOptions,
    stated: StatedOptions,
    crew: WorkerOptions,
    data: Annotated[
        list[str] | None, typer.Argument(help=f"People who were held out: {PATHS[0].lower() + PATHS[1:]}.")
    ] = None,
    policy: Annotated[
        Path | None, typer.Argument(help="A saved result, or an .npz file of probabilities or of actions.")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print the widths to expect; no data are read.")] = False,
    people: Annotated[int | None, typer.Option("--people", help="With --plan: how many are evaluated with.")] = None,
    epsilon: EpsilonOption = None,
    delta: DeltaOption = None,
    rho: RhoOption = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Replays a simulation. On a table of real people leave it out.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="New folder, or that of the policy, for evaluation.json and its certificate."),
    ] = None,
    public_key: Annotated[
        Path | None, typer.Option("--public-key", help="PEM file: POLICY must be signed by its owner.")
    ] = None,
    sign: Annotated[
        Path | None, typer.Option("--sign", help="PEM file with an Ed25519 private key: sign the certificate.")
    ] = None,
    overwrite: OverwriteOption = False,
    json: JsonOption = False,
) -> None:
    """Compare a policy with practice on people who were held out, under a budget and a certificate of its own.

    If POLICY is a folder that `privrl fit` saved, columns and bounds of the table are those of the fit unless given.
    Give `--unit` besides, unless the folder is signed and you give `--public-key`.
    """
    check_budget("An evaluation", epsilon, delta, rho)
    if plan:
        if data or people is None:
            raise ValueError("`--plan` reads no data: leave out the table, and give `--people`.")
        _plan(people, epsilon, delta, rho, comparison, json)
        return
    if not data or policy is None or out is None or people is not None:
        raise ValueError("Give a table, a policy and `--out`; or `--plan` with `--people`.")
    check_file(context, out / EVALUATION, overwrite=overwrite)  # before anything is spent
    signing = None if sign is None else read_private_key(sign)
    stated.check()
    chosen: Any = Result.load(policy) if policy.is_dir() else policy
    table = _table(table.resolved(), chosen, policy, public_key).resolved()
    hashed = policy_sha256(policy_arrays(chosen))
    check_evaluation_folder(out, hashed, signing=signing is not None, overwrite=overwrite)
    if table.missing:
        raise ValueError(f"A table needs {', '.join(table.missing)} too. See `privrl evaluate --help`.")
    if isinstance(chosen, Result) and chosen.policy is None:
        raise ValueError(f"`{policy}` holds no policy: it was withheld.")
    budget = _budget(epsilon, delta, rho)
    ends = table.ends
    if table.measured:
        refuse_practice(comparison)
    probabilities = None if table.measured else practice_of(comparison.practice, table.sizes[:2], ends["terminal"])
    assert table.horizon is not None
    bound = return_bound_of(comparison.return_bound, ends["rewards_at_end"], table.horizon)
    crew.check_seed(seed)
    if seed is not None:
        complain("Warning: noise from a `--seed` can be replayed and protects nobody. Leave it out on real people.")
    with crew.opened() as executor, waiting_for("evaluating", executor), kept.opened() as store:
        evaluation = privrl.evaluate(
            privrl.data.read_parquet(data, seed=seed, **table.columns),
            chosen,
            budget,
            practice=probabilities,
            max_ratio=comparison.max_ratio,
            max_weight=comparison.max_weight,
            return_range=(0.0, bound),
            terminal=ends["terminal"],
            key=None if seed is None else jax.random.key(fresh_seed(seed)),
            unit=named.unit_noun or table.unit,
            store=store,
            executor=executor,
        )
    evaluation = dataclasses.replace(evaluation, certificate=stated.on(evaluation.certificate))
    evaluation = evaluation if signing is None else evaluation.signed(signing)
    save(out, partial(evaluation.save, overwrite=overwrite))
    if json:
        certificate = evaluation.certificate.to_json()
        facts = {"policy": str(policy), **{name: certificate[name] for name in ("epsilon", "delta", "unit")}}
        emit({**facts, "evaluation": evaluation_json(evaluation), "certificate": certificate, "out": str(out)})
    else:
        say(str(evaluation.certificate))
        for rule in table.rules(evaluation.certificate.unit):
            say(rule)
        say(f"Saved in {out / EVALUATION}, with this certificate.")
        show_evaluation(evaluation)


def _table(table: TableOptions, chosen: Any, policy: Path, public_key: Path | None) -> TableOptions:
    """The table's options, completed by the report of a saved result.

    The unit decides whom the certificate protects. Anyone can write a consistent folder, so only a signature that was
    checked may say what the unit is; otherwise it comes from the command line.
    """
    if not isinstance(chosen, Result):
        if public_key is not None:
            raise ValueError(f"`--public-key` checks a saved result, and `{policy}` is not one. Leave it out.")
        return table
    if public_key is not None:
        chosen.certificate.verify(read_public_key(public_key))
    elif table.unit is None:
        raise ValueError(
            f"`--unit` is missing. It says whom privacy protects, and no signature of `{policy}` was checked. Give the "
            "column with `--unit`, or the key that signed the folder with `--public-key`."
        )
    return table.agreeing_with(chosen.report.get("table", {}), f"`table` in `{policy / REPORT}`")


def _budget(epsilon: float | None, delta: float | None, rho: float | None) -> privrl.Central:
    pure = delta is None and rho is None
    return privrl.Central(epsilon, delta, rho, mechanism="laplace" if pure else "gaussian")


def _plan(
    people: int,
    epsilon: float | None,
    delta: float | None,
    rho: float | None,
    comparison: ComparisonOptions,
    json: bool,
) -> None:
    delta = _PLANNED_DELTA if delta is None and rho is None else delta
    budget = _budget(epsilon, delta, rho)
    bound = comparison.return_bound or 1.0
    settings = {"max_ratio": comparison.max_ratio, "max_weight": comparison.max_weight, "return_range": (0.0, bound)}
    widths = {
        name: plan_widths(people, budget, public=public, **settings)  # type: ignore[arg-type]
        for name, public in (("public", True), ("estimated", False))
    }
    if json:
        emit({"delta": delta, **{name: dataclasses.asdict(found) for name, found in widths.items()}})
        return
    lines = {
        "practice": "practice",
        "gain": "certified gain",
        "gain_at_most": "certified gain, at most",
        "model_gain": "full advice (model, no guarantee)",
    }
    rows = [
        (words, *("refused" if (width := getattr(one, name)) is None else f"{width:.4f}" for one in widths.values()))
        for name, words in lines.items()
    ]
    slack = f", delta {delta:g}" if delta is not None else ""
    title = f"Widths of 95% intervals to expect from {people:,} people in the evaluation{slack}; no data were read"
    show_table(title, ("estimate", "practice is public", "practice is estimated"), rows, numbers=2)
    for name, one in widths.items():
        if one.least_people is None or one.enough_people is None:
            say(f"Where practice is {name}, the assisted policy is always held back.")
            continue
        say(
            f"Where practice is {name}, the assisted policy is always held back with fewer than {one.least_people:,} "
            f"people. With {one.enough_people:,}, each check of what practice follows is passed in about 95% of "
            "studies, if it follows the recorded state alone."
        )
