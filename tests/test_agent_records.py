"""Records and tickets from outside: nobody else's count depends on them, and nothing of them is quoted."""

import shutil

import jax
import numpy as np
import pytest
from test_agent import LEARNER, counted, live

import privrl
from privrl.mdp.types import Trajectory
from privrl.privacy.store.release_store import ReleaseStore
from privrl.studies.live.arrivals import Ticket

CANARY = "CANARY77"


def record(length=3, **changed):
    zeros = np.zeros(3, int)
    parts = {"states": zeros, "actions": zeros, "rewards": np.ones(3), "next_states": zeros, "length": length}
    return Trajectory(**(parts | changed))


def cyclic():
    loop = []
    loop.append(loop)
    return loop


class Hostile:
    """Raises when it is looked at."""

    def __array__(self, *arguments, **options):
        raise RuntimeError(CANARY)


UNREADABLE = {
    "length beyond 64 bits": lambda: record(length=10**30),
    "state beyond 64 bits": lambda: record(states=[10**30, 0, 0]),
    "a tuple of the right shapes": lambda: tuple(jax.tree.leaves(record())),
    "refers to itself": cyclic,
    "text": lambda: record(length=CANARY),
    "fractions as states": lambda: record(states=np.full(3, 0.5)),
    "complex rewards": lambda: record(rewards=np.ones(3) * 1j),
    "too long": lambda: record(states=np.zeros(4, int)),
    "nothing": lambda: None,
    "raises": lambda: record(rewards=Hostile()),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_a_record_that_cannot_be_read_moves_nobody_else(what):
    with ReleaseStore.in_memory() as store:
        agent = live(store, patience=10.0, clock=lambda: 0.0)
        tickets = [agent.begin_episode(i) for i in range(5)]
        batch = [(ticket, record()) for ticket in tickets[:4]]
        with pytest.raises(ValueError, match="1 of 5 records were not counted, the first at position 2") as caught:
            agent.end_episodes([*batch[:2], (tickets[4], UNREADABLE[what]()), *batch[2:]])
        assert CANARY not in str(caught.value) and caught.value.__cause__ is caught.value.__context__ is None
        assert counted(store, agent).sum() == pytest.approx(4 * 3, abs=1e-6)
        agent.end_episode(tickets[4], record())  # their place was not used up
        assert counted(store, agent).sum() == pytest.approx(5 * 3, abs=1e-6)


@pytest.mark.parametrize("pair", [None, 7, (), (1, 2, 3), "ab"], ids=str)
def test_what_is_no_pair_moves_nobody_else(pair):
    with ReleaseStore.in_memory() as store:
        agent = live(store, patience=10.0, clock=lambda: 0.0)
        tickets = [agent.begin_episode(i) for i in range(2)]
        with pytest.raises(ValueError, match="1 of 3 records were not counted, the first at position 1"):
            agent.end_episodes([(tickets[0], record()), pair, (tickets[1], record())])
        assert counted(store, agent).sum() == pytest.approx(2 * 3, abs=1e-6)


@pytest.mark.parametrize("number", [1.0, True, np.float64(1.0), np.int64(1), "1", -4, 10**30])
def test_a_ticket_is_one_key(number):
    with ReleaseStore.in_memory() as store:
        agent = live(store, patience=10.0, clock=lambda: 0.0)
        tickets = [agent.begin_episode(i) for i in range(5)]
        agent.end_episode(tickets[1], record())
        before = counted(store, agent)
        with pytest.raises(ValueError, match="not counted"):
            agent.end_episodes([(Ticket(number, 0, tickets[1].token), record())])
        with pytest.raises(ValueError, match="not a ticket"):
            agent.act(Ticket(number, 0, tickets[1].token), 0, 0)
        np.testing.assert_array_equal(counted(store, agent), before)


def test_a_ticket_of_a_copy_is_no_ticket(tmp_path):
    """An older copy that is put back forgets who arrived since; a ticket from that time must not be a second place."""
    with ReleaseStore(tmp_path / "s.db") as store:
        agent = live(store, patience=10.0, clock=lambda: 0.0)
    shutil.copy(tmp_path / "s.db", tmp_path / "older.db")
    (tmp_path / "older.db").chmod(0o600)
    with ReleaseStore(tmp_path / "s.db") as store:
        anna = live(store, patience=10.0, clock=lambda: 0.0).begin_episode("anna")
    with ReleaseStore(tmp_path / "older.db") as store:
        agent = live(store, patience=10.0, clock=lambda: 0.0)
        ben = agent.begin_episode("ben")
        assert (ben.number, ben.plan) == (anna.number, anna.plan)
        with pytest.raises(ValueError, match="not counted"):
            agent.end_episodes([(anna, record())])


def test_sums_that_could_overflow_are_refused_before_anybody_comes():
    with ReleaseStore.in_memory() as store, pytest.raises(ValueError, match="64 bits"):
        live(store, private=privrl.Central(rho=1e12), num_users=10**6, patience=1.0)


def test_a_client_reports_whatever_its_record_is_like(tmp_path):
    local = privrl.Local(epsilon=1.0)
    with ReleaseStore.in_memory() as store:
        broadcast = privrl.Server(LEARNER, local, num_users=20, store=store).broadcast()
        for i, make in enumerate(UNREADABLE.values()):
            client = privrl.Client(LEARNER, local, store=tmp_path / f"{i}.db")
            with pytest.warns(UserWarning, match="an empty one was reported") as told:
                message = client.report(make(), broadcast)
            assert CANARY not in str([warning.message for warning in told])
            assert client.report(record(), broadcast) == message
