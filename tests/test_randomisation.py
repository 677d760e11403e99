"""The arm of a person in a trial: drawn once, from public shares alone, and kept with the ticket."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from clocks import Clock
from hypothesis import given
from hypothesis import strategies as st

import privrl
from privrl.privacy.store.release_store import ReleaseStore
from privrl.studies.live import randomisation
from privrl.studies.live.patience import Patience
from privrl.studies.live.randomisation import Randomisation, choose_arm

ENDS = np.array([4, 8, 12])
PATIENCE = 10.0


@dataclasses.dataclass(frozen=True)
class Stub:
    """A plan whose shares are the same in every block."""

    shares: tuple[float, ...] = (0.5, 0.5)
    closed: tuple[int, ...] = ()
    served: int | None = None

    def shares_of(self, block):
        return np.array(self.shares)

    def is_open(self, arm):
        return arm not in self.closed


def queue(store, clock, plans, key=None):
    return Patience(store, ENDS, PATIENCE, clock, randomisation=Randomisation(plans.__getitem__, key))


def arrive(people, names, closed=0, groups=None):
    return people.arrive_all([(name, "") for name in names], closed, groups)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=4).filter(lambda s: sum(s) > 0.1), st.floats(0, 1))
def test_an_arm_without_a_share_is_never_chosen(shares, coin):
    assert shares[choose_arm(np.array(shares), coin)] > 0


def test_arms_are_drawn_in_proportion_to_the_shares():
    coins = (np.arange(1000) + 0.5) / 1000
    found = np.bincount([choose_arm(np.array([0.5, 0.3, 0.0, 0.2]), coin) for coin in coins], minlength=4)
    assert found.tolist() == [500, 300, 0, 200]


@pytest.mark.first
def test_the_arm_is_drawn_once_and_the_same_on_every_machine_and_after_every_restart(tmp_path, clock):
    path, plans = tmp_path / "trial.db", [Stub()]
    names = [f"person {i}" for i in range(40)]
    with ReleaseStore(path) as one, ReleaseStore(path) as other:
        first = arrive(queue(one, clock, plans), names)
        assert arrive(queue(other, clock, plans), reversed(names)) == first[::-1]
    with ReleaseStore(path) as later:
        people = queue(later, clock, plans)
        assert arrive(people, names) == first
        assert [privrl.Ticket.from_json(json.loads(json.dumps(one.to_json()))) for one in first] == first
        (again,) = people.arrive_all([("person 3", "later")], 0)
        assert (again.number, again.arm) == (3, first[3].arm) and not people.counts(again)
        other_arm = dataclasses.replace(first[0], arm=1 - first[0].arm)
        assert people.all_issued([first[0], again, other_arm]) == [True, True, False]
    assert {one.arm for one in first[:12]} == {0, 1}  # fails once in 2,000 runs


def test_the_system_draws_arms_unless_a_key_is_given(store, clock, monkeypatch):
    drawn = []
    monkeypatch.setattr(randomisation.secrets, "randbits", lambda bits: drawn.append(bits) or 0)
    assert [one.arm for one in arrive(queue(store, clock, [Stub()]), "abcd")] == [0, 0, 0, 0] and drawn == [53] * 4


def test_a_key_gives_the_same_arms_in_every_store(clock):
    found = []
    for _ in range(2):
        with ReleaseStore.in_memory() as store:
            people = queue(store, clock, [Stub()], jax.random.key(3))
            found.append([one.arm for one in arrive(people, map(str, range(12)))])
    assert found[0] == found[1] and set(found[0]) == {0, 1}


def test_shares_are_those_of_the_moment_at_which_a_block_began(store, clock):
    plans = [Stub((1.0, 0.0, 0.0)), Stub((0.0, 1.0, 0.0)), Stub((0.0, 0.0, 1.0))]
    people = queue(store, clock, plans)
    assert [one.arm for one in arrive(people, "abcde")] == [0, 0, 0, 0, 0]  # block 1 has begun
    assert [one.arm for one in arrive(people, "fghi", closed=1)] == [0, 0, 0, 1]  # and is completed as it began
    assert [one.arm for one in arrive(people, "jk", closed=2)] == [1, 1]


def test_people_drawn_for_a_closed_arm_get_practice_and_are_not_counted(store, clock):
    plans = [Stub((0.0, 1.0)), Stub((1.0, 0.0), closed=(1,))]
    people = queue(store, clock, plans)
    tickets = arrive(people, "abcde") + arrive(people, "fghij", closed=1)
    assert [one.arm for one in tickets] == [1, 1, 1, 1, 1, 0, 0, 0, 0, 0]
    assert [people.counts(one) for one in tickets] == [True] * 5 + [False] * 3 + [True] * 2
    assert people.assigned(0) == [(1, "")] * 4 and people.assigned(1) == [(1, "")]
    assert people.deadline(tickets[4]) == PATIENCE and people.deadline(tickets[5]) is None


def test_after_the_end_everyone_gets_what_is_served_and_no_block_closes(store):
    clock, plans = Clock(), [Stub()]
    people = queue(store, clock, plans)
    arrive(people, "abcdef")
    clock.time = PATIENCE
    assert people.closes(0) and people.closing(0) == PATIENCE
    plans.append(Stub(served=1))
    assert not people.closes(1) and people.closing(1) is None
    tickets = arrive(people, map(str, range(20)), closed=1)
    assert {one.arm for one in tickets} == {1} and not any(people.counts(one) for one in tickets)


def test_who_comes_when_all_places_are_taken_gets_practice_until_the_last_look(store, clock):
    people = queue(store, clock, [Stub((0.0, 1.0))])
    tickets = arrive(people, map(str, range(14)))
    assert [one.arm for one in tickets] == [1] * 12 + [0] * 2
    assert people.all_issued(tickets) == [True] * 14 and not people.counts(tickets[12])


def test_the_group_of_the_first_arrival_is_kept(store, clock):
    people = queue(store, clock, [Stub((0.0, 1.0))])
    arrive(people, "abcd", groups=["women", "men", "women", ""])
    arrive(people, "ab", groups=["men", "women"])
    assert people.assigned(0) == [(1, "women"), (1, "men"), (1, "women"), (1, "")]
