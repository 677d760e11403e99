"""Statistics of evaluation: against a plain loop, against exact values, and attacked for their sensitivity."""

import itertools
import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import all_trajectories, check_sensitivity, compiled, contribution, distances, hostile_trajectories, stack
from hypothesis import given, settings
from hypothesis import strategies as st

from privrl.audit.surface.queries import Query
from privrl.mdp.assisted import AssistedPolicy
from privrl.mdp.types import Trajectory
from privrl.mdp.value_features import TableValueFeature
from privrl.statistics.corrected_gains import CorrectedGains, ReturnSlopes, read_slope
from privrl.statistics.model_gains import LARGEST, WEIGHTS, ModelGains, NuisanceSums, StaySums
from privrl.statistics.off_policy import CentredReturns, Changed, Gains, Influences, StayReturns, Unsupported, Weights
from privrl.statistics.practice_table import PracticeTable

S, A, H, TERMINAL = 4, 3, 4, (3,)
ADVICE = jnp.array([0, 1, 2, 0])
SUPPORT = jnp.array([0.3, 0.05, 0.8, 0.01])
FEATURE = jnp.array([-1.0, 1.0, 0.4, 0.0])


PAIRS = ((1.5, 4.0), (3.0, 10.0), (math.inf, 20.0))


def assisted(max_ratio=1.5, max_weight=4.0, support=SUPPORT, strength=None):
    return AssistedPolicy(ADVICE, support, max_ratio, max_weight, strength=strength, horizon=100)


def sums(feature=FEATURE, support=SUPPORT, unit=1.0, logged=False):
    feature_of = TableValueFeature(A, H, TERMINAL, feature)
    return StaySums(AssistedPolicy(ADVICE, support, horizon=100), feature_of, unit, logged)


def centred(m):
    return jnp.asarray(float(m))


def corrected(slope=0.3, m=0.69, policy=None, **more):
    policy = assisted() if policy is None else policy
    feature = TableValueFeature(A, H, TERMINAL, FEATURE)
    return CorrectedGains(policy, feature, centred(m), centred(slope), **more)


STATISTICS = {
    "returns": StayReturns(),
    "returns in a range": StayReturns((0.5, 2.5)),
    "spread of returns": CentredReturns((0.5, 2.5), centred(0.3), squared=True),
    "weights of uneven advice": Weights(assisted(19.0, 50.0, strength=jnp.array([0.2, 1.0, 0.7, 0.0]))),
    "weights": Weights(assisted()),
    "large weights": Weights(assisted(19.0, 50.0)),
    "unsupported": Unsupported(assisted()),
    "changed": Changed(assisted()),
    "gains": Gains(assisted(), centred(0.69)),
    "gains, small weights": Gains(assisted(1.1, 1.2), centred(0.9)),
    "gains, extreme centre": Gains(assisted(2.0, 3.0), centred(1.0)),
    "gains squared": Gains(assisted(), centred(0.31), squared=True),
    "gains squared, small weights": Gains(assisted(1.1, 1.2), centred(0.9), squared=True),
    "gains of pairs": Gains(assisted(), centred(0.69), limits=PAIRS),
    "gains of pairs, squared": Gains(assisted(), centred(0.4), squared=True, limits=PAIRS),
    "gains of pairs, logged": Gains(assisted(), centred(0.0), limits=PAIRS, logged=True),
    "weights of pairs, logged": Weights(assisted(), PAIRS, logged=True),
    "gains, randomised, logged": Gains(assisted(), centred(0.6), limits=PAIRS, logged=True, least_propensity=0.1),
    "weights, randomised, logged": Weights(assisted(), PAIRS, logged=True, least_propensity=0.1),
    "corrected gains": corrected(),
    "corrected gains, large slope": corrected(-0.5, 0.2),
    "corrected gains of pairs": corrected(0.2, limits=PAIRS),
    "corrected gains of pairs, squared": corrected(0.2, 0.4, limits=PAIRS, squared=True),
    "slopes": ReturnSlopes(TableValueFeature(A, H, TERMINAL, FEATURE), centred(0.3), (0.5, 2.5)),
    "influences": Influences(assisted()),
    "practice table": PracticeTable(assisted(), A, 1.5),
    "nuisance": NuisanceSums(sums()),
    "nuisance, logged": NuisanceSums(sums(logged=True)),
    "model, logged": ModelGains(sums(logged=True), jnp.array([0.1, -0.2]), jnp.linspace(-1.0, 1.0, 20).reshape(2, 10)),
    "nuisance, scaled": NuisanceSums(sums(unit=0.1), (1.0, 0.5)),
    "model": ModelGains(sums(), jnp.array([0.1, -0.2]), jnp.linspace(-1.0, 1.0, 20).reshape(2, 10)),
    "model, huge": ModelGains(sums(), jnp.array([1e200, 0.0]), jnp.full((2, 10), 1e300)),
    "model squared": ModelGains(sums(), jnp.zeros(2), jnp.linspace(-1.0, 1.0, 20).reshape(2, 10), squared=True),
}


def hostile_people(seed=0, stays=3, horizon=H, states=S, actions=A):
    """Persons of up to three hostile stays: mixed ones, one stay three times, one stay alone, and nothing."""
    pool = hostile_trajectories(horizon, states, actions, seed)
    rng = np.random.default_rng(seed)
    count = len(pool.length)
    mixed = rng.integers(count, size=(count, stays))
    same = np.repeat(np.arange(count)[:, None], stays, axis=1)
    people = jax.tree.map(lambda x: np.asarray(x)[np.concatenate([mixed, same, same])], pool)
    alone = np.ones((3 * count, stays), bool)
    alone[2 * count :, 1:] = False  # the others are empty
    return Trajectory(
        people.states, people.actions, people.rewards, people.next_states, np.where(alone, people.length, 0)
    )


PLAIN = ("returns", "weights", "unsupported", "changed", "gains", "influences", "practice table", "nuisance", "model")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in PLAIN else n for n in STATISTICS])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_no_two_persons_are_further_apart_than_declared(name, seed):
    """The quick tests search plain settings in `test_search.py`."""
    people = hostile_people(seed)
    if "logged" in name:
        odd = np.array([0.0, -1.0, 1e-300, 0.01, 0.1, 0.3, 0.9, 1.0, 7.0, np.nan, np.inf])
        p = np.random.default_rng(seed).choice(odd, people.rewards.shape)
        people = Trajectory(*jax.tree.leaves(people), p)
    check_sensitivity(STATISTICS[name], people)


@pytest.fixture(scope="module")
def everybody():
    """Every record of a world of three states, two actions and two steps, as persons with one stay."""
    return jax.tree.map(lambda x: x[:, None], stack(list(all_trajectories(2, 3, 2))))


SMALL = AssistedPolicy(
    jnp.array([0, 1, 0]), jnp.array([0.5, 0.05, 0.2]), 2.0, 2.001, horizon=100
)  # twice the largest factor


@pytest.mark.parametrize(
    "statistic",
    [
        StayReturns(),
        CentredReturns((0.0, 1.0), centred(0.6), squared=True),
        Weights(SMALL),
        Gains(SMALL, centred(0.6)),
        Gains(SMALL, centred(0.6), squared=True),
        Gains(SMALL, centred(0.6), limits=((4.0, 4.0), (6.0, 6.0))),
        Gains(SMALL, centred(0.0), limits=((4.0, 4.0), (6.0, 6.0)), logged=True),
        Influences(SMALL),
        PracticeTable(SMALL, 2, 1.0),
    ],
    ids=lambda s: type(s).__name__,
)
def test_bounds_are_right_over_every_record_and_nearly_met(statistic, everybody):
    found = distances(statistic, everybody)
    for (adjacency, norm), distance in found.items():
        declared = getattr(statistic, norm)(adjacency)
        assert distance <= declared * (1 + 1e-12)
    assert found["replace-one", "l2"] > 0.99 * statistic.l2("replace-one")


@given(
    t=st.lists(st.floats(-1, 1), min_size=2, max_size=2),
    d=st.lists(st.floats(-1, 1), min_size=2, max_size=2),
    e=st.lists(st.integers(0, 1), min_size=2, max_size=2),
    r=st.lists(st.floats(0, 10), min_size=2, max_size=2),
)
def test_blocks_of_two_steps_never_have_a_negative_inner_product(t, d, e, r):
    def block(f, df, ended, reward):
        x = np.array([1.0, f, f * f])
        return np.concatenate([x, x[:2] * df * (1 - ended), x * ended, x[:2] * reward]) * np.asarray(WEIGHTS)

    left, right = (block(*one) for one in zip(t, d, e, r, strict=True))
    assert left @ right >= -1e-12


def test_no_two_hostile_nuisance_vectors_have_a_negative_inner_product():
    people = hostile_people(5)
    X = contributions(NuisanceSums(sums()), people)
    for copy in (X[:, :10], X[:, 10:20]):
        assert (copy @ copy.T).min() >= -1e-12


@given(
    b=st.lists(st.floats(0.0, 1.0), min_size=A, max_size=A).filter(lambda b: sum(b) > 1e-3),
    advice=st.integers(0, A - 1),
    max_ratio=st.one_of(st.floats(1.0, 50.0), st.just(math.inf)),
    strength=st.floats(0.0, 1.0),
)
def test_one_step_weights_have_mean_one_under_practice(b, advice, max_ratio, strength):
    b = np.asarray(b) / np.sum(b)
    policy = AssistedPolicy.from_practice(jnp.array([advice]), jnp.asarray(b)[None], max_ratio, 4.0, horizon=100)
    policy = replace(policy, strength=jnp.array([strength]))
    rho = np.asarray(policy.rho(jnp.zeros(A, int), jnp.arange(A)))
    assert abs(b @ rho - 1.0) <= 1e-9
    assert rho.min() >= 0.0 and rho.max() <= max_ratio * (1 + 1e-12)
    alpha = float(policy.alpha[0])
    assert 0.0 <= alpha <= 1.0 and (alpha == 0.0 or (b[advice] >= 0.05 and strength > 0.0))


@settings(max_examples=20)
@given(
    support=st.lists(st.floats(0.0, 1.0), min_size=S, max_size=S),
    strength=st.lists(st.floats(-1.0, 2.0), min_size=S, max_size=S),  # what is outside [0, 1] counts as 0 or 1
    states=st.lists(st.integers(-2, S + 1), min_size=8, max_size=8),
    actions=st.lists(st.integers(-1, A), min_size=8, max_size=8),
    max_ratio=st.sampled_from([1.0, 1.7, 30.0]),  # both are public, so each pair is compiled anew
    max_weight=st.sampled_from([1.001, 4.0]),
)
def test_no_stay_weighs_more_than_the_largest_weight(support, strength, states, actions, max_ratio, max_weight):
    policy = assisted(max_ratio, max_weight, jnp.asarray(support), jnp.asarray(strength))
    w, untouched, steps, reach = compiled(policy.weigh, np.asarray(states), np.asarray(actions), np.ones(8, bool))
    assert float(steps[-1]) == float(w)
    assert (np.abs(np.diff(steps, prepend=1.0)) <= np.asarray(reach) * (1 + 1e-12)).all()
    expected = 1.0
    for s, a in zip(states, actions, strict=True):
        if 0 <= s < S and support[s] >= 0.05:
            alpha = share_of(support[s], expected, max_ratio, max_weight, min(max(strength[s], 0.0), 1.0))
            expected *= 1 - alpha + (alpha / support[s] if a == int(policy.advice[s]) else 0.0)
    assert float(w) == pytest.approx(expected, rel=1e-9, abs=1e-300)
    assert 0.0 <= float(untouched) <= float(w) <= max_weight


def share_of(b, w, max_ratio, max_weight, strength=1.0):
    """alpha, as the page of the assisted policy has it."""
    factor = min(max_ratio, max(max_weight / w, 1.0) if w > 0 else math.inf)
    factor = 1.0 + strength * (factor - 1.0)
    return 0.0 if factor <= 1.0 else 1.0 if b >= 1.0 else min(1.0, (factor - 1.0) * b / (1.0 - b))


def contributions(statistic, people):
    return Query("", statistic).answers(people)


def random_world(seed):
    """Kernel, rewards, first state and practice of a world of three states, two actions and three steps."""
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.ones(3), (3, 2))
    return P, rng.random((3, 2)) / 3, rng.dirichlet(np.ones(3)), rng.dirichlet([2.0, 2.0], 3)


def test_the_expected_gain_is_the_difference_of_values_exactly():
    """Every stay of a small world with its probability, under practice and under the assisted policy itself."""
    P, reward, initial, b = random_world(7)
    policy = AssistedPolicy.from_practice(jnp.array([0, 1, 1]), jnp.asarray(b), 1.7, 1.9, horizon=100)
    people, p_practice, p_assisted = [], [], []
    for states in itertools.product(range(3), repeat=4):
        for actions in itertools.product(range(2), repeat=3):
            under_practice = under_advice = initial[states[0]]
            w = 1.0
            for h in range(3):
                s, a = states[h], actions[h]
                advised, support = a == int(policy.advice[s]), b[s, int(policy.advice[s])]
                share = share_of(support, w, 1.7, 1.9) if support >= 0.05 else 0.0
                move = P[s, a, states[h + 1]]
                under_practice *= b[s, a] * move
                under_advice *= ((1 - share) * b[s, a] + share * advised) * move
                w *= 1 - share + share * advised / support
            rewards = reward[list(states[:3]), list(actions)]
            people.append((np.array(states[:3]), np.array(actions), rewards, np.array(states[1:]), np.array(3)))
            p_practice.append(under_practice)
            p_assisted.append(under_advice)
    people = Trajectory(*(jnp.asarray(np.stack(column))[:, None] for column in zip(*people, strict=True)))
    p_practice, p_assisted = np.array(p_practice), np.array(p_assisted)

    def mean(statistic, p):
        return p @ contributions(statistic, people)

    gain = mean(StayReturns(), p_assisted) - mean(StayReturns(), p_practice)
    assert p_practice.sum() == pytest.approx(1.0) and p_assisted.sum() == pytest.approx(1.0)
    for m in (0.0, 0.4, 1.0):
        gains = Gains(policy, centred(m))
        assert mean(gains, p_practice) * gains.units == pytest.approx(gain, abs=1e-12)
    feature = TableValueFeature(2, 3, (), jnp.array([0.2, -0.3, 0.3]))
    for slope in (-0.3, 0.0, 0.1):  # the correction has mean 0 if b* is right, whatever the slope is
        terms = CorrectedGains(policy, feature, centred(0.5), centred(slope))
        assert mean(terms, p_practice) * terms.units == pytest.approx(gain, abs=1e-12)
    weights = Weights(policy)
    assert mean(weights, p_practice) * weights.units == pytest.approx([1.0], abs=1e-12)
    w = contributions(weights, people)[:, 0] * weights.units[0]
    np.testing.assert_allclose(p_practice * w, p_assisted, rtol=1e-9)


@given(p=st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=H, max_size=H))
@settings(max_examples=30)
def test_logged_weights_stay_in_their_range_whatever_the_file_says(p):
    """Statistics do not rely on the checks of a table: any number may stand in place of a probability."""
    people = hostile_people(4)
    logged = np.broadcast_to(np.asarray(p), people.rewards.shape)
    people = Trajectory(*jax.tree.leaves(people), logged)
    weights = Weights(assisted(), PAIRS, logged=True)
    w = contributions(weights, people) * weights.units
    assert np.isfinite(w).all() and (w >= 0.0).all() and (w <= np.array([4.0, 10.0, 20.0]) * (1 + 1e-12)).all()
    gains = Gains(assisted(), centred(0.0), limits=PAIRS, logged=True)
    D = contributions(gains, people) * gains.units
    assert D.min() >= -1.0 - 1e-12 and (D / np.array([3.0, 9.0, 19.0])).max() <= 1 + 1e-12


def test_a_logged_reward_has_the_weight_of_the_decisions_before_it():
    """State 2 (advice 2, b .8, alpha 1), then state 0 (advice 0, b .3), where the program took the advice with
    probability .6 once, and then did not."""
    record = stay([2, 0, 0], [2, 0, 1], [0.5, 0.25, 0.125], [0, 0, 3])
    record = Trajectory(*jax.tree.leaves(record), np.array([[0.8, 0.6, 0.4, *[1.0] * (H - 3)]]))
    w1 = 1 / 0.8
    alpha = 0.5 * 0.3 / 0.7
    w2 = w1 * (1 - alpha + alpha / 0.6)
    w3 = w2 * (1 - alpha)
    gains = Gains(assisted(), centred(0.0), logged=True)
    found = float(contribution(gains, record)[0] * gains.units[0])
    assert found == pytest.approx((w1 - 1) * 0.5 + (w2 - 1) * 0.25 + (w3 - 1) * 0.125)


def test_logged_weights_never_overstate_the_gain():
    """A program that sees more than the record: E[(w-1) G] with its probabilities is the true gain, or less if
    clipped."""
    for limits in ((1.7, 3.0), (5.0, 1.5)):
        policy, people, chances, gain = hidden_bit(limits)
        terms = Gains(policy, centred(0.0), logged=True)
        found = float(chances @ contributions(terms, people)[:, 0] * terms.units[0])
        weights = Weights(policy, logged=True)
        mean = float(chances @ contributions(weights, people)[:, 0] * weights.units[0])
        assert found <= gain + 1e-12 and mean <= 1.0 + 1e-12
        if mean > 1.0 - 1e-12:  # nothing was clipped
            assert found == pytest.approx(gain, abs=1e-12)


def hidden_bit(limits, support=None):
    """Every stay of a small world whose program follows a hidden bit: an assisted policy whose b* is the mean over the
    bit (or `support`), the stays, their probabilities under the program, and the gain of the policy."""
    rng = np.random.default_rng(11)
    taken = np.array([[0.7, 0.3], [0.15, 0.85]])  # by the hidden bit, in every state
    P, reward = rng.dirichlet(np.ones(3), (2, 3, 2)), rng.random((2, 3, 2)) / 3
    b = taken.mean(axis=0) if support is None else np.full(2, support)
    policy = AssistedPolicy(jnp.array([0, 1, 1]), jnp.asarray(b[[0, 1, 1]]), *limits, horizon=100)
    people, chances, advised = [], [], []
    for hidden, states in itertools.product(range(2), itertools.product(range(3), repeat=4)):
        for actions in itertools.product(range(2), repeat=3):
            under_program, under_advice, w = 0.5 / 3, 0.5 / 3, 1.0
            for h in range(3):
                s, a = states[h], actions[h]
                hit, known = a == int(policy.advice[s]), b[int(policy.advice[s])]
                share = share_of(known, w, *limits)
                move, p = P[hidden, s, a, states[h + 1]], taken[hidden, a]
                under_program *= p * move
                under_advice *= ((1 - share) * p + share * hit) * move
                w *= 1 - share + share * hit / known
            kept = np.array(states[:3]), np.array(actions), reward[hidden, list(states[:3]), list(actions)]
            people.append((*kept, np.array(states[1:]), np.array(3), taken[hidden, list(actions)]))
            chances.append(under_program)
            advised.append(under_advice)
    people = Trajectory(*(jnp.asarray(np.stack(column))[:, None] for column in zip(*people, strict=True)))
    gain = (np.array(advised) - np.array(chances)) @ contributions(StayReturns(), people)[:, 0]
    return policy, people, np.array(chances), float(gain)


def test_weights_of_a_randomised_program_are_never_clipped():
    """No action has a probability below .15, whatever the hidden bit is: the gain is exact, centred at any m."""
    policy, people, chances, gain = hidden_bit((5.0, 1.5), support=0.15)
    for m in (0.0, 0.3, 1.0):
        terms = Gains(policy, centred(m), logged=True, least_propensity=0.15)
        assert float(chances @ contributions(terms, people)[:, 0] * terms.units[0]) == pytest.approx(gain, abs=1e-12)
    weights = Weights(policy, logged=True, least_propensity=0.15)
    w = contributions(weights, people)[:, 0] * weights.units[0]
    assert float(chances @ w) == pytest.approx(1.0, abs=1e-12)


def test_the_model_of_a_program_that_sees_more_weighs_each_action_with_its_own_probability():
    """One step, a hidden bit that moves both the program and the reward: the logged sums have the mean of the advice,
    those with the mean probability of the state do not."""
    taken, reward = np.array([0.9, 0.2]), np.array([0.3, 0.8])  # of the advice, by the hidden bit
    feature = TableValueFeature(2, 1, (), jnp.zeros(1))
    policy = AssistedPolicy(jnp.zeros(1, int), jnp.asarray([taken.mean()]), math.inf, math.inf, horizon=100)
    cells = [(bit, action) for bit in (0, 1) for action in (0, 1)]
    chances = np.array([0.5 * (taken[bit] if action == 0 else 1 - taken[bit]) for bit, action in cells])
    p = np.array([[[taken[bit] if action == 0 else 1 - taken[bit]]] for bit, action in cells])
    paying = np.array([[[reward[bit] if action == 0 else 0.0]] for bit, action in cells])
    actions = np.array([[[action]] for _, action in cells])
    shape = (4, 1, 1)
    people = Trajectory(np.zeros(shape, int), actions, paying, np.full(shape, -1), np.ones((4, 1), int), p)
    found = {}
    for logged in (True, False):
        rho_r = StaySums(policy, feature, 1.0, logged)
        copies = jax.vmap(jax.vmap(lambda stay, one=rho_r: one.of(stay, 1.0)[0]))(people)
        found[logged] = float(chances @ np.asarray(copies)[:, 0, 0, 8])  # the sum of rho r
    assert found[True] == pytest.approx(reward.mean())
    assert found[False] < reward.mean() - 0.05


@given(m=st.floats(0.0, 1.0), slope=st.floats(-0.5, 0.5))
@settings(max_examples=20)
def test_corrected_gains_stay_in_their_range(m, slope):
    people = hostile_people(6)
    for squared in (False, True):
        terms = corrected(slope, m, limits=PAIRS, squared=squared)
        low, high = np.array([terms.interval(W) for _, W in PAIRS]).T
        found = contributions(terms, people) * terms.units
        assert (found >= low - 1e-9).all() and (found <= high + 1e-9).all()
        assert (low <= 0.0).all() and (high >= 0.0).all()


def test_a_wrong_estimate_of_practice_is_corrected_as_far_as_the_feature_predicts_returns():
    """One decision, whose state decides the return: b* is a mean over two states with the same cell."""
    practice, f = np.array([0.2, 0.6]), np.array([-1.0, 1.0])
    policy = AssistedPolicy(jnp.array([1, 1]), jnp.full(2, 0.4), 1.5, 4.0, horizon=100)
    pairs = list(itertools.product(range(2), range(2)))
    states, actions = (np.array(x)[:, None, None] for x in zip(*pairs, strict=True))
    rewards = 0.5 + 0.25 * f[states]  # treatment changes nothing, so every gain is 0
    people = Trajectory(states, actions, rewards, np.full_like(states, -1), np.ones((4, 1), int))
    chances = np.array([0.5 * (practice[s] if a == 1 else 1.0 - practice[s]) for s, a in pairs])
    feature = TableValueFeature(2, 1, (), jnp.asarray(f))
    slopes = ReturnSlopes(feature, centred(0.5))
    slope = read_slope(100 * chances @ contributions(slopes, people), 100)
    assert slope == pytest.approx(0.25)
    wrong = chances @ contributions(Gains(policy, centred(0.5)), people)
    right = chances @ contributions(CorrectedGains(policy, feature, centred(0.5), centred(slope)), people)
    assert wrong[0] > 0.005 and right[0] == pytest.approx(0.0, abs=1e-12)


def test_a_slope_has_a_bound_whatever_was_released():
    assert read_slope(np.array([80.0, 100.0]), 1_000) == 0.5 and read_slope(np.array([-9.0, 0.0]), 100) == -0.5
    assert read_slope(np.array([1.0, -50.0]), 100) == pytest.approx(0.2)  # a square that noise has made negative
    assert read_slope(np.array([np.nan, 1.0]), 100) == read_slope(np.array([1.0, np.inf]), 100) == 0.0


def stay(states, actions, rewards, nexts):
    pad = H - len(states)
    return Trajectory(
        np.array([[*states, *[0] * pad]], int),
        np.array([[*actions, *[0] * pad]], int),
        np.array([[*rewards, *[0.0] * pad]], float),
        np.array([[*nexts, *[-1] * pad]], int),
        np.array([len(states)]),
    )


def test_numbers_by_hand():
    """State 0 (advice 0, b .3, alpha .5 * .3/.7), state 1 (advice 1, b .05), state 2 (advice 2, b .8, alpha 1)."""
    record = stay([0, 2, 0], [0, 2, 1], [0.0, 0.0, 1.0], [2, 0, 3])
    alpha = 0.5 * 0.3 / 0.7
    w = 1.5 * (1 / 0.8) * (1 - alpha)
    assert float(contribution(Weights(assisted()), record)[0]) * 2.0 == pytest.approx(w)  # in units of sqrt(4)
    gains = Gains(assisted(), centred(0.4))
    assert float(contribution(gains, record)[0] * gains.units[0]) == pytest.approx((w - 1) * 0.6)
    np.testing.assert_allclose(contribution(Influences(assisted()), record), [w, 0.0])  # alpha is 1 in state 2
    assert float(contribution(Unsupported(assisted(support=jnp.array([0.3, 0.3, 0.04, 0.0]))), record)[0]) == (
        pytest.approx(1 / 3)
    )
    # The advised action was recorded at the first two steps. At the last, it is drawn with probability alpha.
    assert float(contribution(Changed(assisted()), record)[0]) == pytest.approx(alpha / 3)
    # With C = 1.4 and another first action, 5 of 32 draws take the advice first, which ends advice.
    first = 0.4 * 0.3 / 0.7
    last = (1.4 / ((1 - first) * 1.25) - 1) * 0.3 / 0.7
    ended = contribution(Changed(assisted(max_weight=1.4)), stay([0, 2, 0], [1, 2, 1], [0.0, 0.0, 1.0], [2, 0, 3]))
    assert float(ended[0]) == pytest.approx((first + 27 / 32 * last) / 3)
    table = np.asarray(contribution(PracticeTable(assisted(), A, 3.0), record))
    np.testing.assert_allclose(table, [[1, 0], [0, 0], [1, 0], [0, 0]])
    copies, first = compiled(sums().of, jax.tree.map(lambda x: x[0], record), 1.0)
    assert float(first) == -1.0
    f, rho = np.array([-1.0, 0.4, -1.0]), np.array([1 / 0.3, 1 / 0.8, 0.0])
    df, ended, r = np.array([-1.0, 1.0, 0.0]), np.array([0, 0, 1.0]), np.array([0, 0, 1.0])
    x = np.stack([np.ones(3), f, f**2])
    entries = np.concatenate([x, x[:2] * df, x * ended, x[:2] * r])
    np.testing.assert_allclose(copies, [entries @ rho, entries.sum(1)], atol=1e-12)


def test_model_gains_are_cut():
    record = stay([0, 2, 0], [0, 2, 1], [0.0, 0.0, 1.0], [2, 0, 3])
    huge = ModelGains(sums(), jnp.array([100.0, 0.0]), jnp.zeros((2, 10)))
    assert float(contribution(huge, record)[0]) == LARGEST


def test_settings_without_a_bound_are_refused():
    with pytest.raises(ValueError, match="no bound"):
        Gains(assisted(1.5, math.inf), centred(0.5))
    with pytest.raises(ValueError, match="centre"):
        Gains(assisted(), centred(1.5))
    with pytest.raises(ValueError, match="return_range"):
        StayReturns((1.0, 1.0))
    with pytest.raises(ValueError, match="max_ratio"):
        assisted(0.9)
    with pytest.raises(ValueError, match="max_weight"):
        assisted(1.5, 1.0)
    with pytest.raises(ValueError, match="feature"):
        sums(FEATURE * 2)
