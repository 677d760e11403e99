"""`fit` on data: units with several episodes, refusals before anything is summed, and what is saved."""

import hashlib
import json
import os

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.parquet as pq
import pytest
from contract import tiny_data, tiny_world

import privrl
from privrl.contracts.learner import Solution
from privrl.contracts.release import Declared
from privrl.contracts.statistic import AbstractStatistic
from privrl.mdp.types import TabularPolicy
from privrl.privacy.accounting.privacy_budget import BudgetError
from privrl.privacy.trust.privatizers import PairingError
from privrl.statistics.counts import VisitCounts

ENV = tiny_world()
COLUMNS = {name: name for name in ("step", "state", "action", "reward", "next_state")}
COLUMNS |= {"unit": "unit_id", "episode": "episode_id"}
LEARNER = privrl.APVI(3, 2, ENV.horizon)


class Heard:
    """The releases that a learner got, for the test to look at."""

    def __init__(self):
        self.releases = []

    def __getitem__(self, i):
        return self.releases[i]


class Counter(privrl.contracts.AbstractOfflineLearner):
    """Hands its one release to the test."""

    heard: Heard = eqx.field(static=True)
    horizon: int = eqx.field(static=True, default=4)
    space = (3, 2)

    def bounds(self):
        return {}

    def declare(self):
        return (Declared("visits", VisitCounts(3, 2, 4, "first-visit")),)

    def fit(self, ask):
        self.heard.releases.append(ask("visits"))
        return Solution(TabularPolicy.uniform(4, 3, 2))


def owned(bound, units, episodes=60, seed=3):
    """Episodes whose unit is `units[i]`."""
    sampled = ENV.sample(ENV.behaviour_policy(), episodes, jax.random.key(seed))
    return privrl.data.Episodes.from_trajectories(
        sampled, num_states=3, num_actions=2, units=units, max_episodes_per_unit=bound
    )


@pytest.mark.parametrize("bound", [1, 2, 5])
def test_noise_grows_with_the_episodes_that_one_person_may_have(bound):
    heard = Heard()
    units = np.arange(60) // 6
    result = privrl.fit(owned(bound, units), Counter(heard), privrl.Central(rho=0.5), key=jax.random.key(0))
    assert float(heard[0].noise.std) == pytest.approx(bound * np.sqrt(2 * 4))
    public = {"users": 10, "episodes": 10} if bound == 1 else {"users": 10}
    assert {name: fact for name, fact in result.report.items() if name != "situations"} == public
    assert result.certificate.records_per_unit == bound


def test_replacing_one_person_moves_the_sum_by_no_more_than_the_bound():
    """All of one unit's episodes become somebody else's: the sums differ by at most 3 times one episode's bound."""
    units = np.arange(60) // 6
    heard = Heard()
    data = owned(3, units)
    privrl.fit(data, Counter(heard), privrl.NonPrivate())
    sampled = ENV.sample(ENV.behaviour_policy(), 60, jax.random.key(3))
    extreme = eqx.tree_at(lambda t: t.states, sampled, np.where((units == 4)[:, None], 2, sampled.states))
    other = privrl.data.Episodes.from_trajectories(
        extreme, num_states=3, num_actions=2, units=units, max_episodes_per_unit=3
    )
    privrl.fit(other, Counter(heard), privrl.NonPrivate())
    assert heard[0].value.shape == (3, 2)
    again = Heard()
    kept = privrl.data.Episodes.from_trajectories(
        sampled, num_states=3, num_actions=2, units=units, max_episodes_per_unit=3
    )
    privrl.fit(kept, Counter(again), privrl.NonPrivate())
    moved = float(jnp.linalg.norm(heard[1].value - again[0].value))
    assert 0 < moved <= 3 * VisitCounts(3, 2, 4, "first-visit").l2("replace-one")


class Wrong(AbstractStatistic):
    """A statistic that lies in one way or another."""

    sensitivity: float = eqx.field(static=True, default=1.0)
    made: tuple = eqx.field(static=True, default=(2,))
    at_rest: float = eqx.field(static=True, default=0.0)
    symmetric: bool = eqx.field(static=True, default=False)
    shape: tuple = eqx.field(static=True, default=(2,))

    def contribution(self, record, query):
        return jnp.full(self.made, jnp.where(record.length > 0, 0.5, self.at_rest))

    def l2(self, adjacency):
        return self.sensitivity

    def l1(self, adjacency):
        return self.sensitivity


class Asker(Counter):
    statistic: AbstractStatistic | None = None

    def declare(self):
        return (Declared("sums", self.statistic),)

    def fit(self, ask):
        self.heard.releases.append(ask("sums"))
        return Solution(TabularPolicy.uniform(4, 3, 2))


@pytest.mark.parametrize(
    ("statistic", "words"),
    [
        (Wrong(sensitivity=0.0), "positive finite"),
        (Wrong(sensitivity=-1.0), "positive finite"),
        (Wrong(sensitivity=float("nan")), "positive finite"),
        (Wrong(sensitivity=float("inf")), "positive finite"),
        (Wrong(made=()), "shape"),
        (Wrong(made=(3,)), "shape"),
        (Wrong(at_rest=1.0), "empty record"),
        (Wrong(symmetric=True), "square"),
    ],
)
def test_statistics_that_cannot_be_right_are_refused(statistic, words):
    heard = Heard()
    with pytest.raises(ValueError, match=words):
        privrl.fit(tiny_data(ENV), Asker(heard, statistic=statistic), privrl.Central(rho=0.5))
    assert heard.releases == []


def test_a_policy_of_the_wrong_shape_is_refused():
    class Flat(Counter):
        def fit(self, ask):
            return Solution(TabularPolicy.uniform(1, 3, 2))

    with pytest.raises(ValueError, match="steps, states and actions"):
        privrl.fit(tiny_data(ENV), Flat(Heard()), privrl.NonPrivate())


def test_horizons_must_agree():
    with pytest.raises(ValueError, match="horizon"):
        privrl.fit(tiny_data(ENV), privrl.APVI(3, 2, 9), privrl.NonPrivate())


def test_sizes_must_agree():
    with pytest.raises(ValueError, match="num_states"):
        privrl.fit(tiny_data(ENV), privrl.APVI(5, 2, ENV.horizon), privrl.NonPrivate())


def test_rewards_must_be_scaled():
    sampled = ENV.sample(ENV.behaviour_policy(), 10, jax.random.key(0))
    data = privrl.data.Episodes.from_trajectories(sampled, num_states=3, num_actions=2, reward_range=(0.0, 2.0))
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        privrl.fit(data, LEARNER, privrl.NonPrivate())


def test_a_pure_budget_needs_laplace_noise():
    with pytest.raises(BudgetError):
        privrl.fit(tiny_data(ENV), LEARNER, privrl.Central(epsilon=1.0, mechanism="gaussian"))
    result = privrl.fit(tiny_data(ENV), LEARNER, privrl.Central(epsilon=1.0))
    assert result.certificate.delta == 0.0
    assert 0.999 < result.certificate.epsilon <= 1.0


def test_without_a_key_no_two_fits_agree():
    heard = Heard()
    for _ in range(2):
        privrl.fit(tiny_data(ENV), Counter(heard), privrl.Central(rho=0.5))
    assert not np.array_equal(heard[0].value, heard[1].value)


def test_what_is_saved(tmp_path):
    result = privrl.fit(tiny_data(ENV), LEARNER, privrl.Central(epsilon=1.0, delta=1e-5), unit="patient")
    folder = result.save(tmp_path / "out" / "policy")
    assert sorted(os.listdir(folder)) == ["certificate.json", "policy.json", "policy.npz", "report.json"]
    again = privrl.Result.load(folder)
    np.testing.assert_array_equal(again.policy.probabilities, result.policy.probabilities)
    saved = ("policy.json", "policy.npz", "report.json")
    named = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in saved}
    assert again.certificate.to_json() == {**result.certificate.to_json(), "files": named}
    assert again.policy.action(state=1, step=0) in (0, 1)
    report = json.loads((folder / "report.json").read_text())
    assert {name: fact for name, fact in report.items() if name != "situations"} == {"users": 200, "episodes": 200}
    result.save(folder)  # replaces a result
    assert os.listdir(folder.parent) == ["policy"]


def test_saving_never_overwrites_something_else(tmp_path):
    result = privrl.fit(tiny_data(ENV), LEARNER, privrl.NonPrivate())
    (tmp_path / "notes.txt").write_text("precious")
    with pytest.raises(ValueError, match="holds other files"):
        result.save(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "precious"
    with pytest.raises(ValueError, match="missing"):
        privrl.Result.load(tmp_path)


def test_a_failed_save_leaves_nothing(tmp_path):
    result = privrl.fit(tiny_data(ENV), LEARNER, privrl.NonPrivate())
    broken = privrl.Result(result.policy, result.certificate, {"not json": object()})
    with pytest.raises(TypeError):
        broken.save(tmp_path / "policy")
    assert os.listdir(tmp_path) == []


def passes_of(tmp_path, monkeypatch, learner, key=None):
    """How often `fit` reads a Parquet table."""
    privrl.data.write_parquet(tmp_path / "t.parquet", ENV.sample(ENV.behaviour_policy(), 50, jax.random.key(0)))
    data = privrl.data.read_parquet(tmp_path / "t.parquet", **COLUMNS, horizon=4)
    passes = []
    read = privrl.data.tables.parquet.ParquetEpisodes._pass
    monkeypatch.setattr(
        privrl.data.tables.parquet.ParquetEpisodes, "_pass", lambda self: passes.append(1) or read(self)
    )
    privrl.fit(data, learner, privrl.Central(epsilon=1.0, delta=1e-5), key=key)
    return len(passes)


def test_a_table_is_read_once(tmp_path, monkeypatch):
    """What later releases sum are kept episodes."""
    pevi = privrl.PEVI(ENV.features, 4)
    assert passes_of(tmp_path, monkeypatch, pevi, key=jax.random.key(0)) == 1
    assert passes_of(tmp_path, monkeypatch, pevi) == 1
    assert passes_of(tmp_path, monkeypatch, Counter(Heard())) == 1


def test_a_fault_in_the_last_row_releases_nothing(tmp_path):
    path = tmp_path / "t.parquet"
    privrl.data.write_parquet(path, ENV.sample(ENV.behaviour_policy(), 50, jax.random.key(0)))
    table = pq.read_table(path)
    state = table["state"].to_pylist()
    state[-1] = 3
    pq.write_table(table.set_column(table.schema.get_field_index("state"), "state", [state]), path)
    heard = Heard()
    data = privrl.data.read_parquet(path, **COLUMNS, horizon=4)
    with pytest.raises(privrl.data.TableError, match="out of range"):
        privrl.fit(data, Counter(heard), privrl.Central(epsilon=1.0, delta=1e-5))
    assert heard.releases == []


@pytest.mark.parametrize("access", ["running", "blocks"])
def test_streamed_releases_are_refused_for_a_table(access):
    class Streamed(privrl.FQI):
        def declare(self):
            visits = VisitCounts(*self.space, self.horizon, "pooled")
            return (Declared("visits", visits, access=access),)

    with pytest.raises(PairingError, match="needs people who arrive in blocks"):
        privrl.fit(tiny_data(tiny_world()), Streamed(3, 2, 4), privrl.Central(epsilon=1, delta=1e-6), key=0)
