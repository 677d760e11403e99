"""LSVIUCB against a plain rendering, release by release; its pieces against exact counts; and what it learns."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import of_rows, tiny_world
from learners.reference_lsvi_ucb import Block, ReferenceLSVIUCB, is_optimistic, onto_simplex

import privrl
from privrl.contracts.release import Release
from privrl.learners.linear.lsvi_ucb import LSVIUCB, explore_then_exploit
from privrl.learners.linear.transition_moments import constant_weights, gram_of_counts, pair_counts, state_counts
from privrl.learners.tabular.consistency import lowered_to
from privrl.mdp.features import OneHotFeatures, TableFeatures
from privrl.mdp.types import TabularPolicy
from privrl.privacy.noise.distributions import GaussianNoise
from privrl.studies.loop import next_plan, no_queries

H, S, A = 4, 3, 2


def general_features(seed=2):
    """Features with a constant part, as every linear MDP has one."""
    z = np.random.default_rng(seed).normal(size=(S, A, 3))
    phi = np.concatenate([np.ones((S, A, 1)), z / np.linalg.norm(z, axis=-1, keepdims=True)], axis=-1) / np.sqrt(2)
    return TableFeatures(jnp.asarray(phi))


nobody = no_queries()


def ending_world():
    """The tiny world, whose last state ends episodes and pays on entry."""
    world = tiny_world()
    P = np.array(world.mdp.transition)
    P[:, -1] = np.eye(S)[-1]
    arrival = np.array([0.0, 0.3, 1.0])
    r = P @ arrival
    r[:, -1] = 0.0
    mdp = eqx.tree_at(lambda m: (m.transition, m.reward), world.mdp, (jnp.asarray(P), jnp.asarray(r)))
    env = privrl.envs.Env(mdp, world.features, world.behaviour, "ending", terminal=(2,), arrival=jnp.asarray(arrival))
    return env, {"arrival_rewards": env.arrival, "terminal": (2,)}


def cases():
    env = tiny_world()
    known = {"rewards": env.rewards}
    central = privrl.Central(epsilon=50.0, delta=1e-5)  # enough for the noise not to hide everything in 40 people
    yield "one-hot", env, env.features, known, central
    yield "no privacy", env, general_features(), known, privrl.NonPrivate()
    yield "unknown rewards", env, general_features(), {}, central
    yield "every episode", env, general_features(), {**known, "every_episode": True}, central
    ending, settings = ending_world()
    yield "endings", ending, env.features, settings, central
    yield "endings, no privacy", ending, env.features, settings, privrl.NonPrivate()


SLOW = ("one-hot", "endings", "no privacy", "unknown rewards", "endings, no privacy")


@pytest.mark.parametrize(
    ("env", "features", "settings", "privatizer"),
    [pytest.param(*case, id=name, marks=[pytest.mark.slow] if name in SLOW else []) for name, *case in cases()],
)
def test_it_is_the_algorithm_release_by_release(env, features, settings, privatizer):
    """The same people and the same noise: the policies and Gram matrices agree at every plan."""
    users = 12 if settings.get("every_episode") else 40
    learner = LSVIUCB(features, H, bonus=0.4, **settings)
    plain = ReferenceLSVIUCB(
        np.asarray(features.table),
        H,
        None if "rewards" not in settings else np.asarray(settings["rewards"]),
        None if "arrival_rewards" not in settings else np.asarray(settings["arrival_rewards"]),
        settings.get("terminal", ()),
        0.4,
    )
    ends = learner.blocks(users)
    assert np.diff(ends).max() <= 16
    declared = learner.declare(len(ends))
    ledger = privatizer.calibrate(declared)
    channels = {d.name: privatizer.channel(d, ledger) for d in declared}
    inner = {name: channel.init() for name, channel in channels.items()}
    released = {name: channel.empty() for name, channel in channels.items()}
    memory, begin, mixed = learner.init(), 0, 0
    plan = eqx.filter_jit(lambda m, r, n: next_plan(learner, m, r, nobody, n))
    total = {name: eqx.filter_jit(channel.statistic.total) for name, channel in channels.items()}
    live = [s for s in range(S) if s not in plain.terminal]
    for t, end in enumerate([*ends, None]):
        memory, published = plan(memory, released, jnp.asarray(begin))
        expected = plain.plan(settings.get("every_episode") or is_optimistic(begin))
        np.testing.assert_allclose(published.policy.probabilities, expected, atol=1e-10)
        np.testing.assert_allclose(memory.gram, plain.gram, rtol=1e-10, atol=1e-10)
        mixed += int((expected[:, live] % 1 > 0).any())
        if end is None:
            break
        people = env.sample(published.policy, 16, jax.random.key(100 + t))
        people = eqx.tree_at(lambda p: p.length, people, jnp.where(jnp.arange(16) < end - begin, people.length, 0))
        for c, (name, channel) in enumerate(channels.items()):
            white = jax.random.normal(jax.random.fold_in(jax.random.key(7 + c), t), channel.statistic.shape)
            terms = total[name](people, None)
            inner[name], released[name] = channel.publish(
                inner[name], terms, jnp.asarray(t), lambda i, white=white: white
            )
        plain.history.append(
            Block(
                np.asarray(released["moments"].value),
                np.asarray(released["starts"].value),
                float(released["moments"].noise.variance),
                float(released["starts"].noise.variance),
                int(end),
                expected,
            )
        )
        begin = int(end)
    assert mixed < len(ends)  # the comparison is not one of ties alone


def test_the_schedule_is_public_and_does_not_look_ahead():
    learner = LSVIUCB(OneHotFeatures(2, 2), 3, rewards=jnp.zeros((1, 2, 2)))
    long = learner.blocks(10**6)
    assert len(long) == 96
    for users in (1, 2, 37, 1000, 123_456):
        ends = learner.blocks(users)
        np.testing.assert_array_equal(ends[:-1], long[: len(ends) - 1])
    ends, explores = explore_then_exploit(1.3, 0.1)
    sizes = np.diff(ends, prepend=0)
    first = np.flatnonzero((ends > 1000) & explores)[:40]
    np.testing.assert_allclose(sizes[first] * 9, sizes[first + 1], rtol=0.1)
    assert not explores[first + 1].any()
    assert (sizes >= 1).all() and explores[0] and ends[-1] >= 2**53
    np.testing.assert_array_equal(LSVIUCB(OneHotFeatures(2, 2), 3, every_episode=True).blocks(5), np.arange(1, 6))


@pytest.mark.slow
def test_exact_moments_give_exact_counts_and_gram():
    """Without noise arrivals tell where people were; departures tell what they did."""
    env, settings = ending_world()
    features = env.features
    policy = env.uniform_policy()
    flow = env.flow(policy, 300, jax.random.key(0))
    rows = env.transitions(flow)
    learner = LSVIUCB(features, H, **settings)
    moments, starts = (of_rows(d.statistic, rows) for d in learner.declare(1))
    live, zero = jnp.asarray([True, True, False]), jnp.zeros(())
    pi = policy.probabilities
    n = state_counts(moments, starts, pi, features, live, jnp.asarray(300.0), zero, zero)
    first = jnp.sum(flow, axis=(2, 3))[0, 2]  # who begins in the terminal state takes no step, and is not seen at all
    truth = jnp.sum(flow, axis=(2, 3)).at[:, 2].add(-first)
    spread = truth + first / S  # the projection spreads who is missing
    assert float(jnp.abs(n - spread).max()) <= float(first) + 1e-9
    np.testing.assert_allclose(n.sum(axis=1), 300.0)
    taken = jnp.where(live[None, :, None], jnp.sum(flow, axis=3), 0.0)
    pairs = pair_counts(taken.sum(axis=2), pi, features.table, moments.sum(axis=1), zero)
    np.testing.assert_allclose(pairs, taken, atol=0.01)
    expected = np.einsum("hsa,sai,saj->hij", taken, features.table, features.table)
    np.testing.assert_allclose(gram_of_counts(taken, features.table), expected, atol=1e-9)


@pytest.mark.slow
def test_noise_is_averaged_between_arrivals_and_departures():
    """Both estimates are unbiased, and together they err less than arrivals alone (|z| < 4.5 on the mean error).

    The quick tests compare plans with those of plain NumPy, above.
    """
    features = general_features()
    world = tiny_world()
    pi = TabularPolicy.greedy(jnp.asarray(np.random.default_rng(0).uniform(size=(H, S, A)))).probabilities
    flow = world.flow(TabularPolicy(pi), 1000, jax.random.key(1))
    rows = world.transitions(flow)
    learner = LSVIUCB(features, H, rewards=world.rewards)
    moments, starts = (of_rows(d.statistic, rows) for d in learner.declare(1))
    truth = jnp.sum(flow, axis=(2, 3))
    live, length, variance = jnp.ones(S, bool), jnp.asarray(1000.0), jnp.asarray(4.0)

    def once(key):
        noise = 2.0 * jax.random.normal(key, moments.shape)
        more = 2.0 * jax.random.normal(jax.random.fold_in(key, 1), starts.shape)
        n = state_counts(moments + noise, starts + more, pi, features, live, length, variance, variance)
        return n - truth, (moments + noise)[:-1] @ constant_weights(features) - truth[1:]

    errors, alone = jax.jit(jax.vmap(once))(jax.random.split(jax.random.key(2), 400))
    z = errors.mean(axis=0) / (errors.std(axis=0) / 20.0)
    assert float(jnp.abs(z).max()) < 4.5
    assert float((errors[:, 1:] ** 2).mean()) < 0.7 * float((alone**2).mean())


def test_the_projection_of_the_reference_is_that_of_the_library():
    x = np.random.default_rng(4).normal(size=(50, 5)) * 10
    totals = np.random.default_rng(5).uniform(0, 30, 50)
    ours = lowered_to(jnp.asarray(x), jnp.asarray(totals))
    np.testing.assert_allclose(ours, [onto_simplex(row, t) for row, t in zip(x, totals, strict=True)], atol=1e-12)


@pytest.mark.slow
def test_several_bonuses_run_together():
    env = tiny_world()
    rows = env.transitions(env.flow(env.uniform_policy(), 50, jax.random.key(0)))

    def policy(bonus):
        learner = LSVIUCB(env.features, H, rewards=env.rewards, bonus=bonus, every_episode=True)
        released = {
            d.name: Release(d.statistic.of_rows(rows), GaussianNoise(0.0, d.statistic.shape))
            for d in learner.declare(1)
        }
        return learner.plan(learner.init(), released, nobody, jnp.asarray(50))[1].policy.probabilities

    bonuses = jnp.asarray([0.0, 0.3, 3.0])
    together = jax.jit(jax.vmap(policy))(bonuses)
    for bonus, found in zip(bonuses, together, strict=True):
        np.testing.assert_allclose(found, policy(bonus), atol=1e-12)
    assert float(jnp.abs(together[0] - together[2]).max()) > 0


@pytest.mark.slow
def test_it_learns_privately():
    """RiverSwim with 4 states, where no data-free policy is any good: a fifth of the regret of uniform play."""
    env = privrl.envs.RiverSwim(states=4, horizon=12, kind="osband")
    learner = LSVIUCB(env.features, 12, rewards=env.rewards)
    central = privrl.Central(epsilon=10.0, delta=1e-5)
    result = privrl.run(env, learner, central, episodes=20_000, seeds=3, key=jax.random.key(0))
    uniform = 20_000 * float(env.regret(env.uniform_policy()))
    assert (result.total_regret < 0.2 * uniform).all()
    assert (result.block_regret[:, -1] < 0.05 * uniform / 20_000).all()


@pytest.mark.slow
def test_rewards_can_be_learnt_too():
    env = tiny_world()
    central = privrl.Central(epsilon=10.0, delta=1e-5)
    result = privrl.run(env, LSVIUCB(env.features, H), central, episodes=20_000, seeds=2, key=jax.random.key(1))
    uniform = float(env.regret(env.uniform_policy()))
    assert (result.block_regret[:, -1] < 0.1 * uniform).all()
    assert result.certificate.bounds["rewards"] == "estimated"


def test_what_cannot_work_is_refused():
    features, rewards = OneHotFeatures(2, 2), jnp.zeros((1, 2, 2))
    with pytest.raises(ValueError, match="`growth`"):
        LSVIUCB(features, 3, rewards=rewards, growth=1.0)
    with pytest.raises(ValueError, match="both given"):
        LSVIUCB(features, 3, rewards=rewards, arrival_rewards=jnp.zeros(2))
    with pytest.raises(ValueError, match=r"`terminal` is \(2,\)"):
        LSVIUCB(features, 3, rewards=rewards, terminal=(2,))
    table = jnp.asarray(np.random.default_rng(0).uniform(-0.4, 0.4, (3, 3, 2)))
    with pytest.raises(ValueError, match="constantly 1"):
        LSVIUCB(TableFeatures(table), 3)
