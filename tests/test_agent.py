"""The live agent: what a simulation would do, kept across crashes, never a person or a release twice."""

import os
import signal
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import tiny_world

import privrl
from privrl._run import SimulationKeys
from privrl.privacy import BurntError, PairingError, StoreError

ENV = tiny_world(horizon=3)
LEARNER = privrl.UCBVI(ENV.rewards, 3, first_block=5, growth=1.5)
PRIVATE = privrl.Central(epsilon=3.0, delta=1e-5)
USERS = 40


def walk(agent, env, person):
    """One person walks through the world with the agent's actions and the simulation's luck."""
    coins = np.asarray(jax.random.uniform(person, (env.horizon + 1, 2)))
    pick = lambda p, u: int(np.argmax((p > 0) & (np.cumsum(p) > u * p.sum())))  # noqa: E731
    state = pick(np.asarray(env.mdp.initial), coins[0, 0])
    states, actions, rewards, after = [], [], [], []
    for h in range(env.horizon):
        action = agent.act(state, h)
        following = pick(np.asarray(env.mdp.transition[0, state, action]), coins[h + 1, 1])
        states.append(state)
        actions.append(action)
        rewards.append(float(env.rewards[0, state, action]))
        after.append(following)
        state = following
    return privrl.mdp.Trajectory(
        jnp.array(states), jnp.array(actions), jnp.array(rewards), jnp.array(after), jnp.array(env.horizon)
    )


def person_key(key, ends, index):
    return SimulationKeys.of(key).person(int(np.searchsorted(ends, index, side="right")), index)


@pytest.mark.parametrize(
    "continual",
    ["square-root", pytest.param("tree", marks=pytest.mark.slow), pytest.param("fresh", marks=pytest.mark.slow)],
)
def test_decides_as_the_simulation_with_the_same_randomness(tmp_path, continual):
    """Action by action and plan by plan; the agent is closed and opened again on the way."""
    key = jax.random.key(5)
    private = privrl.Central(epsilon=3.0, delta=1e-5, continual=continual)
    simulated = privrl.run(ENV, LEARNER, private, episodes=USERS, key=key, flow=False)
    seed = jax.random.split(key, (1, 1))[0, 0]
    ends = LEARNER.blocks(USERS)
    regret = []
    store = privrl.ReleaseStore(tmp_path / "s.db")
    agent = privrl.Agent(LEARNER, private, num_users=USERS, store=store, key=seed)
    for index in range(USERS):
        if index in (3, 17, 33):
            store.close()
            store = privrl.ReleaseStore(tmp_path / "s.db")
            agent = privrl.Agent(LEARNER, private, num_users=USERS, store=store, key=seed)
            assert agent.num_seen == index
        if index in (0, *ends[:-1]):
            regret.append(float(ENV.regret(agent.policy)))
        person = person_key(seed, ends, index)
        trajectory = walk(agent, ENV, person)
        expected = ENV.rollout(agent.policy, person)
        np.testing.assert_array_equal(trajectory.actions, expected.actions)
        np.testing.assert_array_equal(trajectory.next_states, expected.next_states)
        assert agent.end_episode(trajectory, f"user {index}")
    np.testing.assert_allclose(regret, simulated.block_regret[0], atol=1e-9)
    np.testing.assert_allclose(agent.policy.probabilities, simulated.policy.probabilities[0], atol=1e-9)
    assert "simulation" in agent.certificate.noise_source


def some(index):
    return ENV.rollout(ENV.uniform_policy(), jax.random.fold_in(jax.random.key(0), index))


def test_real_noise_budget_and_refusals(tmp_path):
    with privrl.ReleaseStore(tmp_path / "s.db") as store:
        agent = privrl.Agent(LEARNER, PRIVATE, num_users=USERS, store=store)
        people = [some(i) for i in range(USERS)]
        assert all(agent.end_episodes(people[:30], [f"u{i}" for i in range(30)]))
        assert agent.num_seen == 30
        assert agent.end_episode(people[3], "u3") is False  # in an earlier block: still counted once
        assert agent.num_seen == 30
        for i in range(30, USERS):
            assert agent.end_episode(people[i])
        with pytest.raises(PairingError, match="All 40 users"):
            agent.end_episode(people[0], "one more")
        with pytest.raises(ValueError, match="step"):
            agent.act(0, 3)
        assert agent.num_seen == USERS
        certificate = agent.certificate
        assert certificate.notion == "joint"
        assert certificate.epsilon <= 3.0
        assert certificate.recomputed() <= 3.0
        assert "lattice" in certificate.noise_source
        blocks = len(LEARNER.blocks(USERS))
        assert [r["counted"] for r in certificate.releases] == [blocks]
        shown = store.shown()
        assert shown["spent"] == shown["limits"] == {"releases of transitions": float(blocks)}
        with pytest.raises(StoreError, match="differs in"):
            privrl.Agent(LEARNER, privrl.Central(epsilon=4.0, delta=1e-5), num_users=USERS, store=store)


def test_exact_releases_are_the_sums_plus_noise_of_the_declared_law(tmp_path):
    """One release of a stream without noise worth speaking of: the running counts themselves."""
    with privrl.ReleaseStore(tmp_path / "s.db") as store:
        agent = privrl.Agent(LEARNER, privrl.Central(rho=1e7), num_users=USERS, store=store)
        people = [some(i) for i in range(USERS)]
        agent.end_episodes(people)
        exact = sum(LEARNER._counts().contribution(p, None) for p in people)
        released = agent._released["transitions"]
        np.testing.assert_allclose(released.value, exact, atol=8 * float(released.noise.std))
        assert float(released.noise.std) < 0.01
        assert not np.array_equal(released.value, exact)


def test_who_is_not_fit_for_live_use_is_refused(tmp_path):
    with privrl.ReleaseStore(tmp_path / "s.db") as store:
        with pytest.raises(PairingError, match="Central"):
            privrl.Agent(LEARNER, privrl.NonPrivate(), num_users=USERS, store=store)
        with pytest.raises(PairingError, match="finite budget"):
            privrl.Agent(LEARNER, privrl.Central(epsilon=float("inf")), num_users=USERS, store=store)


def test_sums_are_continued_on_their_own_lattice_only(tmp_path, monkeypatch):
    """Units of another granularity in the same sum would break the sensitivity."""
    with privrl.ReleaseStore(tmp_path / "s.db") as store:
        privrl.Agent(LEARNER, PRIVATE, num_users=USERS, store=store)
        monkeypatch.setattr(privrl.privacy.ExactStream, "fingerprint", lambda self: b"another computer")
        with pytest.raises(ValueError, match="rounds the public numbers"):
            privrl.Agent(LEARNER, PRIVATE, num_users=USERS, store=store)


PROGRAM = textwrap.dedent(
    """
    import os, signal, sys
    import jax
    import privrl
    from test_agent import LEARNER, PRIVATE, USERS, some
    from privrl.privacy._store import ReleaseStore

    path, point, after = sys.argv[1], sys.argv[2], int(sys.argv[3])

    class Mortal(ReleaseStore):
        left = after
        def _reached(self, where):
            if where == point:
                Mortal.left -= 1
                if Mortal.left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

    agent = privrl.Agent(LEARNER, PRIVATE, num_users=USERS, store=Mortal(path, after_crash="redraw"))
    for i in range(USERS):
        agent.end_episode(some(i), f"u{i}")
    print("done")
    """
)


def start(path, point, after):
    arguments = [sys.executable, "-c", PROGRAM, str(path), point, str(after)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
    return subprocess.run(arguments, capture_output=True, text=True, env=environment, timeout=300)


@pytest.mark.slow
def test_killed_agents_go_on_and_nobody_counts_twice(tmp_path):
    path = tmp_path / "s.db"
    killed = start(path, "drawn", 2)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    with privrl.ReleaseStore(path) as store:  # the default is to burn what was reserved
        with pytest.raises(BurntError, match="burnt by a crash"):
            privrl.Agent(LEARNER, PRIVATE, num_users=USERS, store=store)
        kept = store.value("transitions/0")
    killed = start(path, "persist:committed", 3)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    finished = start(path, "never", 1)
    assert finished.stdout.strip() == "done", finished.stderr
    with privrl.ReleaseStore(path) as store:
        agent = privrl.Agent(LEARNER, PRIVATE, num_users=USERS, store=store)
        assert agent.num_seen == USERS
        np.testing.assert_array_equal(store.value("transitions/0"), kept)
        counted = sum(store.total(f"block {t}") for t in range(len(LEARNER.blocks(USERS))))
        grid = agent._streams["transitions"].lattice.granularity
        exact = sum(LEARNER._counts().contribution(some(i), None) for i in range(USERS))
        np.testing.assert_array_equal(counted.reshape(exact.shape) * grid, exact)
        assert "transitions/1" in agent.certificate.notes[0]


def test_a_controller_decides_as_the_simulation(tmp_path):
    """The live side of linear control: same inputs, same releases, across a restart; saved and loaded."""
    env = privrl.envs.LQScalar()
    learner = privrl.CautiousLQ(env.task, first_block=10)
    key = jax.random.key(8)
    simulated = privrl.run(env, learner, PRIVATE, episodes=25, key=key)
    seed = jax.random.split(key, (1, 1))[0, 0]
    ends, regret = learner.blocks(25), []
    for index in range(25):
        with privrl.ReleaseStore(tmp_path / "s.db") as store:
            agent = privrl.Controller(learner, PRIVATE, num_users=25, store=store, key=seed)
            if index in (0, *ends[:-1]):
                regret.append(float(env.regret(agent.policy)))
            expected = env.rollout(agent.policy, person_key(seed, ends, index))
            for h in range(env.horizon):
                u, v = agent.act(np.asarray(expected.states[h]), h)
                np.testing.assert_allclose(u, expected.inputs[h], atol=1e-12)
                np.testing.assert_allclose(v, expected.exploration[h], atol=1e-12)
            assert agent.end_episode(expected, f"user {index}")
            result = agent.result()
    np.testing.assert_allclose(regret, simulated.block_regret[0], atol=1e-7)
    np.testing.assert_allclose(result.policy.gains, simulated.policy.gains[0], atol=1e-6)
    loaded = privrl.Result.load(result.save(tmp_path / "policy"))
    np.testing.assert_array_equal(loaded.policy.gains, result.policy.gains)
    np.testing.assert_array_equal(loaded.policy.radius, result.policy.radius)
    with privrl.ReleaseStore(tmp_path / "real.db") as store:
        real = privrl.Controller(learner, PRIVATE, num_users=25, store=store)
        u, v = real.act(np.array([0.5]), 0)
        assert np.linalg.norm(v) == pytest.approx(float(real.policy.radius))
        np.testing.assert_allclose(u - v, np.asarray(real.policy.gains[0]) @ np.array([0.5]))
        with pytest.raises(ValueError, match="finite"):
            real.act(np.array([np.nan]), 0)
        for index in range(25):
            real.end_episode(env.rollout(real.policy, jax.random.fold_in(key, index)))
        assert "lattice" in real.certificate.noise_source
        assert real.certificate.epsilon <= 3.0
