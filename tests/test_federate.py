"""Client and server: one noisy message per person, absorbed once, and nothing else of the trajectory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import tiny_world
from hypothesis import given
from hypothesis import strategies as st

import privrl
from privrl._federate import Broadcast, Message, MessageError
from privrl.mdp import Trajectory
from privrl.recipes import Problem, get

ENV = tiny_world()
LEARNER = get("ldp-ucbvi").learner(Problem.of(ENV))
LOCAL = privrl.Local(epsilon=2.0)


def walk(broadcast, seed):
    return ENV.rollout(broadcast.plan.policy, jax.random.key(seed))


def filled(num_reports, num_users=50, privatizer=LOCAL, epsilon_key=None):
    server = privrl.Server(LEARNER, privatizer, num_users=num_users, key=jax.random.key(0))
    for i in range(num_reports):
        broadcast = server.broadcast()
        client = privrl.Client(LEARNER, privatizer, key=jax.random.fold_in(jax.random.key(9), i))
        server.absorb(client.report(walk(broadcast, i), broadcast).to_bytes())
    return server


def test_a_whole_study():
    server = filled(30, num_users=30)
    assert server.num_reports == 30
    assert len(server._plans) == len(LEARNER.schedule(30)) + 1
    result = server.result()
    assert result.certificate.notion == "local"
    assert result.certificate.epsilon == pytest.approx(2.0) and result.certificate.delta == 0.0
    np.testing.assert_allclose(result.policy.probabilities.sum(-1), 1.0)
    with pytest.raises(MessageError, match="All 30 users"):
        server.broadcast()


def test_without_noise_the_server_counts_exactly_what_it_asked():
    """At infinite epsilon each person's answer is their pair at stage (ticket mod H), nothing more or less."""
    local = privrl.Local(epsilon=float("inf"))
    server = privrl.Server(LEARNER, local, num_users=20, key=jax.random.key(0))
    expected = np.zeros((3, 2, 3))
    for i in range(20):
        broadcast = server.broadcast()
        trajectory = walk(broadcast, i)
        h = i % ENV.horizon
        expected[int(trajectory.states[h]), int(trajectory.actions[h]), int(trajectory.next_states[h])] += 1
        server.absorb(privrl.Client(LEARNER, local).report(trajectory, broadcast))
    np.testing.assert_allclose(server._released["transitions"].value, expected, atol=1e-12)


def test_a_client_reports_once():
    server = filled(0)
    client = privrl.Client(LEARNER, LOCAL)
    broadcast = server.broadcast()
    client.report(walk(broadcast, 0), broadcast)
    with pytest.raises(MessageError, match="already reported"):
        client.report(walk(broadcast, 1), broadcast)
    assert "operating system" in client.certificate.noise_source


def test_a_message_counts_once_and_refusals_lose_nothing():
    server = filled(3)
    broadcast = server.broadcast()
    message = privrl.Client(LEARNER, LOCAL).report(walk(broadcast, 7), broadcast)
    server.absorb(message)
    before = np.asarray(server._totals["transitions"][0])
    bad = [
        (message, "already reported"),
        (Message(999, 0, message.parts), "did not issue"),
        (Message(server.broadcast().ticket, 5, message.parts), "did not issue"),
        (Message(server.broadcast().ticket, 0, ()), "parts"),
        (Message(server.broadcast().ticket, 0, (np.array(10),)), "symbol"),
        (Message(server.broadcast().ticket, 0, (np.array(0.5),)), "symbol"),
        (b"nonsense" * 8, "format"),
    ]
    for wrong, words in bad:
        with pytest.raises(MessageError, match=words):
            server.absorb(wrong)
    np.testing.assert_array_equal(server._totals["transitions"][0], before)
    assert server.num_reports == 4


def test_messages_arrive_in_any_order():
    server = privrl.Server(LEARNER, LOCAL, num_users=50, key=jax.random.key(0))
    broadcasts = [server.broadcast() for _ in range(10)]
    messages = [
        privrl.Client(LEARNER, LOCAL, key=jax.random.key(i)).report(walk(b, i), b) for i, b in enumerate(broadcasts)
    ]
    for message in reversed(messages):
        server.absorb(message)
    same = privrl.Server(LEARNER, LOCAL, num_users=50, key=jax.random.key(0))
    for _ in range(10):
        same.broadcast()
    for message in messages:
        same.absorb(message)
    np.testing.assert_allclose(server._totals["transitions"][0], same._totals["transitions"][0])


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(content):
    with pytest.raises(MessageError):
        Message.from_bytes(content)


@given(st.data())
def test_damaged_messages_are_refused(data):
    good = Message(3, 1, (np.array(4), np.array([[1.5, -2.0]]))).to_bytes()
    position = data.draw(st.integers(0, len(good) - 1))
    change = data.draw(st.integers(1, 255))
    bad = bytearray(good)
    bad[position] ^= change
    with pytest.raises(MessageError):
        Message.from_bytes(bytes(bad))


def test_messages_survive_the_wire():
    message = Message(2**40, 7, (np.array(4), np.array([[1.5, -2.0], [0.0, 1e300]])))
    again = Message.from_bytes(message.to_bytes())
    assert (again.ticket, again.plan) == (message.ticket, message.plan)
    for left, right in zip(message.parts, again.parts, strict=True):
        np.testing.assert_array_equal(left, right)
    with pytest.raises(MessageError, match="not finite"):
        Message.from_bytes(Message(0, 0, (np.array([np.nan]),)).to_bytes())


def test_broadcasts_survive_the_wire():
    broadcast = filled(25).broadcast()
    again = Broadcast.from_bytes(broadcast.to_bytes(), LEARNER, LOCAL)
    assert (again.ticket, again.number) == (broadcast.ticket, broadcast.number)
    np.testing.assert_array_equal(again.plan.policy.probabilities, broadcast.plan.policy.probabilities)


def test_the_trajectory_is_not_in_the_message():
    """Two people who differ everywhere but in what they answer send the same bytes, given the same randomness."""
    broadcast = filled(0).broadcast()
    trajectory = walk(broadcast, 0)
    other = Trajectory(
        trajectory.states.at[1:].set(2 - trajectory.states[1:]),
        1 - trajectory.actions,
        trajectory.rewards + 0.25,
        trajectory.next_states.at[1:].set(2 - trajectory.next_states[1:]),
        trajectory.length,
    )
    key = jax.random.key(5)
    sent = [privrl.Client(LEARNER, LOCAL, key=key).report(t, broadcast).to_bytes() for t in (trajectory, other)]
    assert sent[0] == sent[1]
    assert len(sent[0]) < 64


def test_gaussian_messages_too():
    local = privrl.Local(epsilon=1.0, delta=1e-5)
    server = filled(2, privatizer=local)
    assert server.result().certificate.delta == 1e-5
    assert jnp.isfinite(server._totals["transitions"][0]).all()


def test_a_curator_is_not_local():
    with pytest.raises(TypeError, match="Local"):
        privrl.Server(LEARNER, privrl.Central(epsilon=1.0, delta=1e-5), num_users=5)
