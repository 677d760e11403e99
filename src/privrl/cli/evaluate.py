"""`privrl evaluate`: a policy against practice on people who were held out, or the widths to expect from it."""

import dataclasses
import os
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

import privrl
from privrl.cli.evaluated_folder import EvaluatedFolder
from privrl.cli.next_pilot import suggest_pilot
from privrl.cli.options.budget_options import BudgetOptions
from privrl.cli.options.evaluation_options import (
    ComparisonOptions,
    SpendAnywayOption,
    evaluation_json,
    show_evaluation,
    show_warnings,
)
from privrl.cli.options.grouped import grouped
from privrl.cli.options.parsing import DeltaOption, EpsilonOption, RhoOption
from privrl.cli.options.store_options import StoreOptions
from privrl.cli.options.study_options import RulesOption, StatedOptions, StudyNameOptions
from privrl.cli.options.table_options import PATHS, TableOptions
from privrl.cli.options.targets import OverwriteOption, check_file, save
from privrl.cli.options.trusted_modules import TrustOption, trust_modules
from privrl.cli.options.worker_options import WorkerOptions, waiting_for
from privrl.cli.output import JsonOption, emit, say, show_table
from privrl.data.schema.table_description import TableDescription
from privrl.evaluation.evaluator import check_markov
from privrl.evaluation.widths import Widths, plan_widths
from privrl.privacy.accounting.signature import read_private_key, read_public_key
from privrl.recipes.pairing import BudgetArguments
from privrl.studies.offline.policies import load_policy, policy_arrays
from privrl.studies.offline.table_fit import describe_held_out
from privrl.studies.offline.task import assumption_of
from privrl.studies.results.binding import EVALUATION, policy_sha256
from privrl.studies.results.certified_evaluation import check_evaluation_folder

_PLANNED_DELTA = 1e-6


@grouped
def evaluate(
    context: typer.Context,
    comparison: ComparisonOptions,
    table: TableOptions,
    kept: StoreOptions,
    paying: BudgetOptions,
    named: StudyNameOptions,
    stated: StatedOptions,
    crew: WorkerOptions,
    data: Annotated[
        list[str] | None, typer.Argument(help=f"People who were held out: {PATHS[0].lower() + PATHS[1:]}.")
    ] = None,
    policy: Annotated[
        Path | None, typer.Argument(help="A saved result, or an .npz file of probabilities or of actions.")
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print the widths to expect and the people needed; no data are read.")
    ] = False,
    people: Annotated[int | None, typer.Option("--people", help="With --plan: how many are evaluated with.")] = None,
    epsilon: EpsilonOption = None,
    delta: DeltaOption = None,
    rho: RhoOption = None,
    rules: RulesOption = None,
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
    trust: TrustOption = None,
    overwrite: OverwriteOption = False,
    spend_anyway: SpendAnywayOption = False,
    json: JsonOption = False,
) -> None:
    """Compare a policy with practice on people who were held out, under a budget and a certificate of its own.

    If POLICY is a folder that `privrl fit` saved, columns and bounds of the table are those of the fit unless given.
    Give `--unit` besides, unless the folder is signed and you give `--public-key`.
    """
    trust_modules(trust)
    BudgetArguments(epsilon, delta, rho).check("An evaluation")
    if plan:
        if data or people is None:
            raise ValueError("`--plan` reads no data: leave out the table, and give `--people`.")
        _plan(people, BudgetArguments(epsilon, delta, rho), comparison, table.description, json)
        return
    if not data or policy is None or out is None or people is not None:
        raise ValueError("Give a table, a policy and `--out`; or `--plan` with `--people`.")
    own = os.path.realpath(out) == os.path.realpath(policy)  # `check_evaluation_folder` knows if it may be replaced
    check_file(context, out / EVALUATION, overwrite=overwrite or own)  # before anything is spent
    signing = None if sign is None else read_private_key(sign)
    owner = None if public_key is None else read_public_key(public_key)
    crew.check_seed(seed)
    with crew.opened() as executor, waiting_for("evaluating", executor), kept.opened() as store:
        chosen = load_policy(policy)
        hashed = policy_sha256(policy_arrays(chosen))
        check_evaluation_folder(out, hashed, signing=signing is not None, overwrite=overwrite)
        description = describe_held_out(table.description, chosen, owner)
        arguments: dict[str, Any] = {
            "epsilon": epsilon,
            "delta": delta,
            "rho": rho,
            "schema": description,
            "public_key": owner,
            **comparison.arguments,
            **dataclasses.asdict(stated),
            "rules": rules,
            "unit": named.unit_noun,
            "sign": signing,
            "key": seed,
            "budget": paying.shared,
            "spend_anyway": spend_anyway,
        }
        evaluation = privrl.evaluate(data, chosen, **arguments, store=store, executor=executor)
    save(out, partial(evaluation.save, overwrite=overwrite))
    place = str(policy) if policy.is_dir() else "POLICY"
    pilot = suggest_pilot(evaluation, evaluation.certificate.return_range, place)
    compared = EvaluatedFolder(evaluation, chosen, policy, replaced=own)
    if json:
        certificate = evaluation.certificate.to_json()
        emit(
            {
                **compared.to_json(),
                **{name: certificate[name] for name in ("epsilon", "delta", "unit")},
                "evaluation": evaluation_json(evaluation),
                "pilot": pilot.to_json(),
                "certificate": certificate,
                "out": str(out),
            }
        )
    else:
        for line in compared.lines():
            say(line)
        show_warnings(evaluation)
        say(str(evaluation.certificate))
        for rule in description.rules(evaluation.certificate.unit):
            say(rule)
        say(f"Saved in {out / EVALUATION}, with this certificate.")
        show_evaluation(evaluation)
        say(pilot.sentence)


def _plan(
    people: int, given: BudgetArguments, comparison: ComparisonOptions, description: TableDescription, json: bool
) -> None:
    delta = _PLANNED_DELTA if given.delta is None and given.rho is None else given.delta
    budget = dataclasses.replace(given, delta=delta).central("An evaluation")
    settings: dict[str, Any] = {
        "max_ratio": comparison.max_ratio,
        "max_weight": comparison.max_weight,
        "return_range": (0.0, comparison.return_bound or _return_bound(description)),
    }
    logged = description.propensity is not None
    settings["assumption"] = assumption_of(logged, comparison.assume_recorded, description.least_propensity or 0.0)
    settings["reported"] = description.reported
    if comparison.assume_markov:
        check_markov(comparison.max_ratio, comparison.max_weight, values=not description.measured)
    if description.measured or logged:
        name = "logged" if logged else "estimated"
        widths = {name: plan_widths(people, budget, public=False, in_cells=description.measured, **settings)}
    else:
        widths = {
            name: plan_widths(people, budget, public=public, markov=comparison.assume_markov, **settings)
            for name, public in (("public", True), ("estimated", False))
        }
    if json:
        emit(
            {
                "delta": delta,
                "return_range": settings["return_range"],
                **{name: dataclasses.asdict(found) for name, found in widths.items()},
            }
        )
        return
    lines = {
        "practice": "practice",
        "gain": "gain with the smallest limits",
        "gain_at_most": "the same, at most",
        "model_gain": "full advice (model, no guarantee)",
    }
    rows = [
        (words, *("refused" if (width := getattr(one, name)) is None else f"{width:.4f}" for one in widths.values()))
        for name, words in lines.items()
    ]
    slack = f", delta {delta:g}" if delta is not None else ""
    low, high = settings["return_range"]
    title = (
        f"Widths of 95% intervals to expect from {people:,} people in the evaluation{slack}, in units of returns (in "
        f"[{low:g}, {high:g}]); no data were read"
    )
    show_table(title, ("estimate", *(f"practice is {name}" for name in widths)), rows, numbers=len(widths))
    say("A gain is certified if practice is public or was logged, and has no guarantee if it is estimated.")
    for name, one in widths.items():
        say(_describe_needed(name, one))


def _return_bound(description: TableDescription) -> float:
    """The largest return of an episode, as far as a schema says it."""
    return 1.0 if description.rewards_at_end or description.horizon is None else float(description.horizon)


def _describe_needed(name: str, widths: Widths) -> str:
    needed = widths.needed
    if needed is None:
        return f"If practice is {name}, the policy is always withheld."
    hides = name != "estimated" and needed.least == needed.estimate
    why = "noise hides the largest gain that the limits allow" if hides else "the policy is always withheld"
    checked = (
        f" With {needed.enough:,}, each check of practice is passed in about 95% of studies, if practice follows the "
        "record alone."
    )
    return (
        f"If practice is {name}, {why} with fewer than {needed.least:,} people; you have {widths.people:,}."
        f"{checked if needed.enough > needed.least else ''}"
    )
