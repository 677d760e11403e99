"""The contract of `contract.py`, over every recipe and every registered learner."""

import dataclasses

import jax
import numpy as np
import pytest
from contract import BUDGET, check_offline, check_online, tiny_data, tiny_world

import privrl
from privrl.contracts.learner import AbstractOfflineLearner
from privrl.envs.lq_worlds import LQScalar
from privrl.envs.patients.anticoagulation import Anticoagulation
from privrl.evaluation.chooser import Chooser
from privrl.evaluation.evaluated import Evaluated
from privrl.evaluation.evaluator import Evaluator
from privrl.evaluation.measured_evaluator import MeasuredEvaluator
from privrl.learners.linear.lsvi_ucb_unweighted import PerEpisodeLSVIUCB
from privrl.recipes.all_recipes import recipes
from privrl.recipes.recipe import Problem
from privrl.studies.own_classes import registry

LEARNERS = {r.learner: r for r in reversed(recipes.values()) if r.published is None}.values()  # one recipe per learner
OFFLINE = [r for r in LEARNERS if r.family == "offline"]
ONLINE = list({type(r.build(tiny_world())): r for r in LEARNERS if r.family == "online"}.values())
CONTROL = list({type(r.build(LQScalar())): r for r in LEARNERS if r.family == "control"}.values())
# Others ask in the same ways: LSVI-UCB++ as `Everything` of `test_patterns.py`; PEVI and TAP as `Rounds` of it.
TWINS = (
    "auto",
    "fqi",
    "pevi",
    "tap",
    "vapvi",
    "dp-apvi",
    "lsvi-ucb",
    "lsvi-ucb++",
    "tdfp",
    "ucrl-vtr",
    "cautious-lq",
)
LOCAL = (privrl.Local(epsilon=BUDGET["epsilon"]), privrl.Local(**BUDGET))


def quick(recipes):
    """The recipes, those whose ways of asking another one has marked as slow."""
    return [pytest.param(r, marks=pytest.mark.slow) if r.name in TWINS else r for r in recipes]


def test_every_registered_learner_has_a_recipe():
    finite, linear = tiny_world(), LQScalar()
    worlds = {"control": linear, "measured": Anticoagulation()}
    built = {type(recipe.build(worlds.get(recipe.family, finite))) for recipe in recipes.values()}
    compare = {Evaluator, MeasuredEvaluator, Evaluated, Chooser}
    others = {PerEpisodeLSVIUCB, privrl.Trial, *compare}  # one for comparison, and those that compare policies
    assert built | others == set(registry)


@pytest.mark.slow
def test_the_learner_for_comparison():
    env = tiny_world()
    check_online(PerEpisodeLSVIUCB(env.features, env.horizon, rewards=env.rewards), env, local=LOCAL)


@pytest.mark.parametrize("recipe", quick(OFFLINE), ids=lambda r: r.name)
def test_offline(recipe):
    env = tiny_world()
    learner = recipe.learner(Problem.of(env))
    if isinstance(learner, privrl.QLearning):
        learner = dataclasses.replace(learner, steps=3)  # each step is a query of its own, attacked on its own
    check_offline(learner, tiny_data(env))


@pytest.mark.parametrize("recipe", quick(ONLINE), ids=lambda r: r.name)
def test_online(recipe):
    env = tiny_world()
    check_online(recipe.learner(Problem.of(env)), env, local=LOCAL)


@pytest.mark.parametrize("recipe", quick(CONTROL), ids=lambda r: r.name)
def test_control(recipe):
    env = LQScalar(horizon=2)
    check_online(recipe.build(env), env)


@pytest.mark.parametrize("name", ["private-lq", "dp-lsvi-ucb"])
def test_worlds_of_the_other_kind_are_refused(name):
    env = tiny_world() if name == "private-lq" else LQScalar()
    with pytest.raises(ValueError, match="requires"):
        recipes[name].build(env)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ONLINE, ids=lambda r: r.name)
def test_compiled_equals_plain(recipe):
    """The same run without compilation, operation by operation."""
    env = tiny_world(horizon=2, num_states=2)
    learner = recipe.learner(Problem.of(env))
    settings = {"episodes": 3, "key": jax.random.key(3), "flow": False}
    compiled = privrl.run(env, learner, privrl.Central(**BUDGET), **settings)
    with jax.disable_jit():
        plain = privrl.run(env, learner, privrl.Central(**BUDGET), **settings)
    np.testing.assert_allclose(compiled.block_regret, plain.block_regret, atol=1e-10)


def test_verbs_name_the_right_verb():
    env = tiny_world()
    offline = next(r for r in OFFLINE).learner(Problem.of(env))
    online = next(r for r in ONLINE).learner(Problem.of(env))
    assert isinstance(offline, AbstractOfflineLearner)
    with pytest.raises(privrl.privacy.PairingError, match=r"privrl\.run"):
        privrl.fit(tiny_data(env), online, privrl.NonPrivate())
    with pytest.raises(privrl.privacy.PairingError, match=r"privrl\.fit"):
        privrl.run(env, offline, privrl.NonPrivate(), episodes=10, key=jax.random.key(0))
