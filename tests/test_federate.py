"""Client and server: one noisy message per person, absorbed once, and nothing else of the trajectory."""

import dataclasses
import struct
import time
import zlib

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
from privrl.privacy import ReleaseStore
from privrl.recipes import Problem, get

ENV = tiny_world()
LEARNER = get("ldp-ucbvi").learner(Problem.of(ENV))
LOCAL = privrl.Local(epsilon=2.0)
STUDY = bytes(range(16))


def walk(broadcast, seed):
    return ENV.rollout(broadcast.plan.policy, jax.random.key(seed))


def filled(num_reports, num_users=50, privatizer=LOCAL):
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
    """At infinite epsilon each answer is the next state at the first visit of the ticket's target, or nothing."""
    local = privrl.Local(epsilon=float("inf"))
    server = privrl.Server(LEARNER, local, num_users=20, key=jax.random.key(0))
    expected = np.zeros((3, 2, 3))
    for i in range(20):
        broadcast = server.broadcast()
        trajectory = walk(broadcast, i)
        played = np.argwhere(np.asarray(broadcast.plan.policy.probabilities).max(axis=0) > 0)
        target = played[i % len(played)].tolist()
        columns = (trajectory.states, trajectory.actions, trajectory.next_states)
        steps = zip(*(column.tolist() for column in columns), strict=True)
        after = next((after for s, a, after in steps if [s, a] == target), None)
        if after is not None:
            expected[(*target, after)] += 1
        server.absorb(privrl.Client(LEARNER, local).report(trajectory, broadcast))
    assert 0 < expected.sum() < 20
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
    before, study = np.asarray(server._totals["transitions"][0]), message.study

    def fresh(*parts, plan=0):
        return Message(study, server.broadcast().ticket, plan, parts)

    other = filled(0)
    stranger = other.broadcast()
    bad = [
        (message, "already reported"),
        (message.to_bytes(), "already reported"),
        (Message(study, 999, 0, message.parts), "did not issue"),
        (fresh(*message.parts, plan=5), "did not issue"),
        (fresh(), "parts"),
        (fresh(np.array([10])), "symbols"),
        (fresh(np.array([-1])), "symbols"),
        (fresh(np.array([0.5])), "symbols"),
        (fresh(np.array(1)), "symbols"),
        (fresh(np.array([np.nan])).to_bytes(), "not finite"),
        (fresh(np.array([0, 1])), "symbols"),
        (fresh(np.zeros(10_000)).to_bytes(), "bytes"),
        (b"nonsense" * 6, "format"),
        (broadcast.to_bytes()[:54], "format"),
        (privrl.Client(LEARNER, LOCAL).report(walk(stranger, 1), stranger), "another study"),
    ]
    for wrong, words in bad:
        with pytest.raises(MessageError, match=words):
            server.absorb(wrong)
    np.testing.assert_array_equal(server._totals["transitions"][0], before)
    assert server.num_reports == 4
    assert len(message.to_bytes()) == server.message_bytes


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
        same.absorb(dataclasses.replace(message, study=same._study))
    np.testing.assert_allclose(server._totals["transitions"][0], same._totals["transitions"][0])


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(content):
    with pytest.raises(MessageError):
        Message.from_bytes(content)


@given(st.data())
def test_damaged_messages_are_refused(data):
    good = Message(STUDY, 3, 1, (np.array(4), np.array([[1.5, -2.0]]))).to_bytes()
    position = data.draw(st.integers(0, len(good) - 1))
    change = data.draw(st.integers(1, 255))
    bad = bytearray(good)
    bad[position] ^= change
    with pytest.raises(MessageError):
        Message.from_bytes(bytes(bad))


def resealed(content):
    """The same bytes with a checksum that fits."""
    return content[:-4] + struct.pack("<I", zlib.crc32(content[:-4]))


@given(st.data())
def test_forged_messages_are_refused_or_read_whatever_they_claim(data):
    """With a checksum that fits, damage is either refused as such or leaves finite arrays."""
    bad = bytearray(Message(STUDY, 3, 1, (np.array(4), np.array([[1.5, -2.0]]))).to_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        bad[data.draw(st.integers(0, len(bad) - 5))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, 12))
    content = resealed(bytes(bad[: len(bad) - 4 - cut]) + bytes(4))
    try:
        message = Message.from_bytes(content)
    except MessageError:
        return
    assert message.to_bytes() == content
    assert all(np.isfinite(part).all() for part in message.parts)


def test_many_axes_and_empty_arrays_are_refused():
    header = Message(STUDY, 0, 0, (np.array(1),)).to_bytes()[:-14]
    for part in (b"f\xff" + bytes(4 * 255), b"f\x02" + struct.pack("<2I", 0, 2**31)):
        with pytest.raises(MessageError, match=r"axes|empty"):
            Message.from_bytes(resealed(header + part + bytes(4)))


def test_messages_survive_the_wire():
    message = Message(STUDY, 2**40, 7, (np.array(4), np.array([[1.5, -2.0], [0.0, 1e300]])))
    again = Message.from_bytes(message.to_bytes())
    assert (again.study, again.ticket, again.plan) == (message.study, message.ticket, message.plan)
    for left, right in zip(message.parts, again.parts, strict=True):
        np.testing.assert_array_equal(left, right)
    with pytest.raises(MessageError, match="not finite"):
        Message.from_bytes(Message(STUDY, 0, 0, (np.array([np.nan]),)).to_bytes())
    with pytest.raises(MessageError, match="ticket"):
        Message.from_bytes(Message(STUDY, 2**63, 0, (np.array([1.0]),)).to_bytes())


def test_broadcasts_survive_the_wire():
    broadcast = filled(25).broadcast()
    again = Broadcast.from_bytes(broadcast.to_bytes(), LEARNER, LOCAL)
    assert (again.study, again.ticket, again.number) == (broadcast.study, broadcast.ticket, broadcast.number)
    np.testing.assert_array_equal(again.plan.policy.probabilities, broadcast.plan.policy.probabilities)
    with pytest.raises(MessageError, match="not a message"):
        Message.from_bytes(broadcast.to_bytes())
    with pytest.raises(MessageError, match="fit this learner"):
        Broadcast.from_bytes(broadcast.to_bytes(), privrl.UCBVI(jnp.zeros((1, 4, 2)), 3), LOCAL)


def test_the_trajectory_is_not_in_the_message():
    """With the same randomness, the bytes depend on the answer alone: as many messages as symbols, of one length.

    None of them holds the states, actions, next states or rewards in a row, as integers or floats of usual widths.
    """
    broadcast = filled(0).broadcast()
    channel = next(iter(filled(0)._channels.values()))
    rng = np.random.default_rng(0)
    sent: dict[int, set[bytes]] = {}
    for _ in range(60):
        states, actions = rng.integers(0, 3, ENV.horizon + 1), rng.integers(0, 2, ENV.horizon)
        rewards = jnp.asarray(rng.uniform(size=ENV.horizon))
        record = (jnp.asarray(states[:-1]), jnp.asarray(actions), rewards, jnp.asarray(states[1:]))
        trajectory = Trajectory(*record, jnp.asarray(ENV.horizon))
        content = privrl.Client(LEARNER, LOCAL, key=jax.random.key(5)).report(trajectory, broadcast).to_bytes()
        symbol = int(channel.statistic.symbol(trajectory, broadcast.plan, jnp.asarray(broadcast.ticket)))
        sent.setdefault(symbol, set()).add(content)
        for part in (np.asarray(part) for part in record):
            for kind in ("<i4", "<i8", "<f4", "<f8"):
                assert (part == part[0]).all() or part.astype(kind).tobytes() not in content
    assert set(sent) == {0, 1, 2, 3}
    assert all(len(contents) == 1 for contents in sent.values())
    assert {len(content) for contents in sent.values() for content in contents} == {54}


def test_a_restart_replays_thousands_a_second(tmp_path):
    """4,000 messages of one block, in processor time, after the program is compiled."""
    learner = privrl.UCBVI(ENV.rewards, ENV.horizon, first_block=5_000)
    with ReleaseStore(tmp_path / "s.db") as store:
        server = privrl.Server(learner, LOCAL, num_users=10_000, store=store)
        store.append_many("tickets", [(str(i), b"0") for i in range(4_000)])
        channel = server._channels["transitions"]
        answers = np.random.default_rng(0).integers(0, 4, (4_000, 1))
        messages = [Message(server._study, i, 0, (answer,)).to_bytes() for i, answer in enumerate(answers)]
        store.append_many("messages", [(str(i), content) for i, content in enumerate(messages)])
        privrl.Server(learner, LOCAL, num_users=10_000, store=store)
        began = time.process_time()
        again = privrl.Server(learner, LOCAL, num_users=10_000, store=store)
        assert 4_000 / (time.process_time() - began) > 1_000
    assert again.num_reports == 4_000
    plan = again._plans[0]
    held = jnp.asarray(np.eye(4, dtype=bool)[answers[:, 0]])
    each = jax.vmap(lambda z, i: channel.decode(z, plan, i)[0])(held, jnp.arange(4_000))
    np.testing.assert_array_equal(again._totals["transitions"][0], each.sum(axis=0))


def test_gaussian_messages_too():
    local = privrl.Local(epsilon=1.0, delta=1e-5)
    server = filled(2, privatizer=local)
    assert server.result().certificate.delta == 1e-5
    assert jnp.isfinite(server._totals["transitions"][0]).all()


def test_a_curator_is_not_local():
    with pytest.raises(TypeError, match="Local"):
        privrl.Server(LEARNER, privrl.Central(epsilon=1.0, delta=1e-5), num_users=5)
