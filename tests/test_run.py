"""Simulated runs: they learn, flows and rollouts agree, and the books are right."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import tiny_world
from scipy import stats

import privrl
from privrl.contracts.release import Declared
from privrl.contracts.statistic import AbstractStatistic
from privrl.mdp.types import TabularPolicy
from privrl.privacy.accounting.ledger import Ledger
from privrl.recipes.all_recipes import get
from privrl.recipes.recipe import Problem
from privrl.statistics.regressions import StateVisits
from privrl.studies.loop import State
from privrl.studies.simulation.simulated_loop import Simulation, SimulationKeys


def share_of_uniform(env, result):
    """Total regret over that of the uniform policy, per seed."""
    uniform = float(env.regret(env.uniform_policy())) * result.block_ends[-1]
    return result.total_regret / uniform


@pytest.mark.slow
@pytest.mark.parametrize(("name", "budget", "most"), [("ucbvi", {}, 0.15), ("ldp-ucbvi", {"epsilon": 5.0}, 0.02)])
def test_riverswim_is_learnt(name, budget, most):
    """3 states, K = 10000, 10 seeds, ties at random: the mean regret over that of the uniform policy.

    The quick tests see UCBVI learn in `learners/test_ucbvi.py`, from answers of several symbols.
    """
    env = privrl.envs.RiverSwim(states=3)
    recipe = get(name)
    learner = recipe.learner(Problem.of(env))
    result = privrl.run(env, learner, recipe.privatizer(**budget), episodes=10_000, seeds=10, key=jax.random.key(2026))
    assert share_of_uniform(env, result).mean() <= most
    assert result.certificate.notion == ("local" if budget else "none")


@pytest.mark.slow
def test_a_million_scheduled_episodes_cost_as_many_plans_as_blocks():
    env = tiny_world()
    learner = get("dp-ucbvi").learner(Problem.of(env))
    result = privrl.run(env, learner, privrl.Central(epsilon=1.0, delta=1e-6), episodes=10**6, key=jax.random.key(0))
    assert len(result.block_ends) < 200
    assert result.regret.shape == (1, 10**6)
    assert result.block_regret[0, -1] < 0.1 * float(env.regret(env.uniform_policy()))


@pytest.mark.slow
def test_flows_and_rollouts_give_the_same_regret_on_average():
    """Two-sample z test on total regret over 400 seeds each, at 4.5 standard errors."""
    env = privrl.envs.RiverSwim(states=3)
    learner = get("ucbvi").learner(Problem.of(env))
    totals = [
        privrl.run(
            env, learner, privrl.NonPrivate(), episodes=60, seeds=400, key=jax.random.key(seed), flow=flow
        ).total_regret
        for seed, flow in ((5, True), (6, False))
    ]
    error = math.hypot(*(t.std(ddof=1) / math.sqrt(len(t)) for t in totals))
    assert abs(totals[0].mean() - totals[1].mean()) < 4.5 * error
    assert error < 0.1 * totals[0].mean()


def test_simulated_laplace_noise_is_laplace():
    """Before, Laplace channels were given normal white noise in simulations: Kolmogorov-Smirnov at 1e-6."""
    private = privrl.Central(epsilon=1.0, mechanism="laplace")
    declared = Declared("visits", StateVisits(100, 100), access="blocks", times=1)
    channels = {"visits": private.channel(declared, private.calibrate([declared]))}
    simulation = Simulation(None, None, channels, SimulationKeys.of(jax.random.key(0)))
    state = State({}, {"visits": ()}, {})
    released = simulation.publish(state, {"visits": np.zeros((100, 100))}, 0).released["visits"]
    drawn = np.asarray(released.value / released.noise.scale).ravel()
    assert stats.kstest(drawn, "laplace").pvalue > 1e-6 > stats.kstest(drawn / drawn.std(), "norm").pvalue


def test_every_draw_of_a_simulation_has_a_key_of_its_own():
    keys = SimulationKeys.of(jax.random.key(0))
    drawn = [keys.white(number, t, i) for number in range(2) for t in range(3) for i in range(3)]
    assert len({tuple(jax.random.key_data(key).tolist()) for key in drawn}) == len(drawn)


def test_curve_has_means_and_standard_errors():
    book = Ledger([], [], "replace-one")
    nothing = privrl.Certificate.of(
        book, delta=0.0, notion="none", unit="user", bounds={}, noise_source="seed", version=""
    )
    result = privrl.Run(None, nothing, np.array([2, 5]), np.array([[1.0, 0.5], [3.0, 0.5]]), 0.0)
    curve = result.curve()
    assert curve["episodes"] == [2, 5]
    assert curve["mean"] == [4.0, 5.5]
    assert curve["se"] == pytest.approx([2.0, 2.0])
    np.testing.assert_array_equal(result.regret, [[1, 1, 0.5, 0.5, 0.5], [3, 3, 0.5, 0.5, 0.5]])


@pytest.mark.parametrize("settings", [{"episodes": 0}, {"episodes": 5, "seeds": 0}])
def test_bad_sizes(settings):
    env = tiny_world()
    with pytest.raises(ValueError, match="at least 1"):
        privrl.run(env, get("ucbvi").learner(Problem.of(env)), privrl.NonPrivate(), key=jax.random.key(0), **settings)


@pytest.mark.parametrize("delay", [1, pytest.param(30, marks=pytest.mark.slow)])
def test_plans_that_lag_are_those_of_earlier_blocks(delay):
    """One block late, two blocks act on the first plan; so late that there is no other, all do."""
    env = tiny_world(horizon=3)
    learner = privrl.UCBVI(env.rewards, 3, first_block=5, growth=1.5)
    settings = {"episodes": 40, "key": jax.random.key(0), "flow": False}
    late = privrl.run(env, learner, privrl.NonPrivate(), delay=delay, **settings)
    regret = late.block_regret[0]
    np.testing.assert_allclose(regret[: delay + 1], regret[0], rtol=1e-12)
    assert len(regret) > 3 and (delay > 1 or not np.isclose(regret[2:], regret[0]).any())
    assert not np.array_equal(late.policy.probabilities[0], np.full_like(late.policy.probabilities[0], 0.5))
    with pytest.raises(ValueError, match="`delay` is -1"):
        privrl.run(env, learner, privrl.NonPrivate(), delay=-1, **settings)


def test_horizons_must_agree():
    learner = get("ucbvi").learner(Problem.of(tiny_world(horizon=3)))
    with pytest.raises(ValueError, match="horizon"):
        privrl.run(tiny_world(), learner, privrl.NonPrivate(), episodes=5, key=jax.random.key(0))


@pytest.mark.parametrize("ends", [[60, 50, 100], [50, 90], [0, 100], [100, 100], []])
def test_schedules_are_checked(ends):
    class Odd(privrl.UCBVI):
        def schedule(self, num_users):
            return np.array(ends, int)

    env = tiny_world()
    with pytest.raises(ValueError, match="schedule"):
        privrl.run(env, Odd(env.rewards, env.horizon), privrl.NonPrivate(), episodes=100, key=jax.random.key(0))


def test_a_learner_that_looks_in_the_wrong_place_is_told():
    class Lost(privrl.UCBVI):
        def plan(self, memory, released, ask, num_seen):
            return memory, released["visits"]

    class Bare(privrl.UCBVI):
        def plan(self, memory, released, ask, num_seen):
            return memory, TabularPolicy.uniform(4, 3, 2)

    env = tiny_world()
    settings = {"episodes": 3, "key": jax.random.key(0)}
    with pytest.raises(KeyError, match="rounds"):
        privrl.run(env, Lost(env.rewards, env.horizon), privrl.NonPrivate(), **settings)
    with pytest.raises(TypeError, match="Plan"):
        privrl.run(env, Bare(env.rewards, env.horizon), privrl.NonPrivate(), **settings)


@pytest.mark.slow
def test_a_sweep_is_its_settings_run_together():
    """Budgets and bonus scales in one call; each setting has its own noise, scale and certificate."""
    env = tiny_world()
    key = jax.random.key(4)

    def learner(bonus):
        return privrl.UCBVI(env.rewards, env.horizon, bonus=bonus)

    settings = [(learner(bonus), privrl.Central(epsilon=eps, delta=1e-5)) for bonus in (0.5, 2.0) for eps in (1.0, 1e3)]
    together = privrl.sweep(env, settings, episodes=200, seeds=3, key=key)
    assert [run.certificate.epsilon for run in together] == pytest.approx([1.0, 1e3, 1.0, 1e3])
    alone = privrl.run(env, *settings[0], episodes=200, seeds=12, key=key)
    # The keys of the first setting are the first of all keys.
    np.testing.assert_allclose(together[0].block_regret, alone.block_regret[:3], atol=1e-12)
    last = privrl.run(env, *settings[3], episodes=200, seeds=12, key=key)
    np.testing.assert_allclose(together[3].block_regret, last.block_regret[9:], atol=1e-12)
    assert len({run.block_regret.tobytes() for run in together}) == 4


def test_settings_that_differ_in_more_than_numbers_are_refused():
    env = tiny_world()
    one = privrl.UCBVI(env.rewards, env.horizon)
    private = privrl.Central(epsilon=1.0, delta=1e-5)
    others = [
        (privrl.UCBVI(env.rewards, env.horizon, growth=2.0), private),
        (one, privrl.NonPrivate()),
        (one, privrl.Central(epsilon=1.0, delta=1e-5, continual="tree")),
    ]
    for other in others:
        with pytest.raises(ValueError, match="differ in numbers only"):
            privrl.sweep(env, [(one, private), other], episodes=50, key=jax.random.key(0))
    with pytest.raises(ValueError, match="0 settings"):
        privrl.sweep(env, [], episodes=50, key=jax.random.key(0))


class Attendance(AbstractStatistic):
    """One for every record, also for one without steps."""

    weight: float = eqx.field(static=True, default=1.0)
    shape: tuple = eqx.field(static=True, default=())
    symmetric: bool = eqx.field(static=True, default=False)

    def contribution(self, record, query):
        return jnp.where(record.length > 0, 1.0, self.weight)

    def l2(self, adjacency):
        return 1.0

    def l1(self, adjacency):
        return 1.0


class Attended(privrl.UCBVI):
    """Counts people besides."""

    weight: float = eqx.field(static=True, default=1.0)

    def declare(self, num_blocks):
        people = Declared("people", Attendance(self.weight), access="running", times=num_blocks)
        return (*super().declare(num_blocks), people)


def test_a_statistic_whose_empty_record_is_not_zero_is_refused():
    world = privrl.envs.make("riverswim", states=3, horizon=3)
    study = {"episodes": 20, "key": 0}
    for privatizer in (privrl.NonPrivate(), privrl.Central(epsilon=1.0, delta=1e-6)):
        with pytest.raises(ValueError, match="`Attendance` contributes something for an empty record"):
            privrl.run(world, Attended(world.rewards, 3), privatizer, **study)
    assert privrl.run(world, Attended(world.rewards, 3, weight=0.0), privrl.NonPrivate(), **study)
