"""The certificate of a trial, attacked from outside: same arm, other outcome, or a missing record."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

from privrl.audit.attacks.trial_attack import PAIRS, attack_trial
from privrl.audit.known_bad.case import audit_epsilon_by_distance
from privrl.audit.known_bad.trial_attacks import _PILOT
from privrl.audit.sensitivity import sensitivities
from privrl.contracts import Plan
from privrl.learners.trials.protocol import Outcome, Partition
from privrl.learners.trials.trial import Trial
from privrl.privacy.accounting.composition import mu_of
from privrl.statistics.arm_sums import ArmSums, Assignment, Outcomes

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


def test_the_audited_epsilon_is_below_the_certified_one():
    attack = attack_trial(Trial(_PILOT), PAIRS["1 or missing"])
    found = audit_epsilon_by_distance(attack.scores(jax.random.key(0), 20_000), _PILOT.epsilon)
    assert 0.8 < found.audited <= 1.0 and not found.caught


def test_no_hostile_record_breaks_the_sensitivity():
    for protocol in (_PILOT, RICH):
        for statistic, _ in Trial(protocol).statistics().values():
            plan = Plan(None, Assignment(np.asarray(1), np.ones(1, int)))
            values = np.array([0, 0.5, 1, 2, -1, np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, 30, 29])
            records = Outcomes(np.stack([values, values[::-1]], axis=1))
            assert isinstance(statistic, ArmSums)
            assert not any(found.broken for found in sensitivities(statistic, records, published=plan, rounds=4))
