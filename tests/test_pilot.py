"""A pilot conducted by `Pilot`: arms, sums and releases are those of the tickets, whatever fails in between."""

import contextlib
import dataclasses
import json

import numpy as np
import pytest
from clocks import Clock

import privrl
from privrl.learners.trials.looks import looks_of
from privrl.learners.trials.trial import ALL
from privrl.mdp.types import TabularPolicy
from privrl.privacy.store.errors import StudyMismatchError
from privrl.privacy.store.release_store import ReleaseStore
from privrl.studies.live.live_pilot import Pilot, read_outcomes
from privrl.studies.results.binding import policy_sha256

PATIENCE = 10.0
PROTOCOL = privrl.Protocol(
    "pilot",
    40,
    (privrl.Arm("practice"), privrl.Arm("advice")),
    privrl.Outcome("survival"),
    epsilon=60.0,
    delta=1e-6,
    looks=4,
    patience=PATIENCE,
)
KEY = 5


def conduct(store, clock, protocol=PROTOCOL, key=KEY):
    return Pilot(protocol, store=store, clock=clock, key=key)


def survives(name, arm):
    """The outcome of a person: an effect of +1 for most."""
    return float(arm == 1 or int(name) % 10 == 0)


def run(pilots, clock, people, outcome=survives, skip=()):
    """People arrive one a second, each at the next of several handles, and leave their outcome at another."""
    for i in people:
        clock.time += 1.0
        ticket = pilots[i % len(pilots)].begin_episode(str(i))
        if i not in skip:
            pilots[(i + 1) % len(pilots)].record(ticket, survival=outcome(str(i), ticket.arm))


def facts(pilot):
    """Everything public about a pilot."""
    state = pilot.state
    looks = [dataclasses.asdict(one) for one in looks_of(pilot._learner, state)]
    return json.dumps(looks), state.assigned[ALL].tolist(), pilot.certificate.to_json()["releases"]


@pytest.mark.first
def test_people_are_randomised_counted_by_arm_and_served_what_is_better(store, clock):
    pilot = conduct(store, clock)
    run([pilot], clock, range(30))
    clock.time += PATIENCE
    look = looks_of(pilot._learner, pilot.state)[-1]
    assert look.comparisons[0].verdict == "better" and look.ended and look.serving == "advice"
    arms = [pilot.begin_episode(str(i)).arm for i in range(10 * look.number)]
    assert [one.assigned for one in look.arms] == [arms.count(0), arms.count(1)]
    new = [pilot.begin_episode(f"later {i}") for i in range(20)]  # more than there are places
    assert {one.arm for one in new} == {1} and all(pilot.deadline(one) is None for one in new)
    pilot.record(new[-1], survival=0.0)  # answered, and not counted
    assert pilot.plans.closed == look.number and pilot.next_closing is None
    assert pilot.last_closing == 10.0 * look.number + PATIENCE  # one person came each second


def test_sums_hold_the_people_of_each_arm_and_missing_ones_add_nothing(store, clock):
    pilot = conduct(store, clock)
    run([pilot], clock, range(10), skip=(2, 5))
    kept = [pilot.begin_episode(str(i)) for i in range(10)]
    total = store.total("block 0, plan 0").reshape(2, 2).astype(float)
    (channel,) = pilot.plans.channels.values()
    total *= channel.lattice.granularity
    statistic = channel.statistic
    for arm in (0, 1):
        own = [one.number for one in kept if one.arm == arm and one.number not in (2, 5)]
        expected = [statistic.record_weight * len(own), sum(survives(str(i), arm) - statistic.centre for i in own)]
        np.testing.assert_allclose(total[arm], expected, atol=1e-3)


@pytest.mark.parametrize("handles", [1, 2])
def test_a_trial_that_is_interrupted_again_and_again_is_the_trial_that_is_not(tmp_path, handles):
    found = []
    for often in (1000, 7):
        clock, path = Clock(), tmp_path / f"{often}.db"
        with contextlib.ExitStack() as stack:
            stores = [stack.enter_context(ReleaseStore(path)) for _ in range(handles)]
            for first in range(0, 40, often):
                pilots = [conduct(store, clock) for store in stores]
                run(pilots, clock, range(first, min(first + often, 40)), outcome=lambda name, arm: int(name) % 2)
            clock.time += PATIENCE
            found += [facts(pilot) for pilot in pilots]
    assert all(one == found[0] for one in found)
    assert len(json.loads(found[0][0])) == 4


def test_a_late_record_is_missing_and_open_blocks_are_in_no_sum(store, clock):
    pilot = conduct(store, clock)
    run([pilot], clock, range(15), skip=range(15))
    clock.time += PATIENCE - 0.5  # block 0 closed long ago
    assert pilot.plans.closed == 1
    pilot.record(pilot.begin_episode("0"), survival=1.0)
    (look,) = looks_of(pilot._learner, pilot.state)
    assert store.total("block 0, plan 0") is None  # nothing was counted
    assert sum(one.assigned for one in look.arms) == 10  # and five people are in an open block


@pytest.mark.first
def test_a_changed_protocol_is_refused(store, clock):
    conduct(store, clock)
    conduct(store, clock, dataclasses.replace(PROTOCOL))
    for change in ({"better": 0.02}, {"after_better": "practice"}, {"patience": 11.0}):
        with pytest.raises(StudyMismatchError):
            conduct(store, clock, dataclasses.replace(PROTOCOL, **change))
    certificate = conduct(store, clock).certificate.to_json()
    assert PROTOCOL.sha256 in json.dumps(certificate) and store.describe()["study"]["protocol"] == PROTOCOL.sha256


def test_a_policy_that_the_protocol_does_not_name_is_refused(store, clock):
    tables = [TabularPolicy(np.eye(2)[[[0, 1]]][:, ::step]) for step in (1, -1)]
    arms = (privrl.Arm("practice"), privrl.Arm("advice", policy="policy", sha256=policy_sha256(tables[0])))
    protocol = dataclasses.replace(PROTOCOL, arms=arms)
    for wrong, complaint in (({"advice": tables[1]}, "by its hash"), ({"practice": tables[0]}, "arms with a policy")):
        with pytest.raises(ValueError, match=complaint):
            Pilot(protocol, store=store, clock=clock, policies=wrong)
    assert store.describe()["study"] is None
    Pilot(protocol, store=store, clock=clock, policies={"advice": tables[0]})


def test_outcomes_are_checked_and_no_message_quotes_them(store, clock):
    pilot = conduct(store, clock)
    ticket = pilot.begin_episode("a")
    for wrong in ({"survived": 0.123}, {"survival": float("nan")}, {"survival": "0.123"}):
        with pytest.raises(ValueError) as error:
            pilot.record(ticket, **wrong)
        assert "0.123" not in str(error.value) and "survived" not in str(error.value)
    with pytest.raises(ValueError, match="group"):
        pilot.begin_episode("b", group="female")


def test_groups_are_counted_as_they_were_declared(store, clock):
    part = privrl.learners.trials.protocol.Partition("sex", ("female", "male"), 0.2)
    pilot = conduct(store, clock, dataclasses.replace(PROTOCOL, subgroups=(part,)))
    for i in range(10):
        ticket = pilot.begin_episode(str(i), group="male" if i < 3 else "female")
        pilot.record(ticket, survival=1.0)
    with pytest.raises(ValueError):
        pilot.begin_episode("c", group="other")
    clock.time += PATIENCE
    assert pilot.state.assigned["sex"][0].sum(axis=0).tolist() == [7, 3]


def recount(protocol, people, closings, number, arm):
    """The estimate at a look and the number not counted, from the people themselves: (ticket, counts, value)."""
    outcome, ends = protocol.outcome, protocol.ends
    strata, missed = {}, 0
    for place, (ticket, counts, value) in enumerate(people[: ends[number - 1]]):
        block = int(np.searchsorted(ends, place, side="right"))
        if not counts:
            missed += 1
        elif ticket.arm in (0, arm):
            stratum = strata.setdefault((int(protocol.phase_of[block]), closings[block]), ([], []))
            stratum[ticket.arm > 0].append(outcome.missing_value if value is None else value)
    both = [pair for pair in strata.values() if all(pair)]
    n = sum(len(values) for pair in both for values in pair)
    return sum(sum(map(len, pair)) / n * (np.mean(pair[1]) - np.mean(pair[0])) for pair in both), missed


def test_looks_are_those_of_a_recount_if_people_overlap_return_and_come_late_and_an_arm_is_closed(store, clock):
    arms = (privrl.Arm("practice"), privrl.Arm("harmful"), privrl.Arm("equal"))
    phases = (
        privrl.learners.trials.protocol.Phase(1, (0.4, 0.3, 0.3)),
        privrl.learners.trials.protocol.Phase(4, (0.5, 0.3, 0.2)),
    )
    protocol = dataclasses.replace(
        PROTOCOL,
        people=120,
        arms=arms,
        looks=5,
        phases=phases,
        epsilon=1e5,
        patience=10.0,
        outcome=privrl.Outcome("survival", missing=0.25),
    )
    pilot, rng = conduct(store, clock, protocol), np.random.default_rng(1)
    people, came, due, plans = [], [], [], []
    for i in range(120):
        clock.time += 1.0
        ticket = pilot.begin_episode(str(i))
        if i % 5 == 4:
            assert pilot.begin_episode(str(i // 2)).arm == people[i // 2][0].arm  # returns
        came.append(clock.time)
        plans.append(ticket.plan)
        people.append((ticket, pilot._arrivals.counts(ticket), None))
        due.append((clock.time + rng.exponential(5.0), i, float(rng.random() < (0.1 if ticket.arm == 1 else 0.6))))
        for one in [one for one in due if one[0] <= clock.time]:
            due.remove(one)
            _, number, value = one
            block = int(np.searchsorted(protocol.ends, number, side="right"))
            last = protocol.ends[block] - 1
            in_time = last >= len(came) or clock.time < came[last] + protocol.patience
            pilot.record(people[number][0], survival=value)
            people[number] = (*people[number][:2], value if in_time else None)
    clock.time += protocol.patience
    looks = looks_of(pilot._learner, pilot.state)
    closed = [int(look) for look in pilot.state.closed]
    begun = [plans[begin] for begin in (0, *protocol.ends[:-1])]
    closings = [sum(0 < look <= plan for look in closed) for plan in begun]
    missed = 0
    for look in looks:
        for one in look.comparisons:
            arm = [arm.name for arm in arms].index(one.policy)
            estimate, missed = recount(protocol, people, closings, look.number, arm)
            assert one.estimate == pytest.approx(estimate, abs=0.003)  # six standard deviations of the noise
    assert 0 < closed[1] < 5 and closed[2] == 0 and missed > 0 and closings[-1] == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, "1"], ids=["nan", "inf", "huge", "text"])
def test_outcomes_that_are_no_finite_numbers_are_refused_without_their_value(value):
    with pytest.raises(ValueError, match=r"^`survival` must be a finite number\. Leave it out if it is missing\.$"):
        read_outcomes(PROTOCOL, {"survival": value})
