"""Who is in which block, when it closes and who acts on which plan: public facts, whatever anybody's record says.

The attack that these tests are about: replace one person by one who stays longer. When people entered blocks in the
order in which they ended, everybody in between moved by one block (certified epsilon .5, true 1.485 for that pair).
"""

import contextlib
import datetime
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from clocks import Clock
from contract import tiny_world
from hypothesis import given, settings
from hypothesis import strategies as st
from test_agent import PRIVATE, alone, some

import privrl
from privrl.mdp.types import Trajectory
from privrl.privacy.store.errors import StoreError
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.privatizers import PairingError

ENV = tiny_world(horizon=3)
LEARNER = privrl.UCBVI(ENV.rewards, 3, first_block=2, growth=1.5)
USERS = 7
ENDS = LEARNER.blocks(USERS)  # 2, 3, 4, 6, 7
PATIENCE = 10.0


def live(store, clock, learner=LEARNER, private=PRIVATE, num_users=USERS, key=None):
    settings = {"num_users": num_users, "store": store, "patience": PATIENCE, "clock": clock, "key": key}
    return privrl.Agent(learner, private, **settings)


def sums(store, agent):
    """The exact sums of all statistics, by block and plan: for tests only."""
    found = {}
    for block in range(len(ENDS)):
        for plan in range(block + 1):
            total = store.total(agent._arrivals.sum_name(block, plan))
            if total is not None:
                found[block, plan] = total
    return found


class Expected:
    """What must come out, from arrival times and each person's own record alone."""

    def __init__(self):
        self.arrivals = []  # (user, time, plan)
        self.counted = {}  # number -> record

    def closing(self, block):
        last = int(ENDS[block]) - 1
        return self.arrivals[last][1] + PATIENCE if last < len(self.arrivals) else np.inf

    def plan(self, time):
        return sum(self.closing(block) <= time for block in range(len(ENDS)))

    def number(self, user):
        return [known for known, *_ in self.arrivals].index(user)

    def arrive(self, user, time):
        if user not in [known for known, *_ in self.arrivals]:
            self.arrivals.append((user, time, self.plan(time)))

    def end(self, user, record, time):
        number = self.number(user)
        if time < self.closing(int(np.searchsorted(ENDS, number, side="right"))):
            self.counted.setdefault(number, record)

    def sums(self, agent):
        found = {}
        for number, record in self.counted.items():
            plan = self.arrivals[number][2]
            block = int(np.searchsorted(ENDS, number, side="right"))
            found[block, plan] = found.get((block, plan), 0) + agent._plans.to_steps(alone(record), plan)[0][0]
        return found


def play(path, script, clock, handles=1, key=None):
    """Follows a script of (time passed, event, user, record) and checks every public fact on the way."""
    expected, tickets = Expected(), {}
    with contextlib.ExitStack() as stack:
        stores = [stack.enter_context(ReleaseStore(path)) for _ in range(handles)]
        agents = [live(one, clock, key=key) for one in stores]
        for turn, (passed, event, user, record) in enumerate(script):
            clock.time += passed
            at = turn % handles
            if event == "restart":
                stores[at].close()
                stores[at] = stack.enter_context(ReleaseStore(path))
                agents[at] = live(stores[at], clock, key=key)
            elif event == "arrive":
                expected.arrive(user, clock.time)
                tickets[user] = agents[at].begin_episode(user)
                number = expected.number(user)
                assert (tickets[user].number, tickets[user].plan) == (number, expected.arrivals[number][2])
            elif event == "end" and user in tickets:
                assert agents[at].end_episode(tickets[user], record) is None
                expected.end(user, record, clock.time)
            elif event == "look":
                assert np.array_equal(agents[at].policy.probabilities, agents[at]._plans[-1].policy.probabilities)
            if event != "end" or user in tickets:
                assert agents[at]._plans.closed == expected.plan(clock.time)
            assert agents[at].num_arrived == len(expected.arrivals)
        found, wanted = sums(stores[0], agents[0]), expected.sums(agents[0])
        assert found.keys() == wanted.keys()
        for stream in found:
            np.testing.assert_array_equal(found[stream], wanted[stream])
        for agent in agents:
            assert agent.policy is not None  # catches up
        assert len({agent._plans.closed for agent in agents}) == 1
        for plan in range(agents[0]._plans.closed + 1):
            for agent in agents[1:]:
                np.testing.assert_array_equal(
                    agent._plans[plan].policy.probabilities, agents[0]._plans[plan].policy.probabilities
                )
        lattices = {name: stream.lattice for name, stream in agents[0]._plans.channels.items()}
        return (
            found,
            tickets,
            [np.asarray(agents[0]._plans[p].policy.probabilities) for p in range(agents[0]._plans.closed + 1)],
            lattices,
        )


EVENT = st.tuples(
    st.sampled_from([0.0, 1.0, 4.0, 9.0, 10.0, 11.0]),
    st.sampled_from(["arrive", "arrive", "arrive", "end", "end", "look", "restart"]),
    st.integers(0, USERS - 1),
    st.integers(0, 5),
)


@settings(max_examples=15)
@given(script=st.lists(EVENT, min_size=6, max_size=24), handles=st.integers(1, 3))
def test_blocks_plans_and_sums_follow_from_arrivals_alone(tmp_path_factory, script, handles):
    """Whatever the order of arrivals, ends, restarts and handles: nobody's place depends on anybody's record.

    The expected sums are made of each person's own record, their own moment of ending and the arrivals: that they agree
    says that no person's stay moves, delays or drops another.
    """
    script = [(passed, event, user, some(record)) for passed, event, user, record in script]
    play(tmp_path_factory.mktemp("agent") / "s.db", script, Clock(), handles)


@pytest.mark.slow
@settings(max_examples=300)
@given(script=st.lists(EVENT, min_size=12, max_size=60), handles=st.integers(1, 4))
def test_longer_stories(tmp_path_factory, script, handles):
    script = [(passed, event, user, some(record)) for passed, event, user, record in script]
    play(tmp_path_factory.mktemp("agent") / "s.db", script, Clock(), handles)


def story(end_of_target, record):
    """Seven people overlap; the target (person 1, in block 0) ends at a moment of their own, or never."""
    moments = {0: 8.0, 2: 11.5, 3: 12.5, 4: 17.0, 5: 18.0, 6: 19.0}
    events = [(time, 1, "arrive", user, None) for user, time in enumerate((0.0, 1.0, 2.0, 3.0, 12.0, 13.0, 14.0))]
    events += [(time, 2, "end", user, some(user)) for user, time in moments.items()]
    events += [(time, 0, "look", None, None) for time in (5.0, 11.0, 22.0, 30.0, 60.0)]
    if end_of_target is not None:
        events.append((end_of_target, 3, "end", 1, record))
    events.sort(key=lambda event: event[:2])
    before = [0.0, *[event[0] for event in events]]
    return [(event[0] - then, *event[2:]) for event, then in zip(events, before, strict=False)]


@pytest.mark.parametrize("other_end", [1.5, 10.9, 11.0, 12.2, 40.0, None])
def test_a_longer_stay_moves_nobody_else(tmp_path, blind, other_end):
    """The attack: one person stays longer, or for ever. All others stay in their blocks, and releases keep their times.

    The exact sums differ in that person's own block only, by no more than the declared sensitivity.
    """
    key = jax.random.key(3)
    one, tickets, plans, lattices = play(tmp_path / "one.db", story(1.5, some(1)), Clock(), key=key)
    two, same_tickets, same_plans, _ = play(tmp_path / "two.db", story(other_end, some(9)), Clock(), key=key)
    assert tickets == same_tickets
    assert len(plans) == len(same_plans) == len(ENDS) + 1
    for plan, same in zip(plans, same_plans, strict=True):
        np.testing.assert_array_equal(plan, same)
    differing = {stream for stream in one.keys() | two.keys() if not np.array_equal(one.get(stream), two.get(stream))}
    assert differing <= {(0, 0)}
    moved = one[0, 0] - two[0, 0]
    (lattice,) = lattices.values()
    assert np.linalg.norm(moved.astype(float)) * lattice.granularity <= lattice.sensitivity
    late = other_end is None or other_end >= 11.0  # block 0 closes ten seconds after the arrival of person 1
    with privrl.ReleaseStore(tmp_path / "alone.db") as store:
        only = live(store, Clock())._plans.to_steps(alone(some(0)), 0)[0][0]
    assert np.array_equal(two[0, 0], only) is late


def test_late_again_and_counted_records_are_answered_alike(store, clock):
    agent = live(store, clock)
    anna, ben = agent.begin_episode("anna"), agent.begin_episode("ben")
    answers = [agent.end_episode(anna, some(0)), agent.end_episode(anna, some(1))]
    clock.time = PATIENCE  # at the closing time itself nothing is accepted any more
    answers += [agent.end_episode(ben, some(2)), agent.end_episodes([(ben, some(2)), (anna, some(3))])]
    assert answers == [None] * 4
    assert agent.count_records([anna, ben], jax.tree.map(lambda *x: np.stack(x), some(3), some(2))) == [True, True]
    assert agent.begin_episode("ben") == ben  # and there is no second place for whoever came too late
    assert agent.num_arrived == 2
    np.testing.assert_array_equal(store.total("block 0, plan 0"), agent._plans.to_steps(alone(some(0)), 0)[0][0])
    public = [name for name in dir(agent) if not name.startswith("_")]
    assert sorted(public) == [
        "act", "begin_episode", "begin_episodes", "certificate", "count_records", "deadline", "end_episode",
        "end_episodes", "last_closing", "latest_arrival", "next_closing", "num_arrived", "plans", "policy", "result",
    ]  # fmt: skip
    assert agent.result().report == {"tickets": 2}


def test_a_block_closes_on_time_even_if_nobody_called(store, clock):
    """Equivalent to a timer: what comes after the closing time is not counted, though no release was made yet."""
    agent = live(store, clock)
    anna, ben = agent.begin_episode("anna"), agent.begin_episode("ben")
    agent.end_episode(anna, some(0))
    clock.time = 10 * PATIENCE
    agent.end_episode(ben, some(1))
    assert agent._plans.closed == 1
    np.testing.assert_array_equal(store.total("block 0, plan 0"), agent._plans.to_steps(alone(some(0)), 0)[0][0])


def test_everybody_has_finished_and_the_block_waits_all_the_same(store, clock):
    agent = live(store, clock)
    for user in ("anna", "ben"):
        agent.end_episode(agent.begin_episode(user), some(0))
    clock.time = PATIENCE - 0.001
    assert (agent.begin_episode("carl").plan, agent._plans.closed) == (0, 0)
    clock.time = PATIENCE
    assert (agent.begin_episode("dora").plan, agent._plans.closed) == (1, 1)
    assert agent.begin_episode("carl").plan == 0  # for the whole stay, and after it


def test_the_time_is_asked_inside_the_transaction(store, clock, monkeypatch):
    """A call that began in time and reaches the store too late is late, whether or not somebody else has called."""
    agent = live(store, clock)
    anna, ben = agent.begin_episode("anna"), agent.begin_episode("ben")
    catch_up = agent._plans.catch_up
    slow = []

    def slowly():
        catch_up()
        if not slow:
            slow.append(True)
            clock.time = 2 * PATIENCE  # passes between the look at the clock and the transaction

    monkeypatch.setattr(agent._plans, "catch_up", slowly)
    agent.end_episode(anna, some(0))
    assert store.total("block 0, plan 0") is None
    clock.time = 0.0
    other = live(store, clock)  # set back: the block stays closed
    other.end_episode(ben, some(1))
    assert store.total("block 0, plan 0") is None


def test_an_arrival_that_finds_a_block_closed_catches_up_first(store, clock, monkeypatch):
    agent = live(store, clock)
    agent.begin_episode("anna"), agent.begin_episode("ben")
    catch_up, late = agent._plans.catch_up, [2 * PATIENCE]

    def slowly():
        catch_up()
        if late:
            clock.time = late.pop()

    monkeypatch.setattr(agent._plans, "catch_up", slowly)
    assert agent.begin_episode("carl").plan == 1


def test_a_clock_that_is_set_back_opens_nothing(store, clock):
    clock.time = 100.0
    agent = live(store, clock)
    anna, ben = agent.begin_episode("anna"), agent.begin_episode("ben")
    agent.end_episode(anna, some(0))
    clock.time = 100.0 + PATIENCE
    assert agent.begin_episode("carl").plan == 1
    clock.time = 0.0
    other = live(store, clock)
    other.end_episode(ben, some(1))
    np.testing.assert_array_equal(store.total("block 0, plan 0"), agent._plans.to_steps(alone(some(0)), 0)[0][0])
    assert other.begin_episode("dora").plan == 1
    places = [json.loads(kept)["time"] for kept in store.places("people", range(4)).values()]
    assert places == sorted(places)


def test_set_back_before_anybody_arrived_again(store, clock):
    """The block was closed by a look, so nothing in the queue remembers the time: the seal does."""
    agent = live(store, clock)
    agent.begin_episode("anna")
    ben = agent.begin_episode("ben")
    clock.time = PATIENCE
    assert agent.policy is not None
    clock.time = 1.0
    for handle in (agent, live(store, clock)):
        handle.end_episode(ben, some(0))
        assert store.total("block 0, plan 0") is None
    assert live(store, clock).begin_episode("carl").plan == 1
    assert json.loads(store.places("people", [2])[2])["time"] == PATIENCE


def test_one_id_one_ticket(store, clock):
    agent = live(store, clock)
    first = agent.begin_episode(12)
    assert first == agent.begin_episode("12") == live(store, clock).begin_episode(np.int64(12))
    assert (first.number, first.plan) == (0, 0)
    assert privrl.Ticket.from_json(json.loads(json.dumps(first.to_json()))) == first
    assert agent.begin_episode("012").number == 1
    for nobody in (None, float("nan"), 1.5):
        with pytest.raises(ValueError, match="id"):
            agent.begin_episode(nobody)


@pytest.mark.parametrize(
    "forged",
    [
        privrl.Ticket(1, 0, "0"),
        privrl.Ticket(0, 0, "0"),
        privrl.Ticket(0, 1, ""),
        privrl.Ticket(-1, 0, ""),
        (0, 0),
        "0",
        None,
    ],
)
def test_what_is_no_ticket_is_refused(store, clock, forged):
    agent = live(store, clock)
    good = agent.begin_episode("anna")
    with pytest.raises(ValueError, match="not a ticket"):
        agent.act(forged, 0, 0)
    with pytest.raises(
        ValueError, match="1 of 2 records were not counted, the first at position 1: a record comes with"
    ):
        agent.end_episodes([(good, some(0)), (forged, some(1))])
    np.testing.assert_array_equal(store.total("block 0, plan 0"), agent._plans.to_steps(alone(some(0)), 0)[0][0])


def test_a_record_that_cannot_be_read_keeps_nobody_else_out(store, clock):
    agent = live(store, clock)
    anna, ben = agent.begin_episode("anna"), agent.begin_episode("ben")
    short = Trajectory(jnp.zeros(2, int), jnp.zeros(2, int), jnp.zeros(2), jnp.zeros(2, int), jnp.asarray(2))
    with pytest.raises(ValueError, match="1 of 2 records were not counted, the first at position 0"):
        agent.end_episodes([(anna, short), (ben, some(1))])
    np.testing.assert_array_equal(store.total("block 0, plan 0"), agent._plans.to_steps(alone(some(1)), 0)[0][0])


@pytest.mark.parametrize("point", ["arrive:begun", "arrive:written", "arrive:committed"])
def test_a_ticket_is_kept_before_it_is_handed_out(tmp_path, clock, point):
    class Mortal(ReleaseStore):
        def _reached(self, where):
            if where == point:
                raise KeyboardInterrupt

    with contextlib.closing(Mortal(tmp_path / "s.db")) as store, pytest.raises(KeyboardInterrupt):
        live(store, clock).begin_episode("anna")
    with privrl.ReleaseStore(tmp_path / "s.db") as store:
        agent = live(store, clock)
        taken = int(point == "arrive:committed")
        assert agent.num_arrived == taken
        assert agent.begin_episode("ben").number == taken
        assert agent.begin_episode("anna").number == (0 if taken else 1)


def test_in_fixed_order_nobody_begins_before_their_plan_is_out(store):
    agent = privrl.Agent(LEARNER, PRIVATE, num_users=USERS, store=store, fixed_order=True)
    anna, ben = agent.begin_episode("anna"), agent.begin_episode("ben")
    with pytest.raises(PairingError, match="person 2 acts on plan 1, which is published when"):
        agent.begin_episode("carl")
    agent.end_episode(ben, some(0))
    assert agent.num_arrived == 2
    with pytest.raises(PairingError, match="End their episodes first"):
        agent.begin_episode("carl")
    agent.end_episode(anna, some(1))
    carl = agent.begin_episode("carl")
    assert (carl.number, carl.plan) == (2, 1)


def test_after_a_purge_plans_and_certificate_are_still_there(store, clock):
    agent = live(store, clock)
    for person in range(USERS):
        agent.end_episode(agent.begin_episode(person), some(person))
    clock.time = PATIENCE
    before = agent.result()
    store.purge()
    after = live(store, clock)
    np.testing.assert_array_equal(after.policy.probabilities, before.policy.probabilities)
    assert after.result().certificate == before.certificate
    with pytest.raises(StoreError, match="purge"):
        after.begin_episode("anna")


@pytest.mark.parametrize("arrivals", [{"patience": datetime.timedelta(minutes=2)}, {"fixed_order": True}])
def test_the_certificate_says_what_is_assumed_of_arrivals(store, arrivals):
    agent = privrl.Agent(LEARNER, PRIVATE, num_users=USERS, store=store, **arrivals)
    words = str(agent.certificate)
    if "patience" in arrivals:
        assert "2 minutes after its last person arrived" in words
        assert "the number counted is secret" in words
        assert "because another person has finished, what their arrival reveals is not covered" in words
    else:
        assert "assumed to be fixed in advance" in words
        assert "the moment of a release is not covered" in words
