"""How often situations were seen, from releases that are made anyway."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import PRNGKeyArray
from test_evaluate import PRACTICE, H, held  # noqa: F401

import privrl
from privrl.contracts.release import Release
from privrl.privacy.noise.distributions import GaussianNoise
from privrl.statistics.counts import VisitCounts
from privrl.studies.offline.situations import ReleasedVisits, Situations, situations_of
from privrl.studies.results.result import Result

BUDGET = privrl.Central(epsilon=3.0, delta=1e-6)


def shares(data: privrl.data.Episodes) -> np.ndarray:
    """Of all decisions, by state and action."""
    rows = data.transitions()
    found = np.zeros((3, 2))
    np.add.at(found, (rows.state, rows.action), rows.count)
    return found / found.sum()


@pytest.mark.parametrize("counting", ["per-stage", "pooled"])
def test_without_noise_shares_are_exact_whether_or_not_steps_are_told_apart(
    held: privrl.data.Episodes,  # noqa: F811
    counting: str,
) -> None:
    found = privrl.fit(held, privrl.APVI(3, 2, H, counting=counting), privrl.NonPrivate()).report["situations"]
    expected = shares(held)
    np.testing.assert_allclose(found["visits"], expected, atol=1e-6)
    known = Situations.from_json(found)
    np.testing.assert_allclose(known.seen, expected.sum(axis=1), atol=1e-5)
    assert known.today == expected.argmax(axis=1).tolist() and known.noise == 0.0


def noisy(key: PRNGKeyArray, scale: float) -> Release:
    return Release(jnp.full((3, 2), 100.0) + scale * jax.random.normal(key, (3, 2)), GaussianNoise(scale, (3, 2)))


def test_the_stated_noise_is_that_of_the_average() -> None:
    """50 repetitions of two releases each: errors of shares have the stated standard deviation."""
    errors, statistic = [], VisitCounts(3, 2, H, "pooled")
    for repetition in jax.random.split(jax.random.key(0), 50):
        visits = ReleasedVisits()
        for name, key in zip(("first", "second"), jax.random.split(repetition), strict=True):
            visits.watch(name, statistic, noisy(key, 5.0))
        told = visits.shares()
        assert told is not None
        errors.append((told[0] - 1 / 6) / told[1])
    assert 0.8 < np.std(errors) < 1.15


def test_public_practice_says_what_is_done_today_and_nothing_else_is_made_up() -> None:
    known = situations_of(ReleasedVisits(), np.asarray(PRACTICE))
    assert known is not None and known.today == np.asarray(PRACTICE).argmax(axis=-1).tolist() and known.seen is None
    assert situations_of(ReleasedVisits(), None) is None


def test_it_costs_nothing_and_vanishes_with_a_policy_that_is_withheld(
    held: privrl.data.Episodes,  # noqa: F811
    tmp_path: Path,
) -> None:
    result = privrl.fit(held, privrl.TDFP(3, 2, H, terminal=(), in_flight_rewards=True), BUDGET)
    assert {release["name"] for release in result.certificate.releases} == {
        "returns",
        *(f"round-{k}" for k in range(1, 7)),
    }
    assert len(result.report["values"]) == 3 and abs(np.sum(result.report["situations"]["visits"]) - 1.0) < 1e-3
    result.save(tmp_path / "policy")
    assert Result.load(tmp_path / "policy").report == json.loads(json.dumps(result.report))
    assert not {"situations", "values"} & set(result.withheld("no").report)


@pytest.mark.parametrize("evaluated", [pytest.param(False, marks=pytest.mark.slow), True])
def test_values_that_were_saved_make_a_model_of_the_whole_advice(
    held: privrl.data.Episodes,  # noqa: F811
    tmp_path: Path,
    evaluated: bool,
) -> None:
    """Before, a learner that was evaluated in its own study saved no values, so its advice was not modelled again."""
    learner = privrl.TDFP(3, 2, H, terminal=(), in_flight_rewards=True)
    result = privrl.fit(held, learner, BUDGET, evaluate=0.3 if evaluated else None, key=jax.random.key(1))
    result = Result.load(result.save(tmp_path / "policy"))
    options = {"practice": PRACTICE, "return_range": (0.0, float(H)), "key": jax.random.key(2)}
    found = privrl.evaluate(held, result, privrl.Central(epsilon=20.0, delta=1e-6), **options)
    assert {release["name"] for release in found.certificate.releases} >= {"nuisance", "model-gain"}
    assert found.model_gain is not None or any("model of the whole advice is refused" in why for why in found.refused)
    plain = privrl.evaluate(held, result.policy, BUDGET, **options)
    assert plain.model_gain is None and any("give values" in why for why in plain.refused)
