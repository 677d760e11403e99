"""TAP: all shares are spent on every path, the anchor, small worlds of each kind, its parts against closed forms."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import check_certificate, check_offline, compiled, tiny_data

import privrl
from privrl.contracts.release import Release
from privrl.envs.zoo.endings import Endings
from privrl.envs.zoo.grid_with_holes import GridWithHoles
from privrl.envs.zoo.in_flight import InFlight
from privrl.learners.tabular.anchor import Practice, practice
from privrl.learners.tabular.clip_levels import averaged, clip_level
from privrl.learners.tabular.tap import TAP
from privrl.learners.tabular.tap_kernel import Kernel, denoised, kernel
from privrl.learners.tabular.tap_planning import Evidence, Judgement, advantages, improved, planned_by_step, with_round
from privrl.learners.tabular.tap_shrinkage import posterior
from privrl.privacy.noise.distributions import GaussianNoise

WORLDS = {
    "endings": (lambda: Endings(10, 3, 8, seed=31), True),
    "in flight": (lambda: InFlight(10, 3, 8, seed=32), False),
    "grid": (lambda: GridWithHoles(4, seed=33), True),
}


def learner_for(env, at_end, **settings):
    return TAP(env.num_states, env.num_actions, env.horizon, env.terminal, at_end, **settings)


def share(env, policy):
    low, high = float(env.value(env.behaviour_policy())), float(env.optimal_value)
    return (float(env.value(policy)) - low) / (high - low)


@pytest.mark.parametrize(
    "kind", ["in flight", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("endings", "grid"))]
)
def test_without_noise_nearly_all_of_the_gap_is_closed(kind):
    build, at_end = WORLDS[kind]
    env = build()
    result = privrl.fit(tiny_data(env, 5_000), learner_for(env, at_end), privrl.NonPrivate(), key=jax.random.key(0))
    assert share(env, result.policy) > 0.9


@pytest.mark.parametrize(
    ("people", "rho"),
    [(30, 0.01), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((300, 0.3), (4_000, 3.0))), (4_000, 300.0)],
)
def test_every_path_spends_the_declared_total_and_not_more(people, rho):
    """From visits that are hardly seen (joint rounds) to a kernel with two looks."""
    env = Endings(10, 3, 8, seed=31)
    certificate = privrl.fit(
        tiny_data(env, people), learner_for(env, True), privrl.Central(rho=rho), key=jax.random.key(1)
    ).certificate
    draws = [noise | {"name": r["name"]} for r in certificate.releases for noise in r["noise"]]
    assert math.isclose(sum((noise["sensitivity"] / noise["scale"]) ** 2 for noise in draws), 2 * rho, rel_tol=1e-9)
    assert all(r["counted"] + r["skipped"] == r["declared"] == 1 for r in certificate.releases)
    made = {noise["name"] for noise in draws}
    assert {"visits", "returns", "round-4"} <= made
    assert ("round-norms-1" in made) == (rho > 0.01)  # otherwise the rounds of `TDFP`, whose clip level is a setting
    assert rho < 3.0 or {"next-states", "next-states-again"} <= made


def exact(noise, S=6, A=3):
    """A world of S states whose kernel and practice are known exactly; one round of errors with this much noise.

    Action 2 is the best everywhere (by .3), action 0 the most frequent.
    """
    N = jnp.tile(jnp.asarray([500.0, 300.0, 200.0]), (S, 1))
    seen = Practice(N, jnp.asarray(1.0), N / 1000.0, jnp.ones((S, A), bool), jnp.asarray(380.0))
    weights, zero = jnp.full(S, 1.0 / S), jnp.zeros(S * A)
    rounds = (jnp.zeros((1, S * A)), jnp.zeros(1), jnp.zeros((1, S)), jnp.zeros(1), jnp.zeros(()))
    none = Kernel.unknown(weights, A)
    evidence = Evidence(seen, none, jnp.ones(S, bool), *rounds, zero, zero, jnp.zeros(()), jnp.ones(()))
    gain = jnp.tile(jnp.asarray([0.0, 0.0, 0.3]), (S, 1))
    b = N * gain + noise * jax.random.normal(jax.random.key(3), (S, A))
    return with_round(evidence, jnp.zeros(()), b, jnp.asarray(noise), jnp.zeros(S), jnp.asarray(0.1), JUDGEMENT), gain


JUDGEMENT = Judgement(0.9, 1.0, 0.75, 0.5, 0.05, 1.5)


def test_as_noise_grows_the_advice_becomes_the_mode_of_practice():
    """P is given exactly, and only the noise of the advantages grows."""
    clear, _ = improved(exact(1.0)[0], jnp.zeros(6), JUDGEMENT)
    np.testing.assert_array_equal(clear.argmax(axis=1), 2)
    for noise in (1e5, 1e7, 1e9):
        evidence, _ = exact(noise)
        pi, F = improved(evidence, jnp.zeros(6), JUDGEMENT)
        np.testing.assert_array_equal(pi.argmax(axis=1), 0)
        np.testing.assert_array_equal(planned_by_step(evidence, JUDGEMENT, 4).argmax(axis=-1), 0)
        assert np.isfinite(np.asarray(F)).all()


def test_unsupported_actions_are_not_advised():
    evidence, _ = exact(1.0)
    rare = eqx.tree_at(
        lambda e: (e.practice.probabilities, e.practice.visible),
        evidence,
        (jnp.tile(jnp.asarray([0.6, 0.38, 0.02]), (6, 1)), jnp.ones((6, 3), bool).at[5].set(False)),
    )
    pi, _ = improved(rare, jnp.zeros(6), JUDGEMENT)
    assert not np.any(pi[:, 2]) and pi[5, 0] == 1  # where nothing is visible, the most frequent action


def test_an_exact_kernel_carries_a_round_to_any_function():
    rng = np.random.default_rng(0)
    S, A = 5, 2
    P = rng.dirichlet(np.ones(S + 1), size=S * A)  # the last column: ends
    r, F, other = rng.random(S * A), rng.random(S), rng.random(S)
    N = np.full(S * A, 100.0)
    known, _, _ = compiled(kernel, 100.0 * P, np.zeros(()), np.arange(S * A), N, np.full(S, 0.2))
    np.testing.assert_allclose(known.probabilities, P[:, :S], atol=1e-12)
    mean, variance = compiled(known.moments, np.stack([F, other]))
    np.testing.assert_allclose(mean, np.stack([F, other]) @ P[:, :S].T, atol=1e-12)
    assert np.all(variance < 1e-12)
    state = np.arange(S * A) // A
    b = N * (r + 0.9 * P[:, :S] @ F - F[state])
    seen = Practice(jnp.full((S, A), 100.0), jnp.ones(()), jnp.full((S, A), 0.5), jnp.ones((S, A), bool), jnp.ones(()))
    rounds = (jnp.asarray(b)[None], jnp.ones(1), jnp.asarray(F)[None], jnp.ones(1), jnp.zeros(()))
    zero = jnp.zeros(S * A)
    evidence = Evidence(seen, known, jnp.ones(S, bool), *rounds, zero, zero, jnp.zeros(()), jnp.ones(()))
    for discount in (0.9, 1.0):
        d, error = compiled(advantages, evidence, other, discount, 0.9)
        np.testing.assert_allclose(d, r + discount * P[:, :S] @ other - other[state], atol=1e-9)
        np.testing.assert_allclose(error, 1e-4, rtol=1e-6)


def test_sparse_counts_are_denoised():
    """Four next states of fifty: the error of the estimate is far below the noise, which hides all zeros."""
    rng = np.random.default_rng(1)
    true = np.zeros((64, 50))
    true[:, :4] = [100.0, 60.0, 30.0, 10.0]
    noisy = true + 10.0 * rng.normal(size=true.shape)
    x, v = denoised(jnp.asarray(noisy), jnp.asarray(10.0), jnp.full(64, 7))
    error = np.sqrt(np.mean((np.asarray(x) - true) ** 2))
    assert error < 4.0 < np.sqrt(np.mean((noisy - true) ** 2))
    assert np.all(np.asarray(x) >= 0) and np.all(np.asarray(v) >= 0)
    np.testing.assert_array_equal(denoised(jnp.asarray(true), jnp.zeros(()), jnp.full(64, 7))[0], true)
    assert not np.any(denoised(jnp.asarray(noisy), jnp.asarray(10.0), jnp.full(64, -1))[0])
    large = denoised(jnp.asarray([[12_345.6]]), jnp.asarray(10.0), jnp.asarray([3]))
    np.testing.assert_allclose((large[0][0, 0], large[1][0, 0]), (12_345.6, 100.0))


def test_clip_levels_are_quantiles_and_say_what_is_left():
    edges = np.array([1.0, 2.0, 4.0, 8.0])
    histogram = Release(jnp.asarray([50.0, 0.0, 50.0, 0.0]), GaussianNoise(1e-9, (4,)))
    median, most = (clip_level(histogram, edges, quantile) for quantile in (0.5, 0.9))
    assert (float(median.level), float(most.level), float(median.people)) == (1.0, 4.0, 100.0)
    middle = math.sqrt(0.5)  # of a bin, in its upper edges
    np.testing.assert_allclose(median.kept, 0.5 + 0.5 / (4 * middle))
    np.testing.assert_allclose(most.square, 0.5 * middle**2 + 0.5 * (4 * middle) ** 2)
    empty = clip_level(Release(jnp.zeros(4), GaussianNoise(1.0, (4,))), edges, 0.5)
    assert np.isfinite([empty.kept, empty.square, empty.people]).all() and empty.kept > 0


def test_visits_are_shrunk_toward_independence():
    """Between the noisy count and N(s) P(a), closer to the truth than either."""
    rng = np.random.default_rng(2)
    true = rng.gamma(2.0, 50.0, size=(40, 1)) * np.asarray([0.6, 0.3, 0.1]) * rng.lognormal(0, 0.4, size=(40, 3))
    noisy = true + 30.0 * rng.normal(size=true.shape)
    seen = practice(jnp.asarray(noisy), jnp.asarray(30.0), jnp.ones(40, bool).at[0].set(False))
    apart = (noisy.sum(axis=1, keepdims=True)).clip(0) * noisy.sum(axis=0) / noisy.sum()
    error, raw, independent = (np.sqrt(np.mean((x - true)[1:] ** 2)) for x in (np.asarray(seen.visits), noisy, apart))
    assert error < min(raw, independent)
    assert not np.any(seen.visible[0]) and np.any(seen.visible[1:])
    both, noise = averaged(jnp.asarray(1.0), jnp.asarray(3.0), jnp.asarray(2.0), jnp.asarray(4.0))
    np.testing.assert_allclose((both, noise), ((1 / 9 + 2 / 16) / (1 / 9 + 1 / 16), 1 / math.sqrt(1 / 9 + 1 / 16)))
    assert float(averaged(jnp.asarray(1.0), jnp.zeros(()), jnp.asarray(2.0), jnp.zeros(()))[0]) == 1.5


def test_advantages_are_shrunk_as_bayes_would():
    """Many cells of known spread: the fitted posterior mean is close to the true one, its deviation calibrated."""
    rng = np.random.default_rng(3)
    S, A, tau, error = 400, 4, 0.05, 0.04**2
    true = tau * rng.normal(size=(S, A))
    x = true + math.sqrt(error) * rng.normal(size=(S, A))
    args = (np.full((S, A), error), np.ones((S, A)), np.ones((S, A), bool))
    got = compiled(posterior, jnp.asarray(x), *args, 1.0, 1.0)
    best = tau**2 / (tau**2 + error) * x
    assert np.sqrt(np.mean((np.asarray(got.mean) - best) ** 2)) < 0.25 * np.sqrt(np.mean((best - true) ** 2))
    within = np.abs(np.asarray(got.mean) - true) < 1.96 * np.asarray(got.deviation)
    assert 0.9 < within.mean() < 0.98
    scaled = compiled(posterior, 10.0 * x, 100.0 * args[0], *args[1:], 10.0, 1.0)
    np.testing.assert_allclose(scaled.mean, 10.0 * got.mean, rtol=1e-9)


@pytest.mark.parametrize("ended", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_almost_nobody(ended):
    env = Endings(10, 3, 8, seed=34)
    learner = learner_for(env, True) if ended else TAP(10, 3, 8, tuple(range(10)), True)
    for privatizer in (privrl.NonPrivate(), privrl.Central(epsilon=0.01, delta=1e-6)):
        policy = privrl.fit(tiny_data(env, 2), learner, privatizer, key=jax.random.key(1)).policy
        np.testing.assert_allclose(policy.probabilities.sum(axis=-1), 1.0)


def test_several_stays_of_a_person_multiply_the_noise():
    env = Endings(10, 3, 8, seed=34)
    stays = env.sample(env.behaviour_policy(), 60, jax.random.key(2))
    scales = []
    for most in (1, 3):
        data = privrl.data.Episodes.from_trajectories(
            stays, num_states=10, num_actions=3, units=np.arange(60) // 3, max_episodes_per_unit=most
        )
        releases = privrl.fit(data, learner_for(env, True), privrl.Central(rho=1.0), key=jax.random.key(3)).certificate
        scales.append(next(r["noise"][0]["scale"] for r in releases.releases if r["name"] == "visits-norms"))
    assert math.isclose(scales[1], 3 * scales[0], rel_tol=1e-9)


def test_settings_are_checked():
    with pytest.raises(ValueError, match="`terminal` is"):
        TAP(5, 2, 6, (5,))
    with pytest.raises(ValueError, match="each with a positive share"):
        TAP(5, 2, 6, rounds=())
    with pytest.raises(ValueError, match="no reward would ever be seen"):
        TAP(5, 2, 6, rewards_at_end=True)
    env = Endings(10, 3, 8, seed=34)
    data, pure = tiny_data(env, 9), privrl.Central(epsilon=1.0, mechanism="laplace")
    with pytest.raises(ValueError, match="released with Gaussian noise"):
        privrl.fit(data, learner_for(env, True), pure)
    assert all(d.gaussian for d in learner_for(env, True).declare())  # so it was refused before the first release


@pytest.mark.slow
def test_exact_noise_serves_it_too():
    """The quick tests sum what is asked in whole numbers in `statistics/test_search.py`."""
    env = Endings(10, 3, 8, seed=31)
    certificate = privrl.fit(tiny_data(env, 30), learner_for(env, True), privrl.Central(rho=0.01)).certificate
    assert certificate.noise_source == "system"
    check_certificate(certificate, certificate.epsilon, certificate.delta, "central")


@pytest.mark.slow
@pytest.mark.parametrize("kind", WORLDS)
def test_contract(kind):
    build, at_end = WORLDS[kind]
    env = build()
    check_offline(learner_for(env, at_end), tiny_data(env))
