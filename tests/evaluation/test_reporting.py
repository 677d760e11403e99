"""Estimates by group and of a second outcome: the truth of a small world, refusals, warnings, JSON, and their cost."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import check_asked, hostile_trajectories
from test_cli import call
from two_states import evaluated

import privrl
from privrl.audit.surface.recorded_fit import record_queries
from privrl.cli.options.evaluation_options import show_decision
from privrl.data.schema.table_description import TableDescription
from privrl.data.tables.parquet import read_parquet
from privrl.data.tables.shards import ShardedEpisodes
from privrl.data.tables.write import write_parquet
from privrl.evaluation.confidence import Interval
from privrl.evaluation.estimates import Evaluation
from privrl.evaluation.evaluator import Evaluator
from privrl.evaluation.group_estimates import GroupEstimate, OutcomeEstimate, worst_first
from privrl.evaluation.reporting import CLIPPED
from privrl.evaluation.shares import releases
from privrl.evaluation.widths import plan_widths
from privrl.executors.processes import Processes
from privrl.mdp.measurements import Category, Feature
from privrl.mdp.reported_columns import ReportedColumns
from privrl.mdp.types import Trajectory
from privrl.privacy.noise.lattice import choose_lattice
from privrl.reports.evaluation_section import render_evaluation, render_verdict
from privrl.statistics.off_policy import Gains, StayReturns
from privrl.statistics.reported import ByGroup, OfOutcome
from privrl.studies.offline.curated_records import Records
from privrl.studies.offline.sharded_records import ShardedRecords

SEX, COST = Category("sex", ("female", "male", "other")), Feature("cost", 0, 50_000)
REPORTED = ReportedColumns(SEX, COST)
PAYS = np.array([[0.3, 0.8], [0.5, 0.3], [0.5, 0.5]])  # of each group, by action
COSTS = np.array([20_000.0, 10_000.0])  # by action
SHARES = np.array([0.6, 0.397, 0.003])
PRACTICE = np.array([[0.5, 0.5], [0.5, 0.5]])
PEOPLE = 20_000
LIMITS: dict[str, Any] = {"max_ratio": 1.5, "max_weight": 4.0}


def people(count: int = PEOPLE, seed: int = 0, *, logged: bool = False, missing: float = 0.05) -> privrl.data.Episodes:
    """One decision each. Action 1 is better for women and worse for men, and costs half of action 0."""
    rng = np.random.default_rng(seed)
    shape = (count, 1)
    group = rng.choice(3, count, p=SHARES)
    actions = (rng.random(count) < PRACTICE[0, 1]).astype(int)
    rewards = (rng.random(count) < PAYS[group, actions]).astype(float)
    cost = COSTS[actions] + rng.uniform(-5_000, 5_000, count)
    extras = np.stack([np.where(rng.random(count) < missing, np.nan, group), cost], axis=-1)[:, None]
    columns = (np.zeros(shape, int), actions[:, None], rewards[:, None], np.full(shape, -1), np.ones(count, int))
    p = np.full(shape, 0.5) if logged else None
    stays = Trajectory(*columns, p, extras)
    return privrl.data.Episodes.from_trajectories(stays, num_states=2, num_actions=2, by=SEX, outcome=COST)


def asking(count: int = PEOPLE, **settings: Any) -> Evaluator:
    given = {"practice": jnp.asarray(PRACTICE), "assumption": "recorded", "reported": REPORTED, **LIMITS, **settings}
    return Evaluator(2, 2, 1, count, jnp.array([1, 1]), **given)


def truths(policy: Any) -> tuple[dict[str, float], dict[str, float], float]:
    """Practice and gain of each group, and the change of the mean cost."""
    alpha = float(policy.alpha[0])
    w = 1.0 - alpha + alpha * np.array([0.0, 1.0]) / PRACTICE[0]
    gains = (PAYS * PRACTICE[0]) @ (w - 1.0)
    means = PAYS @ PRACTICE[0]
    names = SEX.values
    return dict(zip(names, means, strict=True)), dict(zip(names, gains, strict=True)), (COSTS * PRACTICE[0]) @ (w - 1.0)


def within(interval: Interval | None, truth: float) -> bool:
    return interval is not None and interval.low <= truth <= interval.high


@pytest.fixture(scope="module")
def data() -> privrl.data.Episodes:
    return people()


@pytest.fixture(scope="module")
def found(data: privrl.data.Episodes) -> Evaluation:
    return evaluated(data, asking(), privrl.Central(epsilon=1.0, delta=1e-6), key=jax.random.key(0)).found


def test_one_group_gains_and_another_loses(found: Evaluation) -> None:
    practice, gains, costs = truths(found.policy)
    assert gains["female"] > 0.05 and gains["male"] < -0.02
    male, female, other = found.groups
    assert [one.name for one in found.groups] == ["male", "female", "other"]  # the worst first, too few last
    assert other.few and other.practice is None and "too few people" in other.cells
    for one in (male, female):
        assert within(one.practice, practice[one.name]) and within(one.gain, gains[one.name])
        expected = 0.95 * PEOPLE * SHARES[SEX.values.index(one.name)]
        assert abs(one.people - expected) < 5 * (one.deviation + math.sqrt(expected))
    assert female.gain.low > 0.0 and male.gain.high < 0.0 and male.harmed and not female.harmed
    assert found.gain is not None and found.gain.lower > 0.0
    assert found.warnings == (
        f"Warning: in the group male of `sex` the policy is worse than practice, {male.gain.words()}.",
    )
    assert found.warnings[0] not in found.words  # it has a line of its own
    assert found.decision.outcome == "released"  # groups decide nothing
    assert within(found.outcome.practice, COSTS @ PRACTICE[0]) and within(found.outcome.difference, costs)
    assert found.outcome.difference.high < 0.0


@pytest.mark.parametrize("assumption", ["estimated", "logged", "randomised"])
def test_reports_follow_the_rules_of_the_gain(assumption: str) -> None:
    """Estimated practice has no guarantee, an error and an allowance; clipped weights give no gain."""
    settings: dict[str, Any] = {"practice": None, "assumption": "recorded"}
    if assumption != "estimated":
        settings["assumption"] = assumption
    settings |= {"least_propensity": 0.45} if assumption == "randomised" else {}
    held = people(logged=assumption != "estimated")
    one = asking(**settings)
    private = privrl.Central(epsilon=2.0, delta=1e-6)
    found = evaluated(held, one, private, key=jax.random.key(1)).found
    practice, gains, costs = truths(found.policy)
    recorded = record_queries(held, one, one.evaluate, private, jax.random.key(1)).queries
    asked = {query.name: query.statistic for query in recorded}
    assert (found.gain is None) == (assumption == "estimated")
    assert all(within(group.practice, practice[group.name]) for group in found.groups[:2])
    if assumption == "logged":
        assert CLIPPED in found.words and not found.warnings and not {"group-gain", "outcome-gain"} & asked.keys()
        assert found.outcome.difference is None and all(group.gain is None for group in found.groups)
        return
    assert all(within(group.gain, gains[group.name]) for group in found.groups[:2])
    assert within(found.outcome.difference, costs)
    assert all(float(asked[name].inner.centre) > 0.0 for name in ("group-gain", "outcome-gain"))
    if assumption == "estimated":
        known = evaluated(held, asking(), private, key=jax.random.key(1)).found
        assert all(
            guessed.gain.half > sure.gain.half for guessed, sure in zip(found.groups[:2], known.groups, strict=False)
        )


@pytest.mark.slow
def test_no_two_persons_break_the_bound_of_a_report(data: privrl.data.Episodes) -> None:
    one, private = asking(), privrl.Central(epsilon=3.0, delta=1e-6)
    asked = record_queries(data, one, one.evaluate, private, jax.random.key(3)).queries
    assert {query.name for query in asked} == {declared.name for declared in one.declare()}
    pool = hostile_trajectories(1, 2, 2)
    rng, shape = np.random.default_rng(0), (len(pool.length), 2, 1)
    stays = jax.tree.map(lambda x: jnp.stack([x, jnp.roll(x, 7, axis=0)], axis=1), pool)
    groups = rng.choice([0.0, 1.0, 2.0, 3.0, -1.0, 0.5, np.nan, np.inf], shape)
    costs = rng.choice([0.0, 50_000.0, 1e300, -1.0, np.nan, np.inf], shape)
    extras = jnp.asarray(np.stack([groups, costs], axis=-1))
    columns = (stays.states, stays.actions, stays.rewards, stays.next_states, stays.length)
    check_asked(asked, Trajectory(*columns, None, extras))


@pytest.mark.slow
@pytest.mark.parametrize("estimated", [False, True])
def test_intervals_of_groups_cover(estimated: bool) -> None:
    """60 tables and noises; at 95% fewer than 51 of 60 has a probability below 1 in 10,000."""
    covered = dict.fromkeys(("practice", "male", "female", "costs", "change"), 0)
    settings = {"practice": None} if estimated else {}
    for seed in range(60):
        held = people(6_000, seed)
        one = asking(6_000, **settings)
        found = evaluated(held, one, privrl.Central(epsilon=2.0, delta=1e-6), key=jax.random.key(seed)).found
        practice, gains, costs = truths(found.policy)
        groups = {group.name: group for group in found.groups}
        covered["practice"] += within(groups["male"].practice, practice["male"])
        for name in ("male", "female"):
            covered[name] += within(groups[name].gain, gains[name])
        covered["costs"] += within(found.outcome.practice, COSTS @ PRACTICE[0])
        covered["change"] += within(found.outcome.difference, costs)
    assert min(covered.values()) >= 51, covered


def test_reports_are_declared_paid_and_cost_nothing_more(data: privrl.data.Episodes) -> None:
    result = evaluated(data, asking(), privrl.Central(epsilon=1.0, delta=1e-6), key=jax.random.key(0))
    certificate = result.certificate
    assert certificate.epsilon == pytest.approx(1.0, rel=1e-3)
    assert certificate.bounds["groups"] == 'sex: ["female", "male", "other"]'
    assert certificate.bounds["second outcome"] == "cost:50000"
    counted = {release["name"]: release["counted"] for release in certificate.releases}
    asked = ("group-people", "group-practice", "group-gain", "group-gain-square")
    assert all(counted[name] == 1 for name in (*asked, "outcome-practice", "outcome-gain", "outcome-gain-square"))
    sensitivities = {one["name"]: one["noise"][0]["sensitivity"] for one in certificate.releases if one["counted"]}
    assert sensitivities["group-people"] == pytest.approx(math.sqrt(2.0))
    m = max(result.found.practice.value, 1.0 - result.found.practice.value)
    assert sensitivities["group-practice"] == pytest.approx(max(1.0, math.sqrt(2.0) * m))
    assert sensitivities["outcome-practice"] == 1.0


def test_without_noise_groups_add_up_to_everyone() -> None:
    held, exact = people(4_000, missing=0.0), privrl.NonPrivate()
    found = evaluated(held, asking(4_000), exact, key=jax.random.key(0)).found
    shares = [one.people / 4_000 for one in found.groups if not one.few]
    assert 1.0 - 0.02 < sum(shares) <= 1.0 and found.gain is not None
    both = [one for one in found.groups if not one.few]
    gains = sum(share * one.gain.value for share, one in zip(shares, both, strict=True))
    means = sum(share * one.practice.value for share, one in zip(shares, both, strict=True))
    assert abs(gains - found.gain.value) <= 4.0 * (1.0 - sum(shares)) + 1e-12
    assert abs(means - found.practice.value) <= 1.0 - sum(shares) + 1e-12


def test_shares_of_reports() -> None:
    def shares(reported: ReportedColumns, **settings: Any) -> dict[str, float]:
        given = {"public": True, "bounded": True, "modelled": False, "assumption": "recorded", **settings}
        return {declared.name: declared.weight for declared in releases(reported=reported, **given)}

    plain, by, both = shares(ReportedColumns()), shares(ReportedColumns(SEX)), shares(REPORTED)
    assert plain.items() < by.items() < both.items()
    assert sum(by.values()) - sum(plain.values()) == 20.0 and sum(both.values()) - sum(by.values()) == 12.0
    unbounded = shares(REPORTED, bounded=False)
    assert "group-gain" not in unbounded and "outcome-gain" not in unbounded and unbounded["group-practice"] == 3.0
    cells = shares(REPORTED, public=False, in_cells=True)
    assert cells["outcome-slope"] == 1.0
    clipped = shares(REPORTED, in_cells=True, assumption="logged")
    assert "group-practice" in clipped and not {"group-gain", "outcome-gain", "outcome-slope"} & clipped.keys()
    budget = privrl.Central(epsilon=1.0, delta=1e-6)
    narrow, wide = (plan_widths(20_000, budget, reported=one) for one in (ReportedColumns(), REPORTED))
    assert wide.practice > narrow.practice and wide.gain > narrow.gain


def test_without_a_gain_there_is_none_by_group(data: privrl.data.Episodes) -> None:
    """Wrong probabilities of practice, which the mean weight shows."""
    wrong = asking(practice=jnp.asarray([[0.8, 0.2], [0.5, 0.5]]))
    result = evaluated(data, wrong, privrl.Central(epsilon=1.0, delta=1e-6), key=jax.random.key(0))
    found = result.found
    assert found.gain is None and all(one.gain is None for one in found.groups) and found.outcome.difference is None
    assert any("none is given by group" in sentence for sentence in found.refused)
    assert [one.name for one in found.groups][-1] == "other" and found.groups[0].practice is not None
    counted = {release["name"]: release["counted"] for release in result.certificate.releases}
    assert counted["group-gain"] == counted["outcome-gain"] == 0 and counted["group-practice"] == 1
    assert Evaluation.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_the_full_advice_has_no_gains_by_group(data: privrl.data.Episodes) -> None:
    settings = {"markov": True, "feature": jnp.array([0.5, 0.0]), "max_ratio": None, "max_weight": None}
    found = evaluated(data, asking(**settings), privrl.Central(epsilon=20.0, delta=1e-6), key=jax.random.key(0)).found
    if math.isinf(found.policy.max_weight):
        assert any("weights have no bound" in sentence for sentence in found.refused)
        assert all(one.gain is None for one in found.groups)
    else:
        assert all(one.gain is not None for one in found.groups if not one.few)


def test_an_evaluation_is_written_and_read_with_its_reports(found: Evaluation) -> None:
    content = json.loads(json.dumps(found.to_json()))
    assert Evaluation.from_json(content) == found
    assert [one["name"] for one in content["groups"]] == ["male", "female", "other"]
    assert content["groups"][0]["harmed"] is True and content["groups"][2]["too_few"] is True


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda written: written["groups"].reverse(), "`groups` does not follow"),
        (lambda written: written["groups"][0].update(harmed=False), "`groups` does not follow"),
        (lambda written: written["groups"][0].update(people=3.0), "malformed"),
        (lambda written: written["groups"][2].update(practice=written["practice"]), "malformed"),
        (lambda written: written["outcome"].update(name=3), "malformed"),
        (lambda written: written.pop("by"), "malformed"),
        (lambda written: written.update(by=None), "malformed"),
    ],
)
def test_reports_that_do_not_follow_from_their_numbers_are_refused(found: Evaluation, change: Any, why: str) -> None:
    content = json.loads(json.dumps(found.to_json()))
    change(content)
    with pytest.raises(ValueError, match=why):
        Evaluation.from_json(content)


def test_groups_are_sorted_by_gain_then_practice() -> None:
    def at(value: float) -> Interval:
        return Interval(value, value - 0.1, value + 0.1, value - 0.1, value + 0.1)

    groups = [
        GroupEstimate("few", 20.0, 1.0),
        GroupEstimate("good", 500.0, 1.0, at(0.1), at(0.2)),
        GroupEstimate("bad", 500.0, 1.0, at(0.9), at(-0.2)),
        GroupEstimate("bad too", 500.0, 1.0, at(0.8), at(-0.2)),
    ]
    assert [one.name for one in worst_first(groups)] == ["bad too", "bad", "good", "few"]
    with pytest.raises(ValueError, match="`noisy`"):
        GroupEstimate("noisy", 500.0, 101.0, at(0.5))
    assert GroupEstimate("noisy", 500.0, 99.0, at(0.5)).cells[1] == "about 500"


def test_an_outcome_has_as_many_decimals_as_it_needs() -> None:
    def at(value: float) -> Interval:
        return Interval(value, value - 1, value + 1, value - 1, value + 1)

    assert OutcomeEstimate("cost", 50_000.0, at(12_345.6), at(-20.0)).words == (
        "The mean of `cost` per episode is 12,346 [12,345, 12,347] under current practice, and the policy changes it "
        "by -20 [-21, -19]."
    )
    assert "4.250 [3.250, 5.250] under" in OutcomeEstimate("days", 3.0, at(4.25)).words


def test_the_report_shows_groups_and_the_second_outcome(found: Evaluation) -> None:
    named = [dataclasses.replace(one, name=f"<{one.name}>") for one in found.groups]
    page = str(render_evaluation(dataclasses.replace(found, groups=tuple(named)), "patient"))
    assert "&lt;male&gt;" in page and "<male>" not in page
    assert "Practice and gain by group" in page and "too few people" in page and "cost" in page
    top = str(render_verdict(found, found.decision))  # the warning follows what was decided
    assert top.index("Released") < top.index("in the group male of") and "is worse than practice" not in page
    plain = str(render_evaluation(dataclasses.replace(found, by=None, groups=(), outcome=None), "patient"))
    assert "by group" not in plain and "cost" not in plain


SCHEMA = {
    "unit": "unit_id",
    "step": "step",
    "state": "state",
    "action": "action",
    "reward": "reward",
    "horizon": 1,
    "num_states": 2,
    "num_actions": 2,
    "by": "sex:female,male,other",
    "outcome": "cost:50000",
}


def test_files_workers_and_arrays_give_the_same_reports(tmp_path: Path) -> None:
    held, path, advice = people(3_000), tmp_path / "people.parquet", np.array([1, 1])
    write_parquet(path, held, rows_per_group=500)
    how: dict[str, Any] = {"practice": PRACTICE, "assume_recorded": True, **LIMITS}
    exact = privrl.NonPrivate()
    whole = privrl.evaluate(held, advice, exact, **how)
    read = privrl.evaluate(path, advice, exact, schema=SCHEMA, **how)
    assert whole.groups and whole.outcome and whole.to_json() == read.to_json()
    statistics = (ByGroup(Gains(whole.policy, jnp.asarray(0.4)), 3), OfOutcome(StayReturns(), 50_000.0))
    data = read_parquet(path, **TableDescription.read(SCHEMA).columns)
    with Processes(2) as workers:
        parts = ShardedEpisodes.from_dataset(data, workers, rows=600)
        assert len(parts.shards) > 1 and parts.digest(bytes(32)) == data.digest(bytes(32))
        for one in statistics:
            norms = {"sensitivity": one.l2("replace-one"), "norm": one.l2("add-remove")}
            lattice = choose_lattice(parameter=0.1, **norms, filled=3, kind="l2")
            found = ShardedRecords.of(Records(parts), parts).total(one, None, lattice)
            np.testing.assert_array_equal(found, Records(held).total(one, None, lattice))
            assert np.asarray(found).any()


def test_commands_show_groups_and_refuse_them_without_a_comparison(tmp_path: Path) -> None:
    path, schema, out = tmp_path / "people.parquet", tmp_path / "people.toml", tmp_path / "policy"
    write_parquet(path, people(3_000))
    said = {name: value for name, value in SCHEMA.items() if name not in ("by", "outcome")}
    schema.write_text("\n".join(f"{name} = {json.dumps(value)}" for name, value in said.items()))
    command = ["fit", path, "--schema", schema, "--recipe", "dp-vapvi", "--epsilon", 3, "--delta", 1e-6, "--out", out]
    columns = ["--by", "sex:female,male,other", "--outcome", "cost:50000"]
    refused = call(*command, *columns)
    assert refused.code == 2 and "`--by` and `--outcome` are reported by a comparison" in refused.err
    unknown = call(*command, "--by", "sex:woman,man", "--evaluate", 0.5, "--spend-anyway")
    assert unknown.code == 2 and "`sex` holds none of the declared values" in unknown.err
    assert "female" not in unknown.err and "male" not in unknown.err and not out.exists()
    clash = call(*command, "--outcome", "reward:1", "--evaluate", 0.5)
    assert clash.code == 2 and "which is the `--reward` too" in clash.err
    shown = call(*command, *columns, "--evaluate", 0.5, "--spend-anyway")
    assert shown.code == 0, shown.err
    assert "By group, the worst one first" in shown.out and "The mean of `cost` per episode is" in shown.out
    assert "`sex`" in shown.out and "too few people" in shown.out
    args = ["evaluate", path, out, "--unit", "unit_id", "--epsilon", 3, "--delta", 1e-6, "--out", tmp_path / "held"]
    again = call(*args, "--spend-anyway", "--json")  # the folder knows its columns
    found = json.loads(again.out)["evaluation"]
    assert found["by"] == "sex" and len(found["groups"]) == 3 and found["outcome"]["largest"] == 50_000.0
    certified = call("certify", out)
    assert certified.code == 0, certified.out


def test_a_warning_about_a_group_follows_the_decision(found: Evaluation, capsys: pytest.CaptureFixture[str]) -> None:
    show_decision(found.decision, found)
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("Released") and shown.endswith(found.warnings[0])
