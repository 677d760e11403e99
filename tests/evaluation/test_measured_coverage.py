"""Do the lower bounds of policies on measurements hold, if practice is estimated?

`bench/measured_evaluation.py` makes larger studies in more worlds.
"""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import privrl
from privrl.envs.patients.actors import AssistedActor
from privrl.envs.worlds_by_name import make
from privrl.evaluation.measured_evaluator import MeasuredEvaluator
from privrl.recipes.all_recipes import get
from privrl.studies.offline.procedure import ask_curator
from privrl.studies.simulation.sampled_tables import table_of


def study(world, budget, seed, people):
    keys = jr.split(jr.key(seed), 4)
    learnt, held = (table_of(world, world.sample(world.practice, people, key)) for key in keys[:2])
    fitted = privrl.fit(learnt, get("lap").build(world), privrl.Central(epsilon=3.0, delta=1e-6), key=keys[2])
    values = jnp.asarray(fitted.report["values"])
    settings = (world.horizon, people, (0.0, world.survival or 1.0))
    evaluator = MeasuredEvaluator(fitted.policy, values, *settings, assumption="recorded")
    asked = (held, evaluator, evaluator.evaluate, budget)
    found = ask_curator("evaluate", *asked, key=keys[3], unit=None, store=None).found
    policies = [found.policy.with_limits(one.max_ratio, one.max_weight) for one in found.pairs]
    return found, [world.gain(AssistedActor(policy, world.practice)) for policy in policies]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "horizon"), [("vitals", 8), ("chemotherapy", 8)])
def test_lower_bounds_hold(name, horizon):
    world, budget = make(name, horizon=horizon, evaluated=8192), privrl.Central(epsilon=3.0, delta=1e-6)
    held = []
    for seed in range(6):
        found, true = study(world, budget, seed, 8_000)
        pairs = zip(found.pairs, true, strict=True)
        held += [one.gain.lower <= gain.value + 2.0 * gain.error for one, gain in pairs]
    assert len(held) >= 12 and np.mean(held) >= 0.93


@pytest.mark.slow
def test_without_noise_the_smallest_pair_is_right_within_half_a_percent():
    world = make("chemotherapy", horizon=8, evaluated=16_384)
    found, true = study(world, privrl.NonPrivate(), 11, 60_000)
    gain = found.pairs[0].gain
    assert gain.value - true[0].value < 0.005 and gain.lower <= true[0].value <= gain.high
