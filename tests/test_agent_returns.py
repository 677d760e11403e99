"""People who come back: who is counted how often, in which block, and what their returns tell others: nothing."""

import json

import jax
import numpy as np
import pytest
from clocks import Clock
from hypothesis import given, settings
from hypothesis import strategies as st
from test_agent import ENV, LEARNER, PRIVATE, USERS, alone, person_key, some, walk
from test_agent_arrivals import PATIENCE

import privrl
from privrl.learners.linear.lsvi_ucb_plus_plus import LSVIUCBPlusPlus
from privrl.privacy.continual.participation import Participation
from privrl.privacy.store.errors import StoreError
from privrl.privacy.trust.privatizers import PairingError
from privrl.studies.results.certification import certify
from privrl.studies.study import Study

SMALL = privrl.UCBVI(ENV.rewards, 3, first_block=2, growth=1.5)
PEOPLE = 7  # in blocks of 2, 2 and 3


def live(store, clock, learner=SMALL, num_users=PEOPLE, key=None, m=3, distance=0):
    how = {"max_episodes_per_unit": m, "min_block_distance": distance}
    return privrl.Agent(
        learner, PRIVATE, num_users=num_users, store=store, patience=PATIENCE, clock=clock, key=key, **how
    )


def added_up(agent, block):
    """The exact sum that a closed block was released from: for tests only."""
    return sum(total().ravel() for total in agent._plans._totals(block).values())


def units(agent, record, plan=0):
    return agent._plans.to_steps(alone(record), plan)[0][0]


@pytest.mark.slow
def test_a_list_of_visits_decides_as_the_simulation(store):
    """40 visits of 14 people in fixed order, three each at most: as `run` for the same key, noise included.

    The quick tests see the same without a known end, in `test_agent_open_ended.py`.
    """
    key, people = jax.random.key(7), [i % 14 for i in range(USERS)]
    often = {"max_episodes_per_unit": 3, "min_block_distance": 1}
    simulated = privrl.run(ENV, LEARNER, PRIVATE, episodes=USERS, key=key, flow=False, **often)
    seed, ends = jax.random.split(key, (1, 1))[0, 0], LEARNER.blocks(USERS)
    agent = privrl.Agent(LEARNER, PRIVATE, num_users=USERS, store=store, fixed_order=True, key=seed, **often)
    regret = []
    for slot, person in enumerate(people):
        if slot in (0, *ends[:-1]):
            regret.append(float(ENV.regret(agent.policy)))
        ticket = agent.begin_episode(person, visit=slot)
        assert (ticket.number, ticket.visit) == (slot, "")
        assert agent.begin_episode(person, visit=slot) == ticket
        agent.end_episode(ticket, walk(agent, ticket, ENV, person_key(seed, ends, slot)))
    np.testing.assert_allclose(regret, simulated.block_regret[0], atol=1e-9)
    np.testing.assert_allclose(agent.policy.probabilities, simulated.policy.probabilities[0], atol=1e-9)
    ours, theirs = (one["noise"][0]["scale"] for one in (*agent.certificate.releases, *simulated.certificate.releases))
    assert ours == pytest.approx(theirs, rel=1e-6)
    for result in (agent.result(), simulated):
        verdict = certify(result.certificate, result.policy, allow_non_private=True)
        assert [p for p in verdict.problems if "no policy" not in p] == []


def test_who_comes_back_is_in_the_block_that_fills_then(store, clock):
    agent = live(store, clock)
    first = agent.begin_episode("a", visit="monday")
    assert agent.begin_episode("a", visit="monday") == agent.begin_episode("a") == first
    again = agent.begin_episode("a", visit="tuesday")  # block 0 is filling: one of its two people is there
    assert (again.number, again.plan, agent.num_arrived) == (0, 0, 1)
    assert agent._arrivals.block(again) == 0 and again.token != first.token
    assert "tuesday" not in json.dumps(again.to_json())  # tickets are of one length, whatever a visit is called
    assert len(agent.begin_episode("b", visit="x" * 9999).visit) == 0 == len(first.visit) < len(again.visit)
    clock.time = PATIENCE  # block 0 closes, and block 1 is filling
    later = agent.begin_episode("a", visit="wednesday")
    assert (later.number, later.plan, agent._arrivals.block(later), agent.num_arrived) == (0, 1, 1, 2)
    beyond = agent.begin_episode("a", visit="thursday")
    assert [agent._arrivals.counts(ticket) for ticket in (first, again, later, beyond)] == [True, True, True, False]
    for ticket in (later, beyond):
        assert privrl.Ticket.from_json(json.loads(json.dumps(ticket.to_json()))) == ticket
        assert 0 <= agent.act(ticket, 0, 0) < 2
        agent.end_episode(ticket, some(1))
        agent.end_episode(ticket, some(2))  # sent again
    agent.begin_episodes(["c", "d"])
    clock.time += PATIENCE
    assert agent.policy is not None
    np.testing.assert_array_equal(added_up(agent, 1), units(agent, some(1)))
    assert not added_up(agent, 0).any()  # nobody of it has ended
    with pytest.raises(ValueError, match="not a ticket"):
        agent.act(privrl.Ticket(later.number, later.plan, beyond.token, later.visit), 0, 0)


def test_visits_count_at_a_distance_and_until_everybody_has_come(store, clock):
    agent = live(store, clock, m=2, distance=2)
    tickets = [agent.begin_episode("a", visit=0)]
    for number in range(1, PEOPLE):
        tickets.append(agent.begin_episode("a", visit=f"before {number}"))
        agent.begin_episode(number)
    last = agent.begin_episode("a", visit="after everybody")
    blocks = [agent._arrivals.block(ticket) for ticket in tickets]
    counted = [block for block, ticket in zip(blocks, tickets, strict=True) if agent._arrivals.counts(ticket)]
    assert blocks == [0, 0, 1, 1, 2, 2, 2] and counted == [0, 2]
    assert not agent._arrivals.counts(last)
    agent.end_episode(last, some(3))
    with pytest.raises(PairingError, match="All 7 places"):
        agent.begin_episode("somebody new", visit="x")
    assert agent.begin_episode("a", visit="after everybody") == last


def test_where_one_episode_counts_returns_are_served_and_not_counted(store, clock):
    agent = live(store, clock, m=1)
    agent.end_episode(agent.begin_episode("a", visit="monday"), some(0))
    agent.begin_episode("b")
    back = [agent.begin_episode(person, visit="tuesday") for person in ("a", "b")]
    assert not any(agent._arrivals.counts(ticket) for ticket in back)
    for ticket in back:
        assert 0 <= agent.act(ticket, 0, 0) < 2
        agent.end_episode(ticket, some(1))
    agent.begin_episodes(["c", "d"])
    clock.time += PATIENCE
    assert agent.plans.closed == 2
    np.testing.assert_array_equal(added_up(agent, 0), units(agent, some(0)))
    assert not added_up(agent, 1).any()


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_plans_of_returns_are_in_the_public_range(data):
    """Whenever people come back, the sums that are sealed hold every visit that counts, once."""
    clock = Clock()
    with privrl.ReleaseStore.in_memory() as store:
        agent = live(store, clock, m=data.draw(st.sampled_from([1, 2, 4])), distance=0)
        expected, arrived = {}, 0
        for visit in range(data.draw(st.integers(4, 24))):
            clock.time += data.draw(st.sampled_from([0.0, 3.0, PATIENCE, 4 * PATIENCE]))
            back = arrived == PEOPLE or (arrived > 0 and data.draw(st.booleans()))
            person = data.draw(st.integers(0, arrived - 1)) if back else arrived
            ticket = agent.begin_episode(person, visit=visit)
            arrived += not back
            agent.end_episode(ticket, some(visit))
            if agent._arrivals.counts(ticket):
                block = agent._arrivals.block(ticket)
                expected[block] = expected.get(block, 0) + units(agent, some(visit), ticket.plan)
        clock.time += PATIENCE
        assert agent.policy is not None
        for block in range(agent._plans.closed):
            np.testing.assert_array_equal(added_up(agent, block), expected[block])


def test_returns_move_nobody_else(tmp_path, blind):
    """Two worlds: one person comes once, or 18 times more at awkward moments. What all others see is the same."""
    key = jax.random.key(3)

    def seen(path, returns):
        clock, views = Clock(), []
        with privrl.ReleaseStore(path) as store:
            agent = live(store, clock, m=4, key=key)
            agent.begin_episode("her")
            for number in range(1, PEOPLE):
                for i in range(returns):
                    ticket = agent.begin_episode("her", visit=f"{number} {i}")
                    agent.end_episode(ticket, some(number + i))
                own = agent.begin_episode(number, visit="first")
                back = agent.begin_episode(max(number - 1, 1), visit=f"again {number}")
                agent.end_episode(own, some(number))
                views.append([(t.number, t.plan, t.visit, agent._arrivals.block(t)) for t in (own, back)])
                views.append((agent.num_arrived, agent.next_closing, agent.deadline(own), agent.deadline(back)))
                clock.time += 4.0
            clock.time += 2 * PATIENCE
            policy = np.asarray(agent.policy.probabilities).tobytes().hex()
            shown = store.describe()
            views.append((policy, agent.plans.closed, agent.result().report, agent.certificate.releases, shown))
        return json.dumps(views, default=str)

    assert seen(tmp_path / "once.db", 0) == seen(tmp_path / "often.db", 3)


def test_who_comes_back_together_with_others_does_not_change_their_time(tmp_path):
    """The clock goes on with every reading, and a block closes between two of them: one reading serves a batch."""

    class Ticking(Clock):
        def __call__(self):
            self.time += 0.25
            return self.time

    def seen(path, back):
        clock, views = Ticking(), []
        with privrl.ReleaseStore(path) as store:
            agent = live(store, clock)
            agent.begin_episodes(["k", "x"])
            for number in range(4):
                clock.time = PATIENCE * (number + 1) - 0.5 + 0.125 * number
                came = [(f"y{number}", ""), *([("k", f"again {number}")] if back else []), ("x", f"again {number}")]
                tickets = agent.begin_episodes(*zip(*came, strict=True))
                others = [ticket for ticket, (user, _) in zip(tickets, came, strict=True) if user != "k"]
                views += [(t.number, t.plan, t.visit, agent.deadline(t)) for t in others]
        return views

    assert seen(tmp_path / "a.db", False) == seen(tmp_path / "b.db", True)


@pytest.mark.parametrize("cuts", [(1,) * 24, (24,), (2,) * 12, (1, 7, 3, 13)], ids=["ones", "all", "twos", "mixed"])
def test_blocks_of_visits_do_not_depend_on_how_arrivals_are_cut_into_commits(store, clock, cuts):
    """Who comes back in one commit with a first arrival after them is in the block that was filling before it."""
    came = [("k", ""), ("y", "")]
    for number in range(2, PEOPLE):
        came += [("y", f"before {number}"), (number, ""), ("k", f"after {number}"), (number, "at once")]
    came += [("y", "last"), ("k", "last")]
    agent, rest, tickets = live(store, clock, m=40), list(came), []
    for size in cuts:
        batch, rest = rest[:size], rest[size:]
        tickets += agent.begin_episodes(*zip(*batch, strict=True))
    found = [(agent._arrivals.block(ticket), agent._arrivals.counts(ticket)) for ticket in tickets]
    assert {agent.deadline(ticket) for ticket in tickets} == {PATIENCE}  # of the moment alone, not of the block's end
    expected, arrived = [], set()
    for user, _ in came:
        next_first = len(arrived)  # a visit goes where the next first arrival goes, while there is one
        expected.append(
            (int(np.searchsorted([2, 4, 7], min(next_first, PEOPLE - 1), side="right")), next_first < PEOPLE)
        )
        arrived.add(user)
    assert rest == [] and found == expected


def test_visits_survive_a_restart_and_no_purge(place, clock):
    with privrl.ReleaseStore(place) as store:
        agent = live(store, clock, m=2)
        tickets = [agent.begin_episode("a", visit=i) for i in range(3)]
    with privrl.ReleaseStore(place) as store:
        with pytest.raises(StoreError, match="differs in `counted`"):
            live(store, clock, m=3)
        agent = live(store, clock, m=2)
        assert agent.begin_episodes(["a"] * 3, range(3)) == tickets
        assert [agent._arrivals.counts(ticket) for ticket in tickets] == [True, True, False]
        rows = "SELECT COUNT(*) FROM arrivals"
        assert store._engine.execute(rows).fetchone()[0] > 3
        store.purge()
        assert store._engine.execute(rows).fetchone()[0] == 0
    if not isinstance(place, str):
        assert b"visits" not in place.read_bytes()


@pytest.mark.parametrize("point", ["arrive:begun", "arrive:written"])
def test_a_visit_that_dies_on_its_way_counts_once(place, clock, point):
    """Wherever the process dies: nothing of the visit was kept, and sent again it is one of those that count."""

    class Dying(privrl.ReleaseStore):
        dies = False

        def _reached(self, where):
            if self.dies and where == point:
                raise SystemExit

    with Dying(place) as store:
        agent = live(store, clock, m=2)
        agent.begin_episode("a", visit="monday")
        store.dies = True
        with pytest.raises(SystemExit):
            agent.begin_episode("a", visit="tuesday")
    with privrl.ReleaseStore(place) as store:
        agent = live(store, clock, m=2)
        tickets = [agent.begin_episode("a", visit=day) for day in ("monday", "tuesday", "tuesday", "wednesday")]
        assert [agent._arrivals.counts(ticket) for ticket in tickets] == [True, True, True, False]
        assert tickets[1] == tickets[2]


def test_fixed_order_counts_as_many_as_it_says(store):
    often = {"max_episodes_per_unit": 2, "min_block_distance": 1}
    agent = privrl.Agent(SMALL, PRIVATE, num_users=PEOPLE, store=store, fixed_order=True, **often)
    counted = []
    for slot in range(PEOPLE):
        ticket = agent.begin_episode("a" if slot < 5 else slot, visit=slot)
        counted.append(agent._arrivals.counts(ticket))
        agent.end_episode(ticket, some(slot))
    assert counted == [True, False, True, False, False, True, True]
    np.testing.assert_array_equal(added_up(agent, 0), units(agent, some(0)))
    np.testing.assert_array_equal(added_up(agent, 2), units(agent, some(5)) + units(agent, some(6)))


def test_refusals(tmp_path, clock):
    for how in ({"m": 0}, {"m": 2, "distance": -1}, {"m": 1, "distance": 2}):
        with privrl.ReleaseStore(tmp_path / "b.db") as store, pytest.raises(ValueError, match="max_episodes_per_unit"):
            live(store, clock, **how)
    with privrl.ReleaseStore(tmp_path / "c.db") as store:
        agent = privrl.Agent(SMALL, PRIVATE, num_users=PEOPLE, store=store, fixed_order=True)
        with pytest.raises(PairingError, match="`visit` is named"):
            agent.begin_episode("a", visit="x")
    many = {"episodes": 40, "max_episodes_per_unit": 2}
    with pytest.raises(PairingError, match="take part 2 times"):
        privrl.run(ENV, LEARNER, privrl.Shuffled(1.0, 1e-5), key=jax.random.key(0), **many)


def test_the_certificate_says_how_often_people_count(store, clock):
    agent = live(store, clock, m=3, distance=2)
    agent.begin_episode("a")
    result = agent.result()
    certificate = result.certificate
    text = str(certificate)
    assert "records per unit: 3" in text and "to the next: 2" in text
    assert "whenever and however often" in text and "a person returns is covered" in text
    for changed in ({"records_per_unit": 2}, {"block_distance": 0}, {"records_per_unit": 1, "block_distance": 0}):
        forged = privrl.Certificate.from_json({**certificate.to_json(), **changed})
        assert not certify(forged, result.policy).ok
    assert certify(certificate, result.policy).ok
    assert agent._study.participation == Participation(3, 2)


LQ = privrl.envs.lq_worlds.LQScalar()


@pytest.mark.parametrize(
    ("learner", "private"),
    [
        (SMALL, privrl.Central(epsilon=1.0, delta=1e-5, continual="tree")),
        (privrl.CautiousLQ(LQ.task, first_moment_share=0.2), PRIVATE),
        (privrl.CautiousLQ(LQ.task), privrl.Central(epsilon=1.0, mechanism="laplace")),
        (privrl.OFULQ(LQ.task), PRIVATE),
        (LSVIUCBPlusPlus(ENV.features, 3, rewards=ENV.rewards), PRIVATE),
    ],
    ids=["tree", "blocks", "laplace", "symmetric", "rounds"],
)
def test_certificates_of_every_kind_of_channel_follow_from_their_settings(learner, private):
    scales = []
    for often in (Participation(), Participation(3, 2), Participation(3)):
        study = Study.online(learner, private, 60, often)
        made = {name: (1, channel.calibration) for name, channel in study.channels().items()}
        certificate = study.certificate("seed", made=made)
        read = privrl.Certificate.from_json(json.loads(json.dumps(certificate.to_json())))
        verdict = certify(read, None, allow_non_private=True)
        assert [problem for problem in verdict.problems if "names no policy" not in problem] == []
        assert certificate.epsilon <= private.epsilon * (1 + 1e-6)
        scales.append([scale for _, (_, scale) in made.values()])
    assert (np.diff(scales, axis=0) >= 0).all() and (np.array(scales[2]) >= 3 * np.array(scales[0]) * (1 - 1e-9)).all()


@pytest.mark.parametrize(("m", "distance"), [(1, 0), (3, 0), (3, 1)])
def test_epsilon_alone_pays_for_exact_laplace_noise_of_all_visits(store, clock, m, distance):
    """An agent with real noise: its certificate is derived again, and its noise pays for every visit."""
    how = {"max_episodes_per_unit": m, "min_block_distance": distance} if m > 1 else {}
    private = privrl.Central(epsilon=1.0)
    agent = privrl.Agent(SMALL, private, num_users=PEOPLE, store=store, patience=PATIENCE, clock=clock, **how)
    for person in range(PEOPLE):
        for visit in range(m):
            ticket = agent.begin_episode(person, **({"visit": visit} if m > 1 else {}))
            agent.end_episode(ticket, some(person % 3))
    clock.time += 3 * PATIENCE
    result = agent.result()
    certificate = result.certificate
    assert (certificate.delta, certificate.records_per_unit) == (0.0, m)
    assert certificate.epsilon == pytest.approx(1.0, rel=1e-9) and certificate.epsilon <= 1.0
    assert certify(certificate, result.policy).problems == []
    (release,) = certificate.releases
    (noise,) = release["noise"]
    assert release["counted"] == 3
    assert noise["scale"] == pytest.approx(noise["sensitivity"], rel=1e-3)
    channel = private.channel(*_declared(agent, private, Participation(m, distance)))
    assert noise["sensitivity"] >= float(channel.sensitivity)


def _declared(agent, private, often):
    (declared,) = SMALL.declare(3)
    return declared, private.calibrate((declared,), often)
