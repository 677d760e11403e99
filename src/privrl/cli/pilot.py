"""`privrl pilot plan`, `init`, `simulate` and `show`: randomised trials of a learnt policy."""

import dataclasses
import json as json_text
import math
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from privrl.cli.commands import App
from privrl.cli.options.parsing import EnvArgOption, EnvSeedOption, env_of, fresh_seed
from privrl.cli.options.targets import OverwriteOption, check_file
from privrl.cli.output import JsonOption, emit, say, show_table, waiting

pilot = App(name="pilot", help="Plan, declare and simulate a randomised trial of a policy.", no_args_is_help=True)

_People = Annotated[int, typer.Option("--people", help="Largest number of people.")]
_Epsilon = Annotated[float, typer.Option("--epsilon", help="Privacy budget of all releases together.")]
_Delta = Annotated[float, typer.Option("--delta", help="Slack, well below one over the number of people.")]
_Looks = Annotated[int, typer.Option("--looks", help="Number of looks, at equal numbers of people.")]
_Patience = Annotated[float, typer.Option("--patience", help="Days within which a record must come.")]
_DAY = 86_400.0
_PROGRAM = 1_000  # pilots that are simulated together
_POWER = 0.9  # nine of ten cases


@pilot.command()
def plan(
    practice: Annotated[float, typer.Option("--practice", help="Mean outcome in current practice.")],
    gain: Annotated[float, typer.Option("--gain", help="The gain that the pilot should show.")],
    epsilon: _Epsilon,
    people: Annotated[
        int | None, typer.Option("--people", help="Largest number of people; found if it is left out.")
    ] = None,
    delta: _Delta = 1e-6,
    looks: _Looks = 20,
    low: Annotated[float, typer.Option("--low", help="Lower bound of the outcome.")] = 0.0,
    high: Annotated[float, typer.Option("--high", help="Upper bound of the outcome.")] = 1.0,
    per_day: Annotated[float | None, typer.Option("--per-day", help="People who arrive per day.")] = None,
    patience: _Patience = 30.0,
    json: JsonOption = False,
) -> None:
    """Show the power of a pilot with two equal arms, the expected number of people and the boundaries. Reads no data.

    Outcomes are taken to be at one of their bounds, which has the largest variance.
    """
    from privrl.learners.trials.boundaries import boundaries_for, expect
    from privrl.learners.trials.protocol import Arm, Outcome, Protocol
    from privrl.learners.trials.trial import Trial, find_people

    if not low < high:
        raise ValueError(f"`--low` is {low:g} and `--high` {high:g}; the lower bound must be smaller.")
    mean, effect = (practice - low) / (high - low), gain / (high - low)
    if not (0 <= mean <= 1 and 0 <= mean + effect <= 1):
        raise ValueError(
            f"`--practice` is {practice:g} and `--gain` {gain:g}; both means must lie within [{low:g}, {high:g}]."
        )
    if per_day is not None and not per_day > 0:
        raise ValueError(f"`--per-day` is {per_day:g}; it must be positive.")
    if not patience > 0:
        raise ValueError(f"`--patience` is {patience:g} days; it must be positive.")
    if people is None:
        if not effect > 0:
            raise ValueError(
                f"`--gain` is {gain:g}. Give `--people`, or a positive gain for which to find the number of people."
            )
        people = find_people(mean, effect, epsilon=epsilon, delta=delta, power=_POWER, looks=looks)
        if people is None:
            raise ValueError(
                f"A million people would not show a gain of {gain:g} in nine of ten cases at epsilon {epsilon:g}. Give "
                "`--people`, a larger gain or a larger budget."
            )
    outcome = Outcome("outcome", low, high)
    protocol = Protocol("plan", people, (Arm("practice"), Arm("policy")), outcome, epsilon, delta, looks=looks)
    noise = Trial(protocol).noise()
    arriving = 0 if per_day is None else round(per_day * patience)
    found, exact = (expect(protocol, n, mean, effect, arriving=arriving) for n in (noise, 0.0))
    upper, lower = boundaries_for(protocol, noise, mean * (1 - mean))
    if json:
        emit(
            {
                "people": people,
                "better": found.better,
                "worse": found.worse,
                "expected_people": found.people,
                "arrive_during_patience": None if per_day is None else arriving,
                "expected_enrolled": None if per_day is None else found.enrolled,
                "without_privacy": {"better": exact.better, "worse": exact.worse, "expected_people": exact.people},
                "looks": [
                    {"people": int(end), "better_above": _text(u), "worse_below": _text(-w)}
                    for end, u, w in zip(protocol.ends, upper, lower, strict=True)
                ],
            }
        )
        return
    power, without = (one.worse if gain < 0 else one.better for one in (found, exact))
    say(
        f"A pilot with at most {people:,} people shows a {'loss' if gain < 0 else 'gain'} of {abs(gain):g} with "
        f"probability {power:.2f} at epsilon {epsilon:g} ({without:.2f} without privacy)."
    )
    say(f"It needs {found.people:,.0f} people on average until the deciding look.")
    say(
        f"People also arrive in the {patience:g} days during which the last records of a block are awaited; give "
        "`--per-day` to add them."
        if per_day is None
        else f"With those who arrive in the {patience:g} days during which the last records of a block are awaited, it "
        f"enrols {found.enrolled:,.0f} people on average."
    )
    if without - power > 0.1:
        say("Privacy costs more than ten points of power: plan for more people, or for a larger epsilon.")
    rows = [
        (str(number), f"{end:,}", _number(u), _number(-w))
        for number, (end, u, w) in enumerate(zip(protocol.ends, upper, lower, strict=True), 1)
    ]
    show_table('Boundaries of z: "better" above, "worse" below', ("look", "people", "better", "worse"), rows, numbers=3)


@pilot.command()
def init(
    context: typer.Context,
    policy: Annotated[Path, typer.Argument(help="A folder that `privrl fit` saved.")],
    people: _People,
    epsilon: _Epsilon,
    delta: _Delta,
    out: Annotated[Path, typer.Option("--out", help="New protocol file, in TOML.")],
    arms: Annotated[
        str, typer.Option("--arms", help="Policies to try: whole, assisted, or both separated by a comma.")
    ] = "whole",
    name: Annotated[str, typer.Option("--name", help="Name of the pilot.")] = "pilot",
    outcome: Annotated[str, typer.Option("--outcome", help="Name of the outcome.")] = "return",
    low: Annotated[float | None, typer.Option("--low", help="Lower bound of the outcome; default: of the fit.")] = None,
    high: Annotated[
        float | None, typer.Option("--high", help="Upper bound of the outcome; default: of the fit.")
    ] = None,
    looks: _Looks = 20,
    patience: _Patience = 30.0,
    unit: Annotated[
        str | None, typer.Option("--unit", help="What the ids of people identify; default: the column of the fit.")
    ] = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Write the protocol of a pilot of a saved policy. Edit it before the first person is enrolled, not afterwards."""
    from privrl.learners.trials.protocol import Outcome, Protocol
    from privrl.studies.results.result import Result
    from privrl.writing import whole_file

    check_file(context, out, overwrite=overwrite)
    result = Result.load(policy)
    lowest, highest = result.certificate.return_range or (None, None)
    lowest, highest = (lowest if low is None else low), (highest if high is None else high)
    if lowest is None or highest is None:
        raise ValueError("The fit enforced no range of returns. Give `--low` and `--high`.")
    tried, files = _arms(result, os.path.relpath(policy, out.parent), [use.strip() for use in arms.split(",")], out)
    for file in files:
        check_file(context, file, overwrite=overwrite)
    protocol = Protocol(
        name,
        people,
        tried,
        Outcome(outcome, lowest, highest, missing=lowest),
        epsilon,
        delta,
        looks=looks,
        patience=patience * _DAY,
    )
    for file, content in files.items():
        with whole_file(file) as scratch:
            scratch.write_bytes(content)
    with whole_file(out) as scratch:
        column = result.facts.get("table", {}).get("unit", result.certificate.unit)
        protects = json_text.dumps(column if unit is None else unit, ensure_ascii=False)
        entry = f"unit = {protects}  # what the ids of people identify; not part of the protocol"
        scratch.write_text(f"{entry}\n{protocol.to_toml()}", encoding="utf-8")
    say(f"The protocol of `{name}` is in `{out}`. Its SHA-256: {protocol.sha256}")
    for arm in tried:
        if arm.file:
            say(
                f"Apps compute the advice of the arm `{arm.name}` from `{out.parent / arm.file}`, whose SHA-256 is in "
                "the protocol. Keep the file next to it."
                + (f" `{policy / 'policy.json'}` is the assisted policy." if _is_hidden(result, arm.use) else "")
            )
    say(f"Read it, then try it: `privrl pilot simulate {out} --means ...`, and conduct it: `privrl serve init {out}`.")


@pilot.command()
def simulate(
    file: Annotated[Path, typer.Argument(help="A protocol file.")],
    world: Annotated[
        str | None, typer.Option("--world", help="A known world, whose practice and policies people get.")
    ] = None,
    means: Annotated[
        str | None, typer.Option("--means", help="Instead: the mean outcome of each arm, separated by commas.")
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", help="Number of simulated pilots.", min=1)] = 1_000,
    env_arg: EnvArgOption = None,
    env_seed: EnvSeedOption = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Replays the simulation.")] = None,
    json: JsonOption = False,
) -> None:
    """Simulate a pilot many times: how often it ends with which verdict, and after how many people."""
    import jax
    import numpy as np

    import privrl
    from privrl.cli.compilation import keep_compiled_programs
    from privrl.learners.trials.protocol import Protocol
    from privrl.learners.trials.trial import Trial
    from privrl.studies.results.arm_policies import read_arm_policies
    from privrl.studies.simulation.pilot_world import PilotWorld, characterise

    if (world is None) == (means is None):
        raise ValueError("Give `--world` or `--means`, one of the two.")
    protocol, number = Protocol.read(file), fresh_seed(seed)
    width = protocol.outcome.high - protocol.outcome.low
    keep_compiled_programs()
    if world is not None:
        policies = read_arm_policies(protocol, file.parent)
        if missing := [arm.name for arm in protocol.policies if arm.name not in policies]:
            raise ValueError(f"The arm `{missing[0]}` has no saved policy to simulate in a world. Give `--means`.")
        ordered = [policies[arm.name] for arm in protocol.policies]
        people = PilotWorld.from_world(protocol, env_of(world, env_arg, env_seed), ordered, jax.random.key(number))
    else:
        people = PilotWorld.binary(protocol, _read_means(means or "", protocol))
    with waiting("simulating"):
        run = privrl.run(
            people,
            Trial(protocol),
            protocol.privatizer,
            episodes=protocol.people,
            seeds=seeds,
            key=number,
            seeds_per_program=min(seeds, _PROGRAM),
        )
    values = np.asarray(people.means())
    found = characterise(protocol, run.policy, ((values[1:] - values[0]) / width).tolist())
    names = [arm.name for arm in protocol.arms]
    if json:
        content: dict[str, Any] = dataclasses.asdict(found) | {"arms": names, "means": values.tolist()}
        emit(content | {"seeds": seeds, "seed": number, "protocol_sha256": protocol.sha256})
        return
    say(
        f"{seeds:,} simulated pilots of at most {protocol.people:,} people at epsilon {protocol.epsilon:g} (seed "
        f"{number}): {found.people:,.0f} people on average. Repeated intervals hold at all looks together in "
        f"{found.covered:.3f}."
    )
    rows = [
        (name, f"{value:.4g}", f"{value - values[0]:+.4g}" if arm else "", *_shares(found, arm))
        for arm, (name, value) in enumerate(zip(names, values, strict=True))
    ]
    columns = ("arm", "mean outcome", "gain", "better", "worse", "served afterwards")
    show_table("Shares of pilots", columns, rows, numbers=5)


@pilot.command()
def show(
    folder: Annotated[Path, typer.Argument(help="A folder with the record of a pilot, or its protocol file.")],
    json: JsonOption = False,
) -> None:
    """Show the protocol of a pilot and what has been released so far."""
    from privrl.learners.trials.protocol import Protocol
    from privrl.studies.results.pilot_record import PilotRecord

    if folder.is_file():
        protocol, record = Protocol.read(folder), None
    else:
        record = PilotRecord.load(folder)
        protocol = record.protocol
    if json:
        empty = {"protocol": protocol.to_json(), "sha256": protocol.sha256, "looks": []}
        emit(empty if record is None else record.to_json())
        return
    arms = ", ".join(f"`{arm.name}`" for arm in protocol.arms)
    say(f"Pilot `{protocol.name}`: at most {protocol.people:,} people, {len(protocol.ends)} looks, arms {arms}.")
    outcome = protocol.outcome
    say(
        f"Outcome `{outcome.name}` in [{outcome.low:g}, {outcome.high:g}]; a missing record counts as "
        f"{outcome.low + outcome.missing_value * (outcome.high - outcome.low):g}. Epsilon {protocol.epsilon:g}, delta "
        f"{protocol.delta:g}. Error rates: better {protocol.better:g}, worse {protocol.worse:g}."
    )
    further = [f"secondary outcome `{one.name}`" for one in protocol.secondary]
    further += [f"subgroups by `{one.name}` ({', '.join(one.groups)})" for one in protocol.subgroups]
    if further:
        say(f"Declared: {'; '.join(further)}.")
    say(f"SHA-256 of the protocol: {protocol.sha256}")
    if record is None or not record.looks:
        say("No look has been made yet.")
        return
    say(record.sentence)
    columns = ("look", "people", "gain", "repeated interval", "z", "worse below", "better above")
    for arm in protocol.policies:
        found = [(look, one) for look in record.looks for one in look.comparisons if one.policy == arm.name]
        rows = [
            (
                f"{look.number}",
                f"{look.people:,}",
                _number(one.estimate),
                _interval(one),
                f"{one.z:+.2f}",
                _number(-one.lower),
                _number(one.upper),
            )
            for look, one in found
        ]
        verdicts = [f"{one.verdict} at look {look.number}" for look, one in found if one.verdict]
        title = f"`{arm.name}` against practice: {', '.join(verdicts) or 'no verdict'}"
        show_table(title, columns, rows, numbers=len(columns))
        if any(one.rests_on_missing for _, one in found):
            say("This verdict rests on missing records: it disappears if every missing record counts against it.")
    last = record.looks[-1]
    arm_rows = [
        (
            arm.name,
            f"{arm.assigned:,}",
            f"{arm.received:,.0f} ± {2 * arm.received_se:,.0f}",
            f"{arm.mean:.3g} ± {2 * arm.mean_se:.2g}",
        )
        for arm in last.arms
    ]
    show_table(
        "Arms at the last look; ± is two standard errors",
        ("arm", "assigned", "received", "mean outcome"),
        arm_rows,
        numbers=3,
    )
    harmed = [
        (f"{look.number}", one.policy, one.group, _number(one.estimate), _interval(one))
        for look in record.looks
        for one in look.harmed
    ]
    if harmed:
        columns_of_harm = ("look", "policy", "subgroup", "gain", "interval")
        show_table("Harm in subgroups, at every look", columns_of_harm, harmed, numbers=2)
    elif protocol.subgroups:
        say("No look has shown harm in a declared subgroup.")
    others = [
        (one.policy, one.group or one.outcome, _number(one.estimate), _interval(one))
        for one in (*last.subgroups, *last.secondary)
    ]
    if others:
        title = "Subgroups and secondary outcomes at the last look, not corrected for their number"
        show_table(title, ("policy", "of", "gain", "interval"), others, numbers=2)


def _read_means(text: str, protocol: Any) -> list[float]:
    """The mean outcome of each arm as a share of the range."""
    low, high = protocol.outcome.low, protocol.outcome.high
    try:
        given = [float(mean) for mean in text.split(",")]
    except ValueError:
        raise ValueError("`--means` must be numbers separated by commas, for example `.69,.74`.") from None
    if len(given) != len(protocol.arms):
        raise ValueError(f"`--means` has {len(given)} numbers; the protocol has {len(protocol.arms)} arms.")
    if not all(low <= mean <= high for mean in given):
        raise ValueError(f"`--means` must lie within [{low:g}, {high:g}], the range of `{protocol.outcome.name}`.")
    return [(mean - low) / (high - low) for mean in given]


def _arms(result: Any, place: str, uses: list[str], out: Path) -> tuple[tuple[Any, ...], dict[Path, bytes]]:
    """Current practice and the named policies of a saved result; and the files from which apps compute advice."""
    from privrl.evaluation.decision import gives_advice
    from privrl.learners.trials.protocol import Arm
    from privrl.studies.results.arm_policies import arm_file, policy_of
    from privrl.studies.results.binding import hash_files, policy_sha256

    names = {"whole": "advice", "assisted": "assisted"}
    if unknown := [use for use in uses if use not in names]:
        raise ValueError(f"`--arms` has {unknown[0]!r}; give `whole`, `assisted`, or both separated by a comma.")
    if "assisted" in uses and not gives_advice(policy_of(result, "assisted")):
        raise ValueError(
            "The evaluation released no advice: the assisted policy of the folder leaves every decision to the "
            "clinician, so a pilot of it would compare practice with practice. Use `--arms whole`."
        )
    found, files = [Arm("practice")], {}
    for use in uses:
        name, content = names[use], arm_file(result, use)
        arm = Arm(name, place, use, policy_sha256(policy_of(result, use)))  # type: ignore[arg-type]
        if content is not None:
            file = f"{out.stem}-{name}.json"
            files[out.parent / file] = content
            arm = dataclasses.replace(arm, file=file, file_sha256=hash_files({file: content})[file])
        found.append(arm)
    return tuple(found), files


def _is_hidden(result: Any, use: str) -> bool:
    """Whether `policy.json` of the folder is another policy than the arm's."""
    return use == "whole" and result.advice is not None


def _shares(found: Any, arm: int) -> tuple[str, ...]:
    shares = (found.better[arm], found.worse[arm], found.serving[arm])
    return tuple("" if arm == 0 and i < 2 else f"{share:.3f}" for i, share in enumerate(shares))


def _interval(one: Any) -> str:
    return f"{_number(one.low)} to {_number(one.high)}"


def _number(value: float) -> str:
    return f"{value:+.3g}" if math.isfinite(value) else "none"


def _text(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
