"""Logged propensities: checked, kept with their rows, part of a table's identity, and used by an evaluation."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from contract import tiny_world

import privrl
from privrl.data.episodes import Episodes
from privrl.data.schema.table_schema import TableError
from privrl.data.tables.parquet import read_parquet
from privrl.data.tables.write import write_parquet
from privrl.mdp.types import Trajectory

ENV = tiny_world(4)
H = ENV.horizon
KEY = b"k" * 32
COLUMNS: dict[str, Any] = {
    "unit": "unit_id",
    "episode": "episode_id",
    "step": "step",
    "state": "state",
    "action": "action",
    "reward": "reward",
    "next_state": "next_state",
    "horizon": H,
    "num_states": ENV.num_states,
    "num_actions": ENV.num_actions,
}


def logged(people: int, seed: int = 0) -> Trajectory:
    stays = jax.tree.map(np.asarray, ENV.sample(ENV.behaviour_policy(), people, jax.random.key(seed)))
    p = np.asarray(ENV.behaviour)[stays.states, stays.actions]
    p = np.where(np.arange(H) < stays.length[:, None], p, 1.0)
    return Trajectory(stays.states, stays.actions, stays.rewards, stays.next_states, stays.length, p)


def table(stays: Trajectory) -> Episodes:
    return Episodes.from_trajectories(stays, num_states=ENV.num_states, num_actions=ENV.num_actions)


@pytest.mark.parametrize("wrong", [0.0, -0.25, 1.0625, np.nan, np.inf])
def test_a_propensity_outside_its_range_is_refused_and_not_quoted(wrong: float) -> None:
    stays = logged(5)
    assert stays.propensities is not None
    stays.propensities[3, 0] = wrong
    with pytest.raises(TableError, match="`propensities`.*episode 3, step 0") as caught:
        table(stays)
    assert "25" not in str(caught.value)


def test_propensities_stay_with_their_rows_in_files_and_in_memory(tmp_path: Path) -> None:
    stays = logged(40)
    write_parquet(tmp_path / "stays.parquet", stays)
    read = read_parquet(tmp_path / "stays.parquet", **COLUMNS, propensity="propensity")
    assert read.logged and table(stays).logged
    (whole,), (again,) = read.batches(40), table(stays).batches(40)
    for batch in (whole, again):
        taken = np.arange(H) < np.asarray(batch.length)[:, None]
        expected = np.asarray(ENV.behaviour)[np.asarray(batch.states), np.asarray(batch.actions)]
        np.testing.assert_array_equal(np.asarray(batch.propensities)[taken], expected[taken])
    without = read_parquet(tmp_path / "stays.parquet", **COLUMNS)
    assert not without.logged and next(without.batches(40)).propensities is None


def test_a_table_with_another_propensity_is_another_table() -> None:
    one, other = logged(6), logged(6)
    assert other.propensities is not None
    before = table(one).digest(KEY)
    assert table(other).digest(KEY) == before
    other.propensities[2, 0] = np.nextafter(other.propensities[2, 0], 0.0)
    assert table(other).digest(KEY) != before


def test_an_evaluation_says_who_decided() -> None:
    stays, advice = logged(400), np.zeros(ENV.num_states, int)
    budget = {"epsilon": 3.0, "delta": 1e-6, "key": 0}
    found = privrl.evaluate(table(stays), advice, **budget)
    assert found.assumption == "logged" and found.trend is None and found.gain is not None and found.model_gain is None
    assert "program" in found.certificate.bounds["who decided"] and "logged the probability" in found.words
    plain = table(Trajectory(stays.states, stays.actions, stays.rewards, stays.next_states, stays.length))
    stated = privrl.evaluate(plain, advice, **budget, assume_recorded=True)
    assert stated.assumption == "recorded" and "Assumed by the study team" in stated.words
    assert "does not verify" in stated.certificate.bounds["who decided"]
    assert privrl.evaluate(plain, advice, **budget).assumption == "checked"
    with pytest.raises(ValueError, match="Leave out one of them"):
        privrl.evaluate(table(stays), advice, **budget, assume_recorded=True)


def test_a_program_that_decides_at_random_states_its_least_probability(tmp_path: Path) -> None:
    stays, advice = logged(400), np.zeros(ENV.num_states, int)
    least = float(np.asarray(ENV.behaviour).min())
    assert least > 0.05
    bounds: dict[str, Any] = {"num_states": ENV.num_states, "num_actions": ENV.num_actions, "least_propensity": least}
    found = privrl.evaluate(Episodes.from_trajectories(stays, **bounds), advice, epsilon=3.0, delta=1e-6, key=0)
    assert found.assumption == "randomised" and found.public and found.gain is not None
    assert found.certificate.bounds["least probability of every action"] == least
    assert "decided at random" in found.certificate.bounds["who decided"] and "decided at random" in found.words
    assert "practice-table" not in {event.name for event in found.certificate.events}
    assert float(np.asarray(found.policy.support).max()) == least
    write_parquet(tmp_path / "stays.parquet", stays)
    said = {name: value for name, value in COLUMNS.items() if name != "horizon"}
    schema = {**said, "horizon": H, "propensity": "propensity", "least_propensity": least, "unit": "unit_id"}
    again = privrl.evaluate(tmp_path / "stays.parquet", advice, schema=schema, epsilon=3.0, delta=1e-6)
    assert again.assumption == "randomised"


def test_a_propensity_below_the_stated_least_one_is_refused_and_not_quoted(tmp_path: Path) -> None:
    stays, least = logged(40), 0.45
    assert stays.propensities is not None
    stays.propensities[3, 0] = 0.4321
    write_parquet(tmp_path / "stays.parquet", stays)
    with pytest.raises(TableError, match=r"below its public bound.*`least_propensity`") as caught:
        Episodes.from_trajectories(
            stays, num_states=ENV.num_states, num_actions=ENV.num_actions, least_propensity=least
        )
    assert "0.43" not in str(caught.value)
    with pytest.raises(TableError, match="below its public bound"):
        read_parquet(tmp_path / "stays.parquet", **COLUMNS, propensity="propensity", least_propensity=least).check()


def test_a_propensity_that_leaves_too_little_for_another_action_is_refused_and_not_quoted(tmp_path: Path) -> None:
    """Above 1 - (A-1) p_min, some action had less than p_min: weights would then have a mean below 1."""
    stays, least = logged(40), 0.06
    assert stays.propensities is not None
    largest = 1.0 - (ENV.num_actions - 1) * least
    sizes: dict[str, Any] = {"num_states": ENV.num_states, "num_actions": ENV.num_actions, "least_propensity": least}
    taken = np.arange(H) < stays.length[:, None]
    stays.propensities[taken] = np.minimum(stays.propensities[taken], largest)
    Episodes.from_trajectories(stays, **sizes)
    stays.propensities[3, 0] = largest + 0.0123
    with pytest.raises(TableError, match=r"above what its public bound allows at episode 3, step 0") as caught:
        Episodes.from_trajectories(stays, **sizes)
    assert f"{largest + 0.0123:.3f}" not in str(caught.value)
    write_parquet(tmp_path / "stays.parquet", stays)
    with pytest.raises(TableError, match="above what its public bound allows"):
        read_parquet(tmp_path / "stays.parquet", **COLUMNS, propensity="propensity", least_propensity=least).check()


def test_least_probabilities_that_cannot_serve_are_refused() -> None:
    stays = logged(400)
    sizes: dict[str, Any] = {"num_states": ENV.num_states, "num_actions": ENV.num_actions}
    plain = Trajectory(stays.states, stays.actions, stays.rewards, stays.next_states, stays.length)
    with pytest.raises(ValueError, match="there are none"):
        Episodes.from_trajectories(plain, **sizes, least_propensity=0.2)
    with pytest.raises(ValueError, match="at least 0 and below 1"):
        Episodes.from_trajectories(stays, **sizes, least_propensity=1.5)
    with pytest.raises(ValueError, match=f"probabilities of {ENV.num_actions} actions add up to 1"):
        Episodes.from_trajectories(stays, **sizes, least_propensity=1.01 / ENV.num_actions)
    small = Episodes.from_trajectories(stays, **sizes, least_propensity=0.01)
    with pytest.raises(ValueError, match=r"0\.05. Leave it out"):
        privrl.evaluate(small, np.zeros(ENV.num_states, int), epsilon=3.0, delta=1e-6, key=0)
