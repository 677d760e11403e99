"""The certificate of a trial, attacked from outside: same arm, other outcome, or a missing record."""

import dataclasses
import itertools
import math

import jax
import numpy as np
import pytest
from clocks import Clock
from scipy.linalg import toeplitz

from privrl.audit.attacks.trial_attack import PAIRS, attack_trial
from privrl.audit.known_bad.case import audit_epsilon_by_distance
from privrl.audit.known_bad.trial_attacks import _PILOT
from privrl.audit.sensitivity import sensitivities
from privrl.contracts import Plan
from privrl.learners.trials.protocol import Outcome, Partition
from privrl.learners.trials.trial import Trial
from privrl.privacy.accounting.composition import mu_of
from privrl.privacy.accounting.gdp import gdp_epsilon
from privrl.privacy.continual.toeplitz import SquareRoot
from privrl.privacy.store.release_store import ReleaseStore
from privrl.statistics.arm_sums import ArmSums, Assignment, Outcomes
from privrl.studies.live.live_pilot import Pilot

RICH = dataclasses.replace(
    _PILOT, subgroups=(Partition("sex", ("f", "m"), 0.2),), secondary=(Outcome("days", 0, 30, 30, share=0.1),)
)


@pytest.mark.parametrize("protocol", [_PILOT, RICH], ids=["one outcome", "subgroups and a secondary outcome"])
def test_no_pair_of_records_moves_all_releases_further_than_certified(protocol):
    trial = Trial(protocol)
    found = {}
    for name, pair in PAIRS.items():
        for arm, block in itertools.product((0, 1), range(4)):
            attack = attack_trial(trial, pair, arm, block)
            found[name] = max(found.get(name, 0.0), attack.mu)
            promised = mu_of(attack.transcript.ledger.events())
    assert max(found.values()) <= promised * (1 + 1e-9)
    assert found["outcome 0 or 1"] == pytest.approx(promised, rel=1e-6)
    if not protocol.secondary:  # of an outcome whose missing value is high, 0 is farther from a missing record
        assert found["1 or missing"] == pytest.approx(promised, rel=1e-6)


@pytest.mark.parametrize("pair", PAIRS)
def test_the_audited_epsilon_is_below_the_certified_one(pair):
    attack = attack_trial(Trial(_PILOT), PAIRS[pair])
    found = audit_epsilon_by_distance(attack.scores(jax.random.key(0), 100_000), _PILOT.epsilon)
    assert 0.8 * gdp_epsilon(attack.mu, _PILOT.delta) < found.audited <= _PILOT.epsilon and not found.caught


LIVE = dataclasses.replace(_PILOT, people=4, looks=2, patience=1.0, epsilon=20.0)
RUNS = 120  # bounds epsilon by 14.5 on average, with standard deviation 1.2, if it is 20


def conducted(value):
    """What a pilot with the system's noise releases about one person of the first block, as white noise and a term."""
    clock = Clock(0.0)
    with ReleaseStore.in_memory() as store:
        pilot = Pilot(LIVE, store=store, clock=clock)
        tickets = [pilot.begin_episode(str(i)) for i in range(LIVE.people)]
        if math.isfinite(value):
            pilot.record(tickets[0], survival=value)
        clock.time += 2.0
        released = np.asarray(pilot.state.running["survival"])[:, tickets[0].arm, 0]
    return np.linalg.solve(np.tril(toeplitz(SquareRoot(2).decoding)), released)


@pytest.mark.slow
def test_the_certificate_of_a_conducted_pilot_is_audited_from_outside():
    """The attacker knows the arm and sees all looks, and weighs them as the white noise below them asks for."""
    own, _ = Trial(LIVE).statistics()["survival"]
    seen = {value: np.stack([conducted(value) for _ in range(RUNS)]) for value in (0.0, 1.0, math.nan)}
    units = np.array([own.record_weight, 1.0])
    of_one = np.linalg.solve(np.tril(toeplitz(SquareRoot(2).decoding)), np.ones(2))
    terms = {0.0: (1, -own.centre), 1.0: (1, 1 - own.centre), math.nan: (0, 0)}
    found = {}
    for name, (one, other) in PAIRS.items():
        one, other = (next(v for v in seen if np.array_equal(v, x, equal_nan=True)) for x in (one, other))
        moved = np.outer(of_one, units * np.subtract(terms[other], terms[one]))
        scores = np.stack([np.einsum("nlk,lk->n", seen[v] * units, moved) for v in (one, other)])
        found[name] = audit_epsilon_by_distance(scores, LIVE.epsilon)
    assert not any(one.caught for one in found.values())
    assert min(found["outcome 0 or 1"].audited, found["1 or missing"].audited) > 9


def test_no_hostile_record_breaks_the_sensitivity():
    for protocol in (_PILOT, RICH):
        for statistic, _ in Trial(protocol).statistics().values():
            plan = Plan(None, Assignment(np.asarray(1), np.ones(1, int)))
            values = np.array([0, 0.5, 1, 2, -1, np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, 30, 29])
            records = Outcomes(np.stack([values, values[::-1]], axis=1))
            assert isinstance(statistic, ArmSums)
            assert not any(found.broken for found in sensitivities(statistic, records, published=plan, rounds=4))
