"""Evaluation and assisted policies on measurements: one certificate, saved and read, refused in words, the truth."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import check_asked, compiled
from test_cli import call

import privrl
from privrl.audit.surface.adversarial_measurements import adversarial_measurements
from privrl.audit.surface.recorded_fit import record_queries
from privrl.contracts.untrusted import MALFORMED
from privrl.data.tables.parquet import read_parquet
from privrl.data.tables.write import write_parquet
from privrl.envs.worlds_by_name import make
from privrl.evaluation.estimates import FITTED
from privrl.evaluation.evaluated import Evaluated
from privrl.evaluation.limits import PAIRS
from privrl.evaluation.measured_evaluator import MeasuredEvaluator
from privrl.mdp.assistance import LEAST_SUPPORT, LEAVE
from privrl.mdp.assisted_measured import AssistedMeasuredPolicy, count_cells
from privrl.mdp.exported_policy import EpisodeState, ExportedPolicy
from privrl.mdp.measured_policy import MeasuredPolicy
from privrl.mdp.measurements import Category, Feature
from privrl.mdp.types import Trajectory
from privrl.privacy.noise.lattice import choose_lattice
from privrl.recipes.all_recipes import get
from privrl.reports.folder_page import render_folder
from privrl.statistics.corrected_gains import CorrectedGains, ReturnSlopes
from privrl.statistics.off_policy import Changed, Gains, Unsupported, Weights
from privrl.statistics.practice_residuals import PracticeResiduals
from privrl.statistics.practice_table import PracticeTable
from privrl.studies.offline.curated_records import Records
from privrl.studies.results.certification import certify_result
from privrl.studies.results.result import Result
from privrl.studies.simulation.sampled_tables import assisted_gain, sampled

WORLD = make("anticoagulation", horizon=4, evaluated=4096)
BUDGET = privrl.Central(epsilon=50.0, delta=1e-6)
NUM_CELLS = count_cells(WORLD.num_actions)
ROW = np.array([2.0, 4.0, 75.0, 1.0])


@pytest.fixture(scope="module")
def assessed() -> Result:
    learner, compared = (
        get("dp-lap").build(WORLD),
        {"evaluate": 0.4, "return_range": (0.0, 1.0), "release_anyway": True},
    )
    return privrl.fit(sampled(WORLD, 1_000, jax.random.key(0)), learner, BUDGET, **compared, key=jax.random.key(1))


@pytest.fixture(scope="module")
def policy(assessed: Result) -> AssistedMeasuredPolicy:
    """Its advice and cells, with support of every kind."""
    found = assessed.policy
    support = jnp.asarray(np.resize([0.0, 0.04, 0.05, 0.3, 0.7, 1.0], NUM_CELLS))
    return AssistedMeasuredPolicy(found.advice, found.values, support, horizon=100)


def test_the_policy_has_the_horizon_that_was_evaluated(assessed: Result) -> None:
    assert assessed.policy.horizon == WORLD.horizon == 4
    assert assessed.policy.start_episode()._policy.advise(ROW, step=4).reason == "past the horizon"


def rows(count: int = 400) -> np.ndarray:
    rng = np.random.default_rng(3)
    low, high = zip(*((getattr(c, "low", 0), getattr(c, "high", 2)) for c in WORLD.columns), strict=True)
    made = rng.uniform(low, high, (count, 4))
    made[:, 3] = np.floor(made[:, 3])
    return np.where(rng.random(made.shape) < 0.2, np.nan, made)


# ------------------------------------------------------------------------------------------------------ the policy


def test_advice_is_given_where_practice_supports_it(policy: AssistedMeasuredPolicy) -> None:
    x = jnp.asarray(rows())
    at = compiled(policy.decisions, x)
    cells, advice = np.asarray(compiled(policy.cells, x)), np.asarray(policy.advice.scores(x)).argmax(axis=-1)
    assert set(cells) <= set(range(NUM_CELLS)) and len(set(cells)) > 10
    np.testing.assert_array_equal(at.support, np.asarray(policy.support)[cells])
    certain = np.asarray(at.alpha(policy.ratio_at(1.0))) == 1.0
    np.testing.assert_array_equal(np.asarray(at.supported), np.asarray(at.support) >= LEAST_SUPPORT)
    np.testing.assert_array_equal(policy(x), np.where(certain, advice, LEAVE))
    assert 0 < certain.sum() < np.asarray(at.supported).sum()
    assert (policy.without_advice()(x) == LEAVE).all() and policy.without_advice().is_silent and not policy.is_silent
    assert policy({"inr": 2.0}) in range(LEAVE, WORLD.num_actions)
    with pytest.raises(ValueError, match="must hold 4 numbers"):
        policy(np.zeros(3))


def test_weights_have_mean_one_where_cells_say_what_practice_does(policy: AssistedMeasuredPolicy) -> None:
    """E[rho | x] = 1 under b*, for each row and `max_ratio`."""
    at = compiled(policy.decisions, jnp.asarray(rows()))
    for max_ratio in (1.0, 1.5, 7.0):
        hit, miss = at.rho(at.advice, max_ratio), at.rho(jnp.full_like(at.advice, LEAVE), max_ratio)
        mean = at.support * hit + (1.0 - at.support) * miss
        np.testing.assert_allclose(np.asarray(mean)[np.asarray(at.supported)], 1.0, atol=1e-12)
        assert float(hit.max()) <= max_ratio + 1e-12 and float(miss.min()) >= 0.0


def test_a_stay_is_advised_decision_by_decision(policy: AssistedMeasuredPolicy) -> None:
    sure = dataclasses.replace(policy, support=jnp.ones(NUM_CELLS))
    stay = sure.start_episode(key=jax.random.key(0))
    assert stay.advise(ROW).action == policy.advice(ROW)
    stay.record(0)
    rare = dataclasses.replace(policy, support=jnp.full(NUM_CELLS, 0.1), max_ratio=np.inf, max_weight=4.0)
    stay = rare.start_episode()
    advised = stay.advise({"inr": 2.0, "last_dose": 4.0, "weight": 75})
    assert advised.choice is not None and advised.probability == pytest.approx(1 / 3)
    stay.record(advised.choice)
    assert stay.weight == pytest.approx(4.0) and stay.weight <= 4.0 and stay.advise(ROW).action is None


def test_it_is_read_again_exactly(policy: AssistedMeasuredPolicy) -> None:
    for one in (policy, policy.with_limits(np.inf, np.inf), policy.without_advice()):
        read = AssistedMeasuredPolicy.from_json(json.loads(json.dumps(one.to_json(), allow_nan=False)))
        again = AssistedMeasuredPolicy.from_arrays(one.arrays())
        assert read.to_json() == again.to_json() == one.to_json()
        np.testing.assert_array_equal(read(rows()), one(rows()))
        assert read.horizon == again.horizon == 100
    content, arrays = policy.to_json(), policy.arrays()
    with pytest.raises(MALFORMED):
        AssistedMeasuredPolicy.from_json({**content, "assistance": {**content["assistance"], "horizon": 2.5}})
    with pytest.raises(MALFORMED):
        AssistedMeasuredPolicy.from_arrays({**arrays, "horizon": np.asarray(2.5)})
    with pytest.raises(ValueError, match="not the JSON"):
        AssistedMeasuredPolicy.from_json(policy.advice.to_json())
    with pytest.raises(ValueError, match="not the JSON"):
        MeasuredPolicy.from_json(policy.to_json())
    with pytest.raises(ValueError, match="one per cell"):
        AssistedMeasuredPolicy(policy.advice, policy.values, jnp.zeros(3), horizon=100)


@pytest.mark.parametrize("unit", [np.nan, np.inf, -1.0, [0.1, 0.2]])
def test_a_unit_that_is_not_one_is_refused(policy: AssistedMeasuredPolicy, unit: Any) -> None:
    with pytest.raises(ValueError, match="`advantage_unit` must be a finite number"):
        AssistedMeasuredPolicy.from_arrays({**policy.arrays(), "advantage_unit": np.asarray(unit)})


@pytest.mark.parametrize("unit", [0.0, 1e-300, 0.02, 1e300])
def test_the_reader_without_jax_advises_as_strongly(policy: AssistedMeasuredPolicy, unit: float) -> None:
    one = dataclasses.replace(policy, advantage_unit=jnp.asarray(unit), max_ratio=3.0)
    x, exported = rows(60), ExportedPolicy(json.loads(json.dumps(one.to_json())))
    at, k = one.decisions(jnp.asarray(x)), one.ratio_at(0.7)
    missed = at.rho(jnp.full_like(at.advice, LEAVE), k)
    expected = np.stack([at.alpha(k), at.rho(at.advice, k), missed]).T
    found = [exported.decide(row, EpisodeState(0, 0.7)) for row in x]
    mine = [(one.probability, one.if_taken, one.otherwise) for one in found]
    np.testing.assert_allclose(mine, expected, rtol=1e-9, atol=1e-12)
    assert ((expected[:, 0] > 0.0).any() or unit == 1e300) and (expected[:, 1] <= 3.0 + 1e-12).all()


def test_the_reader_without_jax_agrees(policy: AssistedMeasuredPolicy) -> None:
    for one in (policy, policy.without_advice(), policy.advice):
        chosen = one.choose(jnp.asarray(rows())) if isinstance(one, MeasuredPolicy) else one(rows())
        exported = ExportedPolicy(json.loads(json.dumps(one.to_json())))
        assert [exported(row) for row in rows()] == np.asarray(chosen).tolist()


_MISTAKES = (
    ({"no such column": 1.0}, "`no such column` is not a column of this policy. Its columns are inr, last_dose"),
    ({"inr": "2.0"}, "`inr` is text; it must be a number"),
    ({"inr": True}, "`inr` is of the type `bool`"),
    ({"inr": float("inf")}, "`inr` is not finite"),
    ({"inr": 10**400}, "`inr` is not finite"),
    ({"genotype": "excellent"}, "`genotype` is not one of its categories: normal"),
    ({"genotype": 1.0}, "`genotype` is not one of its categories"),
    ([1.0, 2.0, 3.0, 4.0], "`genotype` must be the position of a category"),
    ([1.0, 2.0, -np.inf, 1.0], "`weight` is not finite"),
    ([1.0], "must hold 4 numbers: inr, last_dose"),
)


def test_an_exported_policy_is_loaded_and_takes_names(policy: AssistedMeasuredPolicy, tmp_path: Path) -> None:
    (tmp_path / "policy.json").write_text(json.dumps(policy.advice.to_json()))
    exported = privrl.mdp.ExportedPolicy.load(tmp_path / "policy.json")
    for row in rows()[:20]:
        named = {
            column.name: None if np.isnan(x) else x if isinstance(column, Feature) else column.values[int(x)]
            for column, x in zip(policy.advice.columns, row, strict=True)
        }
        assert exported(named) == policy.advice(named) == exported(list(row))
    for one in (exported, policy, policy.advice):
        for wrong, words in _MISTAKES:
            with pytest.raises(ValueError, match=words):
                one(wrong)
            with pytest.raises(ValueError, match=words):
                one.advise(wrong)
    with pytest.raises(ValueError, match="`kind`"):
        ExportedPolicy({"kind": "a cake"})


# ------------------------------------------------------------------------------------------------------ evaluation


def test_one_certificate_over_both_groups(assessed: Result, tmp_path: Path) -> None:
    evaluation, certificate = assessed.evaluation, assessed.certificate
    assert evaluation is not None and evaluation.gain is None and evaluation.verdict == "not shown"
    assert certificate.epsilon <= 50.0 and {event.group for event in certificate.events} == {"learn", "evaluate"}
    assert isinstance(assessed.advice, MeasuredPolicy) and isinstance(assessed.policy, AssistedMeasuredPolicy)
    assert evaluation.assisted_gain is None or evaluation.assisted_gain.half > FITTED
    assert evaluation.model_gain is None and "not modelled" in evaluation.words and evaluation.balance is not None
    assessed.save(tmp_path / "out")
    loaded = Result.load(tmp_path / "out")
    assert loaded.evaluation == evaluation and loaded.policy.to_json() == assessed.policy.to_json()
    assert all(check.ok for check in certify_result(loaded, allow_non_private=True).checks)
    assert json.loads((tmp_path / "out" / "policy.json").read_text()) == assessed.policy.to_json()
    assert "Comparison with current practice" in render_folder(tmp_path / "out")


def test_a_saved_policy_is_evaluated_on_other_people(assessed: Result) -> None:
    held = sampled(WORLD, 300, jax.random.key(5))
    found = privrl.evaluate(held, assessed, BUDGET, key=jax.random.key(6))
    whole = privrl.evaluate(held, assessed.policy, BUDGET, key=jax.random.key(6))
    assert found == whole and found.people == 300 and found.policy.to_json() == whole.policy.to_json()
    plain = privrl.evaluate(held, assessed.advice, BUDGET, key=jax.random.key(6))
    assert plain.policy.advantage_unit == found.policy.advantage_unit > 0.0  # type: ignore[attr-defined]
    other = dataclasses.replace(assessed.policy, advantage_unit=jnp.asarray(0.125))
    again = privrl.evaluate(held, other, BUDGET, key=jax.random.key(6))
    assert again.policy.advantage_unit == 0.125  # type: ignore[attr-defined]
    assert not np.asarray(plain.policy.values).any()  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="numbered states"):
        privrl.evaluate(held, assessed, BUDGET, practice=np.ones((4, 5)) / 5)
    with pytest.raises(ValueError, match="numbered states"):
        Evaluated(get("dp-lap").build(WORLD), practice=jnp.ones((4, 5)) / 5)
    with pytest.raises(ValueError, match="max_ratio"):
        Evaluated(get("dp-lap").build(WORLD), max_ratio=0.5)


def test_too_few_people_are_refused_before_the_gain_is_asked_for(assessed: Result) -> None:
    held = sampled(WORLD, 300, jax.random.key(5))
    found = privrl.evaluate(held, assessed, privrl.Central(epsilon=1.0, delta=1e-6), key=jax.random.key(6))
    assert found.assisted_gain is None and "and there were 300" in found.words
    assert found.decision.outcome == "withheld" and found.released_policy.is_silent
    assert not {event.name for event in found.certificate.events} & {"gain", "gain-square"}
    assert found.certificate.epsilon == pytest.approx(1.0, rel=1e-6)


@pytest.mark.slow
def test_reports_on_measurements_are_corrected_and_add_up(assessed: Result) -> None:
    """Without noise, groups add up to everyone, and an outcome that is the reward changes as the reward does."""
    people, by = WORLD.sample(WORLD.practice, 1_000, jax.random.key(7)), Category("half", ("a", "b"))
    rewards, groups = np.asarray(people.rewards), np.arange(1_000)[:, None] % 2 + np.zeros((1, WORLD.horizon))
    columns = (people.states, people.actions, rewards, people.next_states, people.length, None)
    stays = Trajectory(*columns, np.stack([groups, rewards], axis=-1))
    held = privrl.data.Episodes.from_trajectories(
        stays, features=WORLD.columns, num_actions=WORLD.num_actions, by=by, outcome=Feature("again", 0, 1)
    )
    found = privrl.evaluate(held, assessed, privrl.NonPrivate(), return_range=(0.0, 1.0), key=jax.random.key(8))
    gain = found.assisted_gain
    assert gain is not None and found.outcome is not None and found.outcome.difference is not None
    assert {one.people for one in found.groups} == {500.0}
    gains = [one.gain.value for one in found.groups if one.gain is not None]
    assert len(gains) == 2 and gains[0] < gains[1] and np.mean(gains) == pytest.approx(gain.value, abs=1e-12)
    assert all(one.gain.half > gain.half for one in found.groups if one.gain is not None)
    assert found.outcome.practice.value == pytest.approx(found.practice.value, abs=1e-12)
    assert found.outcome.difference.value == pytest.approx(gain.value, abs=1e-12)
    assert {"outcome-slope", "group-gain"} <= {event.name for event in found.certificate.events}


@pytest.mark.slow
def test_without_noise_it_is_what_the_people_say(assessed: Result) -> None:
    """By hand: cells, hits over visits, weights and their mean."""
    people = WORLD.sample(WORLD.practice, 600, jax.random.key(7))
    held = privrl.data.Episodes.from_trajectories(people, features=WORLD.columns, num_actions=WORLD.num_actions)
    found = privrl.evaluate(held, assessed, privrl.NonPrivate(), key=jax.random.key(8))
    policy = found.policy
    x, a, valid = jnp.asarray(people.states), jnp.asarray(people.actions), np.asarray(people.valid)
    at = policy.decisions(x)
    hit = np.asarray(a == at.advice)
    cells = np.asarray(policy.cells(x))
    counted = [valid & (cells == k) for k in range(NUM_CELLS)]
    shares = np.array([hit[c].mean() if c.sum() > 60 else np.nan for c in counted])
    known = np.isfinite(shares) & (np.asarray(policy.support) > 0)
    assert known.sum() > 2
    np.testing.assert_allclose(np.asarray(policy.support)[known], shares[known], atol=0.06)  # shrunk toward the mean
    weights = jax.vmap(lambda *stay: policy.weigh(*stay).last)(x, a, people.valid)
    assert found.balance is not None and found.balance.value == pytest.approx(float(weights.mean()), abs=1e-9)
    truth = assisted_gain(WORLD, policy, 0, key=jax.random.key(0))
    assert abs(truth.value) < 0.5 and truth.error < 0.01


@pytest.mark.slow
def test_every_release_is_declared_and_bounded(assessed: Result) -> None:
    advice, values = assessed.advice, assessed.policy.values
    evaluator = MeasuredEvaluator(advice, values, WORLD.horizon, 1_000)
    asked = record_queries(
        sampled(WORLD, 1_000, jax.random.key(9)), evaluator, evaluator.evaluate, BUDGET, jax.random.key(10)
    ).queries
    assert {one.name for one in asked} == {declared.name for declared in evaluator.declare()}
    check_asked(asked, adversarial_measurements(WORLD.horizon, WORLD.columns, WORLD.num_actions, count=240))


@pytest.mark.slow
def test_streamed_sums_are_those_in_memory(policy: AssistedMeasuredPolicy, tmp_path: Path) -> None:
    people, path = sampled(WORLD, 60, jax.random.key(10)), tmp_path / "people.parquet"
    write_parquet(path, people, features=WORLD.columns)
    columns = {"unit": "unit_id", "step": "step", "action": "action", "reward": "reward", "terminated": "terminated"}
    means = (Weights(policy), Unsupported(policy), Changed(policy), Gains(policy, jnp.asarray(0.5)))
    corrected = CorrectedGains(policy, policy.value_feature, jnp.asarray(0.5), jnp.asarray(0.2), limits=PAIRS)
    sums = (
        *means,
        PracticeTable(policy, 5, 4.0, True),
        corrected,
        ReturnSlopes(policy.value_feature, jnp.asarray(0.5)),
    )
    for statistic in (*sums, PracticeResiduals(policy, policy.value_feature, False)):
        norm = statistic.l2("add-remove")
        lattice = choose_lattice(
            parameter=0.1, sensitivity=statistic.l2("replace-one"), norm=norm, filled=10, kind="l2"
        )
        data = read_parquet(path, **columns, features=WORLD.columns, horizon=4, num_actions=5, batch_rows=7)
        whole = Records(people).total(statistic, None, lattice)
        np.testing.assert_array_equal(Records(data).total(statistic, None, lattice), whole)


# ------------------------------------------------------------------------------------------------------- commands


@pytest.mark.slow
def test_the_command_says_the_truth_beside_the_estimate(tmp_path: Path) -> None:
    world = ("env:anticoagulation", "--env-arg", "horizon=4", "--env-arg", "evaluated=4096", "--episodes", "600")
    arguments = ("fit", *world, "--recipe", "dp-lap", "--epsilon", "30", "--delta", "1e-6", "--seed", "2")
    content = call(*arguments, "--evaluate", ".3", "--json", "--out", tmp_path / "out").json()
    truth = content["evaluation"]["truth"]
    assert content["evaluation"]["verdict"] == "not shown"
    assert 0.0 < truth["gain_se"] < 0.02 and 0.0 < truth["model_gain_se"] < 0.02
    assert "policy.json" in {path.name for path in (tmp_path / "out").iterdir()}
    refused = call(*arguments, "--evaluate", ".3", "--practice", "env")
    assert refused.code == 2 and "measurements" in refused.err


@pytest.mark.slow
def test_a_policy_that_is_worse_than_practice_is_withheld_and_the_command_says_so(tmp_path: Path) -> None:
    """In `chemotherapy` the advice is worse than practice, with noise and without: what is saved leaves every decision
    as it is."""
    world = ("env:chemotherapy", "--env-arg", "evaluated=8192", "--episodes", "10000", "--seed", "1")
    arguments = ("fit", *world, "--recipe", "dp-lap", "--epsilon", "3", "--delta", "1e-6", "--evaluate", ".3")
    found = call(*arguments, "--json", "--out", tmp_path / "out").json()["evaluation"]
    assert found["truth"]["model_gain"] < -4 * found["truth"]["model_gain_se"]
    assert found["verdict"] == "not shown" and found["reasons"]
    saved = Result.load(tmp_path / "out")
    assert isinstance(saved.policy, AssistedMeasuredPolicy) and saved.policy.is_silent
    assert call("report", tmp_path / "out").code == 0
    assert "Withheld: decisions stay as they are." in (tmp_path / "out.html").read_text()


@pytest.mark.slow
def test_a_table_is_fitted_compared_and_compared_again(tmp_path: Path) -> None:
    path, out = tmp_path / "people.parquet", tmp_path / "out"
    write_parquet(path, WORLD.sample(WORLD.practice, 600, jax.random.key(11)), features=WORLD.columns)
    named = ("--unit", "unit_id", "--step", "step", "--action", "action", "--reward", "reward")
    columns = [word for c in WORLD.columns for word in ("--category" if hasattr(c, "values") else "--feature", str(c))]
    table = (*named, *columns, "--terminated", "terminated", "--horizon", "4", "--num-actions", "5")
    budget = ("--epsilon", "30", "--delta", "1e-6", "--return-bound", "1")
    fitted = call(
        "fit", path, "--spend-anyway", "--recipe", "dp-lap", *table, *budget, "--evaluate", ".3", "--out", out, "--json"
    ).json()
    assert fitted["evaluation"]["verdict"] == "not shown" and fitted["epsilon"] <= 30
    assert call("certify", out).code == 0 and call("report", out).code == 0
    unit = ("--unit", "unit_id")
    found = call("evaluate", path, out, "--spend-anyway", *unit, *budget, "--out", tmp_path / "again", "--json").json()
    assert found["evaluation"]["people"] == 600 and found["evaluation"]["gain"] is None
    assert call("report", tmp_path / "again").code == 0
    refused = call(
        "evaluate", path, out, "--spend-anyway", *unit, *budget, "--practice", path, "--out", tmp_path / "third"
    )
    assert refused.code == 2 and "measurements" in refused.err
