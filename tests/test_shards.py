"""A table in shards gives the sums, groups, samples, digests and policies of one process."""

import itertools
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.parquet as pq
import pytest
from sharded_tables import TABLE, opened, rows, written
from statistic_cases import CASES, COLUMNS, A, H, S

import privrl
from privrl.data.schema.table_schema import TableError
from privrl.data.tables.parquet import read_parquet
from privrl.data.tables.shards import Group, ShardedEpisodes, _are_disjoint
from privrl.executors.executor import AbstractExecutor, InProcess
from privrl.executors.processes import Processes
from privrl.mdp.features import OneHotFeatures
from privrl.privacy.noise import sources
from privrl.privacy.noise.lattice import choose_lattice
from privrl.privacy.noise.poisson_sample import PoissonSample
from privrl.privacy.noise.random_words import Words
from privrl.privacy.trust.channels import sensitivity_of
from privrl.recipes.all_recipes import get
from privrl.statistics.gradients import EpisodeCount
from privrl.studies.offline.curated_records import Records
from privrl.studies.offline.sharded_records import ShardedRecords

PRIVATE = privrl.Central(epsilon=1.0, delta=1e-6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("table") / "stays", rows())


def sharded(data: Any, size: int = 40, executor: AbstractExecutor | None = None) -> ShardedEpisodes:
    return ShardedEpisodes.from_dataset(data, InProcess() if executor is None else executor, size)


# --------------------------------------------------------------------------------------------------- partitions


@pytest.mark.parametrize("size", [1, 17, 40, 150, 10**6])
def test_shards_are_runs_of_row_groups_between_people(folder: Path, size: int) -> None:
    whole = opened(folder)
    shards = sharded(whole, size).shards
    pieces = [(f, g) for shard in shards for f, first, end in shard.data.table.pieces for g in range(first, end)]
    assert pieces == [(f, g) for f, groups in enumerate(whole.table.row_groups) for g in range(len(groups))]
    people = [set(itertools.chain(*shard.data.unit_ids())) for shard in shards]
    assert sum(map(len, people)) == len(set.union(*people)) == whole.num_units
    assert len(shards) == 1 if size == 10**6 else len(shards) > 1


def test_what_is_counted_and_digested_is_that_of_the_whole(folder: Path) -> None:
    whole, parts = opened(folder), sharded(opened(folder))
    assert parts.check() == whole.check()
    assert parts.digest(bytes(32)) == whole.digest(bytes(32))
    assert parts.with_sizes(S, A) is parts


def test_a_person_in_two_shards_is_refused(tmp_path: Path) -> None:
    columns = rows()
    columns["unit"][-1], columns["episode"][-1], columns["step"][-1] = columns["unit"][0], 10_000, 0
    data = sharded(opened(written(tmp_path / "t", columns)))
    with pytest.raises(TableError, match="a unit is in two shards, but its rows must be together. Rewrite") as found:
        data.check()
    assert str(columns["unit"][0]) not in str(found.value)


def test_disjoint_ids_need_no_hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apart = sharded(opened(written(tmp_path / "a", rows(sorted_ids=True))))
    mixed = sharded(opened(written(tmp_path / "b", rows())))
    assert _are_disjoint([shard.data.table for shard in apart.shards])
    assert not _are_disjoint([shard.data.table for shard in mixed.shards])
    monkeypatch.setattr("privrl.data.tables.shards._unit_hashes", None)
    assert apart.check() == apart.whole.check()


def test_what_has_no_shards_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="sorted in memory cannot be cut into shards"):
        sharded(opened(folder, sort=True))
    with pytest.raises(ValueError, match="not `int`"):
        ShardedEpisodes.from_dataset(3, InProcess())  # type: ignore[arg-type]
    learner = privrl.APVI(S, A, H)
    with pytest.raises(ValueError, match="floating-point sums"):
        privrl.fit(opened(folder), learner, privrl.NonPrivate(), executor=InProcess())


def test_a_file_that_changes_is_noticed_by_the_shard(tmp_path: Path) -> None:
    """In every pass, also where the shard holds its rows."""
    path = written(tmp_path / "t", rows())
    data = sharded(opened(path))
    records, count = ShardedRecords.of(Records(data), data), EpisodeCount()
    assert int(records.total(count, None, fine(count))) > 0
    table = pq.read_table(path / "2.parquet")
    pq.write_table(table.slice(0, table.num_rows - 1), path / "2.parquet", row_group_size=16)
    with pytest.raises(TableError, match="has changed since the table was opened"):
        records.total(count, None, fine(count))


def test_what_a_shard_holds_is_not_sent(folder: Path) -> None:
    shard = sharded(opened(folder), 10**6).shards[0]
    size = len(pickle.dumps(shard))
    shard.data.check()
    shard.part(Group(bytes(32), "groups", (0.5,), 0)).transitions()
    shard.data.transitions()
    sent = pickle.dumps(shard)
    assert len(sent) == size < 4000 and b"p10" not in sent  # all ids begin so
    assert pickle.loads(sent).data.check() == shard.data.check()


# ---------------------------------------------------------------------------------------------------------- sums

OFFLINE = [
    (kind.__name__, case)
    for kind, cases in CASES.items()
    for case in cases[:1]
    if not case.linear and case.published == (None,) and case.queries == (None,)
]
QUICK = {"FeatureReturns"}


def fine(statistic: Any) -> Any:
    """A lattice so fine that a last bit shows."""
    distance = sensitivity_of(statistic, "gaussian", "add-remove")
    return choose_lattice(parameter=2.0**14, sensitivity=distance, norm=distance, filled=100, kind="l2")


@pytest.mark.parametrize(
    ("name", "case"),
    [pytest.param(*one, id=one[0], marks=() if one[0] in QUICK else pytest.mark.slow) for one in OFFLINE],
)
def test_sums_are_those_of_one_process(folder: Path, name: str, case: Any) -> None:
    measured = {"features": COLUMNS, "state": None, "next_state": None, "num_states": None} if case.columns else {}
    data = read_parquet(
        folder,
        **(TABLE | {"horizon": H, "num_states": S, "num_actions": A, "max_episodes_per_unit": 2} | measured),
    )
    grid = fine(case.statistic)
    for coins in (None, PoissonSample(bytes(range(32)), 0.6)):
        expected = Records(data).total(case.statistic, coins, grid)
        assert np.abs(expected).max() > 2**30 or not np.any(expected)
        for size in (1, 60):
            parts = sharded(data, size)
            found = ShardedRecords.of(Records(parts), parts).total(case.statistic, coins, grid)
            np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_groups_are_those_of_one_process(folder: Path) -> None:
    statistic = CASES[privrl.statistics.VisitCounts][0].statistic
    grid, edges = fine(statistic), np.array([0.2, 0.25])
    whole, parts = Records(opened(folder)), sharded(opened(folder), 1)
    apart = ShardedRecords.of(Records(parts), parts).groups(bytes(32), "groups", edges)
    for found, expected in zip(apart, whole.groups(bytes(32), "groups", edges), strict=True):
        assert found.num_units == expected.num_units
        for coins in (None, PoissonSample(bytes(32), 0.5)):
            np.testing.assert_array_equal(found.total(statistic, coins, grid), expected.total(statistic, coins, grid))


# ---------------------------------------------------------------------------------------------------------- fits


@pytest.fixture
def same_words(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Call it before a fit, and its cryptographic words, coins and keys are those of the fit before."""
    count = itertools.count()
    monkeypatch.setattr(sources, "Words", lambda: Words(next(count).to_bytes(32, "big")))
    monkeypatch.setattr(os, "urandom", lambda n: bytes(range(n)))

    def again() -> None:
        nonlocal count
        count = itertools.count()

    return again


LEARNERS = {
    "APVI": lambda: privrl.APVI(S, A, H),
    "TDFP": lambda: privrl.TDFP(S, A, H, (2,)),
    "PEVI": lambda: privrl.PEVI(OneHotFeatures(S, A), H),
    "FQI": lambda: privrl.FQI(S, A, H, steps=3, sampling=0.5),
    "grouped": lambda: privrl.APVI(S, A, H),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
def test_policies_are_those_of_one_process(folder: Path, name: str, same_words: Callable[[], None]) -> None:
    fitted = []
    one = {"max_episodes_per_unit": 1}
    for executor in (None, InProcess()):
        same_words()
        data = opened(folder, **one)
        data = data if executor is None else sharded(data, 40, executor)
        compared = {"evaluate": 0.3, "terminal": (2,)} if name == "grouped" else {}
        fitted.append(privrl.fit(data, LEARNERS[name](), PRIVATE, **compared, executor=executor))
    here, there = fitted
    assert here.certificate.epsilon == there.certificate.epsilon
    assert jnp.array_equal(_table(here.policy), _table(there.policy))
    assert here.report["users"] == there.report["users"]


@pytest.mark.slow
def test_evaluations_and_choices_are_those_of_one_process(
    tmp_path: Path, same_words: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privrl.studies.offline.choose.refuse_too_few", lambda *_: None)
    table = written(tmp_path / "stays", rows(400), group=64)
    policies = [np.eye(A)[np.full(S, a)] for a in range(A)]
    found = []
    for executor in (None, InProcess()):
        data = opened(table, max_episodes_per_unit=1)
        data = data if executor is None else sharded(data, 200, executor)
        same_words()
        choice = privrl.choose(data, policies, PRIVATE, executor=executor)
        same_words()
        found.append((choice, privrl.evaluate(data, policies[0], PRIVATE, return_range=(0.0, 3.0), executor=executor)))
    assert found[0][0].index == found[1][0].index
    assert found[0][0].certificate == found[1][0].certificate
    assert found[0][1].to_json() == found[1][1].to_json()


def _table(policy: Any) -> Any:
    return policy.probabilities if hasattr(policy, "probabilities") else policy.advice


@pytest.mark.slow
def test_processes_fit_what_one_process_fits(folder: Path, same_words: Callable[[], None]) -> None:
    learner = privrl.APVI(S, A, H)
    same_words()
    expected = privrl.fit(opened(folder), learner, PRIVATE)
    with Processes(2) as executor:
        same_words()
        found = privrl.fit(sharded(opened(folder), 60, executor), learner, PRIVATE, executor=executor)
        assert jnp.array_equal(expected.policy.probabilities, found.policy.probabilities)
        bad = rows()
        bad["state"][-3] = 77
        with pytest.raises(TableError, match="Column `state` is out of range at row"):
            privrl.fit(sharded(opened(written(folder.parent / "bad", bad)), 60, executor), learner, PRIVATE)


def test_seeds_over_workers_are_those_of_one_machine() -> None:
    """In the same chunks, whoever simulates them; bit for bit."""
    env = privrl.envs.RiverSwim(states=3, horizon=3)
    learner = get("dp-ucbvi").build(env)
    settings = {"episodes": 400, "seeds": 4, "seeds_per_program": 2, "key": jax.random.key(0), "flow": False}
    private = privrl.Central(epsilon=100.0, delta=1e-2)
    alone = privrl.run(env, learner, private, **settings)
    shared = privrl.run(env, learner, private, **settings, executor=InProcess())
    np.testing.assert_array_equal(alone.block_regret, shared.block_regret)
    assert alone.block_regret.shape[0] == 4
    assert jnp.array_equal(alone.policy.probabilities, shared.policy.probabilities)
    assert len(np.unique(alone.total_regret)) > 1
