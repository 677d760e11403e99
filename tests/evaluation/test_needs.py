"""How many people a gain needs: before a study, from public numbers, and after it, from what was released."""

import dataclasses
import math
from statistics import NormalDist

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from two_states import evaluated, evaluator, table

import privrl
from privrl.contracts.release import Release
from privrl.evaluation.confidence import ERROR_RATE, Interval
from privrl.evaluation.decision import Bound, Reason
from privrl.evaluation.estimates import PairGain
from privrl.evaluation.gain_intervals import GainEntry, certified_interval
from privrl.evaluation.limits import PAIRS
from privrl.evaluation.shares import releases
from privrl.evaluation.showing import Candidate
from privrl.evaluation.widths import plan_widths
from privrl.mdp.assisted import AssistedPolicy
from privrl.privacy.noise.distributions import GaussianNoise
from privrl.reports.change_section import explain_collection
from privrl.statistics.off_policy import Gains
from privrl.studies.offline.enough_people import check_evaluation

NOISE, SQUARE = 44.0, 695.0


def released(people: int, mean: float, second: float, pair: int = 0) -> Interval:
    """The interval of a gain, as an evaluation makes it from its two releases, as a share of the range of returns."""
    policy = AssistedPolicy(jnp.zeros(1, int), jnp.zeros(1), horizon=1)
    ways = [Gains(policy, jnp.asarray(0.0), squared=way, limits=PAIRS, logged=True) for way in (False, True)]
    entries = []
    for terms, number, noise in zip(ways, (mean, second), (NOISE, SQUARE), strict=True):
        value = people * number / terms.units
        entries.append(GainEntry.of_pair(Release(jnp.asarray(value), GaussianNoise(noise, (3,))), pair, terms))
    return certified_interval(entries[0], entries[1], people, PAIRS[pair][1], among=len(PAIRS))


@pytest.mark.parametrize("pair", [0, 1, 2])
@pytest.mark.parametrize("people", [400, 3000, 40_000])
def test_the_people_that_show_a_gain_are_those_with_whom_the_bound_is_above_0(pair: int, people: int) -> None:
    """Before, everything shrank with the number of people, so the need was too small by a large factor."""
    mean, W = 0.05, PAIRS[pair][1]
    gain = released(people, mean, 0.4, pair)
    one = Candidate("", gain, NOISE * math.sqrt(W), SQUARE * W, W)
    needed = one.people_to_show(people, 3)
    assert needed is not None
    assert released(needed, mean, 0.4, pair).lower > 0.0 > released(round(0.98 * needed) - 1, mean, 0.4, pair).lower
    wide = dataclasses.replace(one, gain=gain.wider(0.04))  # an allowance, which more people do not make smaller
    more = wide.people_to_show(people, 3)
    assert more is not None and released(more, mean, 0.4, pair).lower == pytest.approx(0.04, abs=1e-4) and more > needed
    assert dataclasses.replace(one, gain=gain.wider(0.06)).people_to_show(people, 3) is None
    assert dataclasses.replace(one, gain=released(people, -0.01, 0.4)).people_to_show(people, 3) is None


def test_the_need_is_that_of_the_limits_with_the_smallest_one_which_are_named() -> None:
    """Before, it was that of the limits with the largest bound, which are the narrowest and have the smallest gain."""
    people = table(4000)
    found = evaluated(
        people, evaluator(4000, practice=None), privrl.Central(epsilon=1.0, delta=1e-6), jax.random.key(0)
    )
    certificate = dataclasses.replace(found.certificate, unit="patient")
    gains = [Interval(v, v - 1.1 * h, v + 1.1 * h, v - h, v + h) for v, h in ((0.003, 0.01), (0.1, 0.2), (0.1, 0.4))]
    pairs = tuple(PairGain(*limits, gain) for limits, gain in zip(PAIRS, gains, strict=True))
    open_gain = dataclasses.replace(
        found.found, pairs=pairs, assisted_gain=gains[0], bound=Bound(-0.007, 0.05, "estimated"), balance=None
    )
    decision = dataclasses.replace(open_gain.decision, reasons=(Reason.NO_GAIN,))
    (said,) = explain_collection(open_gain, decision, certificate)
    assert "with limits 4/20 is +0.100" in said and "would show a gain in half of all studies" in said
    sure = tuple(dataclasses.replace(one, gain=Interval(0.003, -0.2, 0.21, -0.19, 0.2)) for one in pairs)
    wide = tuple(dataclasses.replace(one, gain=one.gain.wider(0.5)) for one in sure)
    (never,) = explain_collection(dataclasses.replace(open_gain, pairs=wide), decision, certificate)
    assert "No number of patients is enough" in never and "would show" not in never


def test_one_page_states_one_need_for_each_thing() -> None:
    """Before, three numbers stood on one page, because skipped releases had given their budget to others."""
    budget = privrl.Central(epsilon=1.0, delta=1e-6)
    found = evaluated(table(1000), evaluator(1000, practice=None), budget, jax.random.key(0))
    certificate = dataclasses.replace(found.certificate, unit="patient")
    assert {Reason.INCONCLUSIVE, Reason.NO_ESTIMATE} <= set(found.found.reasons)
    said = " ".join(explain_collection(found.found, found.found.decision, certificate))
    planned = plan_widths(1000, budget, public=False).needed
    assert planned is not None
    for number in (planned.estimate, planned.least, planned.enough):
        assert any(f"{number + off:,}" in said for off in range(-2, 3)), (number, said)  # the lattice moves noise a bit
    refused = next(one for one in found.found.refused if "gain of the assisted policy" in one)
    alone = said.partition("the estimate alone needs about ")[2].partition(" ")[0]
    assert f"needs about {alone} people" in refused


# ---------------------------------------------------------------------------------- before a study


@pytest.mark.parametrize("assumption", ["logged", "randomised"])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_a_study_whose_noise_hides_every_gain_is_known_before(assumption: str, epsilon: float) -> None:
    """Before, a plan with a width of five times the range of returns promised an estimate with any number of people."""
    budget = privrl.Central(epsilon=epsilon, delta=1e-6)
    settings = {"public": False, "modelled": False, "assumption": assumption, "max_ratio": 1.5, "max_weight": 4.0}
    needed = plan_widths(1000, budget, **settings).needed
    assert needed is not None and needed.estimate == needed.least == needed.enough > 20
    # Returns without any variance of their own: only noise and rare episodes make the interval wide.
    z2, z1 = (NormalDist().inv_cdf(1.0 - rate) for rate in (ERROR_RATE / 2.0, ERROR_RATE))
    few, many = (plan_widths(n, budget, weight_variance=0.0, **settings) for n in (needed.least // 2, 2 * needed.least))
    assert few.gain is not None and many.gain is not None
    assert few.gain / 2 * z1 / z2 > 0.75 > many.gain / 2 * z1 / z2
    assert np.isclose(plan_widths(9, budget, **settings).needed.least, needed.least)  # whatever the number of people is


def test_a_study_whose_noise_hides_every_gain_is_refused() -> None:
    """Before, its budget was spent."""
    budget = privrl.Central(epsilon=1.0, delta=1e-6)
    declared = releases(public=False, bounded=True, modelled=False, assumption="logged")
    with pytest.raises(ValueError, match="noise alone hides the largest gain that the limits allow"):
        check_evaluation(100, declared, budget, public=True, checked=False, logged=True)
    check_evaluation(1000, declared, budget, public=True, checked=False, logged=True)
    check_evaluation(100, declared, privrl.NonPrivate(), public=True, checked=False, logged=True)
