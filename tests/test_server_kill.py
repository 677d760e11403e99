"""A server that dies again and again while clients report: nothing acknowledged is lost, nothing is counted twice.

Deaths inside one process (an exception at every point of the store's protocol) are many and cheap; real processes that
are killed by the operating system while a message is on its way are few here and two hundred in the slow test.
"""

import os
import random
import struct
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import tiny_world

import privrl
from privrl._federate import Broadcast, Message, MessageError
from privrl.privacy import ReleaseStore

ENV = tiny_world()
LEARNER = privrl.UCBVI(ENV.rewards, ENV.horizon, first_block=10, growth=1.3)
LOCAL = privrl.Local(epsilon=1.0)
POINTS = ["append:begun", "append:written", "append:committed"]


class Fatal(BaseException):
    """Stands for a crash inside one process; no handler of errors sees it."""


class Mortal(ReleaseStore):
    """A store whose process dies at the n-th passage of a point."""

    def __init__(self, path, point, after):
        self.point, self.left = None, after
        super().__init__(path)
        self.point = point

    def _reached(self, where):
        if where == self.point:
            self.left -= 1
            if self.left == 0:
                raise Fatal(where)


def people(broadcast, index):
    """One person's message to a broadcast, in bytes."""
    trajectory = ENV.rollout(broadcast.plan.policy, jax.random.fold_in(jax.random.key(2), index))
    return privrl.Client(LEARNER, LOCAL).report(trajectory, broadcast).to_bytes()


def spoiled(content, rng):
    """Messages that must change nothing: damaged, cut, too long, not finite, for a ticket of another study."""
    message = Message.from_bytes(content)
    damaged = bytearray(content)
    damaged[rng.randrange(len(damaged))] ^= 1 + rng.randrange(255)
    return [
        bytes(damaged),
        content[: rng.randrange(len(content))],
        content + b"\0",
        bytes(10_000),
        Message(message.study, message.ticket, message.plan, (np.array([np.inf]),)).to_bytes(),
        Message(message.study, message.ticket, message.plan, (np.array([99]),)).to_bytes(),
        Message(message.study, message.ticket + 10**6, message.plan, message.parts).to_bytes(),
        Message(bytes(16), message.ticket, message.plan, message.parts).to_bytes(),
    ]


def check_books(path, num_users, acknowledged, sent):
    """What a new server counts: every acknowledged message, none twice, and nothing that nobody sent."""
    with ReleaseStore(path) as store:
        kept = {int(key): content for _, key, content in store.read("messages")}
        server = privrl.Server(LEARNER, LOCAL, num_users=num_users, store=store)
        again = privrl.Server(LEARNER, LOCAL, num_users=num_users, store=store)
    assert acknowledged <= kept.keys()
    assert all(sent[ticket] == content for ticket, content in kept.items())
    assert server.num_reports == len(kept)
    # All that was ever counted: what is in the memory of the channel, and what is still in the open block.
    counted = server._memories["transitions"][0] + server._totals["transitions"][0]
    channel = server._channels["transitions"]
    expected = np.zeros(channel.statistic.shape)
    for content in kept.values():
        message = Message.from_bytes(content)
        report = jnp.asarray(channel.checked(message.parts[0]))
        expected += np.asarray(channel.decode(report, server._plans[message.plan], jnp.asarray(message.ticket))[0])
    np.testing.assert_array_equal(counted, expected)
    for one, two in zip(server._plans, again._plans, strict=True):
        np.testing.assert_array_equal(one.policy.probabilities, two.policy.probabilities)
    return server


def test_deaths_at_every_point_of_the_protocol(tmp_path):
    rng, path, num_users, wanted = random.Random(0), tmp_path / "s.db", 60, 20
    sent: dict[int, bytes] = {}
    acknowledged: set[int] = set()
    pending: bytes | None = None
    deaths = lives = refused = 0
    while len(acknowledged) < num_users:
        lives += 1
        mortal = Mortal(path, rng.choice(POINTS) if deaths < wanted else None, 1 + rng.randrange(5))
        try:
            with mortal as store:
                server = privrl.Server(LEARNER, LOCAL, num_users=num_users, store=store)
                while len(acknowledged) < num_users:
                    if pending is None:
                        broadcast = server.broadcast()
                        pending = people(broadcast, broadcast.ticket)
                        sent[broadcast.ticket] = pending
                    ticket = Message.from_bytes(pending).ticket
                    before = server.num_reports, np.asarray(server._totals["transitions"][0])
                    for wrong in spoiled(pending, rng):
                        with pytest.raises(MessageError):
                            server.absorb(wrong)
                        refused += 1
                    assert server.num_reports == before[0]
                    np.testing.assert_array_equal(server._totals["transitions"][0], before[1])
                    if ticket in server._absorbed:  # it was kept by a server that died before it could say so
                        with pytest.raises(MessageError, match="already reported"):
                            server.absorb(pending)
                    else:
                        server.absorb(pending)
                    acknowledged.add(ticket)
                    with pytest.raises(MessageError, match=r"already reported|All 60"):
                        server.absorb(pending)
                    pending = None
        except Fatal:
            deaths += 1
    assert deaths == wanted and lives == wanted + 1 and refused > 8 * num_users - 1
    server = check_books(path, num_users, acknowledged, sent)
    assert server.num_reports == num_users == len(acknowledged)


# ------------------------------------------------------------------------------------------------- real processes


def serve(path, num_users):
    """The other process: frames of a length and bytes on standard input, and an answer to each."""
    read, write = sys.stdin.buffer, sys.stdout.buffer

    def answer(content):
        write.write(struct.pack("<I", len(content)) + content)
        write.flush()

    with ReleaseStore(path) as store:
        server = privrl.Server(LEARNER, LOCAL, num_users=num_users, store=store)
        answer(b"ready")
        while header := read.read(4):
            content = read.read(struct.unpack("<I", header)[0])
            try:
                if content:
                    server.absorb(content)
                answer(b"kept" if content else server.broadcast().to_bytes())
            except MessageError as error:
                answer(b"refused: " + str(error).encode())


class Process:
    """A server in a process of its own."""

    def __init__(self, path, num_users, cache):
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path]),
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        program = f"from test_server_kill import serve; serve({str(path)!r}, {num_users})"
        self.inner = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        assert self.receive() == b"ready"

    def send(self, content):
        assert self.inner.stdin is not None
        self.inner.stdin.write(struct.pack("<I", len(content)) + content)
        self.inner.stdin.flush()

    def receive(self):
        assert self.inner.stdout is not None
        return self.inner.stdout.read(struct.unpack("<I", self.inner.stdout.read(4))[0])

    def ask(self, content=b""):
        self.send(content)
        return self.receive()

    def kill(self):
        self.inner.kill()
        self.inner.wait()
        for pipe in (self.inner.stdin, self.inner.stdout):
            assert pipe is not None
            pipe.close()


def killed_again_and_again(tmp_path, num_users, kills):
    rng, path = random.Random(1), tmp_path / "s.db"
    sent: dict[int, bytes] = {}
    acknowledged: set[int] = set()
    pending: list[bytes] = []
    for life in range(kills + 1):
        server = Process(path, num_users, tmp_path / "cache")
        try:
            quota = rng.randrange(1, 2 * num_users // (kills + 1)) if life < kills else num_users
            while len(acknowledged) < num_users and quota > 0:
                quota -= 1
                if not pending:
                    broadcast = Broadcast.from_bytes(server.ask(), LEARNER, LOCAL)
                    sent[broadcast.ticket] = people(broadcast, broadcast.ticket)
                    pending.append(sent[broadcast.ticket])
                if quota == 0 and life < kills:  # die with this one on its way
                    server.send(pending[0])
                    time.sleep(rng.uniform(0, 0.01))
                    break
                reply = server.ask(pending[0])
                assert reply == b"kept" or b"already reported" in reply
                acknowledged.add(Message.from_bytes(pending.pop()).ticket)
        finally:
            server.kill()
        with ReleaseStore(path) as store:
            kept = {int(key): content for _, key, content in store.read("messages")}
        assert acknowledged <= kept.keys()
        assert all(sent[ticket] == content for ticket, content in kept.items())
    check_books(path, num_users, acknowledged, sent)
    assert len(acknowledged) == num_users


@pytest.mark.slow
def test_processes_killed_with_a_message_on_its_way(tmp_path):
    killed_again_and_again(tmp_path, num_users=24, kills=2)


@pytest.mark.slow
def test_two_hundred_kills_while_a_thousand_clients_report(tmp_path):
    killed_again_and_again(tmp_path, num_users=1_000, kills=200)
