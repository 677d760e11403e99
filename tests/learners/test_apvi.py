"""APVI against a plain rendering of the algorithm box on the same noisy tables, and on worlds with known answers."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import check_offline, tiny_data, tiny_world
from jaxtyping import TypeCheckError
from scipy.optimize import linprog

import privrl
from privrl.contracts.release import Release
from privrl.data.episodes import Episodes
from privrl.learners.published_noise import apvi_noise
from privrl.learners.tabular.apvi import APVI
from privrl.mdp.types import TabularMDP, TabularPolicy
from privrl.privacy.accounting.gdp import gdp_epsilon
from privrl.privacy.noise.distributions import GaussianNoise, LaplaceNoise
from privrl.privacy.trust.published import Published

S, A, H = 3, 2, 4


class Tables:
    """A curator that has already drawn its noise: full noisy tables, of which it hands out what is asked for."""

    def __init__(self, seed, distribution=GaussianNoise, stages=1):
        rng = np.random.default_rng(seed)
        self.distribution, self.scale = distribution, 3.0
        n = rng.multinomial(600, rng.dirichlet(np.ones(S * A)), stages).reshape(stages, S, A)
        x = np.array([[rng.multinomial(m, rng.dirichlet(np.ones(S + 1))) for m in stage.ravel()] for stage in n])
        self.visits = n + rng.normal(0, self.scale, n.shape)
        self.transitions = x.reshape(stages, S * A, S + 1) + rng.normal(0, self.scale, (stages, S * A, S + 1))
        self.rewards = 0.4 * n + rng.normal(0, self.scale, n.shape)
        self.asked = []

    def skip(self, name, to):
        raise AssertionError("APVI skips nothing")

    def __call__(self, name, statistic=None):
        self.asked.append((name, statistic))
        g = 0 if statistic.stage is None else int(statistic.stage)
        value = getattr(self, name)[g]
        if name == "transitions":
            pairs = np.asarray(statistic.pairs)
            value = np.where((pairs < S * A)[:, None], value[np.minimum(pairs, S * A - 1)], 0.0)
        assert value.shape == statistic.shape
        return Release(jnp.asarray(value), self.distribution(jnp.asarray(self.scale), statistic.shape))


def consistent(row, visits, half):
    """[qiao-wang eq. 4] by linear programming; its solution is unique, see the tests of the consistency step."""
    eye, ones, k = np.eye(len(row)), np.ones((len(row), 1)), len(row)
    A_ub = np.block([[eye, -ones], [-eye, -ones], [np.r_[np.ones(k), 0.0]], [np.r_[-np.ones(k), 0.0]]])
    b = np.r_[row, -row, visits + half, half - visits]
    return linprog(np.r_[np.zeros(k), 1.0], A_ub, b, bounds=[(0, None)] * (k + 1)).x[:k]


def box(tables, learner):
    """The algorithm box with our documented departures, pair by pair; also the smallest gap that decides an action."""
    statistics = [s for name, s in tables.asked if name == "transitions"]
    V, policy = np.zeros(S), np.zeros((H, S, A))
    iota = math.log(H * S * A / learner.failure)
    each = learner.failure / 2 / (H if learner.counting == "per-stage" else 1)
    paper = learner.calibration == "paper"
    C1 = learner.bonus if learner.bonus is not None else (math.sqrt(2) if paper else 0.1)
    C2 = learner.noise_bonus if learner.noise_bonus is not None else (16.0 if paper else 0.01)
    for h in reversed(range(H)):
        g = h if learner.counting == "per-stage" else 0
        statistic = next(s for s in statistics if s.stage is None or int(s.stage) == h)
        half = max(
            float(tables.distribution(tables.scale, shape).max_bound(each)) for shape in ((S, A), statistic.shape)
        )
        E = 2 * half
        arrival = np.zeros(S) if learner.arrival_rewards is None else np.asarray(learner.arrival_rewards)
        G = np.append(V + arrival, 0.0)
        R = H if paper else G.max() - G.min()
        Q, trusted = np.zeros((S, A)), np.zeros((S, A), bool)
        for s, a in np.ndindex(S, A):
            seen = max(tables.visits[g, s, a], 0.0)
            x = consistent(np.maximum(tables.transitions[g, s * A + a], 0.0), seen, half)
            n = x.sum()
            if n <= E:
                continue
            trusted[s, a] = True
            P = x / n
            r = 0.0
            if learner.rewards is not None:
                r = float(learner.rewards[min(h, len(learner.rewards) - 1), s, a])
            elif learner.arrival_rewards is None:
                std = float(tables.distribution(tables.scale, ()).std)
                r = np.clip((tables.rewards[g, s, a] - 2 * std) / seen, 0.0, 1.0)
            spread = P @ G**2 - (P @ G) ** 2
            if paper:
                Gamma = C1 * math.sqrt(spread * iota / (n - E)) + C2 * S * H * E * iota / n
            else:
                Gamma = C1 * (math.sqrt(max(spread, 0.0) * iota / (n - E)) + R * iota / n) + C2 * R * E / n
            Q[s, a] = np.clip(r + P @ G - Gamma, 0.0, H - h)
        for s in range(S):
            score = Q[s]
            if not paper:
                score = np.where(trusted[s], Q[s], -1.0) if trusted[s].any() else tables.visits[g, s]
            best = score >= score.max() - 1e-9
            policy[h, s] = best / best.sum()
            V[s] = policy[h, s] @ Q[s]
    return policy, V


KNOWN = {"rewards": jnp.asarray(np.random.default_rng(5).uniform(size=(1, S, A)))}
ARRIVAL = {"arrival_rewards": jnp.array([0.0, 0.3, 1.0])}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    "arguments",
    [
        {"counting": "first-visit", **ARRIVAL},
        {"counting": "pooled"},
        {"counting": "per-stage", **KNOWN},
        {"counting": "first-visit", **KNOWN},
        {"counting": "per-stage", "calibration": "paper", "bonus": 0.2, "noise_bonus": 1e-4, **KNOWN},
        {"counting": "per-stage", "calibration": "paper", "bonus": 0.01, "noise_bonus": 1e-4} | ARRIVAL,
    ],
    ids=lambda arguments: "-".join(str(v) for v in arguments.values() if isinstance(v, str)),
)
def test_equals_the_box_on_noisy_tables(arguments, seed):
    learner = APVI(S, A, H, **arguments)
    tables = Tables(seed, stages=H if learner.counting == "per-stage" else 1)
    policy = learner.fit(tables).policy
    expected, _ = box(tables, learner)
    np.testing.assert_allclose(policy.probabilities, expected, atol=1e-12)
    assert len(np.unique(expected.argmax(-1))) > 1  # the case decides something


def test_laplace_widths_are_laplace_widths():
    learner = APVI(S, A, H, counting="pooled", **ARRIVAL)
    tables = Tables(3, distribution=LaplaceNoise)
    np.testing.assert_allclose(learner.fit(tables).policy.probabilities, box(tables, learner)[0], atol=1e-12)


def test_next_states_are_asked_only_where_they_can_be_trusted():
    learner = APVI(S, A, H, counting="first-visit", **ARRIVAL)
    tables = Tables(0)
    tables.visits[0] = [[100.0, 1.0], [-3.0, 12.0], [40.0, 13.0]]
    learner.fit(tables)
    half = float(GaussianNoise(3.0, (S, A)).max_bound(0.025))
    assert 1.0 < half < 12.0
    [statistic] = [s for name, s in tables.asked if name == "transitions"]
    assert np.asarray(statistic.pairs).tolist() == [0, 3, 4, 5]


def test_without_trust_the_most_taken_action_is_played():
    learner = APVI(S, A, H, counting="first-visit", **ARRIVAL)
    tables = Tables(0)
    tables.visits[0] = [[2.0, 1.0], [-3.0, 4.0], [7.0, 6.5]]
    policy = learner.fit(tables).policy
    assert np.asarray(policy.probabilities).argmax(-1).tolist() == [[0, 1, 0]] * H
    paper = APVI(S, A, H, calibration="paper", **ARRIVAL)
    tables = Tables(0, stages=H)
    tables.visits[:] = 1.0
    np.testing.assert_allclose(paper.fit(tables).policy.probabilities, 1 / A)  # as printed: everything ties at 0


@pytest.mark.parametrize("counting", ["per-stage", "pooled", "first-visit"])
def test_plenty_of_data_gives_the_optimal_policy(counting):
    env = tiny_world()
    data = tiny_data(env, episodes=40_000)
    learner = APVI(S, A, H, rewards=env.rewards, counting=counting)
    for privatizer in (privrl.NonPrivate(), privrl.Central(epsilon=8.0, delta=1e-5)):
        policy = privrl.fit(data, learner, privatizer, key=jax.random.key(0)).policy
        assert float(env.regret(policy)) < 0.01
    assert float(env.regret(env.uniform_policy())) > 0.3


def test_estimated_rewards_are_paid_for_and_used():
    env = tiny_world()
    learner = APVI(S, A, H, counting="first-visit")
    assert [d.name for d in learner.declare()] == ["visits", "transitions", "rewards"]
    assert learner.bounds()["rewards"] == "estimated"
    result = privrl.fit(tiny_data(env, 40_000), learner, privrl.Central(epsilon=8.0, delta=1e-5), key=jax.random.key(0))
    assert float(env.regret(result.policy)) < 0.01
    weights = {d.name: d.weight for d in learner.declare()}
    assert weights["rewards"] / sum(weights.values()) == pytest.approx(0.4)


def test_an_unrecorded_next_state_is_the_end():
    """Action 0 pays .3 and ends the stay; action 1 pays nothing now and .5 from state 1 afterwards."""
    n = 50
    states = np.tile([[0, 0], [0, 1]], (n, 1))
    actions = np.tile([[0, 0], [1, 0]], (n, 1))
    rewards = np.tile([[0.3, 0.0], [0.0, 0.5]], (n, 1))
    lengths = np.tile([1, 2], n)
    data = Episodes.from_arrays(states, actions, rewards, lengths=lengths, horizon=2, num_states=2, num_actions=2)
    for counting in ("per-stage", "first-visit"):
        policy = privrl.fit(data, APVI(2, 2, 2, counting=counting, bonus=0.0), privrl.NonPrivate()).policy
        assert policy.action(0, step=0) == 1  # .5 after state 1, not .3 plus the average of what may follow


@pytest.mark.slow
def test_the_contract_with_laplace_noise():
    """Pure differential privacy: L1 sensitivity 2H in each table."""
    env = tiny_world()
    learner = APVI(S, A, H, rewards=env.rewards, counting="first-visit")
    check_offline(learner, tiny_data(env), budget={"epsilon": 2.0}, mechanism="laplace")
    pure = privrl.Central(epsilon=2.0, mechanism="laplace")
    result = privrl.fit(tiny_data(env), learner, pure, key=jax.random.key(0))
    noise = {release["name"]: release["noise"][0] for release in result.certificate.releases}
    assert noise["visits"]["sensitivity"] == noise["transitions"]["sensitivity"] == 2 * H
    assert noise["visits"]["scale"] == pytest.approx(2 * H / (2.0 * 0.25))


@pytest.mark.parametrize("rho", [0.1, 1.0])
def test_published_noise_is_exactly_what_the_paper_claims(rho):
    env = tiny_world()
    learner = APVI(S, A, H, rewards=env.rewards, calibration="paper")
    privatizer = Published(apvi_noise, "qiao-wang", rho=rho, delta=1e-5)
    certificate = privrl.fit(tiny_data(env), learner, privatizer, key=jax.random.key(0)).certificate
    assert certificate.epsilon == pytest.approx(gdp_epsilon(math.sqrt(2 * rho), 1e-5))
    assert certificate.epsilon < certificate.claimed["epsilon"]
    for release in certificate.releases:
        assert [noise["scale"] ** 2 for noise in release["noise"]] == [pytest.approx(2 * H / rho)]
        assert release["counted"] == H


def test_contribution_norm_is_in_the_noise():
    learner = APVI(S, A, H, rewards=jnp.zeros((1, S, A)), counting="first-visit", contribution_norm=1.5)
    result = privrl.fit(tiny_data(tiny_world()), learner, privrl.Central(rho=0.5, delta=1e-5), key=jax.random.key(0))
    noise = {release["name"]: release["noise"][0] for release in result.certificate.releases}
    assert noise["visits"]["sensitivity"] == pytest.approx(1.5 * math.sqrt(2))
    assert noise["visits"]["scale"] == pytest.approx(1.5 * math.sqrt(2) / math.sqrt(2 * 0.5 * 0.25), rel=1e-6)
    assert noise["transitions"]["scale"] == pytest.approx(1.5 * math.sqrt(2) / math.sqrt(2 * 0.5 * 0.75), rel=1e-6)


def test_pooled_counts_need_a_stationary_world_and_then_use_every_stage():
    """One kernel, data in which each stage alone has too few visits: pooling them must not lose to per-stage counts."""
    env = tiny_world(horizon=8, seed=3)
    data = tiny_data(env, episodes=40)
    values = {}
    for counting in ("per-stage", "pooled"):
        learner = APVI(S, A, 8, rewards=env.rewards, counting=counting)
        values[counting] = float(env.value(privrl.fit(data, learner, privrl.NonPrivate()).policy))
    assert values["pooled"] > values["per-stage"]


def test_bad_arguments_are_explained():
    for arguments, word in (
        ({"calibration": "theory"}, "calibration"),
        ({"visit_share": 1.0}, "visit_share"),
    ):
        with pytest.raises((ValueError, TypeCheckError), match=word):  # checked types may speak first
            APVI(S, A, H, **arguments)


def test_stage_rewards_are_used_at_their_stage():
    """The world never moves; at even steps action 0 pays, at odd steps action 1."""
    stay = jnp.eye(S)[None, :, None, :].repeat(A, axis=2)
    rewards = jnp.zeros((H, S, A)).at[::2, :, 0].set(1.0).at[1::2, :, 1].set(1.0)
    mdp = TabularMDP(stay, rewards.mean(axis=0, keepdims=True), jnp.full(S, 1 / S), H)
    env = privrl.envs.Env(mdp, privrl.mdp.OneHotFeatures(S, A), jnp.full((S, A), 1 / A), "still")
    learner = APVI(S, A, H, rewards=rewards, counting="first-visit")
    policy = privrl.fit(tiny_data(env, 500), learner, privrl.NonPrivate()).policy
    assert isinstance(policy, TabularPolicy)
    assert np.asarray(policy.probabilities).argmax(-1).tolist() == [[h % 2] * S for h in range(H)]
