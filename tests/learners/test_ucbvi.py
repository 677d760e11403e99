"""UCBVI: its plan against plain NumPy, its schedule, and the queries it asks one person under local privacy."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import all_trajectories, compiled, hostile_trajectories, stack, tiny_world
from hypothesis import given
from hypothesis import strategies as st

import privrl
from privrl.contracts.learner import Plan
from privrl.contracts.release import Release
from privrl.mdp.types import TabularPolicy
from privrl.privacy.noise.distributions import GaussianNoise
from privrl.privacy.noise.subset import SubsetSelection, variance_of_sums
from privrl.statistics.counts import TransitionCounts
from privrl.studies.loop import next_plan, no_queries

S, A, H = 2, 2, 3
RIVERS = {"stationary": privrl.envs.RiverSwim, "by stage": privrl.envs.RiverSwimInhomogeneous}


def deterministic(seed, horizon=H, num_states=S, num_actions=A):
    rng = np.random.default_rng(seed)
    actions = rng.integers(0, num_actions, (horizon, num_states))
    return TabularPolicy(jax.nn.one_hot(jnp.asarray(actions), num_actions, dtype=float))


def counts(counting="pooled", asking="first-visit", sizes=(S, A, H)):
    return TransitionCounts(*sizes, counting, asking=asking)


# ------------------------------------------------------------------------------------------------------- the plan


def planned(rewards, n, v, v_of_N, horizon):
    """The box of the module's docstring, in loops."""
    stages, S, A, _ = n.shape
    V, Q = np.zeros(S), np.zeros((horizon, S, A))
    for h in reversed(range(horizon)):
        g = min(h, stages - 1)
        for s, a in itertools.product(range(S), range(A)):
            N, r = n[g, s, a].sum(), rewards[min(h, len(rewards) - 1), s, a]
            if max(2 * np.sqrt(v_of_N[g, s, a]), 0.5) >= N:
                Q[h, s, a] = r + V.max()
                continue
            x = n[g, s, a] / N
            order = np.sort(x)[::-1]
            most = max(j for j in range(1, S + 1) if order[j - 1] - (order[:j].sum() - 1) / j > 0)
            p = np.maximum(x - (order[:most].sum() - 1) / most, 0.0)
            m = p @ V
            spread = (v[g, s, a] * (V - m) ** 2).sum() / N**2 + (p * (V - m) ** 2).sum() / N
            Q[h, s, a] = r + min(m + np.sqrt(spread) + np.ptp(V) / N, V.max())
        V = Q[h].max(axis=-1)
    return Q


nothing_to_ask = no_queries()


@pytest.mark.parametrize("stationary", [True, False])
def test_the_plan_is_the_box(stationary):
    rng = np.random.default_rng(3)
    S, A, H = 4, 3, 5
    stages = 1 if stationary else H
    rewards = rng.uniform(size=(stages, S, A))
    n = rng.normal(20, 25, (stages, S, A, S))
    learner = privrl.UCBVI(jnp.asarray(rewards), H, stationary=stationary)
    shape = learner._counts().shape
    gaussian = GaussianNoise(7.0, shape)
    answers = compiled(SubsetSelection(S + 1, 1.0).noise, n.reshape(shape), np.full(shape, 60.0))
    for noise in (gaussian, answers):
        v = np.broadcast_to(np.asarray(noise.variance), shape).reshape(n.shape)
        v_of_N = np.asarray(compiled(variance_of_sums, noise)).reshape(n.shape[:-1])
        assert 0 < (n.sum(-1) > 2 * np.sqrt(v_of_N)).mean() < 1  # both kinds of cells are there
        release = {"transitions": Release(jnp.asarray(n.reshape(shape)), noise)}
        _, plan = next_plan(learner, None, release, nothing_to_ask, jnp.asarray(9))
        Q = planned(rewards, n, v, v_of_N, H)
        expected = TabularPolicy.greedy(jnp.asarray(Q)).probabilities
        np.testing.assert_array_equal(plan.policy.probabilities, expected)


@given(st.integers(1, 3_000), st.floats(1.01, 3.0), st.integers(1, 60))
def test_blocks_are_at_least_as_large_as_the_first(users, growth, first):
    learner = privrl.UCBVI(jnp.zeros((1, 2, 2)), 3, growth=growth, first_block=first)
    sizes = np.diff(learner.blocks(users), prepend=0)
    assert sizes.min() >= min(first, users)
    assert sizes[0] < 2 * first or len(sizes) == 1
    assert learner.declare(len(sizes))[0].smallest <= sizes.min()


def test_ten_thousand_users_take_few_plans():
    assert len(privrl.UCBVI(jnp.zeros((1, 2, 2)), 3).blocks(10_000)) < 100
    assert len(privrl.UCBVI(jnp.zeros((1, 2, 2)), 3, growth=1.25).blocks(10_000)) < 30


# -------------------------------------------------------------------------------------------------- the queries


def answer_by_hand(trajectory, policy, counting, asking, index):
    """(cell, symbol) of person number `index`, in plain Python."""
    rows = [
        tuple(int(x[i]) for x in (trajectory.states, trajectory.actions, trajectory.next_states))
        for i in range(int(trajectory.length))
    ]
    greedy = np.asarray(policy.probabilities).argmax(axis=-1)
    if asking == "stage-pair":
        h = index % H
        return h, (rows[h][0] * S + rows[h][2] if h < len(rows) else S * S)
    if counting == "per-stage":
        h, s = divmod(index % (H * S), S)
        here = [after for i, (state, action, after) in enumerate(rows) if (i, state, action) == (h, s, greedy[h, s])]
        return (h, s, greedy[h, s]), (here[0] if here else S)
    played = sorted({(s, greedy[h, s]) for h in range(H) for s in range(S)})
    s, a = played[index % len(played)]
    here = [after for state, action, after in rows if (state, action) == (s, a)]
    return (s, a), (here[0] if here else S)


@pytest.mark.parametrize("asking", ["first-visit", "stage-pair"])
@pytest.mark.parametrize("counting", ["pooled", "per-stage"])
def test_every_record_answers_as_by_hand(counting, asking):
    statistic = counts(counting, asking)
    trajectories = list(all_trajectories(H, S, A, rewards=(0.0,)))
    records = stack(trajectories)
    symbols = jax.jit(
        jax.vmap(lambda record, index, policy: statistic.symbol(record, Plan(policy), index), in_axes=(0, None, None))
    )
    for index, seed in ((0, 0), (1, 0), (2, 1), (5, 2), (13, 2)):
        policy = deterministic(seed)
        found = np.asarray(symbols(records, jnp.asarray(index), policy))
        expected = [answer_by_hand(t, policy, counting, asking, index)[1] for t in trajectories]
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("counting", ["pooled", "per-stage"])
def test_answers_are_tallied_where_they_were_asked(counting):
    policy, statistic = deterministic(5), counts(counting)
    trajectory = next(iter(all_trajectories(H, S, A, rewards=(0.0,))))
    for index in range(9):
        table = np.asarray(compiled(statistic.tally, np.array([0.25, -1.5, 9.0]), Plan(policy), np.asarray(index)))
        cell, _ = answer_by_hand(trajectory, policy, counting, "first-visit", index)
        expected = np.zeros(statistic.shape)
        expected[cell] = [0.25, -1.5]
        np.testing.assert_array_equal(table, expected)
    pairs = counts(counting, "stage-pair")
    table = np.asarray(compiled(pairs.tally, np.arange(5.0), Plan(policy), np.asarray(4)))
    expected = np.zeros(pairs.shape)
    action = np.asarray(policy.probabilities)[1].argmax(axis=-1)
    for s, after in itertools.product(range(S), range(S)):
        expected[(1, s, action[s], after) if counting == "per-stage" else (s, action[s], after)] = s * S + after
    np.testing.assert_array_equal(table, expected)


def test_a_first_visit_is_a_fair_draw_of_the_kernel():
    """Summed over all trajectories of a small world: given that it is not "never", the answer has the distribution
    P(.|s,a).
    """
    env = tiny_world(horizon=H, num_states=S)
    P, start = np.asarray(env.mdp.transition[0]), np.asarray(env.mdp.initial)
    statistic = counts()
    trajectories = list(all_trajectories(H, S, A, rewards=(0.0,), lengths=[H]))
    for seed, index in ((0, 0), (3, 1), (4, 2)):
        policy = deterministic(seed)
        greedy = np.asarray(policy.probabilities).argmax(axis=-1)
        distribution = np.zeros(S + 1)
        for t in trajectories:
            states, actions, after = (np.asarray(x) for x in (t.states, t.actions, t.next_states))
            if any(actions[h] != greedy[h, states[h]] for h in range(H)):
                continue
            chance = start[states[0]] * np.prod([P[states[h], actions[h], after[h]] for h in range(H)])
            distribution[answer_by_hand(t, policy, "pooled", "first-visit", index)[1]] += chance
        (s, a), _ = answer_by_hand(trajectories[0], policy, "pooled", "first-visit", index)
        assert distribution.sum() == pytest.approx(1.0)
        np.testing.assert_allclose(distribution[:S] / distribution[:S].sum(), P[s, a], rtol=1e-12)
        assert statistic.num_symbols == len(distribution)


@pytest.mark.parametrize("asking", ["first-visit", "stage-pair"])
@pytest.mark.parametrize("counting", ["pooled", "per-stage"])
def test_hostile_records_answer_within_the_symbols(counting, asking):
    statistic = counts(counting, asking, (3, 2, 4))
    records = hostile_trajectories(4, 3, 2)
    policy = deterministic(0, 4, 3, 2)
    for index in (0, 3, 10):
        found = jax.jit(jax.vmap(lambda x, i=index: statistic.symbol(x, Plan(policy), jnp.asarray(i))))(records)
        assert ((found >= 0) & (found < statistic.num_symbols)).all()


def test_which_query_is_asked():
    rewards = jnp.zeros((1, 5, 2))
    assert privrl.UCBVI(rewards, 10)._counts().num_symbols == 6
    assert privrl.UCBVI(rewards, 10, stationary=False)._counts().num_symbols == 26
    assert privrl.UCBVI(rewards, 10, asking="stage-pair")._counts().num_symbols == 26
    assert privrl.UCBVI(rewards, 10, stationary=False, asking="first-visit")._counts().num_symbols == 6


# ------------------------------------------------------------------------------------------------------ it learns


def share(river, states, privatizer, episodes, seeds=10, key=2031, **settings):
    env = RIVERS[river](states)
    learner = privrl.UCBVI(env.rewards, env.horizon, stationary=env.stationary, **settings)
    result = privrl.run(env, learner, privatizer, episodes=episodes, seeds=seeds, key=jax.random.key(key))
    return float(result.total_regret.mean() / (float(env.regret(env.uniform_policy())) * episodes))


def test_it_learns_from_answers_of_several_symbols():
    """3 states, epsilon = 1/2: sets of two symbols. Half of the uniform policy's regret after 6,000 people."""
    assert share("stationary", 3, privrl.Local(epsilon=0.5), 6_000, seeds=4) < 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("river", "states", "epsilon", "episodes", "most"),
    [
        ("stationary", 3, 5.0, 10_000, 0.02),
        ("stationary", 4, 5.0, 10_000, 0.05),
        ("stationary", 5, 5.0, 10_000, 0.10),
        ("by stage", 3, 5.0, 10_000, 0.06),
        ("by stage", 4, 5.0, 10_000, 0.20),
        ("by stage", 5, 5.0, 10_000, 0.45),
        ("stationary", 3, 1.0, 10_000, 0.2),
        ("stationary", 5, 2.0, 100_000, 0.1),
        ("stationary", 5, 1.0, 100_000, 0.35),
    ],
)
def test_local_privacy_learns(river, states, epsilon, episodes, most):
    """Mean regret over that of the uniform policy, 10 seeds, ties at random, one setting for all."""
    assert share(river, states, privrl.Local(epsilon=epsilon), episodes) <= most
