"""VAPVI against a plain rendering of Algorithm 2 over episodes, its calibrations, its skipped shares and its split."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import check_offline, tiny_world

import privrl
from privrl.contracts.learner import Solution
from privrl.data.episodes import Episodes
from privrl.data.tables.part import Part
from privrl.learners.linear.vapvi import VAPVI
from privrl.learners.published_noise import vapvi_noise
from privrl.mdp.features import TableFeatures
from privrl.mdp.types import TabularMDP
from privrl.privacy.accounting.certificate import Certificate
from privrl.privacy.trust.published import Published
from privrl.statistics.counts import VisitCounts

H, S, A = 6, 3, 2
KEY = jax.random.key(7)


def steep_world():
    """Two absorbing ends that pay 1 and 0 for ever, and a first step that leads to either: values of large variance."""
    P = np.zeros((1, S, A, S))
    P[0, 0] = [[0.0, 0.7, 0.3], [0.0, 0.2, 0.8]]
    P[0, 1, :, 1] = P[0, 2, :, 2] = 1.0
    r = np.zeros((1, S, A))
    r[0, 1] = 0.9
    mdp = TabularMDP(jnp.asarray(P), jnp.asarray(r), jnp.asarray([0.6, 0.2, 0.2]), H)
    return privrl.envs.Env(mdp, rotated(), jnp.full((S, A), 0.5), "steep")


def rotated():
    """One-hot features, turned: still orthogonal, of norm 1 and with a constant in their span."""
    turn, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(S * A, S * A)))
    return TableFeatures(jnp.asarray(turn.reshape(S, A, S * A)))


def sampled(env, episodes, units=None, most=1):
    trajectories = env.sample(env.behaviour_policy(), episodes, jax.random.key(5))
    return Episodes.from_trajectories(
        trajectories, num_states=S, num_actions=A, units=units, max_episodes_per_unit=most
    )


@pytest.fixture(scope="module")
def data():
    return sampled(steep_world(), 400)


def plain_vapvi(D, D_prime, phi, bonus, ridge, calibration, extra=0.0):
    """Algorithm 2 without noise, one episode at a time; returns the values Q and the variances sigma^2."""
    d = phi.shape[-1]
    V, Qs, sigmas = np.zeros(S), np.zeros((H, S, A)), np.ones((H, S, A))
    for h in reversed(range(H)):
        remaining = H - h  # the paper's H - h + 1
        span = calibration == "span"
        low, high = (V.min(), V.max()) if span else (0.0, H if calibration == "paper" else remaining - 1.0)
        if calibration == "paper" or (remaining > 3 and high - low > 2):
            c = (low + high) / 2 if span else 0.0
            # ridge regression shrinks towards what was subtracted: the midpoints of (V - c)^2 and of V
            m2, m1 = ((high - low) ** 2 / 8, c) if span else (0.0, 0.0)
            Sigma, beta, theta = ridge * np.eye(d), np.zeros(d), np.zeros(d)
            for s, a, _, x in steps(D_prime, h):
                Sigma += np.outer(phi[s, a], phi[s, a])
                beta += phi[s, a] * ((V[x] - c) ** 2 - m2)
                theta += phi[s, a] * (V[x] - m1)
            square_top = (high - c) ** 2 if span else min(high, remaining) ** 2
            second = np.clip(phi @ np.linalg.solve(Sigma, beta) + m2, 0, square_top)
            first = np.clip(phi @ np.linalg.solve(Sigma, theta) + m1, low, min(high, remaining)) - c
            sigmas[h] = np.maximum(1.0, second - first**2)
        m = (low + high + 1) / 2 if span else 0.0
        Lambda, b = ridge * np.eye(d), np.zeros(d)
        for s, a, r, x in steps(D, h):
            Lambda += np.outer(phi[s, a], phi[s, a]) / sigmas[h, s, a]
            b += phi[s, a] * (r + V[x] - m) / sigmas[h, s, a]
        inverse = np.linalg.inv(Lambda)
        Gamma = bonus * np.sqrt(d) * np.sqrt(np.einsum("sai,ij,saj->sa", phi, inverse, phi)) + extra
        Qs[h] = np.clip(phi @ inverse @ b + m - Gamma, 0, remaining)
        V = Qs[h].max(axis=1)
    return Qs, sigmas


def steps(episodes, h):
    for k in range(len(episodes.length)):
        if h < episodes.length[k]:
            yield episodes.states[k, h], episodes.actions[k, h], episodes.rewards[k, h], episodes.next_states[k, h]


class Listening:
    """Passes queries on and keeps what was asked."""

    def __init__(self, ask):
        self.ask, self.asked = ask, []

    def __call__(self, name, statistic=None):
        self.asked.append((name, statistic))
        return self.ask(name, statistic)

    def skip(self, name, to):
        self.ask.skip(name, to)


def queries_of(monkeypatch, data, learner, privatizer):
    """The result of `fit` and every query of the learner."""
    heard = []
    original = VAPVI.fit

    def listening(self, ask):
        heard.append(Listening(ask))
        return original(self, heard[-1])

    monkeypatch.setattr(VAPVI, "fit", listening)
    result = privrl.fit(data, learner, privatizer, key=KEY)
    return result, heard[-1].asked


@pytest.mark.parametrize("calibration", ["span", "range", "paper"])
def test_without_noise_it_is_algorithm_2(monkeypatch, data, calibration):
    phi = np.asarray(rotated().table)
    learner = VAPVI(rotated(), H, bonus=0.2, ridge=0.3, calibration=calibration, lower_order=0.01)
    (batch,) = data.batches(400)
    Q, sigma2 = plain_vapvi(batch, batch, phi, 0.2, 0.3, calibration, 0.01)
    result, asked = queries_of(monkeypatch, data, learner, privrl.NonPrivate())
    stages = [s for name, s in asked if name == "targets"]  # its values are V_{h+1}, its weights 1/sigma_h^2
    for h, statistic in zip(reversed(range(H)), stages, strict=True):
        np.testing.assert_allclose(statistic.values, Q[h + 1].max(1) if h + 1 < H else 0.0, atol=1e-9)
        weights = np.ones((S, A)) if statistic.weights is None else np.asarray(statistic.weights)
        np.testing.assert_allclose(1 / weights, sigma2[h], atol=1e-9)
    best = np.abs(Q - Q.max(-1, keepdims=True)) <= 1e-9
    np.testing.assert_allclose(result.policy.probabilities, best / best.sum(-1, keepdims=True), atol=1e-12)
    assert sigma2.max() > 1.5  # variances matter in this world


@pytest.mark.parametrize(
    ("calibration", "expected"),
    [
        # per stage counting back from the last one: (squares, values, targets)
        ("range", [(None, None, 2 * (n + 1)) if n <= 2 else (2 * n**2, 2 * n, 2 * (n + 1)) for n in range(H)]),
        ("paper", [(2 * H**2, 2 * H, 2 * H)] * H),
    ],
)
def test_sensitivities_are_those_of_the_spec(monkeypatch, data, calibration, expected):
    _, asked = queries_of(monkeypatch, data, VAPVI(rotated(), H, calibration=calibration), privrl.NonPrivate())
    charged: list = []
    for name, statistic in asked:
        if name in ("squares", "values", "targets"):
            charged.append((name, int(statistic.stage), statistic.l2("replace-one") / statistic.largest_weight))
        else:
            np.testing.assert_allclose(statistic.l2("replace-one") / statistic.largest_weight, math.sqrt(2))
    names = ("squares", "values", "targets")
    wanted = [
        (name, H - 1 - n, value)
        for n, row in enumerate(expected)
        for name, value in zip(names, row, strict=True)
        if value is not None
    ]
    assert charged == wanted


def test_the_span_calibration_charges_the_released_range(monkeypatch, data):
    _, asked = queries_of(monkeypatch, data, VAPVI(rotated(), H), privrl.Central(rho=500.0))
    by_stage = {(name, int(s.stage)): s for name, s in asked}
    variances = [stage for name, stage in by_stage if name == "squares"]
    assert variances  # the world is steep: somewhere the span exceeds 2
    for stage in range(H):
        targets = by_stage["targets", stage]
        span = float(jnp.ptp(targets.values))
        np.testing.assert_allclose(targets.l2("replace-one"), (span + 1) * targets.largest_weight)
        assert (stage in variances) == (span > 2)
        if stage in variances:
            np.testing.assert_allclose(by_stage["squares", stage].l2("replace-one"), span**2 / 4)
            np.testing.assert_allclose(by_stage["values", stage].l2("replace-one"), span)


@pytest.mark.parametrize("split", [False, True])
def test_skipped_shares_are_spent_and_the_total_stays(monkeypatch, split):
    """In a flat world no variance is ever asked for; every share must turn up in a later release of the same people."""
    env = tiny_world(horizon=H)
    flat = sampled(env, 300)
    learner = VAPVI(env.features, H, split=split)
    result, asked = queries_of(monkeypatch, flat, learner, privrl.Central(rho=2.0))
    cost = dict.fromkeys(("spread", "squares", "values", "gram", "targets"), 0.0)
    for event in result.certificate.events:
        cost[event.name] += event.times * event.parameter**2
    np.testing.assert_allclose(result.certificate.rho, 2.0)
    if split:
        assert {name for name, _ in asked} == {"gram", "targets"}
        np.testing.assert_allclose([cost["gram"], cost["targets"]], [2.0, 2.0])
        np.testing.assert_allclose(cost["spread"] + cost["squares"] + cost["values"], 4.0)
    else:
        assert {name for name, _ in asked} == {"gram", "targets"}
        np.testing.assert_allclose([cost["gram"] + cost["targets"], cost["spread"]], [4.0, 0.0], atol=1e-12)
        first, *_, last = (noise for r in result.certificate.releases if r["name"] == "gram" for noise in r["noise"])
        assert last["scale"] < first["scale"]


@pytest.mark.slow
def test_the_contract_holds_with_a_split(data):
    """(Without one it is checked with the recipes.)"""
    check_offline(VAPVI(rotated(), H, split=True), data)


def test_a_split_costs_its_worst_half(data):
    whole = privrl.fit(data, VAPVI(rotated(), H, calibration="range"), privrl.Central(rho=1.0), key=KEY).certificate
    halves = privrl.fit(data, VAPVI(rotated(), H, calibration="range", split=True), privrl.Central(rho=1.0), key=KEY)
    certificate = halves.certificate
    cost: dict = {}
    for event in certificate.events:
        cost[event.group] = cost.get(event.group, 0.0) + event.times * event.parameter**2 / 2
    assert set(cost) == {"variances", "values"}
    np.testing.assert_allclose(list(cost.values()), [1.0, 1.0])  # each half alone spends the budget
    np.testing.assert_allclose([certificate.rho, certificate.epsilon], [1.0, whole.epsilon])
    assert certificate.bounds["people"] == "two random halves"
    assert Certificate.from_json(certificate.to_json()).recomputed() == certificate.epsilon


def test_nobody_is_in_both_halves():
    """Each unit has episodes of its own state, so a count of states shows who was summed in which half."""
    units = np.repeat(np.arange(40), 3)
    states = np.repeat(units[:, None], H, axis=1)
    people = Episodes.from_arrays(
        states, 0 * states, 0.0 * states, units=units, horizon=H, num_states=40, num_actions=1, max_episodes_per_unit=3
    )
    seen = {}

    class Halves(VAPVI):
        def fit(self, ask):
            for name in ("spread", "gram", "values", "targets"):
                counts = ask(name, VisitCounts(40, 1, H, "first-visit"))
                seen.setdefault(name, []).append(np.asarray(counts.value)[:, 0])
            return Solution(privrl.mdp.TabularPolicy.uniform(H, 40, 1))

    features = TableFeatures(jnp.full((40, 1, 1), 1.0))
    privrl.fit(people, Halves(features, H, split=True), privrl.NonPrivate(), key=KEY)
    first, second = seen["spread"][0], seen["gram"][0]
    np.testing.assert_array_equal(first + second, 3.0)  # everybody is somewhere, with all their episodes
    assert set(first) == {0.0, 3.0} == set(second)
    assert 8 <= (first > 0).sum() <= 32  # a fair coin: outside with probability below 1e-4
    np.testing.assert_array_equal(first, seen["values"][0])  # and stays there from release to release
    np.testing.assert_array_equal(second, seen["targets"][0])


def test_the_halves_of_algorithm_2_are_the_parts_of_the_curator(monkeypatch, data):
    """With a split and without noise: the plain algorithm on the two parts that the curator drew."""
    drawn = []
    original = Part.__init__

    def watched(self, *args, **kwargs):
        original(self, *args, **kwargs)
        drawn.append(self)

    monkeypatch.setattr(Part, "__init__", watched)
    result = privrl.fit(data, VAPVI(rotated(), H, ridge=0.3, split=True), privrl.NonPrivate(), key=KEY)
    variances, values = drawn
    assert not (variances.chosen & values.chosen).any() and (variances.chosen | values.chosen).all()
    assert variances.num_units + values.num_units == 400 == variances.num_episodes + values.num_episodes
    (D_prime,), (D,) = variances.batches(400), values.batches(400)
    Q, sigma2 = plain_vapvi(D, D_prime, np.asarray(rotated().table), 0.1, 0.3, "span")
    best = np.abs(Q - Q.max(-1, keepdims=True)) <= 1e-9
    np.testing.assert_allclose(result.policy.probabilities, best / best.sum(-1, keepdims=True), atol=1e-12)
    assert sigma2.max() > 1.5


def test_marks_must_be_one_for_each_unit(data):
    with pytest.raises(ValueError, match="`chosen`"):
        Part(data, np.ones(3, bool)).check()


def test_the_published_noise_is_the_papers_and_costs_more_than_claimed(data):
    rho, rho0 = 1.0, 1.0 / (5 * H)
    privatizer = Published(vapvi_noise, "qiao-wang", rho=rho, delta=1e-5)
    certificate = privrl.fit(data, VAPVI(rotated(), H, calibration="paper"), privatizer, key=KEY).certificate
    scales = {r["name"]: {noise["scale"] for noise in r["noise"]} for r in certificate.releases}
    papers = {
        "spread": 1
        / math.sqrt(2 * rho0),  # (Z + Z^T)/sqrt 2, Z_ij ~ N(0, 1/(4 rho0)): variance 2/(4 rho0) on the diagonal
        "squares": math.sqrt(2) * H**2 / math.sqrt(rho0),
        "values": math.sqrt(2) * H / math.sqrt(rho0),
        "gram": 1 / math.sqrt(2 * rho0),
        "targets": math.sqrt(2) * H / math.sqrt(rho0),
    }
    for name, scale in papers.items():
        np.testing.assert_allclose(sorted(scales[name]), scale, rtol=1e-12)
    np.testing.assert_allclose(certificate.rho, 7 / 5 * rho)
    assert certificate.claimed["rho"] == rho
    assert certificate.claimed["epsilon"] < certificate.epsilon
    assert "claimed" in str(certificate)


def test_short_horizons_declare_no_variance():
    learner = VAPVI(rotated(), 3, split=True)
    assert [d.name for d in learner.declare()] == ["gram", "targets"]
    assert {d.group for d in learner.declare()} == {None}
    assert [d.times for d in VAPVI(rotated(), 4).declare()] == [1, 1, 1, 4, 4]
