"""The sums of a trial: brute force over all pairs of records that keep the arm, and the joint sensitivity."""

import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest

from privrl.contracts import Plan
from privrl.statistics.arm_sums import ArmSums, Assignment, Outcomes

RECORDS = [math.nan, -math.inf, math.inf, -5.0, 2.0, 2.5, 3.0, 5.0, 6.0, 1e300]


def term(statistic, value, arm=1, cell=0):
    query = Plan(None, Assignment(jnp.asarray(arm), jnp.asarray([cell])))
    return np.asarray(statistic.contribution(Outcomes(jnp.asarray([value])), query))


@pytest.mark.parametrize("centre", [1 / 8, 3 / 8, 1 / 2, 7 / 8])
@pytest.mark.parametrize("partition", [None, 0])
def test_no_pair_of_records_exceeds_the_sensitivity_and_it_is_met(centre, partition):
    statistic = ArmSums(3, 2.0, 6.0, centre, num_groups=1 if partition is None else 2, partition=partition)
    found = [[], [], [], []]
    for cell in (0, 1):
        terms = [term(statistic, value, cell=cell) for value in RECORDS]
        found[0] += [np.linalg.norm(a - b) for a, b in itertools.product(terms, terms)]
        found[1] += [np.abs(a - b).sum() for a, b in itertools.product(terms, terms)]
        found[2] += [np.linalg.norm(a) for a in terms]
        found[3] += [np.abs(a).sum() for a in terms]
    claimed = [getattr(statistic, norm)(kind) for kind in ("replace-one", "add-remove") for norm in ("l2", "l1")]
    assert [max(one) for one in found] == pytest.approx(claimed, abs=1e-12)


def test_received_records_count_once_and_missing_ones_not_at_all():
    statistic = ArmSums(2, 0.0, 10.0, 1 / 8)
    assert term(statistic, 5.0)[1, 0] == pytest.approx([math.sqrt(1 - (7 / 8) ** 2), 0.5 - 1 / 8])
    assert not term(statistic, 5.0)[0].any() and not term(statistic, math.nan).any()
    assert not term(statistic, 5.0, arm=-1).any()  # not counted
    assert (statistic.reach**2 + statistic.record_weight**2) == pytest.approx(1)


@pytest.mark.parametrize(("low", "high"), [(-1e308, 1e308), (0.0, 5e-324), (0.0, 1e-310), (-math.inf, 0.0)])
def test_bounds_whose_distance_is_no_normal_number_are_refused(low, high):
    """Otherwise the rescaled outcome is not a number for some records, and these would be refused."""
    with pytest.raises(ValueError, match="`high - low`|`low` < `high`"):
        ArmSums(2, low, high, 1 / 8)


@pytest.mark.parametrize(("low", "high"), [(-1e149, 1e149), (1.0, 1.0 + 2**-52), (0.0, 1e-300)])
def test_extreme_bounds_and_values_keep_the_sensitivity(low, high):
    statistic = ArmSums(2, low, high, 1 / 8)
    values = [math.nan, low, high, -0.0, 5e-324, 1.7e308, -1.7e308, math.inf]
    terms = np.array([term(statistic, value).ravel() for value in values])
    assert np.isfinite(terms).all()
    assert np.linalg.norm(terms[:, None] - terms[None], axis=-1).max() <= 1 + 1e-12


def test_only_centres_inside_the_bounds():
    with pytest.raises(ValueError, match="`centre`"):
        ArmSums(2, 0.0, 1.0, 0.0)
