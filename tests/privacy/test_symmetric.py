"""Symmetric releases: one number stands for [i, j] and [j, i] from the person to the release, so nothing cancels."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import privrl
from privrl.contracts.learner import AbstractOfflineLearner, Solution
from privrl.contracts.release import Declared, Release
from privrl.contracts.statistic import AbstractStatistic
from privrl.mdp.features import TableFeatures
from privrl.mdp.types import TabularPolicy
from privrl.privacy.continual.participation import ONCE
from privrl.privacy.noise.distributions import SymmetricNoise
from privrl.privacy.noise.lattice import choose_lattice
from privrl.privacy.noise.random_words import Words
from privrl.privacy.noise.symmetric import mirror_triangle
from privrl.privacy.trust.exact_channels import ExactChannel
from privrl.privacy.trust.privatizers import Central, Local
from privrl.statistics.moments import Gram

D = 3


class Lopsided(AbstractStatistic):
    """Matrices that are symmetric in name only: the record is the contribution."""

    shape: tuple = eqx.field(static=True, default=(D, D))
    symmetric: bool = eqx.field(static=True, default=True)

    def contribution(self, record, query):
        return record

    def l2(self, adjacency):
        return 2.0 if adjacency == "replace-one" else 1.0

    def l1(self, adjacency):
        return 3.0 * self.l2(adjacency)


def grid_of(statistic, parameter=0.5, kind="l2"):
    size = statistic.l2 if kind == "l2" else statistic.l1
    return choose_lattice(
        parameter=parameter, sensitivity=size("replace-one"), norm=size("add-remove"), filled=D * D, kind=kind
    )


ENTRIES = st.floats(-2.0, 2.0) | st.sampled_from([0.0, -0.0, 1.0, 1 / math.sqrt(3), 5e-324, 1e300, -1e300])
MATRIX = hnp.arrays(np.float64, (D, D), elements=ENTRIES)


def units_of(record, grid):
    return grid.round_record(Lopsided(), jnp.asarray(record), None)


@settings(max_examples=60)
@given(MATRIX, st.sampled_from(["l2", "l1"]))
def test_units_are_an_upper_triangle_within_the_norm_of_the_whole_matrix(record, kind):
    grid = grid_of(Lopsided(), kind=kind)
    units = units_of(record, grid)
    assert units.shape == (D * (D + 1) // 2,)
    whole = [int(n) for n in mirror_triangle(units).ravel()]
    exact = sum(n * n for n in whole) if kind == "l2" else sum(map(abs, whole))
    assert exact <= grid.limit


SMALL = hnp.arrays(np.float64, (D, D), elements=st.floats(-1 / 3, 1 / 3))


@settings(max_examples=60)
@given(SMALL, SMALL)
def test_two_records_come_no_further_apart_even_if_they_are_not_symmetric(one, other):
    """The projection onto symmetric matrices is a contraction; rounding adds a unit per entry."""
    grid = grid_of(Lopsided())
    apart = mirror_triangle(units_of(one, grid)).astype(object) - mirror_triangle(units_of(other, grid)).astype(object)
    allowed = np.linalg.norm(one - other) / grid.granularity * (1 + 2.0**-40) + D
    assert math.sqrt(int((apart**2).sum())) <= allowed


def test_a_release_is_mirrored_and_its_noise_is_one_draw_per_number():
    grid, noise = grid_of(Lopsided()), SymmetricNoise(1.0, D)
    total = units_of(np.triu(np.ones((D, D))) / 4, grid)
    draws = np.stack([grid.add_noise(noise, total, Words()) - total for _ in range(400)]).astype(float)
    assert np.linalg.matrix_rank(draws - draws.mean(axis=0)) == D * (D + 1) // 2
    value = np.asarray(grid.release(noise, grid.add_noise(noise, total, Words())).value)
    np.testing.assert_array_equal(value, value.T)


def weighted_gram():
    """Weights and features for which (w phi_i) phi_j and (w phi_j) phi_i differ in the last bit somewhere."""
    rng = np.random.default_rng(5)
    phi = rng.normal(size=(4, 2, D))
    phi /= 1.01 * np.linalg.norm(phi, axis=-1, keepdims=True)
    return Gram(TableFeatures(jnp.asarray(phi)), 0, weights=jnp.asarray(rng.uniform(0.3, 1.0, (4, 2))))


class ReadsGram(AbstractOfflineLearner):
    """Releases a weighted Gram matrix and keeps it."""

    gram: Gram
    seen: list = eqx.field(static=True)
    horizon: int = eqx.field(static=True, default=1)

    @property
    def space(self):
        return 4, 2

    def bounds(self):
        return {}

    def declare(self):
        return (Declared("gram", self.gram),)

    def fit(self, ask):
        self.seen.append(ask("gram").value)
        return Solution(TabularPolicy(jnp.full((1, 4, 2), 0.5)))


def people(number, state, action):
    ones = np.ones((number, 1), int)
    return privrl.data.Episodes.from_arrays(
        ones * state, ones * action, ones * 0.0, horizon=1, num_states=4, num_actions=2
    )


@pytest.mark.parametrize("number", [700, 701])
def test_fit_does_not_print_head_counts(number):
    """The float entries of this statistic differ across the diagonal; the difference of the release is exactly zero."""
    gram = weighted_gram()
    of_one = jax.jit(lambda s, a: gram.weights[s, a] * gram.features.of(s, a)[:, None] * gram.features.of(s, a)[None])
    lopsided = [(s, a) for s in range(4) for a in range(2) if not bool((of_one(s, a) == of_one(s, a).T).all())]
    assert lopsided  # otherwise this test would show nothing
    for state, action in lopsided:
        learner = ReadsGram(gram, [])
        privrl.fit(people(number, state, action), learner, Central(epsilon=0.1, delta=1e-6))
        (released,) = learner.seen
        np.testing.assert_array_equal(np.asarray(released), np.asarray(released).T)


def test_streams_keep_upper_triangles():
    privatizer = Central(epsilon=1.0, delta=1e-5)
    declared = Declared("matrix", Lopsided(), access="running", times=4)
    ledger = privatizer.calibrate([declared])
    record = jnp.zeros((D, D))
    stream = ExactChannel.from_channel(
        privatizer.channel(declared, ledger), 4, ledger.parameter("matrix"), "replace-one", ONCE, record, None
    )
    blocks = (stream.term(jnp.asarray(np.triu(np.ones((D, D)) / 3)), None),) * 2
    assert blocks[0].shape == (6,) == stream.shape
    noisy = tuple(stream.add_noise(stream.encode(blocks[: t + 1]), Words()) for t in range(2))
    release = stream.decode(noisy)
    np.testing.assert_array_equal(np.asarray(release.value), np.asarray(release.value).T)
    seeded = stream.add_noise(stream.encode(blocks), jax.random.key(0))
    assert seeded.shape == (6,)


def test_local_reports_of_matrices_are_symmetric():
    privatizer = Local(epsilon=1.0, delta=1e-5)
    declared = Declared("matrix", Lopsided(), access="running")
    channel = privatizer.channel(declared, privatizer.calibrate([declared]))
    reports = channel.reports()
    report = reports.randomise(reports.truth(jnp.asarray(np.triu(np.ones((D, D)) / 3)), None, 0), Words())
    reports.check(report)
    assert report.shape == (6,)
    released = channel.to_release(*reports.totals(reports.to_steps(report, None, 0)))
    assert isinstance(released, Release)
    np.testing.assert_array_equal(np.asarray(released.value), np.asarray(released.value).T)


def test_blocks_of_a_symmetric_statistic_are_whole_matrices():
    class Rows(Lopsided):
        def parts(self, record, query):
            return jnp.arange(D), record

    with pytest.raises(ValueError, match="whole matrices"):
        grid_of(Lopsided()).round_record(Rows(), jnp.zeros((D, D)), None)
