"""Sums on a lattice: exact, within the bound in whole numbers whatever comes in, and refused where that cannot be."""

import math
from fractions import Fraction

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import all_trajectories, hostile_trajectories, stack, total
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import privrl
from privrl.contracts.statistic import AbstractStatistic
from privrl.privacy.noise.distributions import GaussianNoise, LaplaceNoise, SymmetricNoise
from privrl.privacy.noise.lattice import (
    Lattice,
    LatticeError,
    _over_root_two,
    choose_lattice,
    count_filled,
)
from privrl.privacy.noise.random_words import Words
from privrl.privacy.noise.symmetric import mirror_triangle
from privrl.statistics.counts import TransitionCounts, VisitCounts
from privrl.statistics.moments import Gram, Targets
from privrl.studies.offline.curated_records import Records


class Free(AbstractStatistic):
    """A statistic that breaks its promise: whatever the record says goes into the sum."""

    shape: tuple = eqx.field(static=True, default=(6,))
    symmetric: bool = eqx.field(static=True, default=False)

    def contribution(self, record, query):
        return record

    def l2(self, adjacency):
        return 2.0

    def l1(self, adjacency):
        return 2.0


def lattice(parameter=0.7, sensitivity=2.0, norm=1.0, filled=6, kind="l2", records=1):
    return choose_lattice(
        parameter=parameter, sensitivity=sensitivity, norm=norm, filled=filled, kind=kind, records=records
    )


def size(units, grid):
    """The exact norm of units: sums of squares, or of absolute values, of Python integers."""
    whole = [int(n) for n in units.ravel()]
    exact = sum(n * n for n in whole) if grid.kind == "l2" else sum(map(abs, whole))
    return exact, grid.limit


ANY = st.floats(allow_nan=False, allow_infinity=False, width=64)
EDGE = st.sampled_from([1.0, -1.0, 1 / math.sqrt(6), 5e-324, 2.0**-1030, 1e308, -1e308, 1 + 2**-52, 1 - 2**-53, 0.0])


@settings(max_examples=300, deadline=None)
@given(
    hnp.arrays(np.float64, 6, elements=st.one_of(ANY, EDGE, st.floats(-1.5, 1.5))),
    st.sampled_from(["l2", "l1"]),
    st.sampled_from([1.0, 0.3, 3.7, 1 / 3]),
)
def test_the_norm_in_whole_numbers_is_never_exceeded(record, kind, norm):
    grid = lattice(kind=kind, norm=norm)
    units = grid.total(Free(), jnp.asarray(record)[None], None, jnp.ones(1, bool))
    exact, limit = size(units, grid)
    assert exact <= limit
    largest = Fraction(norm) * (1 + Fraction(2) ** -41) / Fraction(grid.granularity)
    assert limit <= (largest**2 if kind == "l2" else largest)  # the limit itself is what it says


def test_float_clipping_alone_would_exceed_it():
    """The check is needed: unit vectors as floats make them have norms just above 1 in whole numbers."""
    grid, over = lattice(parameter=1e-3), 0
    for record in np.random.default_rng(0).normal(size=(500, 6)):
        unit = record / np.linalg.norm(record)
        over += (
            size(np.sign(unit).astype(np.int64) * np.ceil(np.abs(unit) / grid.granularity).astype(np.int64), grid)[0]
            > grid.limit
        )
        units = grid.total(Free(), jnp.asarray(unit)[None], None, jnp.ones(1, bool))
        assert size(units, grid)[0] <= grid.limit
        np.testing.assert_allclose(units * grid.granularity, unit, atol=2.0**-19)
    assert over > 250


def test_vectors_on_the_bound_are_kept_whole():
    grid = lattice()
    for record in (np.eye(6)[2], -np.eye(6)[5], np.full(6, 0.25)):
        units = grid.total(Free(), jnp.asarray(record)[None], None, jnp.ones(1, bool))
        np.testing.assert_array_equal(units * grid.granularity, record)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["l2", "l1"])
def test_what_is_not_a_number_is_refused(bad, kind):
    records = jnp.zeros((3, 6)).at[1, 4].set(bad)
    with pytest.raises(LatticeError, match="infinite or NaN"):
        lattice(kind=kind).total(Free(), records, None, jnp.ones(3, bool))
    absent = lattice(kind=kind).total(Free(), records, None, jnp.array([True, False, True]))
    assert not absent.any()  # who does not take part is not looked at


def test_sums_that_could_leave_64_bits_are_refused():
    grid = lattice()
    grid.check_room(10**8)
    with pytest.raises(LatticeError, match="64 bits"):
        grid.check_room(10**11)
    with pytest.raises(LatticeError, match="64 bits"):
        lattice(parameter=1e9).check_room(1)


def statistics():
    features = privrl.mdp.TableFeatures(jnp.asarray(np.random.default_rng(3).dirichlet(np.ones(4), (2, 2))))
    V, low, high = jnp.array([0.3, 1.7]), jnp.asarray(0.0), jnp.asarray(2.0)
    return {
        "counts": TransitionCounts(2, 2, 3, "per-stage"),
        "pooled": TransitionCounts(2, 2, 3, "pooled"),
        "first visits": TransitionCounts(2, 2, 3, "first-visit", contribution_norm=1.3),
        "pooled, clipped": VisitCounts(2, 2, 3, "pooled", contribution_norm=1.1),
        "gram": Gram(features, 1),
        "targets": Targets(features, 1, V, low, high),
        "known targets": Targets(features, 1, V, low, high, with_reward=False),
    }


def lattice_for_statistic(statistic, parameter=0.5, kind="l2"):
    record = jax.tree.map(lambda x: x[0], stack(list(all_trajectories(3, 2, 2, lengths=[3]))[:1]))
    return choose_lattice(
        parameter=parameter,
        sensitivity=statistic.l2("replace-one"),
        norm=statistic.l2("add-remove"),
        filled=count_filled(statistic, record, None),
        kind=kind,
    )


@pytest.mark.parametrize(
    "name", [n if n in ("gram", "first visits") else pytest.param(n, marks=pytest.mark.slow) for n in statistics()]
)
def test_units_of_any_two_records_stay_within_the_sensitivity(name):
    """Brute force in whole numbers over all records of a small world: the bound holds with rounding included."""
    statistic = statistics()[name]
    grid = lattice_for_statistic(statistic)
    records = list(all_trajectories(3, 2, 2, rewards=(0.0, 0.37, 1.0), lengths=[3]))[::41]
    each = [
        grid.total(statistic, jax.tree.map(lambda x: jnp.asarray(x)[None], r), None, jnp.ones(1, bool)) for r in records
    ]
    each = [mirror_triangle(units) if statistic.symmetric else units for units in each]
    flat = np.stack(each).reshape(len(each), -1).astype(object)
    allowed = (grid.sensitivity / grid.granularity) ** 2
    for i in range(0, len(flat), 3):
        assert all(int(d) <= allowed for d in ((flat - flat[i]) ** 2).sum(axis=1))
    assert max(int((f**2).sum()) for f in flat) <= grid.limit


@pytest.mark.parametrize("name", statistics())
def test_the_sum_is_the_statistic_up_to_a_unit_per_record(name):
    statistic = statistics()[name]
    grid = lattice_for_statistic(statistic)
    records = hostile_trajectories(3, 2, 2, count=50)
    units = grid.total(statistic, records, None, jnp.ones(50, bool))
    assert units.shape == statistic.steps_shape
    whole = mirror_triangle(units) if statistic.symmetric else units
    np.testing.assert_allclose(whole * grid.granularity, total(statistic, records), atol=50 * grid.granularity + 1e-12)


@pytest.mark.parametrize("name", ["counts", "pooled", "gram", "known targets"])
def test_distinct_rows_give_the_very_sum_of_the_records(name):
    statistic = statistics()[name]
    assert statistic.hints.row_by_row
    grid = lattice_for_statistic(statistic)
    env = privrl.envs.RiverSwim(states=2, horizon=3)
    sampled = env.sample(env.behaviour_policy(), 400, jax.random.key(0))
    data = privrl.data.Episodes.from_trajectories(sampled, num_states=2, num_actions=2)
    one_by_one = grid.total(statistic, jax.tree.map(jnp.asarray, sampled), None, jnp.ones(400, bool))
    np.testing.assert_array_equal(Records(data).total(statistic, None, grid), one_by_one)


def test_blocks_are_repeated_and_bounded():
    grid = lattice()
    blocks = jnp.array([[0.5, 0.0], [3.0, 4.0], [0.25, 0.0]])
    total = grid.sum_blocks(Free(shape=(2, 2)), jnp.array([1, 0, 1]), blocks, jnp.array([3, 2, 0]))
    np.testing.assert_allclose(total * grid.granularity, [[1.2, 1.6], [1.5, 0.0]], atol=3e-6)  # (3, 4) was clipped


def test_the_grid_is_fine_and_the_noise_is_enough():
    for parameter in (1e-5, 0.3, 1.0, 40.0):
        for kind in ("l2", "l1"):
            grid = lattice(parameter=parameter, kind=kind, records=3, filled=50)
            assert math.frexp(grid.granularity)[0] == 0.5  # a power of 2
            assert grid.noise >= 2**32
            assert grid.sensitivity >= 3 * 2.0
            units = grid.sensitivity / grid.granularity
            effective = math.sqrt(grid.noise**2 - 4) if kind == "l2" else grid.noise
            assert units / effective <= parameter
            assert grid.sensitivity == pytest.approx(6.0, rel=1e-6)  # and what it costs is next to nothing
            assert grid.scale == pytest.approx(6.0 / parameter, rel=1e-6)


@pytest.mark.parametrize("kind", ["l1", "l2"])
def test_every_rounding_of_an_encoded_sum_is_paid_for(kind):
    """A term is truncated once, and its share of each encoded sum is rounded: by less than one step in each entry."""
    filled, rounds = 5, 10_000
    lattice = choose_lattice(
        parameter=1.0, sensitivity=1.0, norm=1.0, filled=filled, kind=kind, factor=2.0, rounds=rounds
    )
    size = float if kind == "l1" else math.sqrt  # of the vector of all roundings, each of 1
    steps = Fraction(lattice.sensitivity) / Fraction(lattice.granularity)
    assert steps >= 2 * (1 / Fraction(lattice.granularity) + Fraction(size(filled))) + Fraction(size(filled * rounds))
    assert steps <= 2 / Fraction(lattice.granularity) * (1 + Fraction(2) ** -17)
    assert Fraction(lattice.noise) >= steps


@pytest.mark.parametrize("s", [1, 2, 3, 7, 10, 99, 2**32 + 12345, 2**40])
def test_off_diagonal_noise_is_rounded_up(s):
    root = _over_root_two(s)
    assert 2 * root**2 >= s**2 > 2 * (root - 1) ** 2


def test_noise_of_each_distribution_has_its_scale():
    """4.5 standard errors of a standard deviation (Gaussian: 1/sqrt(2n); Laplace: sqrt(5/(4n)))."""
    grid, n = lattice(), 20_000
    zeros = np.zeros(n, np.int64)
    normal = grid.release(GaussianNoise(1.0, (n,)), grid.add_noise(GaussianNoise(1.0, (n,)), zeros, Words()))
    assert abs(np.std(normal.value) / grid.scale - 1) < 4.5 / math.sqrt(2 * n)
    assert float(normal.noise.std) == pytest.approx(grid.scale)
    grid1 = lattice(kind="l1")
    noise = LaplaceNoise(1.0, (n,))
    laplace = grid1.release(noise, grid1.add_noise(noise, zeros, Words()))
    assert abs(np.std(laplace.value) / (math.sqrt(2) * grid1.scale) - 1) < 4.5 * math.sqrt(5 / (4 * n))
    d = 160
    noise = SymmetricNoise(1.0, d)
    matrix = np.asarray(grid.release(noise, grid.add_noise(noise, np.zeros(d * (d + 1) // 2, np.int64), Words())).value)
    np.testing.assert_array_equal(matrix, matrix.T)
    free = d * (d - 1) // 2
    assert abs(np.std(matrix[np.triu_indices(d, 1)]) / (grid.scale / math.sqrt(2)) - 1) < 4.5 / math.sqrt(2 * free)
    assert abs(np.std(np.diag(matrix)) / grid.scale - 1) < 4.5 / math.sqrt(2 * d)


def test_a_single_number_can_be_released():
    grid = lattice()
    for noise in (GaussianNoise(1.0, ()), LaplaceNoise(1.0, ())):
        noisy = grid.add_noise(noise, np.asarray(5), Words())
        assert noisy.shape == () and noisy.dtype == np.int64
        assert grid.release(noise, noisy).value.shape == ()


def test_every_release_is_a_point_of_the_grid():
    """What an attacker could look for: an output off the grid. There is none, whatever the sum."""
    grid = Lattice(2.0**-32, 1.0, 1.0, 2**32, "l2")
    noise = GaussianNoise(1.0, (1000,))
    for shift in (0, 1, 2**31 + 1):
        value = np.asarray(grid.release(noise, grid.add_noise(noise, np.full(1000, shift), Words())).value)
        scaled = value * 2.0**32
        np.testing.assert_array_equal(scaled, np.rint(scaled))


@pytest.mark.parametrize("size", [1e-299, 1e-303, 1e300])
def test_sizes_whose_grid_is_no_normal_number_are_refused(size):
    with pytest.raises(LatticeError, match="No lattice suits"):
        lattice(sensitivity=size, norm=size)
    lattice(sensitivity=1e-200, norm=1e-200)


def test_noise_that_cannot_be_drawn_is_refused_before_it_is_reserved():
    with pytest.raises(LatticeError, match="No lattice suits"):
        lattice(parameter=2.0**-24)
    lattice(parameter=2.0**-18)


def test_whole_units_never_wrap():
    grid = Lattice(2.0**-55, 1.0, 1.0, 2**32, "l2")
    units = grid.total(Free(), jnp.ones((1, 6)), None, jnp.ones(1, bool))
    assert np.abs(units).max() <= 2**52
