"""Planning on a reward function that was released with noise: what is released, what becomes of it, what is said."""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import check_certificate, tiny_data, tiny_world
from draws import record_draws
from hypothesis import given, settings
from hypothesis import strategies as st

import privrl
from privrl.cli import main
from privrl.data.reward_function import RewardFunction
from privrl.learners.functional.functional_reward import FunctionalReward
from privrl.privacy.functions.paths import mesh_path, mesh_points
from privrl.privacy.functions.released import ReleasedFunction, rkhs_norm
from privrl.privacy.trust.privatizers import PairingError
from privrl.recipes.all_recipes import get

ENV = privrl.envs.IntervalWalk(depth=4, horizon=12)
SECRET = RewardFunction(ENV.arrival)
BUDGET = {"epsilon": 2.0, "delta": 1e-5}


def learner(env=ENV, **arguments):
    return FunctionalReward(env.mdp.transition[0], env.horizon, **arguments)


def test_without_noise_it_is_exact_planning():
    """Also with the prior: it must not touch a function that has no noise. Infinite epsilon is the same."""
    for method, share in (("plan", 1.0), ("q-learning", 0.999)):
        exact = privrl.fit(SECRET, learner(method=method), privrl.NonPrivate())
        assert float(ENV.value(exact.policy)) >= share * float(ENV.optimal_value) - 1e-12
        noiseless = privrl.fit(SECRET, learner(method=method), privrl.Central(epsilon=math.inf))
        np.testing.assert_array_equal(exact.policy.probabilities, noiseless.policy.probabilities)
        assert math.isinf(noiseless.certificate.epsilon) and exact.certificate.notion == "none"


def test_the_prior_gives_the_posterior_mean():
    """Against the textbook formula, K_0 (K_0 + sigma^2 K)^-1 y."""
    one = learner(prior_length=0.3, prior_spread=0.2, beta=9.0)
    x = np.asarray(mesh_points(4))
    y, sigma = np.random.default_rng(0).normal(size=17), 0.7
    apart = np.abs(x[:, None] - x)
    prior = 0.04 * np.exp(-0.5 * (apart / 0.3) ** 2) + 1.0
    noise = sigma**2 * np.exp(-9.0 * apart)
    expected = prior @ np.linalg.solve(prior + noise, y)
    np.testing.assert_allclose(one.denoised(jnp.asarray(y), jnp.asarray(sigma)), expected, atol=1e-6)
    as_it_is = learner(prior_length=0.0).denoised(jnp.asarray(y), jnp.asarray(sigma))
    np.testing.assert_array_equal(as_it_is, y)


class Given:
    """A curator whose release is known."""

    def __init__(self, values, scale):
        self.values, self.scale = values, scale

    def secret(self, name, *, distance, beta):
        return ReleasedFunction(self.values, beta, self.scale)


def test_many_at_once_are_one_by_one():
    draws = mesh_path(jnp.asarray(np.random.default_rng(1).normal(size=(5, 17))), 17.0)
    values, scale = ENV.arrival[None] + 0.2 * draws, jnp.array([0.1, 0.2, 0.2, 0.3, 0.0])
    for method in ("plan", "q-learning"):
        one = learner(method=method)
        together = one.policies(values, scale).probabilities
        assert together.shape == (5, 12, 17, 2)
        for i in range(5):
            alone = one.fit(Given(values[i], scale[i]))
            np.testing.assert_array_equal(together[i], alone.policy.probabilities)


def test_noise_and_certificate():
    one = learner()
    with record_draws() as drawn:
        first = privrl.fit(SECRET, one, privrl.Central(**BUDGET), key=jax.random.key(1))
    assert len(drawn) == len(set(drawn)) == 1
    again = privrl.fit(SECRET, one, privrl.Central(**BUDGET), key=jax.random.key(1))
    np.testing.assert_array_equal(first.policy.probabilities, again.policy.probabilities)
    check_certificate(first.certificate, 2.0, 1e-5, "central")
    assert first.certificate.noise_source == "seed"
    [release] = first.certificate.releases
    [noise] = release["noise"]
    assert noise["sensitivity"] == pytest.approx(1.0746 * 0.1, rel=1e-4)
    assert noise["scale"] == pytest.approx(noise["sensitivity"] / first.certificate.mu)
    assert privrl.fit(SECRET, one, privrl.Central(**BUDGET)).certificate.noise_source == "system"


def test_the_certificate_speaks_of_reward_functions_and_of_no_person():
    certificate = privrl.fit(SECRET, learner(), privrl.Central(**BUDGET), key=jax.random.key(2)).certificate
    assert certificate.unit == "reward function"
    text = " ".join(str(certificate).split())
    assert "two reward functions whose difference has norm at most 0.1075" in text
    assert "a tent of height 0.1 and half-width 0.1, anywhere. Larger differences are not hidden" in text
    assert "replaced by any other" not in text
    assert "people whose data shaped it are not protected" in text
    assert privrl.Certificate.from_json(certificate.to_json()).neighbours == certificate.neighbours
    for unit in ("patient", "person"):
        with pytest.raises(ValueError, match="no person"):
            privrl.fit(SECRET, learner(), privrl.Central(**BUDGET), unit=unit)


@settings(max_examples=30)
@given(st.floats(0.0, 1.0), st.floats(0.02, 0.5), st.floats(0.5, 4.0))
def test_tents_are_neighbours_wherever_they_stand(centre, half_width, factor):
    one = learner(height=0.2, half_width=half_width, beta=factor / half_width)
    x = mesh_points(4)
    tent = 0.2 * jnp.maximum(1 - jnp.abs(x - centre) / half_width, 0.0)
    assert float(rkhs_norm(tent, one.kernel_beta)) <= one.distance * (1 + 1e-12)


def test_default_beta_is_the_one_with_the_least_distance():
    others = [learner(half_width=0.2, beta=beta).distance for beta in np.linspace(2.0, 30.0, 57).tolist()]
    assert learner(half_width=0.2).distance <= min(others) <= 1.001 * learner(half_width=0.2).distance


def test_a_store_keeps_the_release(tmp_path):
    policies = []
    for _ in range(2):
        with privrl.ReleaseStore(tmp_path / "store") as store:
            result = privrl.fit(SECRET, learner(), privrl.Central(**BUDGET), store=store)
            policies.append(np.asarray(result.policy.probabilities))
    np.testing.assert_array_equal(*policies)
    assert result.report == {"users": 0, "episodes": 0}
    saved = privrl.Result.load(result.save(tmp_path / "policy"))
    np.testing.assert_array_equal(saved.policy.probabilities, policies[0])
    assert saved.certificate.recomputed() == pytest.approx(result.certificate.epsilon)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -0.01, 1.01])
def test_rewards_out_of_range_are_refused_and_never_shown(bad):
    values = np.full(17, 0.123)
    values[3] = bad
    with pytest.raises(ValueError, match=r"outside \[0, 1\] or not a number") as error:
        RewardFunction(values)
    assert "0.123" not in str(error.value)
    assert "0.123" not in repr(RewardFunction(np.full(17, 0.123)))


def test_the_function_is_kept_as_it_was():
    given = np.linspace(0, 1, 17)
    kept = RewardFunction(given)
    given[:] = 2.0
    np.testing.assert_array_equal(kept.values, np.linspace(0, 1, 17))
    np.testing.assert_allclose(
        RewardFunction.from_function(lambda x: x**2, depth=2).values, [0, 1 / 16, 1 / 4, 9 / 16, 1]
    )


def test_mistakes_are_explained():
    for shape in ((16,), (1,), (17, 2)):
        with pytest.raises(ValueError, match="`values` has shape"):
            RewardFunction(np.zeros(shape))
    with pytest.raises(PairingError, match="do not go together"):
        privrl.fit(SECRET, get("apvi").build(tiny_world()), privrl.NonPrivate())
    with pytest.raises(PairingError, match="do not go together"):
        privrl.fit(tiny_data(tiny_world()), learner(), privrl.NonPrivate())
    with pytest.raises(ValueError, match="mesh points"):
        privrl.fit(RewardFunction(np.zeros(9)), learner(), privrl.NonPrivate())
    with pytest.raises(ValueError, match="not removed"):
        privrl.fit(SECRET, learner(), privrl.Central(**BUDGET, adjacency="add-remove"))
    with pytest.raises(ValueError, match="Gaussian noise"):
        privrl.fit(SECRET, learner(), privrl.Central(epsilon=1.0, mechanism="laplace"), key=jax.random.key(0))
    with pytest.raises(PairingError, match="Local"):
        privrl.fit(SECRET, learner(), privrl.Local(**BUDGET))
    with pytest.raises(ValueError, match="`transition` has 3 places|has 6 places"):
        get("functional-reward-q").build(privrl.envs.RiverSwim(states=6))
    for name, value in (("height", 0.0), ("half_width", -1.0), ("beta", 0.0), ("prior_spread", 0.0), ("discount", 1.0)):
        with pytest.raises(ValueError, match=f"`{name}`"):
            learner(**{name: value})


def test_command_line(capsys, tmp_path):
    world = ("fit", "env:interval-walk", "--env-arg", "depth=4", "--recipe")
    budget = ("--epsilon", "5", "--delta", "1e-5")
    assert main([*world, "functional-reward-q", *budget, "--seeds", "3", "--seed", "1", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert len(content["value"]) == 3 and len(set(content["value"])) > 1
    assert content["unit"] == "reward function" and content["users"] == 0
    assert max(content["value"]) <= content["baselines"]["optimal"] + 1e-9
    assert main([*world, "functional-reward-q", *budget, "--episodes", "5"]) == 2
    assert "is a number of people" in capsys.readouterr().err
    table = ["fit", "table.parquet", "--out", str(tmp_path / "out")]
    assert main([*table, "--recipe", "functional-reward-q", *budget]) == 2
    assert "reward function" in capsys.readouterr().err
    assert main(["run", "functional-reward-q", "--env", "interval-walk", "--episodes", "5", *budget]) == 2
    assert "privrl fit env:ENV" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "share"), [(1.0, 0.75), (2.0, 0.90), (5.0, 0.98), (10.0, 0.99)])
def test_targets_on_the_interval_walk(epsilon, share):
    """The mean of 1,000 draws, whose standard error is at most 1 % of the optimal value."""
    env = privrl.envs.IntervalWalk()
    one = get("functional-reward-q").build(env)
    sigma = jnp.asarray(one.distance / privrl.privacy.gdp_mu(epsilon, 1e-5))
    white = jnp.asarray(np.random.default_rng(6).normal(size=(1000, 129)))
    values = env.arrival[None] + sigma * mesh_path(white, one.kernel_beta)
    scores = jax.lax.map(lambda y: env.value(jax.tree.map(lambda p: p[0], one.policies(y[None], sigma[None]))), values)
    assert float(scores.mean()) >= share * float(env.optimal_value)
