"""Servers that die again and again while clients report: nothing acknowledged is lost, nothing is counted twice.

Deaths inside one process (an exception at every point of the store's protocol) are many and cheap; real processes that
are killed by the operating system while a message is on its way, and several of them on one store, are few here and two
hundred in the slow test.
"""

import contextlib
import dataclasses
import os
import random
import struct
import subprocess
import sys
import threading
import time

import equinox as eqx
import jax
import numpy as np
import pytest
from contract import tiny_world

import privrl
from privrl.privacy.store.release_store import ReleaseStore
from privrl.studies.local.wire import Broadcast, Message, MessageError, SignedTicket, plan_from_bytes

ENV = tiny_world()
LEARNER = privrl.UCBVI(ENV.rewards, ENV.horizon, first_block=10, growth=1.3)
LOCAL = privrl.Local(epsilon=1.0)
POINTS = [f"{what}:{when}" for what in ("contribute", "range", "fact") for when in ("begun", "written", "committed")]


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


class CountsFirst(ReleaseStore):
    """Broken: acknowledges a report that it counts with the next one."""

    late, told = None, frozenset()

    def contribute(self, stream, keys, units, **options):
        if keys[0] in self.told:
            return np.zeros(1, bool)
        if self.late is not None:
            super().contribute(*self.late[0], **self.late[1])
        self.late, self.told = ((stream, keys, units), options), self.told | {keys[0]}
        return np.ones(1, bool)


class ForgetsTickets(ReleaseStore):
    """Broken: what was counted before is counted again."""

    def contribute(self, stream, keys, units, **options):
        return super().contribute(stream, [os.urandom(8).hex() for _ in keys], units, **options)


rollout = eqx.filter_jit(ENV.rollout)


def people(broadcast, index):
    """One person's message to a broadcast, in bytes."""
    trajectory = rollout(broadcast.plan.policy, jax.random.fold_in(jax.random.key(2), index))
    client = privrl.Client(LEARNER, LOCAL, key=jax.random.fold_in(jax.random.key(3), index))
    return client.report(trajectory, broadcast).to_bytes()


def spoiled(content, rng):
    """Messages that must change nothing: damaged, cut, too long, not finite, forged, of another study."""
    message = Message.from_bytes(content)
    damaged = bytearray(content)
    damaged[rng.randrange(len(damaged))] ^= 1 + rng.randrange(255)
    other = [
        dataclasses.replace(message, parts=(np.array([np.inf]),)),
        dataclasses.replace(message, parts=(np.array([99]),)),
        *(
            dataclasses.replace(message, ticket=dataclasses.replace(message.ticket, **wrong))
            for wrong in (
                {"number": message.ticket.number + 1},
                {"plan": message.ticket.plan + 1},
                {"expires": message.ticket.expires + 1},
                {"mac": bytes(16)},
                {"study": bytes(32)},
            )
        ),
    ]
    cut = content[: rng.randrange(len(content))]
    return [bytes(damaged), cut, content + b"\0", bytes(10_000), *(wrong.to_bytes() for wrong in other)]


def check_books(path, num_users, acknowledged, sent):
    """What a new server counts: every acknowledged message, none twice, and nothing that nobody sent."""
    with ReleaseStore(path) as store:
        server = privrl.Server(LEARNER, LOCAL, num_users=num_users, store=store)
        again = privrl.Server(LEARNER, LOCAL, num_users=num_users, store=store)
        assert server.num_reports == again.num_reports == len(acknowledged)
        for ticket in acknowledged:
            assert not server.absorb(sent[ticket])
        reports = server._reports["transitions"]
        expected = np.zeros(reports.length, np.int64)
        for ticket in acknowledged:
            message = Message.from_bytes(sent[ticket])
            expected += reports.to_steps(message.parts[0], server._plans[message.ticket.plan], ticket)
        blocks = [store.total(f"block {t}") for t in range(len(server._plans._ends) - 1)]
        np.testing.assert_array_equal(sum(total for total in blocks if total is not None), expected)
        for one, two in zip(server._plans._plans, again._plans._plans, strict=True):
            np.testing.assert_array_equal(one.policy.probabilities, two.policy.probabilities)
    return server


def die_again_and_again(path, num_users, wanted, kind=Mortal):
    """One server after another on a mortal store until everybody has reported."""
    rng = random.Random(0)
    sent: dict[int, bytes] = {}
    acknowledged: set[int] = set()
    pending: bytes | None = None
    died = []
    while len(acknowledged) < num_users:
        point = POINTS[len(died) % len(POINTS)] if len(died) < wanted else None
        try:
            often = 3 if point is not None and point.startswith("contribute") else 1
            with kind(path, point, 1 + rng.randrange(often)) as store:
                server = privrl.Server(LEARNER, LOCAL, num_users=num_users, store=store)
                while len(acknowledged) < num_users:
                    if pending is None:
                        broadcast = server.broadcast()
                        number = broadcast.ticket.number
                        assert number not in sent
                        pending = sent[number] = people(broadcast, number)
                    before = server.num_reports
                    for wrong in spoiled(pending, rng):
                        with pytest.raises(MessageError):
                            server.absorb(wrong)
                    assert server.num_reports == before
                    server.absorb(pending)  # new, or kept by a server that died before it could say so
                    assert not server.absorb(pending)
                    acknowledged.add(Message.from_bytes(pending).ticket.number)
                    pending = None
        except Fatal as death:
            died.append(str(death))
            if point is not None and point.startswith("range"):
                pending = None  # no ticket was handed out
    return sent, acknowledged, died


def all_of_it(path, num_users, wanted, kind=Mortal):
    sent, acknowledged, died = die_again_and_again(path, num_users, wanted, kind)
    check_books(path, num_users, acknowledged, sent)
    return died


def test_deaths_at_every_point_of_the_protocol(tmp_path):
    died = all_of_it(tmp_path / "s.db", num_users=60, wanted=18)
    assert len(died) == 18 and set(died) == set(POINTS)


@pytest.mark.slow
def test_deaths_at_every_point_with_a_database_server(postgres):
    died = all_of_it(postgres.new(), num_users=60, wanted=18)
    assert len(died) == 18 and set(died) == set(POINTS)


@pytest.mark.parametrize("broken", [CountsFirst, ForgetsTickets])
def test_broken_stores_are_caught(tmp_path, broken):
    class Both(broken, Mortal):
        pass

    with pytest.raises((AssertionError, MessageError)):  # a report is lost or counted twice, or one is refused for it
        all_of_it(tmp_path / "s.db", num_users=30, wanted=9, kind=Both)


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
                if content:
                    answer(b"kept")
                else:
                    ticket = server.ticket()
                    answer(ticket.to_bytes() + server.plan(ticket.plan))
            except MessageError as error:
                answer(b"refused: " + str(error).encode())


class Process:
    """A server in a process of its own, with the compiled programs of all tests."""

    def __init__(self, path, num_users):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
        program = f"from test_server_kill import serve; serve({str(path)!r}, {num_users})"
        self.inner = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )

    def ready(self):
        assert self.receive() == b"ready"
        return self

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
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def received(reply):
    """A ticket and the plan that it names, from the bytes of both."""
    ticket = SignedTicket.from_bytes(reply[:80])
    return Broadcast(ticket, plan_from_bytes(reply[80:], ticket, LEARNER, LOCAL))


def take_part(process, share, sent, acknowledged, tickets):
    """One stream of devices that talk to one of the servers until their share has reported or the study is over."""
    for _ in range(share):
        reply = process.ask()
        if reply.startswith(b"refused: All"):
            return
        broadcast = received(reply)
        number = broadcast.ticket.number
        tickets.append(number)
        sent[number] = people(broadcast, number)
        reply = process.ask(sent[number])
        if reply == b"kept":
            acknowledged.add(number)
            assert process.ask(sent[number]) == b"kept"
        else:
            assert reply.startswith(b"refused: All"), reply


def several_at_once(path, number, num_users):
    sent: dict[int, bytes] = {}
    acknowledged: set[int] = set()
    tickets: list[int] = []
    processes = [Process(path, num_users) for _ in range(number)]
    failures: list[BaseException] = []

    def stream(process):
        try:
            take_part(process, num_users, sent, acknowledged, tickets)
        except BaseException as error:
            failures.append(error)

    try:
        for process in processes:
            process.ready()
        threads = [threading.Thread(target=stream, args=(process,)) for process in processes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        for process in processes:
            process.kill()
    assert not failures, failures
    assert len(set(tickets)) == len(tickets)
    assert len({ticket // 1_000 for ticket in tickets}) == number  # every process has its own range
    assert len(acknowledged) == num_users
    check_books(path, num_users, acknowledged, sent)


@pytest.mark.slow
def test_two_processes_on_one_store(tmp_path):
    several_at_once(tmp_path / "s.db", 2, num_users=60)


@pytest.mark.slow
def test_four_processes_on_one_store(place):
    several_at_once(place, 4, num_users=400)


def killed_again_and_again(tmp_path, num_users, kills):
    rng, path = random.Random(1), tmp_path / "s.db"
    sent: dict[int, bytes] = {}
    acknowledged: set[int] = set()
    pending: list[bytes] = []
    for life in range(kills + 1):
        server = Process(path, num_users).ready()
        try:
            quota = rng.randrange(1, 2 * num_users // (kills + 1)) if life < kills else num_users
            while len(acknowledged) < num_users and quota > 0:
                quota -= 1
                if not pending:
                    broadcast = received(server.ask())
                    number = broadcast.ticket.number
                    assert number not in sent
                    sent[number] = people(broadcast, number)
                    pending.append(sent[number])
                if quota == 0 and life < kills:  # die with this one on its way
                    server.send(pending[0])
                    time.sleep(rng.uniform(0, 0.01))
                    break
                assert server.ask(pending[0]) == b"kept"
                acknowledged.add(Message.from_bytes(pending.pop()).ticket.number)
        finally:
            server.kill()
    check_books(path, num_users, acknowledged, sent)
    assert len(acknowledged) == num_users


@pytest.mark.slow
def test_processes_killed_with_a_message_on_its_way(tmp_path):
    killed_again_and_again(tmp_path, num_users=24, kills=2)


@pytest.mark.slow
def test_two_hundred_kills_while_a_thousand_clients_report(tmp_path):
    killed_again_and_again(tmp_path, num_users=1_000, kills=200)
