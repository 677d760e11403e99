"""The live agent: what a simulation would do, kept across crashes, never a person or a release twice."""

import datetime
import functools
import os
import signal
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import contribution, tiny_world

import privrl
from privrl.cli import main
from privrl.privacy.noise.lattice import Lattice
from privrl.privacy.store.errors import BurntError, StoreError
from privrl.privacy.trust.exact_channels import ExactChannel
from privrl.privacy.trust.privatizers import PairingError
from privrl.studies.live import live_plans
from privrl.studies.results.certification import certify
from privrl.studies.simulation.simulated_loop import SimulationKeys

ENV = tiny_world(horizon=3)
LEARNER = privrl.UCBVI(ENV.rewards, 3, first_block=5, growth=1.5)
PRIVATE = privrl.Central(epsilon=3.0, delta=1e-5)
USERS = 40


def walk(agent, ticket, env, person):
    """One person walks through the world with the agent's actions and the simulation's coins."""
    coins = np.asarray(jax.random.uniform(person, (env.horizon + 1, 2)))
    pick = lambda p, u: int(np.argmax((p > 0) & (np.cumsum(p) > u * p.sum())))  # noqa: E731
    state = pick(np.asarray(env.mdp.initial), coins[0, 0])
    states, actions, rewards, after = [], [], [], []
    for h in range(env.horizon):
        action = agent.act(ticket, state, h)
        following = pick(np.asarray(env.mdp.transition[0, state, action]), coins[h + 1, 1])
        states.append(state)
        actions.append(action)
        rewards.append(float(env.rewards[0, state, action]))
        after.append(following)
        state = following
    return privrl.mdp.Trajectory(
        jnp.array(states), jnp.array(actions), jnp.array(rewards), jnp.array(after), jnp.array(env.horizon)
    )


def live(store, private=PRIVATE, learner=LEARNER, num_users=USERS, **settings):
    settings = settings if "patience" in settings else {"fixed_order": True} | settings
    return privrl.Agent(learner, private, num_users=num_users, store=store, **settings)


def counted(store, agent):
    """The exact sums of all blocks, added up: for tests only."""
    plans = agent._plans
    names = [name for (name,) in store._engine.db.execute("SELECT name FROM sums")]
    total = sum(store.total(name) for name in names)
    grids = [np.full(int(np.prod(s.shape, dtype=int)), s.lattice.granularity) for s in plans.channels.values()]
    return total * np.concatenate(grids)


def alone(record):
    """A batch of one record."""
    return jax.tree.map(lambda x: np.asarray(x)[None], record)


def terms(records, learner=LEARNER):
    """What these records contribute, in floats, before the lattice."""
    return sum(np.asarray(contribution(learner._counts(), record)).ravel() for record in records)


def person_key(key, ends, index):
    return SimulationKeys.of(key).person(int(np.searchsorted(ends, index, side="right")), index)


@pytest.mark.parametrize(
    "continual",
    ["square-root", *(pytest.param(name, marks=pytest.mark.slow) for name in ("tree", "honaker", "fresh"))],
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
    agent = live(store, private, key=seed)
    for index in range(USERS):
        if index in (3, 17, 33):
            store.close()
            store = privrl.ReleaseStore(tmp_path / "s.db")
            agent = live(store, private, key=seed)
            assert agent.num_arrived == index
        if index in (0, *ends[:-1]):
            regret.append(float(ENV.regret(agent.policy)))
        person, ticket = person_key(seed, ends, index), agent.begin_episode(index)
        assert ticket.number == index
        trajectory = walk(agent, ticket, ENV, person)
        expected = ENV.rollout(agent.policy, person)
        np.testing.assert_array_equal(trajectory.actions, expected.actions)
        np.testing.assert_array_equal(trajectory.next_states, expected.next_states)
        agent.end_episode(ticket, trajectory)
    np.testing.assert_allclose(regret, simulated.block_regret[0], atol=1e-9)
    np.testing.assert_allclose(agent.policy.probabilities, simulated.policy.probabilities[0], atol=1e-9)
    assert agent.certificate.noise_source == "seed"


@functools.cache
def some(index):
    return ENV.rollout(ENV.uniform_policy(), jax.random.fold_in(jax.random.key(0), index))


def take_part(agent, records, users=None):
    """People who come one after another."""
    for i, record in enumerate(records):
        agent.end_episode(agent.begin_episode(f"u{i}" if users is None else users[i]), record)


def test_real_noise_budget_and_refusals(tmp_path):
    with privrl.ReleaseStore(tmp_path / "s.db") as store:
        agent = live(store)
        people = [some(i) for i in range(USERS)]
        take_part(agent, people[:30])
        assert agent.num_arrived == 30
        again = agent.begin_episode("u3")  # in an earlier block: the same ticket, and still counted once
        assert (again.number, agent.num_arrived) == (3, 30)
        assert agent.end_episode(again, people[4]) is None
        take_part(agent, people[30:], range(30, USERS))
        with pytest.raises(PairingError, match="All 40 places"):
            agent.begin_episode("one more")
        with pytest.raises(ValueError, match="step"):
            agent.act(again, 0, 3)
        assert agent.num_arrived == USERS
        np.testing.assert_array_equal(counted(store, agent), terms(people))
        certificate = agent.certificate
        assert certificate.notion == "joint"
        assert certificate.epsilon <= 3.0
        assert certificate.recomputed() <= 3.0
        assert certificate.noise_source == "system"
        assert "fixed in advance" in str(certificate)
        blocks = len(LEARNER.blocks(USERS))
        assert [r["counted"] for r in certificate.releases] == [blocks]
        assert agent.result().report == {"tickets": USERS}
        verdict = certify(agent.result().certificate, agent.policy)
        assert verdict.ok, verdict.problems
        shown = store.describe()
        assert shown["spent"] == shown["limits"] == {"releases of transitions": float(blocks)}
        with pytest.raises(StoreError, match="differs in"):
            live(store, privrl.Central(epsilon=4.0, delta=1e-5))
        with pytest.raises(StoreError, match="differs in `arrivals`"):
            live(store, patience=60.0)


def test_exact_releases_are_the_sums_plus_noise_of_the_declared_distribution(tmp_path):
    """One release of a stream without noise worth speaking of: the running counts themselves."""
    with privrl.ReleaseStore(tmp_path / "s.db") as store:
        agent = live(store, privrl.Central(rho=1e7))
        people = [some(i) for i in range(USERS)]
        take_part(agent, people)
        released = agent._plans._made[-1][0].released["transitions"]
        exact = terms(people).reshape(released.value.shape)
        np.testing.assert_allclose(released.value, exact, atol=8 * float(released.noise.std))
        assert float(released.noise.std) < 0.01
        assert not np.array_equal(released.value, exact)


@pytest.mark.parametrize("continual", ["square-root", "honaker", "tree", "fresh"])
def test_the_certificate_has_the_distribution_of_the_noise_that_is_drawn(tmp_path, continual):
    """Honaker's tree was certified with the scale 50.70 of its simulation and drawn with 48.09."""
    with privrl.ReleaseStore(tmp_path / "s.db") as store:
        agent = live(store, privrl.Central(epsilon=3.0, delta=1e-5, continual=continual))
        take_part(agent, [some(i) for i in range(6)])
        streams = agent._plans.channels
        for release in agent.certificate.releases:
            lattice = streams[release["name"]].lattice
            made = {"sensitivity": lattice.sensitivity, "scale": lattice.scale, "times": 1}
            assert release["noise"] == [made]
            assert Lattice.from_bytes(store.distribution(f"{release['name']}/0")) == lattice
            assert lattice.sensitivity / lattice.scale <= agent._study.ledger.parameter(release["name"])


def test_who_is_not_fit_for_live_use_is_refused(tmp_path):
    with privrl.ReleaseStore(tmp_path / "s.db") as store:
        with pytest.raises(PairingError, match="Central"):
            live(store, privrl.NonPrivate())
        with pytest.raises(PairingError, match="finite budget"):
            live(store, privrl.Central(epsilon=float("inf")))
        for both in ({}, {"fixed_order": True, "patience": 1.0}, {"fixed_order": False}):
            with pytest.raises(ValueError, match="Say when a block of people may be released"):
                privrl.Agent(LEARNER, PRIVATE, num_users=USERS, store=store, **both)
        for patience in (0.0, -1.0, float("nan"), float("inf"), datetime.timedelta(0)):
            with pytest.raises(ValueError, match="`patience` is"):
                live(store, patience=patience)
        with pytest.raises(PairingError, match="asks new queries"):
            live(store, learner=privrl.LSVIUCBPlusPlus(privrl.mdp.OneHotFeatures(3, 2), 3, rewards=ENV.rewards))


@pytest.mark.parametrize("start", [privrl.Agent, privrl.Controller])
def test_a_person_more_or_less_is_no_neighbour_online(tmp_path, start):
    """Blocks fill by head count: without one person there may be one release fewer, which no noise hides."""
    env = ENV if start is privrl.Agent else privrl.envs.lq_worlds.LQScalar()
    learner = LEARNER if start is privrl.Agent else privrl.CautiousLQ(env.task)
    private = privrl.Central(epsilon=3.0, delta=1e-5, adjacency="add-remove")
    with privrl.ReleaseStore(tmp_path / "s.db") as store, pytest.raises(PairingError, match="replace-one"):
        start(learner, private, num_users=USERS, store=store, fixed_order=True)
    with pytest.raises(PairingError, match="replace-one"):
        privrl.run(env, learner, private, episodes=USERS, key=jax.random.key(0))
    with pytest.raises(PairingError, match="replace-one"):
        privrl.sweep(env, [(learner, private)], episodes=USERS, key=jax.random.key(0))


def test_the_command_refuses_it_too(capsys):
    arguments = ["--env", "riverswim", "--episodes", "20", "--epsilon", "1", "--delta", "1e-5"]
    assert main(["run", "dp-ucbvi", *arguments, "--adjacency", "add-remove"]) != 0
    assert "adjacency='replace-one'" in " ".join(capsys.readouterr().err.split())


def test_sums_are_continued_on_their_own_lattice_only(tmp_path, monkeypatch):
    """Units of another granularity in the same sum would break the sensitivity."""
    with privrl.ReleaseStore(tmp_path / "s.db") as store:
        live(store)
        channel = privrl.privacy.trust.exact_channels.ExactChannel
        monkeypatch.setattr(channel, "fingerprint", lambda self: b"another computer")
        with pytest.raises(ValueError, match="rounds the public numbers"):
            live(store)


PROGRAM = textwrap.dedent(
    """
    import os, signal, sys
    import jax
    import privrl
    from test_agent import USERS, live, some, take_part
    from privrl.privacy.store.release_store import ReleaseStore

    path, point, after = sys.argv[1], sys.argv[2], int(sys.argv[3])

    class Mortal(ReleaseStore):
        left = after
        def _reached(self, where):
            if where == point:
                Mortal.left -= 1
                if Mortal.left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

    agent = live(Mortal(path, after_crash="redraw"))
    take_part(agent, [some(i) for i in range(USERS)])
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
            live(store)
        kept = store.value("transitions/0")
    killed = start(path, "persist:committed", 3)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    finished = start(path, "never", 1)
    assert finished.stdout.strip() == "done", finished.stderr
    with privrl.ReleaseStore(path) as store:
        agent = live(store)
        assert agent.num_arrived == USERS
        np.testing.assert_array_equal(store.value("transitions/0"), kept)
        np.testing.assert_array_equal(counted(store, agent), terms([some(i) for i in range(USERS)]))
        assert any("transitions/1" in note for note in agent.certificate.notes)


@pytest.mark.slow
def test_a_controller_decides_as_the_simulation(tmp_path):
    """The live side of linear control: same inputs, same releases, across a restart; saved and loaded. A list of
    visits: twelve of thirteen people come twice."""
    env = privrl.envs.lq_worlds.LQScalar()
    learner = privrl.CautiousLQ(env.task, first_block=10)
    key = jax.random.key(8)
    twice = {"max_episodes_per_unit": 2}
    simulated = privrl.run(env, learner, PRIVATE, episodes=25, key=key, **twice)
    seed = jax.random.split(key, (1, 1))[0, 0]
    ends, regret = learner.blocks(25), []
    for index in range(25):
        with privrl.ReleaseStore(tmp_path / "s.db") as store:
            agent = privrl.Controller(learner, PRIVATE, num_users=25, store=store, fixed_order=True, key=seed, **twice)
            if index in (0, *ends[:-1]):
                regret.append(float(env.regret(agent.policy)))
            expected = env.rollout(agent.policy, person_key(seed, ends, index))
            ticket = agent.begin_episode(f"user {index % 13}", visit=index)
            for h in range(env.horizon):
                u, v = agent.act(ticket, np.asarray(expected.states[h]), h)
                np.testing.assert_allclose(u, expected.inputs[h], atol=1e-12)
                np.testing.assert_allclose(v, expected.exploration[h], atol=1e-12)
            agent.end_episode(ticket, expected)
            result = agent.result()
    np.testing.assert_allclose(regret, simulated.block_regret[0], atol=1e-7)
    np.testing.assert_allclose(result.policy.gains, simulated.policy.gains[0], atol=1e-6)
    loaded = privrl.Result.load(result.save(tmp_path / "policy"))
    np.testing.assert_array_equal(loaded.policy.gains, result.policy.gains)
    np.testing.assert_array_equal(loaded.policy.radius, result.policy.radius)
    with privrl.ReleaseStore(tmp_path / "real.db") as store:
        real = privrl.Controller(learner, PRIVATE, num_users=25, store=store, patience=60.0)
        tickets = [real.begin_episode(index) for index in range(25)]
        u, v = real.act(tickets[0], np.array([0.5]), 0)
        assert np.linalg.norm(v) == pytest.approx(float(real.policy.radius))
        np.testing.assert_allclose(u - v, np.asarray(real.policy.gains[0]) @ np.array([0.5]))
        with pytest.raises(ValueError, match="finite"):
            real.act(tickets[0], np.array([np.nan]), 0)
        for ticket in tickets:
            real.end_episode(ticket, env.rollout(real.policy, jax.random.fold_in(key, ticket.number)))
        assert real.certificate.noise_source == "system"
        assert real.certificate.epsilon <= 3.0


def test_an_interrupted_plan_sums_no_block_twice():
    """Before, the sums of a block whose plan was interrupted stayed in memory, and every later encoding was shifted."""

    def encodings(interrupts):
        seen, left = [], [interrupts]
        exact, plan = ExactChannel.add_noise, live_plans._next_plan
        with pytest.MonkeyPatch.context() as patch, privrl.ReleaseStore.in_memory() as store:
            heard = lambda self, encoded, key: seen.append(encoded) or exact(self, encoded, key)  # noqa: E731
            patch.setattr(ExactChannel, "add_noise", heard)

            def interrupted(learner, state, *known):
                if known[2] > 0 and left[0]:
                    left[0] -= 1
                    raise KeyboardInterrupt
                return plan(learner, state, *known)

            patch.setattr(live_plans, "_next_plan", interrupted)
            agent = live(store, key=jax.random.key(0))
            for person in range(20):
                while True:
                    try:
                        ticket = agent.begin_episode(person)
                        agent.end_episode(ticket, ENV.rollout(agent.policy, jax.random.key(person)))
                        break
                    except KeyboardInterrupt:
                        continue
        return seen

    for one, other in zip(encodings(0), encodings(3), strict=True):
        np.testing.assert_array_equal(one, other)
