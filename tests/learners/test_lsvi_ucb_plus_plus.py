"""LSVI-UCB++: equal to its box in plain NumPy, episode by episode; published noise; what its releases cost."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import BUDGET, contribution, tiny_world
from tests.learners.reference_lsvi_ucb_plus_plus import Reference

import privrl
from privrl.contracts.learner import Plan
from privrl.contracts.release import Release
from privrl.learners.linear.lsvi_ucb_plus_plus import LSVIUCBPlusPlus
from privrl.learners.linear.lsvi_ucb_unweighted import LuyoLSVIUCB, NgoLSVIUCB, PerEpisodeLSVIUCB
from privrl.learners.linear.lsvi_ucb_weighted import WeightedLSVIUCB
from privrl.learners.linear.regression_rounds import inverse_and_log_determinant
from privrl.learners.published_noise import lsvi_noise
from privrl.mdp.features import TableFeatures
from privrl.mdp.types import TabularPolicy, Trajectory
from privrl.privacy.noise.distributions import GaussianNoise, SymmetricNoise
from privrl.privacy.trust.published import Published
from privrl.studies.loop import next_plan, no_queries

H, S, A, D, K = 3, 3, 2, 4, 14


def linear_world(seed=0):
    """Features with simplex coordinates: every mixture of measures is a linear world."""
    rng = np.random.default_rng(seed)
    phi = rng.dirichlet(np.ones(D), size=(S, A))
    P = phi @ rng.dirichlet(np.ones(S), size=D)
    return TableFeatures(jnp.asarray(phi)), P, jnp.asarray(rng.uniform(size=(H, S, A)))


def backwards(body, init, length):
    """`OnlineAsk.scan` in Python."""
    for i in reversed(range(length)):
        init = body(init, i)
    return init


@eqx.filter_jit
def planned(learner, statistics, memory, totals, noise, scale, seen):
    """One program for all scales of the noise."""

    def ask(name, index, query):
        added = noise[name][index] if name == "regressions" else noise[name]
        value = statistics[name].answer(totals[name], query) + added
        return Release(value, GaussianNoise(scale, statistics[name].shape))

    ask.scan = backwards
    running = {"gram": ask("gram", 0, None)} if not learner.fresh_grams else {}
    return next_plan(learner, memory, running, ask, seen)


@eqx.filter_jit
def contributions(statistics, record, published):
    return {name: statistic.contribution(record, published) for name, statistic in statistics.items()}


def walk(learner, P, rewards, scale, seed=0):
    """Users one after another: what the learner plans, what it was given, and who came.

    Noise has `scale` on every released number; trajectories are drawn by NumPy from the published policies.
    """
    rng = np.random.default_rng(seed)
    statistics = {d.name: d.statistic for d in learner.declare(K)}
    totals = {name: jnp.zeros(statistic.raw_shape) for name, statistic in statistics.items()}
    rows = statistics["regressions"].shape[0]

    memory = learner.init()
    for k in range(K):
        gram = scale * rng.normal(size=statistics["gram"].shape)
        noise = {"gram": gram, "regressions": scale * rng.normal(size=(H, rows, D))}
        memory, published = planned(learner, statistics, memory, totals, noise, jnp.asarray(scale), jnp.asarray(k))
        pi = np.asarray(published.policy.probabilities)
        user, s = [], rng.integers(S)
        for h in range(H):
            a = rng.choice(A, p=pi[h, s])
            after = rng.choice(S, p=P[s, a] / P[s, a].sum())
            user.append((int(s), int(a), float(rewards[h, s, a]), int(after)))
            s = after
        s, a, r, after = (jnp.asarray(x) for x in zip(*user, strict=True))
        mine = contributions(statistics, Trajectory(s, a, r, after, jnp.asarray(H)), published)
        totals = {name: totals[name] + mine[name] for name in totals}
        yield memory, published, noise, user


VARIANTS = {
    "as published": {"centred": False},
    "centred": {},
    "always": {"switching": "always", "bonus": 0.5, "pessimistic_bonus": 0.3, "squares_bonus": 0.7},
    "weights that vary": {"gap_scale": 2.0, "direction_scale": 3.0, "switching": "always"},
    "estimated rewards": {"rewards": None, "switching": "always"},
    "estimated rewards, uncentred": {"rewards": None, "centred": False},
}
UNWEIGHTED = {"every episode": PerEpisodeLSVIUCB, "luyo": LuyoLSVIUCB, "ngo": NgoLSVIUCB}


@pytest.mark.parametrize("scale", [0.0, 0.3], ids=["exact", "noisy"])
@pytest.mark.parametrize("variant", [*VARIANTS, *UNWEIGHTED])
def test_equals_the_box_in_plain_numpy(variant, scale):
    features, P, rewards = linear_world()
    settings = {"rewards": rewards, "ridge": 0.05} | VARIANTS.get(variant, {})
    learner = UNWEIGHTED.get(variant, LSVIUCBPlusPlus)(features, H, **settings)
    by_determinants = variant == "ngo" or getattr(learner, "switching", "always") == "determinant"
    bound = float(SymmetricNoise(scale, D).spectral_bound(learner.failure / H))
    reference = Reference(learner, bound, by_determinants)
    history, switches = [], 0
    for memory, published, noise, user in walk(learner, P, rewards, scale):
        Q_hi, Q_lo, weights, switched = reference.plan(history, noise)
        switches += switched
        np.testing.assert_allclose(memory.optimistic, Q_hi, atol=1e-10, rtol=0)
        if variant in VARIANTS:
            np.testing.assert_allclose(memory.pessimistic, Q_lo, atol=1e-10, rtol=0)
            np.testing.assert_allclose(published.query, weights, atol=1e-10, rtol=0)
            assert published.query.min() > 0.0 and published.query.max() <= 1.0
        else:
            assert published.query is None
        best = Q_hi >= Q_hi.max(axis=-1, keepdims=True) - 1e-9
        np.testing.assert_allclose(published.policy.probabilities, best / best.sum(axis=-1, keepdims=True))
        assert int(memory.switches) == switches
        history.append((user, weights))
    if scale == 0.0:
        assert 1 < switches < K or (not by_determinants and switches == K - 1)
    if variant == "weights that vary":
        assert np.ptp(weights) > 0.05


@pytest.mark.parametrize("d", [1, 2, 7, 40])
def test_inverse_and_determinant(d):
    x = np.random.default_rng(d).normal(size=(3, 2, d, 2 * d))
    matrix = x @ np.swapaxes(x, -1, -2) + 0.1 * np.eye(d)
    inverse, log_determinant = inverse_and_log_determinant(jnp.asarray(matrix))
    np.testing.assert_allclose(inverse @ matrix, np.broadcast_to(np.eye(d), matrix.shape), atol=1e-9)
    np.testing.assert_allclose(log_determinant, np.linalg.slogdet(matrix)[1], atol=1e-10)


@pytest.mark.slow
def test_without_noise_private_and_non_private_agree_with_running_grams_and_estimated_rewards():
    env = tiny_world(horizon=2)
    learner = LuyoLSVIUCB(env.features, 2, block=2)
    settings = {"episodes": 12, "seeds": 2, "key": jax.random.key(0)}
    exact = privrl.run(env, learner, privrl.NonPrivate(), **settings)
    noiseless = privrl.run(env, learner, privrl.Central(epsilon=math.inf), **settings)
    np.testing.assert_allclose(exact.block_regret, noiseless.block_regret, atol=1e-10)
    assert np.ptp(exact.block_regret) > 0
    assert exact.certificate.bounds["rewards"] == "estimated"


PUBLISHED = {
    "paper": (LSVIUCBPlusPlus.paper, "fresh"),
    "luyo": (LuyoLSVIUCB, "tree"),
    "ngo": (NgoLSVIUCB, "tree"),
}


@pytest.mark.parametrize("name", ["paper", *(pytest.param(n, marks=pytest.mark.slow) for n in ("luyo", "ngo"))])
def test_published_noise_spends_what_it_claims(name):
    """Exact accounting of everything that is declared, from the certificate, against the rho that is claimed."""
    build, continual = PUBLISHED[name]
    env, rho = tiny_world(horizon=2), 0.7
    learner = build(env.features, 2, rewards=env.rewards)
    noise = Published(lsvi_noise, "sahu", rho=rho, continual=continual)
    result = privrl.run(env, learner, noise, episodes=9, key=jax.random.key(0))
    assert 0.9 <= result.certificate.rho / rho <= 1.0
    assert result.certificate.claimed["rho"] == rho
    assert result.certificate.recomputed() == pytest.approx(result.certificate.epsilon)


def test_the_noise_of_the_paper_by_hand():
    """Per step: Gaussian noise of variance 2/rho_0 on the H-scaled vectors, GOE of variance 1/(2 rho_0)."""
    env, rho, users = tiny_world(), 0.7, 9
    learner = LSVIUCBPlusPlus.paper(env.features, 4, rewards=env.rewards)
    declared = learner.declare(users)
    ledger = Published(lsvi_noise, "sahu", rho=rho).calibrate(declared)
    rho_0 = rho / (4 * 4 * users)
    scales = {d.name: d.statistic.l2("replace-one") / ledger.parameter(d.name) for d in declared}
    assert scales["regressions"] == pytest.approx(math.sqrt(2 / rho_0))
    assert scales["gram"] == pytest.approx(
        math.sqrt(2 * (1 / (2 * rho_0)))
    )  # a symmetric distribution has scale^2 = 2 s2


@pytest.mark.slow
def test_reading_determinants_costs_a_release_per_user_whether_values_change_or_not():
    env = tiny_world(horizon=2)
    learner = LSVIUCBPlusPlus(env.features, 2, env.rewards, switching="determinant")
    result = privrl.run(env, learner, privrl.Central(**BUDGET), episodes=11, key=jax.random.key(0))
    counted = {release["name"]: release["counted"] for release in result.certificate.releases}
    assert counted == {"gram": 11, "regressions": 2 * 11}


def test_static_batches_and_capped_switches():
    env = tiny_world()
    d = env.features.dim
    size = round((1000 * 10.0) ** 0.4 * d**0.6 * 4**0.2)
    blocks = LuyoLSVIUCB(env.features, 4, rewards=env.rewards, epsilon=10.0).blocks(1000)
    assert (np.diff(blocks, prepend=0)[:-1] == size).all()
    assert len(NgoLSVIUCB(env.features, 4, rewards=env.rewards, most_switches=7).blocks(1000)) == 7


def theory_constants(horizon: int, dim: int, num_users: int, rho: float, failure: float = 0.05) -> dict[str, float]:
    """The constants of the paper's theorem, as arguments of `LSVIUCBPlusPlus`; its O(.) are read as 1.

    L bounds the noise of the vectors and lambda that of the matrices [sahu Lemma A.1], iota is the logarithm. The bonus
    beta ||phi|| is then at least H for every K, since Lambda is at most lambda + K and beta is at least
    H L sqrt(d lambda): no Q ever leaves its maximum.
    """
    H, d, K = horizon, dim, num_users
    L = 4 * H * math.sqrt(d * H * K / rho * math.log(10 * d * K * H / failure))
    lam = math.sqrt(8 * d * H * K / rho) * (2 + (math.log(5 * H / failure) / d) ** (2 / 3))
    iota = math.log(H * K**4 * L**2 * d / (failure * lam))
    beta = H * L * math.sqrt(d * lam) + math.sqrt(d**3 * H**2) * iota
    return {
        "bonus": beta,
        "pessimistic_bonus": beta,
        "squares_bonus": H**2 * L**2 * math.sqrt(d * lam) + math.sqrt(d**3 * H**4) * iota,
        "gap_scale": 4.0 * d**3 * H**2,
        "direction_scale": 2.0 * d**3 * H**2,
        "ridge": 2 * lam,
    }


@pytest.mark.slow
def test_theory_constants_never_learn():
    """Whatever the number of users, the bonus of the proof exceeds H: everybody plays at random."""
    env = tiny_world(horizon=2)
    for users in (10, 10**4, 10**8):
        constants = theory_constants(2, env.features.dim, users, rho=1.0)
        smallest = constants["bonus"] / math.sqrt(constants["ridge"] + users)  # one-hot features: of norm 1
        assert smallest > 2
    learner = LSVIUCBPlusPlus(env.features, 2, env.rewards, **constants)
    result = privrl.run(env, learner, privrl.NonPrivate(), episodes=30, key=jax.random.key(0))
    uniform = env.regret(env.uniform_policy())
    np.testing.assert_allclose(result.block_regret, float(uniform), atol=1e-12)


@pytest.mark.slow
def test_learns_without_privacy():
    env = tiny_world()
    learner = LSVIUCBPlusPlus(env.features, 4, env.rewards, switching="always")
    result = privrl.run(env, learner, privrl.NonPrivate(), episodes=150, seeds=4, key=jax.random.key(1))
    assert result.block_regret[:, -30:].mean() < 0.2 * float(env.regret(env.uniform_policy()))


@pytest.mark.parametrize("terminal", [(), (2,)], ids=["endless", "terminal"])
@pytest.mark.slow
def test_weighted_moments_and_gram_matrices_are_of_the_same_weighted_people(terminal):
    """Without noise: G_h from counted states, policies and weights is the sum over people of w phi phi^T.

    Deterministic policies only, where the number of people in a state is how often its action was taken.
    """
    features, P, rewards = linear_world()
    learner = WeightedLSVIUCB(features, H, rewards, terminal=terminal, smallest_weight=0.3)
    rng = np.random.default_rng(3)
    weights = jnp.asarray(rng.uniform(0.3, 1.0, size=(H, S, A)))
    policy = TabularPolicy(jax.nn.one_hot(jnp.asarray(rng.integers(A, size=(H, S))), A, dtype=float))
    memory = eqx.tree_at(lambda m: (m.policy, m.weights), learner.init(), (policy, weights))
    statistics = {d.name: d.statistic for d in learner.declare(1)}
    totals = {name: jnp.zeros(statistic.shape) for name, statistic in statistics.items()}
    expected = np.zeros((H, D, D))
    people = 20
    for _ in range(people):
        s, rows, length = int(rng.integers(2)), [], H
        for h in range(H):
            a = int(policy.probabilities[h, s].argmax())
            after = int(rng.choice(S, p=P[s, a] / P[s, a].sum()))
            rows.append((s, a, 0.0, after))
            if h < length:
                expected[h] += weights[h, s, a] * np.outer(features.table[s, a], features.table[s, a])
            length = min(length, h + 1) if after in terminal else length
            s = after
        steps = (jnp.asarray(x) for x in zip(*rows, strict=True))
        record = Trajectory(*steps, jnp.asarray(length))
        for name, statistic in statistics.items():
            totals[name] += contribution(statistic, record, Plan(policy, weights))
    released = {name: Release(x, GaussianNoise(0.0, x.shape)) for name, x in totals.items()}
    seen, published = next_plan(learner, memory, released, no_queries(), jnp.asarray(people))
    np.testing.assert_allclose(seen.gram, expected, atol=1e-9)
    np.testing.assert_allclose(  # M 1 = G v: the moments are of the same people
        totals["moments"].sum(axis=1), np.asarray(seen.gram) @ np.ones(D), atol=1e-9
    )
    assert published.query.min() >= 0.3 and published.query.max() <= 1.0
