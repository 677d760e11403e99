"""A client draws one report per study, keeps it before it sends it, and never draws a second one."""

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import tiny_world

import privrl
from privrl.mdp.types import Trajectory
from privrl.privacy.store.errors import StoreBudgetError, StudyMismatchError
from privrl.privacy.store.release_store import ReleaseStore
from privrl.recipes.all_recipes import get
from privrl.recipes.recipe import Problem
from privrl.studies.local.wire import MessageError, SignedTicket

ENV = tiny_world()
LEARNER = get("ldp-ucbvi").learner(Problem.of(ENV))
LOCAL = privrl.Local(epsilon=2.0)
GAUSSIAN = privrl.Local(epsilon=1.0, delta=1e-5)


def server(privatizer=LOCAL, num_users=50):
    return privrl.Server(LEARNER, privatizer, num_users=num_users, key=jax.random.key(0))


rollout = eqx.filter_jit(ENV.rollout)


def walk(broadcast, seed):
    return rollout(broadcast.plan.policy, jax.random.key(seed))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "device.db"


@pytest.mark.parametrize("privatizer", [LOCAL, GAUSSIAN], ids=["symbols", "vectors"])
def test_a_report_is_the_same_after_a_restart_whatever_is_passed(path, privatizer):
    """On the code before, a new `Client` drew again: one person, two reports, twice the epsilon."""
    ours = server(privatizer)
    first = privrl.Client(LEARNER, privatizer, store=path)
    broadcast = ours.broadcast()
    sent = first.report(walk(broadcast, 0), broadcast).to_bytes()
    later = ours.broadcast()
    for seed in range(1, 6):
        restarted = privrl.Client(LEARNER, privatizer, store=path)
        for asked in (broadcast, later):
            assert restarted.report(walk(asked, seed), asked).to_bytes() == sent
    assert ours.absorb(sent)
    assert not ours.absorb(sent) and ours.num_reports == 1
    assert first.certificate.noise_source == "system"


def test_one_process_after_another_draws_once_wherever_it_dies(path):
    """Killed at every point: the report that was returned is the one that is kept, or there is none for ever."""
    points: list[str] = []

    class Recording(ReleaseStore):
        def _reached(self, point):
            points.append(point)

    broadcast = server().broadcast()
    with Recording(path.with_name("points.db")) as store:
        privrl.Client(LEARNER, LOCAL, store=store).report(walk(broadcast, 0), broadcast)

    class Fatal(BaseException):
        pass

    outcomes = {}
    for i, point in enumerate(dict.fromkeys(points)):

        class Mortal(ReleaseStore):
            def _reached(self, where, point=point):
                if where == point:
                    raise Fatal

        file = path.with_name(f"{i}.db")
        with pytest.raises(Fatal), Mortal(file) as store:
            privrl.Client(LEARNER, LOCAL, store=store).report(walk(broadcast, 0), broadcast)
        answers = set()
        for seed in (1, 2):
            client = privrl.Client(LEARNER, LOCAL, store=file)
            try:
                answers.add(client.report(walk(broadcast, seed), broadcast).to_bytes())
            except MessageError as error:
                answers.add(str(error))
        (outcomes[point],) = answers
    lost = {point for point, outcome in outcomes.items() if isinstance(outcome, str)}
    assert lost == {"reserve:committed", "drawn", "persist:begun", "persist:written"}
    assert all("second draw would spend the budget again" in outcomes[point] for point in lost)


def die(path, seed):
    """The other process: reports, and is killed with the report in its hands."""
    broadcast = server().broadcast()
    broadcast = dataclasses.replace(broadcast, ticket=SignedTicket(bytes(32), 0, 0, 0, bytes(16)))
    content = privrl.Client(LEARNER, LOCAL, store=path).report(walk(broadcast, seed), broadcast).to_bytes()
    os.write(1, content)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_a_killed_process_sends_the_same_bytes_again(path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
    programs = [f"from test_client import die; die({str(path)!r}, {seed})" for seed in range(3)]
    sent = [subprocess.run([sys.executable, "-c", p], stdout=subprocess.PIPE, env=environment) for p in programs]
    assert all(done.returncode == -signal.SIGKILL for done in sent)
    assert len({done.stdout for done in sent}) == 1 and len(sent[0].stdout) > 50


def test_two_clients_at_once_draw_one_report(path):
    broadcast = server().broadcast()
    clients = [privrl.Client(LEARNER, LOCAL, store=path) for _ in range(2)]
    sent = {client.report(walk(broadcast, i), broadcast).to_bytes() for i, client in enumerate(clients)}
    assert len(sent) == 1


def test_a_new_study_is_a_new_budget_up_to_the_cap(path):
    """Epsilons add up over studies; the third study would exceed what the app allows, and nothing leaves."""
    client = privrl.Client(LEARNER, LOCAL, store=path, cap=5.0)
    studies = [server() for _ in range(3)]
    broadcasts = [study.broadcast() for study in studies]
    messages = [client.report(walk(broadcast, 0), broadcast) for broadcast in broadcasts[:2]]
    assert messages[0].ticket.study != messages[1].ticket.study
    for _ in range(2):
        with pytest.raises(StoreBudgetError, match="costs 2 and the pool `epsilon` has spent 4 of 5"):
            client.report(walk(broadcasts[2], 0), broadcasts[2])
    with ReleaseStore(path) as store:
        assert store.describe()["spent"] == {"epsilon": pytest.approx(4.0)}
        assert len(store.describe()["releases"]) == 2
    with pytest.raises(StudyMismatchError, match="epsilon"):
        privrl.Client(LEARNER, LOCAL, store=path, cap=50.0)


@pytest.mark.parametrize("privatizer", [LOCAL, GAUSSIAN], ids=["symbols", "vectors"])
def test_a_faulty_record_is_reported_as_an_empty_one(path, privatizer):
    """That somebody reports must not depend on what their record is like; and it is still their one report."""
    ours = server(privatizer)
    broadcast = ours.broadcast()
    trajectory = walk(broadcast, 0)
    client = privrl.Client(LEARNER, privatizer, store=path)
    with pytest.warns(UserWarning, match="an empty one was reported"):
        sent = client.report(dataclasses.replace(trajectory, states=None), broadcast)
    assert ours.absorb(sent)
    assert client.report(trajectory, broadcast).to_bytes() == sent.to_bytes()


@pytest.mark.parametrize("arguments", [{}, {"store": "device.db", "key": jax.random.key(0)}])
def test_real_people_need_a_store_and_simulations_a_key(tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="Give a `store` on the device of a real person"):
        privrl.Client(LEARNER, LOCAL, **arguments)
    with pytest.raises(ValueError, match="protects no one"):
        privrl.Client(LEARNER, privrl.Local(epsilon=float("inf")), store="device.db")
    assert list(tmp_path.iterdir()) == []


def test_a_simulated_client_reports_once_too():
    ours = server()
    client = privrl.Client(LEARNER, LOCAL, key=jax.random.key(1))
    broadcast, later = ours.broadcast(), ours.broadcast()
    sent = client.report(walk(broadcast, 0), broadcast)
    assert client.report(walk(later, 1), later).to_bytes() == sent.to_bytes()
    assert client.certificate.noise_source == "seed"


@pytest.mark.parametrize("privatizer", [LOCAL, GAUSSIAN], ids=["symbols", "vectors"])
def test_the_certificate_says_what_was_drawn(path, privatizer):
    client = privrl.Client(LEARNER, privatizer, store=path)
    assert client.certificate.releases[0]["counted"] == 0
    broadcast = server(privatizer).broadcast()
    client.report(walk(broadcast, 0), broadcast)
    (release,) = client.certificate.releases
    assert (release["declared"], release["counted"]) == (1, 1)
    if privatizer is GAUSSIAN:
        (noise,) = release["noise"]
        assert (noise["sensitivity"], noise["scale"]) == client._reports["transitions"].calibration


def test_the_trajectory_is_not_in_the_message():
    """With the same randomness, the bytes depend on the answer alone: as many messages as symbols, of one length.

    None of them holds the states, actions, next states or rewards in a row, as integers or floats of usual widths.
    """
    broadcast = server().broadcast()
    channel = privrl.Client(LEARNER, LOCAL, key=jax.random.key(5))._reports["transitions"].channel
    rng = np.random.default_rng(0)
    sent: dict[int, set[bytes]] = {}
    for _ in range(60):
        states, actions = rng.integers(0, 3, ENV.horizon + 1), rng.integers(0, 2, ENV.horizon)
        rewards = jnp.asarray(rng.uniform(size=ENV.horizon))
        record = (jnp.asarray(states[:-1]), jnp.asarray(actions), rewards, jnp.asarray(states[1:]))
        trajectory = Trajectory(*record, jnp.asarray(ENV.horizon))
        content = privrl.Client(LEARNER, LOCAL, key=jax.random.key(5)).report(trajectory, broadcast).to_bytes()
        symbol = int(channel.statistic.symbol(trajectory, broadcast.plan, jnp.asarray(broadcast.ticket.number)))
        sent.setdefault(symbol, set()).add(content)
        for part in (np.asarray(part) for part in record):
            for kind in ("<i4", "<i8", "<f4", "<f8"):
                assert (part == part[0]).all() or part.astype(kind).tobytes() not in content
    assert set(sent) == {0, 1, 2, 3}
    assert all(len(contents) == 1 for contents in sent.values())
    assert {len(content) for contents in sent.values() for content in contents} == {94}


def test_the_device_keeps_nothing_but_the_message(path):
    """Nothing of the trajectory is in the files, beyond what is sent anyway."""
    broadcast = server(GAUSSIAN).broadcast()
    trajectory = walk(broadcast, 0)
    rewards = jnp.asarray(np.random.default_rng(0).uniform(size=trajectory.rewards.shape))
    trajectory = dataclasses.replace(trajectory, rewards=rewards)
    privrl.Client(LEARNER, GAUSSIAN, store=path).report(trajectory, broadcast)
    kept = b"".join(file.read_bytes() for file in path.parent.iterdir())
    for part in map(np.asarray, (trajectory.states, trajectory.actions, trajectory.next_states, rewards)):
        for kind in ("<i4", "<i8", "<f4", "<f8"):
            written = part.astype(kind)
            assert (written == written[0]).all() or written.tobytes() not in kept
