"""Statistics of one person: all kept episodes together, however the table is read, with the sensitivity of a person."""

import math
from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privrl
from privrl.contracts.learner import Solution
from privrl.contracts.release import Declared
from privrl.contracts.statistic import AbstractStatistic
from privrl.mdp.types import TabularPolicy
from privrl.privacy.noise.arithmetic import Floating
from privrl.privacy.noise.bounding import clip_by_norm
from privrl.privacy.noise.lattice import choose_lattice
from privrl.privacy.noise.poisson_sample import PoissonSample
from privrl.statistics.counts import VisitCounts
from privrl.studies.offline.curated_records import Records

H, MOST = 4, 3
FLOATING = Floating(1.0, math.inf)


class Returns(AbstractStatistic):
    """(people, sum over people of the product of 1 + each return): no sum over episodes, and of norm at most 10."""

    shape: tuple = eqx.field(static=True, default=(2,))
    symmetric: bool = eqx.field(static=True, default=False)
    per_person = True

    def contribution(self, record, query):
        steps = jnp.arange(H)[None] < record.length[:, None]
        returns = jnp.where(steps, record.rewards, 0.0).sum(axis=1)
        there = (record.length > 0).any()
        return jnp.where(there, jnp.array([1.0, 0.0]) + jnp.prod(1.0 + returns) * jnp.array([0.0, 1.0]), 0.0) / 10.0

    def l2(self, adjacency):
        return 13.0

    def l1(self, adjacency):
        return 20.0


class Once(privrl.contracts.AbstractOfflineLearner):
    horizon: int = eqx.field(static=True, default=H)
    sampling: float = eqx.field(static=True, default=1.0)
    space = (3, 2)

    def bounds(self):
        return {}

    def declare(self):
        return (Declared("returns", Returns(), sampling=self.sampling),)

    def fit(self, ask):
        ask("returns")
        return Solution(TabularPolicy.uniform(H, 3, 2))


def people(seed: int, number: int = 25) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Ids and the rewards of each of their episodes."""
    rng = np.random.default_rng(seed)
    for i in range(number):
        yield f"p{i}", [rng.uniform(0, 0.2, rng.integers(1, H + 1)).round(3) for _ in range(rng.integers(1, 6))]


def table(path, seed=0):
    """One row per step, the episodes of a person next to each other."""
    columns = {name: [] for name in ("unit", "episode", "step", "state", "action", "reward")}
    for name, episodes in people(seed):
        for e, rewards in enumerate(episodes):
            for step, reward in enumerate(rewards):
                for column, value in zip(columns, (name, e, step, step % 3, step % 2, float(reward)), strict=True):
                    columns[column].append(value)
    pq.write_table(pa.table(columns), path)
    return path


def read(path, **settings):
    names = {name: name for name in ("unit", "episode", "step", "state", "action", "reward")}
    return privrl.data.read_parquet(
        path, **names, horizon=H, num_states=3, num_actions=2, max_episodes_per_unit=MOST, **settings
    )


def expected(data):
    """By the blocks of the data set, person by person, in plain NumPy."""
    total, number = 0.0, 0
    kept: dict[int, list[float]] = {}
    for block in data.blocks():
        starts = np.cumsum(block.lengths) - block.lengths
        for unit, start, length in zip(block.unit, starts, block.lengths, strict=True):
            kept.setdefault(int(unit), []).append(block.rewards[start : start + length].sum())
    for returns in kept.values():
        assert 1 <= len(returns) <= MOST
        total, number = total + math.prod(1.0 + r for r in returns), number + 1
    return np.array([number, total]) / 10.0


@pytest.mark.parametrize("batch_rows", [1, 7, 64, 10_000])
def test_a_persons_episodes_stay_together_however_the_table_is_read(tmp_path, batch_rows):
    data = read(table(tmp_path / "t.parquet"), batch_rows=batch_rows)
    whole = expected(read(tmp_path / "t.parquet"))
    np.testing.assert_allclose(Records(data).total(Returns(), None, FLOATING), whole, rtol=1e-12)
    lattice = choose_lattice(parameter=1.0, sensitivity=13.0, norm=13.0, filled=4, kind="l2")
    units = Records(data).total(Returns(), None, lattice)
    np.testing.assert_allclose(units * lattice.granularity, whole, atol=30 * lattice.granularity)


def test_groups_take_people_with_all_their_episodes(tmp_path):
    data = read(table(tmp_path / "t.parquet"))
    records = Records(data)
    chosen = np.random.default_rng(0).random(data.num_units) < 0.5
    parts = [records.part(mark).total(Returns(), None, FLOATING) for mark in (chosen, ~chosen)]
    np.testing.assert_allclose(parts[0] + parts[1], records.total(Returns(), None, FLOATING), rtol=1e-12)
    assert float(parts[0][0]) * 10 == pytest.approx(chosen.sum())


def test_people_are_drawn_whole(tmp_path):
    """Poisson sampling draws people, not episodes, and is not refused where people have several."""
    data = read(table(tmp_path / "t.parquet"), batch_rows=9)
    coins = PoissonSample(bytes(32), 0.4)
    drawn = Records(data).total(Returns(), coins, FLOATING)
    alone = Records(data).part(coins.draws(0, data.num_units)).total(Returns(), None, FLOATING)
    np.testing.assert_allclose(drawn, alone, rtol=1e-12)
    privrl.fit(data, Once(sampling=0.4), privrl.Central(epsilon=1.0, delta=1e-6), key=jax.random.key(0))


def test_the_noise_is_that_of_one_person(tmp_path):
    """Not of `max_episodes_per_unit` records, in both arithmetics; and the certificate derives it."""
    data = read(table(tmp_path / "t.parquet"))
    for key in (jax.random.key(0), None):
        result = privrl.fit(data, Once(), privrl.Central(rho=0.5), key=key)
        (noise,) = result.certificate.releases[0]["noise"]
        assert noise["sensitivity"] == pytest.approx(13.0, rel=1e-6)
        assert noise["scale"] == pytest.approx(13.0, rel=1e-6)


def test_rows_of_a_person_are_not_summed_one_by_one(tmp_path):
    """Before, a statistic of rows that is of one person took the shortcut for episodes, past its own clipping."""

    class Clipped(VisitCounts):
        per_person = True

        def contribution(self, record, query):
            visits = jax.vmap(lambda one: super(Clipped, self).contribution(one, query))(record).sum(axis=0)
            return clip_by_norm(visits, 1.0)

        def parts(self, record, query):
            return jnp.zeros(1, int), self.contribution(record, query)[None]

        def total(self, records, query):
            return jax.vmap(self.contribution, in_axes=(0, None))(records, query).sum(axis=0)

    data = read(table(tmp_path / "t.parquet"))
    statistic = Clipped(3, 2, H, "pooled")
    total = np.asarray(Records(data).total(statistic, None, FLOATING))
    assert np.linalg.norm(total) <= data.num_units
    lattice = choose_lattice(parameter=1.0, sensitivity=2.0, norm=1.0, filled=6, kind="l2")
    units = Records(data).total(statistic, None, lattice)
    np.testing.assert_allclose(units * lattice.granularity, total, atol=30 * lattice.granularity)
