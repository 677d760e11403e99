"""The shuffle model as a whole: what is certified, what is refused, and that it learns more than local privacy."""

import dataclasses
import math

import jax
import numpy as np
import pytest
from contract import check_certificate, tiny_world

import privrl
from privrl.contracts.release import Declared
from privrl.privacy.accounting.composition import epsilon_of
from privrl.privacy.accounting.events import Event
from privrl.privacy.accounting.privacy_budget import BudgetError
from privrl.privacy.accounting.shuffling import local_epsilon_for, shuffled_delta
from privrl.privacy.trust.privatizers import PairingError
from privrl.privacy.trust.shuffled import Shuffled
from privrl.recipes.all_recipes import get
from privrl.recipes.recipe import Problem

ENV = tiny_world()
LEARNER = privrl.UCBVI(ENV.rewards, ENV.horizon, first_block=300)


def test_a_run_is_certified_for_its_smallest_batch():
    result = privrl.run(ENV, LEARNER, Shuffled(1.0, 1e-5), episodes=700, key=jax.random.key(0))
    check_certificate(result.certificate, 1.0, 1e-5, "shuffle")
    assert np.diff(result.block_ends, prepend=0).min() >= 300
    (event,) = result.certificate.events
    assert (event.mechanism, event.batch) == ("shuffled", 300)
    assert event.parameter == pytest.approx(local_epsilon_for(1.0, 1e-5, 300))
    assert event.parameter > 1.5
    assert f"epsilon = {event.parameter:.4g}" in str(result.certificate)
    assert "shuffl" in result.certificate.accountant


def test_the_answers_have_the_local_epsilon():
    private = Shuffled(1.0, 1e-5)
    declared = LEARNER.declare(2)
    channel = private.channel(declared[0], private.calibrate(declared))
    assert float(channel.response.epsilon) == pytest.approx(local_epsilon_for(1.0, 1e-5, 300))
    assert private.local_epsilon(declared[0]) == pytest.approx(float(channel.response.epsilon))


def test_without_noise_it_says_so():
    result = privrl.run(ENV, LEARNER, Shuffled(math.inf), episodes=700, key=jax.random.key(0))
    assert math.isinf(result.certificate.epsilon)


def test_small_batches_are_refused():
    settings = {"episodes": 700, "key": jax.random.key(0)}
    for learner in (privrl.UCBVI(ENV.rewards, ENV.horizon), dataclasses.replace(LEARNER, first_block=699)):
        with pytest.raises(PairingError, match=r"do not hide each other.*first_block"):
            privrl.run(ENV, learner, Shuffled(1.0, 1e-5), **settings)


def test_what_cannot_be_shuffled_is_refused():
    private = Shuffled(1.0, 1e-5)
    with pytest.raises(PairingError, match="one query"):
        private.check("PEVI", [Declared("moments", times=3)])
    with pytest.raises(PairingError, match="one query"):
        private.check("Two", LEARNER.declare(2) * 2)
    with pytest.raises(PairingError, match="one symbol"):
        private.check("Sums", [Declared("sums", privrl.statistics.VisitCounts(3, 2, 4), access="running")])
    with pytest.raises(PairingError, match="curator"):
        _ = private.mechanism_of_rounds
    for arguments in ({"epsilon": 1.0}, {"rho": 0.5}):
        with pytest.raises(BudgetError, match="delta"):
            Shuffled(**arguments)
    with pytest.raises(TypeError, match="Local"):
        privrl.Server(LEARNER, private, num_users=700)


def test_shuffled_events_compose_safely():
    """Alone they are amplified; beside anything else that touches the same people they count as pure."""
    event = Event("answers", "shuffled", 2.0, batch=1_000)
    assert epsilon_of([event], 1e-6) == pytest.approx(0.5455, abs=1e-3)
    assert shuffled_delta(2.0, 1_000, epsilon_of([event], 1e-6)) <= 1e-6
    assert epsilon_of([event], 0.0) == 2.0
    other = Event("more", "gaussian", 0.1)
    assert 1.9 < epsilon_of([event, other], 1e-6) <= 2.0 + epsilon_of([other], 1e-6)
    assert epsilon_of([dataclasses.replace(event, times=2)], 1e-6) > 2.0
    groups = [dataclasses.replace(event, name=name, group=name, batch=n) for name, n in (("a", 1_000), ("b", 400))]
    assert epsilon_of(groups, 1e-6) == pytest.approx(epsilon_of(groups[1:], 1e-6))
    assert Event(**event.to_json()) == event
    for wrong in ({"mechanism": "shuffled"}, {"mechanism": "pure", "batch": 5}, {"mechanism": "shuffled", "batch": 0}):
        with pytest.raises(ValueError, match="`batch`"):
            Event("x", parameter=1.0, **wrong)


def test_the_recipe():
    recipe = get("shuffle-ucbvi")
    private = recipe.privatizer(epsilon=1.0, delta=1e-6)
    assert isinstance(private, Shuffled)
    (declared,) = recipe.learner(Problem.of(ENV)).declare(3)
    assert private.local_epsilon(declared) > 2.0


@pytest.mark.slow
def test_it_learns_more_than_local_privacy():
    """5 states, K = 100,000, epsilon = 1: mean regret over that of the uniform policy, 6 seeds, batches of 500."""
    env = privrl.envs.RiverSwim(5)
    uniform = float(env.regret(env.uniform_policy())) * 100_000
    settings = {"episodes": 100_000, "seeds": 6, "key": jax.random.key(77)}
    shares = [
        privrl.run(env, privrl.UCBVI(env.rewards, env.horizon, first_block=first), private, **settings).total_regret
        for first, private in ((500, Shuffled(1.0, 1e-6)), (20, privrl.Local(epsilon=1.0)))
    ]
    assert shares[0].mean() / uniform < 0.1 < shares[1].mean() / uniform
