"""Sums over kept episodes: what is computed from one record depends on that record and nothing beside it."""

import importlib
import math
import pkgutil
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.statistic_cases import CASES, A, S, Searched, with_extras

import privrl
from privrl.audit.surface.adversarial_measurements import adversarial_measurements
from privrl.audit.surface.adversarial_records import adversarial_records
from privrl.contracts.statistic import AbstractStatistic
from privrl.data import Episodes, read_parquet, write_parquet
from privrl.data.dataset import AbstractDataset
from privrl.data.rows.episode_cache import EpisodeCache, padded_width, padded_widths
from privrl.data.rows.transitions import Block
from privrl.data.schema.table_schema import Bounds
from privrl.data.tables.part import Part
from privrl.mdp.features import TableFeatures
from privrl.mdp.types import Trajectory
from privrl.privacy.noise.lattice import Lattice, choose_lattice
from privrl.statistics.counts import RewardSums, TransitionCounts
from privrl.statistics.differences import Differences, ReturnsToGo
from privrl.statistics.gradients import BellmanGradient, EpisodeCount
from privrl.statistics.moments import Gram, Targets
from privrl.statistics.off_policy import StayReturns, Weights
from privrl.statistics.person_sums import FeatureErrors
from privrl.statistics.stay_sums import ClippedReturns
from privrl.studies.offline import batched_sums as sums
from privrl.studies.offline.batched_sums import LANES, EpisodeForm, batch_size
from privrl.studies.offline.curated_records import Records
from privrl.studies.offline.summands import EpisodeSummands

LONG = 20
QUICK = (Differences, BellmanGradient, ReturnsToGo, ClippedReturns)


def kinds(kind: type = AbstractStatistic) -> set[type]:
    found = (
        {kind} if not getattr(kind, "__abstractmethods__", None) and kind.__module__.startswith("privrl.") else set()
    )
    return found.union(*(kinds(below) for below in kind.__subclasses__()))


def any_width() -> list[Any]:
    """Every statistic that takes records of any width."""
    for module in pkgutil.walk_packages(privrl.__path__, "privrl."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    ours = sorted(kinds() & set(CASES), key=lambda kind: kind.__name__)
    found = [kind for kind in ours if CASES[kind][0].statistic.hints.any_width]
    return [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in found]


def longer(statistic: Any) -> Any:
    """The same for stays of up to 20 steps."""
    names = {field.name for field in fields(statistic)}
    if "of" in names:
        return replace(statistic, of=longer(statistic.of))
    return replace(statistic, horizon=LONG) if "horizon" in names else statistic


def stays(one: Searched, count: int = 64) -> Trajectory:
    """Stays of which half have at most 8 steps, among them such as no table has."""
    if one.columns:
        made = adversarial_measurements(LONG, one.columns, A, episodes=1, count=count, seed=1)
    else:
        made = adversarial_records(LONG, S, A, count=count, seed=1)
        made = jax.tree.map(lambda x: x[:, None], made) if one.statistic.per_person else made
    rng = np.random.default_rng(0)
    length = np.where(np.arange(count) < count // 2, np.arange(count) % 9, rng.integers(0, LONG + 1, count))
    rewards = rng.random(made.rewards.shape)
    found = Trajectory(
        made.states, made.actions, rewards, made.next_states, length.reshape(made.length.shape).astype(np.int64)
    )
    return with_extras(found, 1) if one.reported else found


def floats(statistic: AbstractStatistic, records: Trajectory, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Slots and entries of each record's blocks that are not zero, computed `size` at a time."""
    program = jax.jit(jax.vmap(lambda record: statistic.parts(record, None)))
    number = len(records.length)
    for first in range(0, number, size):
        slots, blocks = map(np.asarray, program(jax.tree.map(lambda x: jnp.asarray(x[first : first + size]), records)))  # noqa: B023
        for slot, block in zip(slots, blocks, strict=True):
            there = (block.reshape(len(block), -1) != 0).any(axis=1)
            yield slot[there], block[there]


@pytest.mark.parametrize("kind", any_width())
def test_the_floats_of_a_record_depend_on_the_record_alone(kind: type) -> None:
    """To the last bit at every place of a batch, whose size is a public number, at its own width, which depends on its
    length alone; at another width that holds it up to the rounding of sums."""
    assert padded_widths(LONG) == (8, 20)
    one = CASES[kind][0]
    statistic, everybody = longer(one.statistic), stays(one)
    short = np.flatnonzero(padded_width(everybody.length.reshape(-1), LONG) == 8)
    short = np.tile(short[:32], 2)  # as many as are summed at once, or a divisor of that
    steps = everybody.length.ndim

    def cut(x: Any) -> Any:
        return x[short] if x.ndim == steps else x[short][(slice(None),) * steps + (slice(8),)]

    narrow, order = jax.tree.map(cut, everybody), np.roll(np.arange(LANES), 5)
    expected = list(floats(statistic, narrow, LANES))
    assert sum(len(slots) for slots, _ in expected) > 4
    moved = floats(statistic, jax.tree.map(lambda x: x[order], narrow), LANES)
    for (slots, blocks), i in zip(moved, order, strict=True):
        np.testing.assert_array_equal(slots, expected[i][0])
        np.testing.assert_array_equal(blocks, expected[i][1])
    wide = list(floats(statistic, everybody, 64))
    for (slots, blocks), i in zip(expected, short, strict=True):
        np.testing.assert_array_equal(slots, wide[i][0])
        np.testing.assert_allclose(blocks, wide[i][1], rtol=1e-12, atol=1e-15)


def moved(horizon: int) -> list[Any]:
    """Statistics of measurements and of tables whose terms are products with features."""
    measured = [one for cases in CASES.values() for one in cases if one.columns]
    first = {type(one.statistic): one for one in reversed(measured)}
    quick = (Weights, FeatureErrors) if horizon == 100 else ()
    return [
        pytest.param(one, horizon, id=f"{kind.__name__}-{horizon}", marks=() if kind in quick else pytest.mark.slow)
        for kind, one in first.items()
    ]


@pytest.mark.parametrize(("one", "horizon"), [case for horizon in (19, 38, 100) for case in moved(horizon)])
def test_a_record_counts_alike_at_every_place(one: Searched, horizon: int) -> None:
    """Somebody else's stay decides where a record stands among those that are summed at once: 64-bit programs gave
    other last bits to rows that are left over by vector instructions (certified 6.0, true 32.5 for one pair)."""
    statistic, rng = one.statistic, np.random.default_rng(0)
    form = EpisodeForm(horizon, len(one.columns), 1)
    people = batch_size(statistic, horizon, form) + 3
    made = adversarial_measurements(horizon, one.columns, A, episodes=1, count=480, seed=1)
    chosen = rng.integers(0, 480, people)
    lengths = np.full(people, horizon)
    states = np.asarray(made.states)[chosen, 0].reshape(people * horizon, -1)
    states = np.where(np.isfinite(states), states, np.nan)
    columns = (
        states,
        rng.integers(0, A, people * horizon).astype(np.int32),
        rng.random(people * horizon),
        np.full(states.shape, np.inf),
        *((None, np.stack([rng.integers(0, 2, len(states)), rng.random(len(states))], axis=1)) if one.reported else ()),
    )
    bounds = Bounds(horizon=horizon, num_actions=A, features=one.columns)
    fine = 2.0 ** (math.floor(math.log2(statistic.l2("add-remove"))) - 48)  # near the last bits of a contribution
    finest = replace(lattice(statistic), granularity=fine)

    def total(begin: int) -> np.ndarray:
        order = np.roll(np.arange(people), begin)
        rows = (order[:, None] * horizon + np.arange(horizon)).ravel()
        held = EpisodeCache(bounds)
        held.add(Block(np.arange(people), lengths, *(None if column is None else column[rows] for column in columns)))
        data: Any = SimpleNamespace(
            chunks=lambda: iter(held), horizon=horizon, features=one.columns, max_episodes_per_unit=1
        )
        return finest.sum_records(statistic, EpisodeSummands(data, statistic))

    expected = total(0)
    assert np.abs(expected).max() > 0
    for begin in (1, 2, 5):
        np.testing.assert_array_equal(total(begin), expected)


ENV = privrl.envs.RiverSwim(states=4, horizon=LONG)


def table(units: Any = None, **more: Any) -> Episodes:
    sampled = ENV.sample(ENV.behaviour_policy(), 300, jax.random.key(0))
    rng = np.random.default_rng(0)
    lengths = np.where(rng.random(300) < 0.5, rng.integers(1, 9, 300), rng.integers(9, 21, 300))
    rewards = rng.random((300, LONG))
    public = {"horizon": LONG, "num_states": 4, "num_actions": 2} | more
    return Episodes.from_arrays(sampled.states, sampled.actions, rewards, None, lengths, units, **public)


def queries() -> tuple[AbstractStatistic, ...]:
    rng = np.random.default_rng(2)
    feature = jnp.asarray(rng.random(4))
    features = TableFeatures(jnp.asarray(rng.normal(size=(4, 2, 3)) / 3))
    weights = {"contribution_norm": 1.4, "visit_weight": 0.8, "ending_weight": 1.1, "difference_weight": 0.8}
    return (
        Differences(4, 2, LONG, (3,), feature=feature, scale=jnp.asarray(0.3), **weights),
        BellmanGradient(jnp.asarray(rng.random((4, 2))), LONG, 0.5),
        RewardSums(4, 2, LONG, "pooled", 1.3),
        TransitionCounts(4, 2, LONG, "first-visit", 1.3, pairs=jnp.asarray([1, 2, 5]), with_end=True),
        Targets(features, jnp.asarray(11), values=feature, low=jnp.asarray(0.0), high=jnp.asarray(1.0)),
    )


def lattice(statistic: AbstractStatistic) -> Lattice:
    norms = {"sensitivity": statistic.l2("replace-one"), "norm": statistic.l2("add-remove")}
    return choose_lattice(parameter=0.1, **norms, filled=10, kind="l2")


def one_by_one(data: AbstractDataset, statistic: AbstractStatistic) -> np.ndarray:
    """The sum as it was before episodes were kept: every record padded to the horizon, in one dense array."""
    (batch,) = data.batches(data.num_episodes)
    wide = jax.tree.map(lambda x: jnp.asarray(x, float if x.dtype.kind == "f" else int), batch)
    return lattice(statistic).total(statistic, wide, None, wide.length > 0)


@pytest.mark.parametrize(
    "statistic",
    [
        one if isinstance(one, Differences | TransitionCounts | Targets) else pytest.param(one, marks=pytest.mark.slow)
        for one in queries()
    ],
    ids=lambda one: type(one).__name__,
)
def test_sums_are_those_of_records_at_full_width(statistic: AbstractStatistic, tmp_path: Path) -> None:
    data, grid = table(), lattice(statistic)
    expected = one_by_one(data, statistic)
    np.testing.assert_array_equal(Records(data).total(statistic, None, grid), expected)
    path = tmp_path / "t.parquet"
    write_parquet(path, data, rows_per_group=500)
    names = {name: name for name in ("step", "state", "action", "reward", "next_state")}
    public = {"horizon": LONG, "num_states": 4, "num_actions": 2, "in_memory": 0}
    streamed = read_parquet(path, unit="unit_id", **names, **public, batch_rows=7)
    np.testing.assert_array_equal(Records(streamed).total(statistic, None, grid), expected)


def test_few_records_at_a_time_and_few_rows_at_a_time_are_the_same_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    data = table()
    for statistic in (queries()[0], queries()[4]):
        whole = Records(data).total(statistic, None, lattice(statistic))
        monkeypatch.setattr(sums, "_STEPS", 160)
        np.testing.assert_array_equal(Records(data).total(statistic, None, lattice(statistic)), whole)
        monkeypatch.undo()


class Marks:
    """Marks that are known."""

    def __init__(self, drawn: np.ndarray) -> None:
        self.drawn = drawn

    def draws(self, first: int, count: int) -> np.ndarray:
        return self.drawn[first : first + count]


@pytest.mark.parametrize("which", [0, 4])
def test_marked_records_are_summed_alone(which: int) -> None:
    """Records are marked by their number in the table, whatever their widths; a part has its own numbers."""
    data, statistic = table(), queries()[which]
    drawn = np.random.default_rng(3).random(300) < 0.3
    grid = lattice(statistic)
    found = Records(data).total(statistic, Marks(drawn), grid)  # type: ignore[arg-type]
    alone = Records(data).part(drawn)
    np.testing.assert_array_equal(found, alone.total(statistic, None, grid))
    np.testing.assert_array_equal(found, one_by_one(alone.data, statistic))
    after = Records(data, first=2).total(statistic, Marks(np.roll(np.append(drawn, [False] * 2), 2)), grid)  # type: ignore[arg-type]
    np.testing.assert_array_equal(after, found)
    count = EpisodeCount()
    assert Records(data).total(count, Marks(drawn), lattice(count)) // 2**30 > 0  # type: ignore[arg-type]


def test_a_group_may_have_nobody_in_a_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A statistic of persons, over people of whom many have two stays and few are in the group."""
    path, units = tmp_path / "t.parquet", np.arange(300) // 2
    write_parquet(path, table(units, max_episodes_per_unit=2))
    names = {name: name for name in ("step", "state", "action", "reward", "next_state")}
    public = {"horizon": LONG, "num_states": 4, "num_actions": 2, "max_episodes_per_unit": 2}
    chosen, statistic = np.arange(150) % 50 == 7, StayReturns((0.0, 20.0))

    def total() -> np.ndarray:
        data = read_parquet(path, unit="unit_id", episode="episode_id", **names, **public, batch_rows=16)
        return Records(Part(data, chosen)).total(statistic, None, lattice(statistic))

    whole = total()
    monkeypatch.setattr("privrl.data.rows.episode_cache._CHUNK_ROWS", 16)
    np.testing.assert_array_equal(total(), whole)
    assert whole > 0


@pytest.mark.parametrize("with_reward", [None, False])
def test_distinct_rows_add_the_same_beside_any_number_of_others(with_reward: bool | None) -> None:
    """How many distinct rows there are is up to everybody; a program for another number of them has other last bits."""
    rng = np.random.default_rng(4)
    S, A, d = 110, 5, 10
    table = rng.normal(size=(S, A, d))
    features = TableFeatures(jnp.asarray(table / np.linalg.norm(table, axis=-1, keepdims=True)))
    weights, V = jnp.asarray(3 * rng.random((S, A))), jnp.asarray(rng.random(S))
    statistic: Any = Gram(features, jnp.asarray(0), weights=weights)
    if with_reward is not None:
        bounds = (jnp.asarray(0.0), jnp.asarray(1.0))
        statistic = Targets(features, jnp.asarray(0), V, *bounds, with_reward=with_reward, weights=weights)
    assert statistic.hints.row_by_row
    fine = 2.0 ** (math.floor(math.log2(statistic.l2("add-remove"))) - 48)
    finest = replace(lattice(statistic), granularity=fine)
    states, actions = (x.ravel() for x in np.indices((S, A)))
    after = rng.integers(0, S, S * A)

    def total(first: int, end: int) -> np.ndarray:
        columns = (x[first:end, None] for x in (states, actions))
        stays = Episodes.from_arrays(
            *columns, np.zeros((end - first, 1)), after[first:end, None], horizon=1, num_states=S, num_actions=A
        )
        return Records(stays).total(statistic, None, finest)

    whole = total(0, S * A)
    assert np.abs(whole).max() > 0
    for cut in (20, 150, 290):
        np.testing.assert_array_equal(total(0, cut) + total(cut, S * A), whole)
