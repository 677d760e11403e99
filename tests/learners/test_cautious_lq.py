"""CautiousLQ: the contract, each step against its definition, and how well it learns."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import BUDGET, check_certificate, check_online, compiled

import privrl
from privrl.contracts.release import Release
from privrl.envs.lq_worlds import LQ2D, LQ4D, Glucose, LQScalar
from privrl.learners.control.cautious_lq import Belief, CautiousLQ, _nodes
from privrl.mdp.lq import LinearPolicy
from privrl.mdp.riccati import clip_norm, riccati
from privrl.privacy.noise.distributions import GaussianNoise
from privrl.studies.loop import no_queries


def released(value, scale=0.0):
    return {"surprises": Release(value, GaussianNoise(jnp.array(scale), value.shape))}


@eqx.filter_jit
def planned(learner, memory, release, num_seen):
    return learner.plan(memory, release, no_queries(), num_seen)


def first_plan(learner):
    n, d = learner.task.state_dim, learner.task.input_dim
    return planned(learner, learner.init(), released(jnp.zeros((n + d, n))), jnp.array(0))


def sure(world, noise_variance=1e-6):
    """A belief that is the truth, nearly certain."""
    Theta = world.parameters
    return Belief(Theta, noise_variance * jnp.eye(len(Theta)))


@pytest.mark.slow
def test_contract():
    check_online(CautiousLQ(LQScalar(horizon=2).task, first_block=10), LQScalar(horizon=2))


@pytest.mark.slow
def test_contract_where_first_states_are_released_too():
    world = LQScalar(horizon=2)
    learner = CautiousLQ(world.task, first_moment_share=0.1, first_block=10)
    result = privrl.run(world, learner, privrl.Central(**BUDGET), episodes=30, key=jax.random.key(0))
    check_certificate(result.certificate, BUDGET["epsilon"], BUDGET["delta"], "joint")
    cost = {event.name: event.parameter**2 for event in result.certificate.events}
    np.testing.assert_allclose(cost["first states"] / (cost["first states"] + cost["surprises"]), 0.1)
    with pytest.raises(ValueError, match="`first_moment_share` is 1.0"):
        CautiousLQ(world.task, first_moment_share=1.0)


@pytest.mark.slow
def test_compiled_equals_plain():
    world = LQScalar(horizon=2)
    learner = CautiousLQ(world.task)
    memory, _ = first_plan(learner)
    release = released(jnp.array([[9.0], [4.0]]), 2.0)
    compiled = planned(learner, memory, release, jnp.array(20))
    with jax.disable_jit():
        plain = learner.plan(memory, release, no_queries(), jnp.array(20))
    for one, other in zip(jax.tree.leaves(compiled), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    assert not np.allclose(compiled[0].belief.mean, memory.belief.mean)


def test_blocks_grow_and_each_person_is_in_one():
    learner = CautiousLQ(LQ2D().task)
    ends = learner.blocks(20_000)
    assert ends[0] == 20 and ends[-1] == 20_000
    assert (ends[1:-1] / ends[:-2]).max() <= 1.5
    (declared,) = learner.declare(len(ends))
    assert declared.access == "blocks" and declared.touches == 1
    assert learner.blocks(7).tolist() == [7]


@pytest.mark.slow
def test_the_first_plan_does_nothing_but_explore_a_little():
    """Exploration costs at most .5% of doing nothing under the belief, and little more in truth."""
    for build in (LQScalar, LQ2D, LQ4D, Glucose):
        world = build()
        _, plan = first_plan(CautiousLQ(world.task))
        assert (plan.policy.gains == 0).all()
        assert 0 < plan.policy.radius <= world.task.gain_bound / 2
        zero = world.value(world.zero_policy())
        assert 0 < (zero - world.value(plan.policy)) / -zero < 0.006


def test_a_sure_belief_plays_the_best_gains():
    world = LQ4D()
    learner, X1 = CautiousLQ(world.task), world.task.first_moment
    gains, r = compiled(learner._cautious, sure(world, 1e-12), X1)
    best, _ = riccati(world.A, world.B, world.task.state_cost, world.task.input_cost, 5)
    np.testing.assert_allclose(gains, clip_norm(best, world.task.gain_bound - r), atol=1e-6)
    assert learner._gate(sure(world), X1, gains) == 1.0
    _, timid = compiled(learner._cautious, sure(world, 1e-2), X1)
    assert 0 < r < timid < 0.1


def test_a_cautious_gain_is_the_best_for_the_belief():
    """The cost of two steps, averaged over 4,000 draws from the belief, is least at the cautious gain."""
    world = LQ2D()
    task = dataclasses.replace(world.task, horizon=2, gain_bound=jnp.array(10.0))
    learner = CautiousLQ(task)
    belief = Belief(world.parameters, 0.05 * jnp.eye(3))
    gains, _ = learner._cautious(belief, task.first_moment)
    draws = belief.mean[None] + math.sqrt(0.05) * jax.random.normal(jax.random.key(0), (4_000, 3, 2))

    @jax.jit
    def mean_cost(first):
        both = jnp.stack([first, jnp.zeros((1, 2))])
        return jax.vmap(lambda Theta: learner._cost(Theta, both, task.first_moment))(draws).mean()

    slope = jax.grad(mean_cost)
    away = jnp.linalg.norm(slope(jnp.zeros((1, 2))))
    assert jnp.linalg.norm(slope(gains[0])) < 0.05 * away
    certain, _ = CautiousLQ(task, caution=0.0)._cautious(belief, task.first_moment)
    assert jnp.linalg.norm(slope(certain[0])) > 0.1 * away  # certainty equivalence is another gain
    assert jnp.linalg.norm(gains[0]) < jnp.linalg.norm(certain[0])


def test_the_gate_lets_nothing_pass_that_may_do_harm():
    """A gain for B is harmful if B may as well be -B; half of it may be safe where the whole is not."""
    world = LQScalar()
    learner, X1 = CautiousLQ(world.task), world.task.first_moment
    gains = world.optimal_policy().gains
    doubtful = Belief(world.parameters, jnp.diag(jnp.array([1e-4, 1.0])))
    assert learner._gate(doubtful, X1, gains) == 0.0
    assert CautiousLQ(world.task, caution=0.0)._gate(doubtful, X1, gains) == 1.0
    assert learner._gate(sure(world), X1, -gains) == 0.0
    assert learner._gate(sure(world), X1, 3 * gains) in (0.25, 0.5)


def test_nodes_are_standard_and_fixed():
    for p, n in ((2, 1), (3, 2), (6, 4), (8, 6)):
        nodes = _nodes(p, n)
        flat = nodes.reshape(len(nodes), -1)
        assert len(nodes) == max(32, p * n + 8)
        np.testing.assert_allclose(flat.mean(axis=0), 0, atol=1e-12)
        np.testing.assert_allclose(flat.T @ flat / len(flat), np.eye(p * n), atol=1e-10)
        assert len(np.unique(flat.round(6), axis=0)) == len(flat)
        kurtosis = (flat**4).mean()  # 3 for a normal distribution, 1 for signs
        assert 2.0 < kurtosis < 4.0


@pytest.mark.parametrize("scale", [0.0, 40.0])
def test_the_update_is_the_posterior(scale):
    """Without forgetting and mismatch: precision Sg^-1 + C^T N^-1 C, and the mean that goes with it, in plain NumPy.

    Also where the people were asked about an older belief than the present one.
    """
    world = LQ2D()
    task, n, d, H, nb = world.task, 2, 1, 5, 300
    learner = CautiousLQ(task, forgetting=1.0, mismatch=0.0)
    memory, _ = first_plan(learner)
    K = np.array([[0.1, -0.2]])
    believed, published = 0.1 * np.ones((3, 2)), np.array([[0.1, 0.0], [0.3, 0.1], [-0.2, 0.1]])
    surprise = dataclasses.replace(memory.surprise, parameters=jnp.array(published))
    belief = Belief(jnp.array(believed), 0.02 * jnp.eye(3))
    memory = dataclasses.replace(memory, gain=jnp.array(K), surprise=surprise, belief=belief)
    y = np.random.default_rng(0).normal(size=(3, 2))
    release = released(jnp.array(y), scale)["surprises"]
    found = compiled(learner._updated, memory, task.first_moment, release, jnp.array(nb))

    r, Ex, Cw2, X1 = float(memory.radius), float(memory.spread), 0.05**2, np.eye(2) / 2
    tau_x, tau_v = float(memory.surprise.first_clip), float(memory.surprise.exploration_clip)
    Z1 = np.block([[X1, X1 @ K.T], [K @ X1, K @ X1 @ K.T + r**2]])
    C = nb * np.block([[X1 / tau_x, X1 @ K.T / tau_x], [np.zeros((d, n)), H * r**2 / tau_v * np.eye(d)]])
    first = X1 * (Cw2 / n + 0.02 * np.trace(Z1)) / tau_x**2
    N = nb * np.block([[first, np.zeros((n, d))], [np.zeros((d, n)), r**2 * (Ex + H * Cw2) / n / tau_v**2 * np.eye(d)]])
    N += scale**2 * np.eye(3)
    precision = np.eye(3) / 0.02 + C.T @ np.linalg.solve(N, C)
    np.testing.assert_allclose(found.covariance, np.linalg.inv(precision), rtol=1e-8, atol=1e-14)
    mean = believed + np.linalg.solve(precision, C.T @ np.linalg.solve(N, y - C @ (believed - published)))
    np.testing.assert_allclose(found.mean, mean, rtol=1e-8, atol=1e-12)


def test_too_much_surprise_widens_the_belief():
    learner = CautiousLQ(LQ2D().task)
    memory, _ = first_plan(learner)
    memory = dataclasses.replace(memory, belief=Belief(memory.belief.mean, 1e-8 * jnp.eye(3)))

    def updated(size):
        release = released(size * jnp.ones((3, 2)), 1.0)["surprises"]
        return learner._updated(memory, learner.task.first_moment, release, jnp.array(1000))

    calm, shocked = updated(0.1), updated(500.0)
    assert jnp.trace(shocked.covariance) > 20 * jnp.trace(calm.covariance)
    assert jnp.linalg.eigvalsh(shocked.covariance).min() > 0


def test_nothing_is_learned_from_pure_noise():
    learner = CautiousLQ(LQ2D().task)
    memory, _ = first_plan(learner)
    release = released(jnp.full((3, 2), 1e6), 1e6)["surprises"]
    belief = learner._updated(memory, learner.task.first_moment, release, jnp.array(20))
    np.testing.assert_allclose(belief.mean, 0, atol=1e-3)
    np.testing.assert_allclose(belief.covariance, memory.belief.covariance, rtol=1e-4)


def test_clip_levels_are_as_predicted():
    """For Theta drawn from the belief, both surprises have about the root mean squares that were predicted."""
    world = LQ2D()
    learner, X1 = CautiousLQ(world.task), world.task.first_moment
    belief = Belief(world.parameters, 0.01 * jnp.eye(3))
    gains, r = compiled(learner._cautious, belief, X1)
    surprise, _ = compiled(learner._predicted, belief, X1, gains, r)

    def squares(key):
        system_key, key = jax.random.split(key)
        Theta = belief.mean + 0.1 * jax.random.normal(system_key, (3, 2))
        system = dataclasses.replace(world, A=Theta[:2].T, B=Theta[2:].T)
        person = system.rollout(LinearPolicy(gains, r), key)
        e = person.states[1:] - jnp.concatenate([person.states[:-1], person.inputs], axis=1) @ surprise.parameters
        first = (person.states[0] ** 2).sum() * (e[0] ** 2).sum()
        return first, ((person.exploration.T @ e) ** 2).sum()

    first, explored = jax.jit(jax.vmap(squares))(jax.random.split(jax.random.key(0), 10_000))
    np.testing.assert_allclose(surprise.first_clip / jnp.sqrt(first.mean()), 1.5, rtol=0.1)
    np.testing.assert_allclose(surprise.exploration_clip / jnp.sqrt(explored.mean()), 1.5, rtol=0.25)


def test_first_moments_are_learned_where_they_are_not_public():
    world = LQ2D()
    learner = CautiousLQ(world.task, first_moment=jnp.diag(jnp.array([0.9, 0.1])), first_moment_share=0.1)
    total = 1e4 * jnp.array([[0.3, 0.1], [0.1, 0.7]])
    known = learner._first_moment(total, jnp.array(100.0), jnp.array(10_000))
    np.testing.assert_allclose(known, [[0.3, 0.1], [0.1, 0.7]], atol=1e-3)
    guessed = learner._first_moment(total, jnp.array(1e18), jnp.array(10_000))
    np.testing.assert_allclose(guessed, learner.first_moment, atol=1e-6)
    np.testing.assert_array_equal(
        CautiousLQ(world.task)._first_moment(total, jnp.ones(()), jnp.array(5)), jnp.eye(2) / 2
    )


def in_units_of_doing_nothing(world, result):
    """Total regret and the running average, per seed, where 1 is the zero controller."""
    zero = float(world.regret(world.zero_policy()))
    running = np.cumsum(result.block_regret * result.block_sizes, axis=1) / result.block_ends / zero
    return running[:, -1], running


def check_harmless(running):
    assert running.mean(axis=0).max() <= 1.1
    assert running.max() <= 1.3


def test_it_learns_without_doing_harm():
    """400 people at epsilon 10: already better than doing nothing by half."""
    world = LQ2D()
    central = privrl.Central(epsilon=10.0, delta=1e-5)
    result = privrl.run(world, CautiousLQ(world.task), central, episodes=400, seeds=5, key=jax.random.key(5))
    total, running = in_units_of_doing_nothing(world, result)
    assert total.mean() <= 0.5
    check_harmless(running)
    assert isinstance(result.policy, LinearPolicy)
    assert (np.linalg.norm(np.asarray(result.policy.gains), ord=2, axis=(2, 3)) <= 0.5).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "one", "ten", "exact"),
    [(LQScalar, 0.06, 0.02, 0.05), (LQ2D, 0.06, 0.02, 0.05), (LQ4D, 0.15, 0.04, 0.15), (Glucose, 0.16, 0.12, 0.12)],
)
def test_targets(build, one, ten, exact):
    """20,000 people, ten seeds: regret over that of doing nothing, at epsilon 1, 10 and without privacy."""
    world = build()
    learner = CautiousLQ(world.task)
    settings = {"episodes": 20_000, "seeds": 10, "key": jax.random.key(2024)}
    for privatizer, most in (
        (privrl.Central(epsilon=1.0, delta=1e-5), one),
        (privrl.Central(epsilon=10.0, delta=1e-5), ten),
        (privrl.NonPrivate(), exact),
    ):
        total, running = in_units_of_doing_nothing(world, privrl.run(world, learner, privatizer, **settings))
        assert total.mean() <= most
        check_harmless(running)


@pytest.mark.slow
@pytest.mark.parametrize("build", [LQScalar, LQ2D])
def test_a_thousand_people_are_enough_at_epsilon_ten(build):
    world = build()
    central = privrl.Central(epsilon=10.0, delta=1e-5)
    result = privrl.run(world, CautiousLQ(world.task), central, episodes=1_000, seeds=10, key=jax.random.key(7))
    total, running = in_units_of_doing_nothing(world, result)
    assert total.mean() <= 0.2
    check_harmless(running)


@pytest.mark.slow
def test_caution_is_what_makes_it_harmless():
    """Certainty equivalence with the same exploration does harm in some of 30 runs before it learns."""
    world = LQScalar()
    settings = {"episodes": 300, "seeds": 30, "key": jax.random.key(8)}
    central = privrl.Central(epsilon=1.0, delta=1e-5)
    bold = privrl.run(world, CautiousLQ(world.task, caution=0.0), central, **settings)
    cautious = privrl.run(world, CautiousLQ(world.task), central, **settings)
    assert in_units_of_doing_nothing(world, bold)[1].max() > 1.3
    check_harmless(in_units_of_doing_nothing(world, cautious)[1])


@pytest.mark.slow
def test_a_wrong_first_moment_hurts_unless_it_is_learned():
    world = LQ2D()
    wrong = jnp.diag(jnp.array([0.8, 0.2]))
    settings = {"episodes": 20_000, "seeds": 10, "key": jax.random.key(9)}
    central = privrl.Central(epsilon=1.0, delta=1e-5)
    trusted, learned = (
        in_units_of_doing_nothing(world, privrl.run(world, CautiousLQ(world.task, wrong, share), central, **settings))[
            0
        ].mean()
        for share in (0.0, 0.1)
    )
    assert learned <= 0.06 < 2 * learned < trusted
