import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats
from tests.mdp.worlds import random_policy, random_world

from privrl.mdp.planning import occupancy, policy_value
from privrl.mdp.simulation import flow, flow_transitions, rollout, sample_episodes
from privrl.mdp.types import TabularMDP, TabularPolicy, Trajectory

EPISODES = 40_000
BLOCKS = 5_000
LEVEL = 1e-6  # of every chi-square test in this file
compiled_flow = jax.jit(flow)  # one program per world, whatever the number of episodes


def valid_steps(batch: Trajectory) -> np.ndarray:
    return np.asarray(jax.vmap(lambda trajectory: trajectory.valid)(batch))


def cells(mdp: TabularMDP, policy: TabularPolicy) -> np.ndarray:
    """Exact probability of each (h, s, a, s')."""
    P = np.broadcast_to(mdp.transition, (mdp.horizon, *mdp.transition.shape[1:]))
    return np.asarray(occupancy(mdp, policy))[..., None] * P


def histogram(mdp: TabularMDP, batch: Trajectory) -> np.ndarray:
    counts = np.zeros((mdp.horizon, mdp.num_states, mdp.num_actions, mdp.num_states))
    steps = np.broadcast_to(np.arange(mdp.horizon), batch.states.shape)
    valid = valid_steps(batch)
    index = [np.asarray(x)[valid] for x in (steps, batch.states, batch.actions, batch.next_states)]
    np.add.at(counts, tuple(index), 1)
    return counts


def assert_same_law(counts: np.ndarray, mdp: TabularMDP, policy: TabularPolicy, episodes: int) -> None:
    for observed, p in zip(counts, cells(mdp, policy), strict=True):
        assert not observed[p == 0].any()
        keep = p > 0
        assert stats.chisquare(observed[keep], episodes * p[keep] / p[keep].sum()).pvalue > LEVEL


@pytest.fixture(scope="module", params=[True, False], ids=["stationary", "staged"])
def world(request) -> tuple[TabularMDP, TabularPolicy]:
    mdp = random_world(11, H=4, S=3, A=2, stationary=request.param)
    P = np.array(mdp.transition)
    P[:, 0, 0] = [0.0, 1.0, 0.0]  # impossible moves must never happen
    pi = np.array(random_policy(11, mdp).probabilities)
    pi[1, 2] = [0.0, 1.0]
    return TabularMDP(jnp.asarray(P), mdp.reward, mdp.initial, 4), TabularPolicy(jnp.asarray(pi))


def test_rollout_flow_and_host_sampler_have_the_exact_law(world) -> None:
    mdp, policy = world
    walked = jax.jit(jax.vmap(lambda key: rollout(mdp, policy, key)))(jr.split(jr.key(0), EPISODES))
    assert_same_law(histogram(mdp, walked), mdp, policy, EPISODES)
    assert_same_law(np.asarray(compiled_flow(mdp, policy, jnp.asarray(EPISODES), jr.key(1))), mdp, policy, EPISODES)
    assert_same_law(histogram(mdp, sample_episodes(mdp, policy, EPISODES, jr.key(2))), mdp, policy, EPISODES)


@pytest.mark.parametrize(
    "world", [True, pytest.param(False, marks=pytest.mark.slow)], indirect=True, ids=["stationary", "staged"]
)
def test_small_flows_vary_as_rollouts_do(world) -> None:
    """The number of the three episodes of a block that are in state 0 at the last step is Binomial(3, p)."""
    mdp, policy = world
    blocks = jax.jit(jax.vmap(lambda key: flow(mdp, policy, 3, key)))(jr.split(jr.key(3), BLOCKS))
    last = np.asarray(blocks)[:, -1, 0].sum(axis=(1, 2)).astype(int)
    p = float(occupancy(mdp, policy)[-1, 0].sum())
    expected = BLOCKS * stats.binom.pmf(np.arange(4), 3, p)
    assert stats.chisquare(np.bincount(last, minlength=4), expected).pvalue > LEVEL


@pytest.mark.parametrize("episodes", [0, 1, 17, 10**7])
def test_flow_conserves_people_exactly(world, episodes: int) -> None:
    mdp, policy = world
    counts = np.asarray(compiled_flow(mdp, policy, jnp.asarray(episodes), jr.key(4)))
    assert np.all(counts == np.floor(counts)) and counts.min() >= 0
    assert np.all(counts.sum(axis=(1, 2, 3)) == episodes)
    np.testing.assert_array_equal(counts[:-1].sum(axis=(1, 2)), counts[1:].sum(axis=(2, 3)))  # who arrives goes on


def test_flow_work_does_not_depend_on_the_number_of_episodes(world) -> None:
    """One compiled program serves every block length, and no array in it grows with the block."""
    mdp, policy = world
    programs = {str(jax.make_jaxpr(lambda n: flow(mdp, policy, n, jr.key(0)))(jnp.asarray(n))) for n in (10, 10**6)}
    assert len(programs) == 1
    million = np.asarray(compiled_flow(mdp, policy, jnp.asarray(10**6), jr.key(5)))
    z = (million.sum(axis=-1) / 10**6 - occupancy(mdp, policy)) / np.sqrt(0.25 / 10**6)
    assert np.abs(z).max() < 4.5


def test_flow_transitions_are_rows_with_rewards(world) -> None:
    mdp, policy = world
    counts = compiled_flow(mdp, policy, jnp.asarray(100), jr.key(6))
    rows = flow_transitions(mdp, counts)
    back = np.zeros(counts.shape)
    np.add.at(back, (rows.step, rows.state, rows.action, rows.next_state), np.asarray(rows.count))
    np.testing.assert_array_equal(back, counts)
    g = rows.step if mdp.reward.shape[0] > 1 else 0 * rows.step
    np.testing.assert_allclose(rows.reward, rows.count * mdp.reward[g, rows.state, rows.action], atol=1e-12)


def test_mean_return_of_rollouts_is_the_value(world) -> None:
    mdp, policy = world
    rewards = np.asarray(sample_episodes(mdp, policy, EPISODES, jr.key(7)).rewards.sum(axis=-1))
    z = (rewards.mean() - float(policy_value(mdp, policy))) / (rewards.std() / np.sqrt(EPISODES))
    assert abs(z) < 4.5


def ladder() -> TabularMDP:
    """0 -> 1 -> 2 (goal, absorbing): from 1 the goal is entered with probability 1/2; entering it pays 1."""
    P = np.zeros((1, 3, 1, 3))
    P[0, 0, 0, 1], P[0, 1, 0, 1], P[0, 1, 0, 2], P[0, 2, 0, 2] = 1.0, 0.5, 0.5, 1.0
    return TabularMDP(jnp.asarray(P), jnp.asarray([[[0.0], [0.5], [0.0]]]), jnp.array([1.0, 0.0, 0.0]), 5)


@pytest.mark.parametrize("how", ["rollout", "host"])
def test_episodes_end_on_entering_a_terminal_state_and_are_paid_there(how: str) -> None:
    mdp, policy, arrival = ladder(), TabularPolicy.uniform(5, 3, 1), jnp.array([0.0, 0.0, 1.0])
    if how == "rollout":
        keys = jr.split(jr.key(8), 2000)
        batch = jax.jit(jax.vmap(lambda key: rollout(mdp, policy, key, terminal=(2,), arrival=arrival)))(keys)
    else:
        batch = sample_episodes(mdp, policy, 2000, jr.key(8), terminal=(2,), arrival=arrival)
    length, states, after = map(np.asarray, (batch.length, batch.states, batch.next_states))
    last = after[np.arange(2000), length - 1]
    valid = valid_steps(batch)
    returns = (np.asarray(batch.rewards) * valid).sum(axis=-1)
    assert np.all(states[valid] != 2)
    np.testing.assert_array_equal(returns, last == 2)
    assert np.all(length[last != 2] == 5) and length.min() == 2
    assert abs(returns.mean() - 15 / 16) < 4.5 * np.sqrt(15 / 256 / 2000)


def test_terminal_steps_are_not_rows() -> None:
    mdp, policy, arrival = ladder(), TabularPolicy.uniform(5, 3, 1), jnp.array([0.0, 0.0, 1.0])
    counts = jnp.asarray(histogram(mdp, sample_episodes(mdp, policy, 1000, jr.key(9))))
    rows = flow_transitions(mdp, counts, terminal=(2,), arrival=arrival)
    assert float(rows.reward.sum()) == float(counts[-1, :, :, 2].sum())  # everybody in the goal was paid once
    assert not np.asarray(rows.count)[np.asarray(rows.state) == 2].any()


def test_host_sampler_is_replayable_and_its_chunks_do_not_matter(world) -> None:
    mdp, policy = world
    whole = sample_episodes(mdp, policy, 100, jr.key(10))
    parts = sample_episodes(mdp, policy, 100, jr.PRNGKey(10), chunk=7)
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(parts), strict=True))
    other = sample_episodes(mdp, policy, 100, jr.key(11))
    assert not np.array_equal(whole.states, other.states)
