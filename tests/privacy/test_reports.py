"""Local reports in whole numbers: exact on the device, in a public range, added up in any order."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privrl.contracts.release import Declared
from privrl.contracts.statistic import AbstractCategorical, AbstractStatistic
from privrl.privacy.noise.random_words import Words
from privrl.privacy.trust.privatizers import Local


class Indicator(AbstractCategorical):
    """Which of six symbols the record is."""

    shape: tuple = eqx.field(static=True, default=(6,))
    symmetric: bool = eqx.field(static=True, default=False)
    num_symbols: int = eqx.field(static=True, default=6)

    def contribution(self, record, query):
        return jax.nn.one_hot(record, 6)

    def symbol(self, record, query, index):
        return record

    def tally(self, frequencies, query, index):
        return jnp.roll(frequencies, index)

    def l2(self, adjacency):
        return 2.0**0.5 if adjacency == "replace-one" else 1.0

    def l1(self, adjacency):
        return 2.0 if adjacency == "replace-one" else 1.0


class Matrix(AbstractStatistic):
    """A symmetric matrix of Frobenius norm at most 1."""

    shape: tuple = eqx.field(static=True, default=(3, 3))
    symmetric: bool = eqx.field(static=True, default=True)

    def contribution(self, record, query):
        return record / jnp.maximum(1.0, jnp.linalg.norm(record))

    def l2(self, adjacency):
        return 2.0 if adjacency == "replace-one" else 1.0

    def l1(self, adjacency):
        return 6.0 if adjacency == "replace-one" else 3.0


def channel(privatizer, statistic=None):
    declared = Declared("x", Indicator() if statistic is None else statistic, access="running")
    return privatizer.channel(declared, privatizer.calibrate([declared]))


SETS = channel(Local(epsilon=0.5))
VECTOR = channel(Local(epsilon=1.0, delta=1e-5))
MATRIX = channel(Local(epsilon=1.0, delta=1e-5), Matrix())
INT64 = st.integers(-(2**63), 2**63 - 1)


def test_a_set_is_the_same_on_both_ways():
    """As it is simulated, sent and read; and with exact noise."""
    key, reports = jax.random.key(5), SETS.reports()
    truth = reports.truth(jnp.asarray(4), None, 0)
    simulated = reports.randomise(truth, key)
    report = SETS.report(jnp.asarray(4), None, jnp.asarray(0), key)
    np.testing.assert_array_equal(simulated, np.flatnonzero(report))
    for index, sent in enumerate([simulated, reports.randomise(truth, Words())]):
        reports.check(sent)
        assert sent.dtype == np.int64 and sent.shape == reports.shape == (2,)
        held = np.isin(np.arange(6), sent)
        value, asked = reports.totals(reports.to_steps(sent, None, index))
        expected = SETS.decode(jnp.asarray(held), None, jnp.asarray(index))
        np.testing.assert_array_equal(value, expected[0])
        np.testing.assert_array_equal(asked, expected[1])
    assert reports.calibration is None


@pytest.mark.parametrize(
    "report",
    [[3, 6], [-1, 2], [2, 2], [2, 1], [1], [1, 2, 3], 1, [[1, 2]], [-(2**63), 2], [2, 2**63 - 1]],
    ids=str,
)
def test_impossible_sets_are_refused(report):
    with pytest.raises(ValueError, match="2 different symbols"):
        SETS.reports().check(np.array(report, np.int64))


@pytest.mark.parametrize("report", [np.array([1.0, 2.0]), np.array([True, False]), np.array([1, 2], np.uint64)])
def test_symbols_are_integers(report):
    with pytest.raises(ValueError, match="2 different symbols"):
        SETS.reports().check(report)


@given(st.lists(INT64, min_size=2, max_size=2))
def test_a_set_passes_if_and_only_if_a_device_could_have_sent_it(report):
    possible = list(report) in [list(pair) for pair in itertools.combinations(range(6), 2)]
    try:
        SETS.reports().check(np.array(report, np.int64))
    except ValueError:
        assert not possible
    else:
        assert possible


@pytest.mark.parametrize("made", [VECTOR, MATRIX], ids=["vector", "matrix"])
def test_a_vector_costs_what_it_says_and_stays_in_its_range(made):
    """The lattice is at least as noisy as the budget asks, and a report is the term up to its noise."""
    reports = made.reports()
    sensitivity, scale = reports.calibration
    assert sensitivity / scale <= float(made.sensitivity / made.scale)
    assert scale == pytest.approx(float(made.scale), rel=1e-8)
    lattice = reports.lattice
    assert lattice.covers(lattice, float(made.sensitivity / made.scale))
    record = jnp.asarray(2) if made is VECTOR else jnp.eye(3)
    drawn = [reports.randomise(reports.truth(record, None, 0), Words()) for _ in range(300)]
    for report in drawn:
        reports.check(report)
    errors = np.stack([reports.totals(np.append(report.reshape(-1), 1))[0] for report in drawn])
    errors = errors - np.asarray(made.statistic.contribution(record, None))
    spread = errors.std(axis=0)
    wanted = np.full(made.statistic.shape, scale)
    if made is MATRIX:
        wanted = np.where(np.eye(3, dtype=bool), wanted, wanted / 2**0.5)
        np.testing.assert_array_equal(errors, errors.transpose(0, 2, 1))
    np.testing.assert_allclose(spread, wanted, rtol=4.5 / np.sqrt(2 * 300))


@pytest.mark.parametrize("made", [VECTOR, MATRIX], ids=["vector", "matrix"])
@pytest.mark.parametrize("place", [0, -1])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_edge_of_the_range_is_public(made, place, sign):
    reports = made.reports()
    report = np.zeros(reports.shape, np.int64)
    report[place] = sign * reports.largest
    reports.check(report)
    for further in (1, 2**62):
        report[place] = sign * (reports.largest + further)
        with pytest.raises(ValueError, match=f"from {-reports.largest} to {reports.largest}"):
            reports.check(report)
    report[place] = -(2**63)
    with pytest.raises(ValueError, match="integers from"):
        reports.check(report)
    granularity, norm = reports.lattice.granularity, made.statistic.l2("add-remove")
    assert reports.largest * granularity == pytest.approx(norm + 40 * reports.calibration[1])


@pytest.mark.parametrize(
    "report",
    [
        np.zeros(6),
        np.full(6, 1.7e308),
        np.full(6, -0.0),
        np.full(6, 5e-324),
        np.full(6, np.nan),
        np.zeros(5, np.int64),
        np.zeros((6, 1), np.int64),
        np.zeros(6, bool),
        np.zeros(6, np.int32),
        np.zeros(6, np.uint64),
    ],
    ids=str,
)
def test_impossible_vectors_are_refused(report):
    """On the code before, 1.7e308 passed, and the policy that was learned from it was all zeros."""
    with pytest.raises(ValueError, match="integers from"):
        VECTOR.reports().check(report)


def test_a_simulated_vector_is_rounded_to_the_public_grid():
    for made in (VECTOR, MATRIX):
        reports = made.reports()
        record = jnp.asarray(2) if made is VECTOR else jnp.arange(9.0).reshape(3, 3) / 20
        report = made.report(record, None, jnp.asarray(0), jax.random.key(2))
        sent = reports.randomise(reports.truth(record, None, 0), jax.random.key(2))
        reports.check(sent)
        symmetric = (report + report.T) / 2 if made is MATRIX else report
        value, count = reports.totals(reports.to_steps(sent, None, 0))
        np.testing.assert_allclose(value, symmetric, rtol=1e-8, atol=2 * reports.lattice.granularity)
        assert (np.asarray(count) == 1).all()
    far = np.full(6, 2**62)
    np.testing.assert_array_equal(VECTOR.reports().randomise(far, jax.random.key(2)), VECTOR.reports().largest)


def test_without_noise_a_vector_is_the_term():
    made = channel(Local(epsilon=float("inf"), delta=1e-5))
    reports = made.reports()
    report = reports.randomise(reports.truth(jnp.asarray(2), None, 0), Words())
    np.testing.assert_array_equal(reports.totals(reports.to_steps(report, None, 0))[0], [0, 0, 1, 0, 0, 0])
    reports.check(report)
