"""Many records at once: the whole numbers of one by one, whoever else is in the batch."""

import contextlib
import dataclasses

import jax
import numpy as np
import pytest
from test_agent import alone

import privrl
from privrl.mdp.lq import LQTrajectory
from privrl.mdp.types import Trajectory
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.padded_batches import BATCH
from privrl.privacy.trust.privatizers import PairingError
from privrl.studies.live import live_plans

RIVER = privrl.envs.RiverSwim(states=4, horizon=6)
LEARNERS = {
    "LSVIUCB": privrl.LSVIUCB(RIVER.features, 6, rewards=RIVER.rewards, growth=3.0),
    "UCBVI": privrl.UCBVI(RIVER.rewards, 6, first_block=3, growth=1.5),
}
USERS = 600


def records(number, seed=0):
    """Records with rewards, lengths and states of all kinds, some out of range."""
    rng = np.random.default_rng(seed)
    shape = (number, 6)
    states, after = rng.integers(-1, 6, shape), rng.integers(-1, 5, shape)
    return Trajectory(states, rng.integers(0, 3, shape), rng.normal(1.0, 1.0, shape), after, rng.integers(0, 8, number))


def record(i):
    return jax.tree.map(lambda x: x[i], records(20, 2))


def live(store, name):
    private = privrl.Central(epsilon=1.0, delta=1e-6)
    return privrl.Agent(LEARNERS[name], private, num_users=USERS, store=store, patience=1.0, clock=lambda: 0.0)


@pytest.mark.parametrize("name", [n if n == "UCBVI" else pytest.param(n, marks=pytest.mark.slow) for n in LEARNERS])
def test_a_batch_has_the_whole_numbers_of_one_by_one(name):
    with ReleaseStore.in_memory() as store:
        plans = live(store, name)._plans
        people = records(300)
        person = lambda i: alone(jax.tree.map(lambda x: x[i], people))  # noqa: E731
        single = np.concatenate([plans.to_steps(person(i), 0)[0] for i in range(300)])
        assert np.unique(single, axis=0).shape[0] > 50
        for number in (1, 2, 8, 9, 64, 200, 256, 300):
            units, fine = plans.to_steps(jax.tree.map(lambda x: x[:number], people), 0)  # noqa: B023
            assert fine.all()
            np.testing.assert_array_equal(units, single[:number])


def test_everybody_is_computed_by_one_program(monkeypatch):
    lengths = set()

    def terms(grids, some, plan, compiled=live_plans._terms):
        lengths.add(len(some.length))
        return compiled(grids, some, plan)

    monkeypatch.setattr(live_plans, "_terms", terms)
    with ReleaseStore.in_memory() as store:
        plans = live(store, "UCBVI")._plans
        for number in (1, 2, 9, 65, 300):
            plans.to_steps(records(number), 0)
    assert lengths == {BATCH}


def test_floats_of_a_person_are_the_same_at_every_place_of_a_batch():
    """For matrix products of measurements: in batches of 1, 8 and 64 people they are not."""
    world = privrl.envs.make("lq-4d")
    learner = privrl.recipes.get("private-ofu-lq").build(world, 1_000)
    with ReleaseStore.in_memory() as store:
        private = privrl.Central(epsilon=1.0, delta=1e-6)
        plans = privrl.Controller(learner, private, num_users=1_000, store=store, patience=1.0)._plans
        (channel,) = plans.channels.values()
        rng = np.random.default_rng(3)
        n, d = world.A.shape[0], world.B.shape[1]
        shapes = ((world.horizon + 1, n), (world.horizon, d), (world.horizon, d))
        people = LQTrajectory(*(rng.normal(0.0, 0.3, (BATCH, *shape)) for shape in shapes), rng.integers(0, 9, BATCH))
        floats = jax.jit(jax.vmap(lambda one: channel.statistic.contribution(one, plans[0])))
        there = np.asarray(floats(people))
        assert np.unique(there).size > BATCH
        for by in range(1, BATCH, 7):
            moved = np.asarray(floats(jax.tree.map(lambda x: np.roll(x, by, axis=0), people)))  # noqa: B023
            np.testing.assert_array_equal(moved, np.roll(there, by, axis=0))


def test_records_of_several_blocks_count_as_if_one_by_one():
    people = [jax.tree.map(lambda x: x[i], records(20, 1)) for i in range(20)]  # noqa: B023
    people[3] = dataclasses.replace(people[3], rewards=np.ones(5))
    sums = []
    for together in (True, False):
        with ReleaseStore.in_memory() as store:
            agent = live(store, "UCBVI")
            ended = [(agent.begin_episode(i), record) for i, record in enumerate(people)]
            for batch in [ended] if together else [[pair] for pair in ended]:
                words = f"1 of {len(batch)} records were not counted, the first at position {3 if together else 0}"
                faulty = any(record is people[3] for _, record in batch)
                with pytest.raises(ValueError, match=words) if faulty else contextlib.nullcontext():
                    agent.end_episodes(batch)
            names = [agent._arrivals.sum_name(block, 0) for block in range(6)]
            sums.append([store.total(name).tolist() for name in names])
            assert sum(store.count(name) for name in names) == 19
    assert sums[0] == sums[1]


def test_people_who_arrive_together_get_the_tickets_of_one_by_one(place):
    with ReleaseStore(place) as store:
        agent = live(store, "UCBVI")
        tickets = agent.begin_episodes(["a", "b", "a", "c"])
        assert [ticket.number for ticket in tickets] == [0, 1, 0, 2] and tickets[2].token == tickets[0].token
        assert [agent.begin_episode(user).token for user in "abc"] == [tickets[i].token for i in (0, 1, 3)]
        full = [f"{i}" for i in range(USERS - 2)]
        with pytest.raises(PairingError, match="places are taken"):
            agent.begin_episodes(full)  # one too many: nobody got a place
        assert agent.num_arrived == 3 and not agent._arrivals._remembered
        assert agent.begin_episodes(full[1:])[-1].number == USERS - 1


@pytest.mark.parametrize(("token", "visit"), [("\ud800", ""), (None, "\ud800"), (None, "other"), ("other", "")])
def test_a_ticket_that_is_none_decides_nothing_about_others(token, visit):
    with ReleaseStore.in_memory() as store:
        agent = live(store, "UCBVI")
        ben, anna = agent.begin_episodes(["ben", "anna"])
        made_up = dataclasses.replace(ben, token=ben.token if token is None else token, visit=visit)
        with pytest.raises(ValueError, match="1 of 2 records were not counted, the first at position 0"):
            agent.end_episodes([(made_up, record(0)), (anna, record(1))])
        assert store.count(agent._arrivals.sum_name(0, 0)) == 1


def test_an_agent_on_either_engine_counts_the_same(place):
    with ReleaseStore(place) as store:
        agent = live(store, "UCBVI")
        ended = list(zip(agent.begin_episodes(range(20)), (record(i) for i in range(20)), strict=True))
        agent.end_episodes(ended)
        found = [store.total(agent._arrivals.sum_name(block, 0)).tolist() for block in range(6)]
    with ReleaseStore.in_memory() as store:
        agent = live(store, "UCBVI")
        agent.end_episodes([(agent.begin_episode(i), record(i)) for i in range(20)])
        assert [store.total(agent._arrivals.sum_name(block, 0)).tolist() for block in range(6)] == found


# -------------------------------------------------------------------------------------------------------- JSON records

STEPS = [{"state": 2, "action": 1, "reward": 0.5}, {"state": 3, "action": 0, "reward": 1, "next_state": 1}]


def test_steps_of_json_become_a_record():
    record = Trajectory.from_steps(STEPS, horizon=4)
    assert record.states.tolist() == [2, 3, 0, 0] and record.actions.tolist() == [1, 0, 0, 0]
    assert record.rewards.tolist() == [0.5, 1.0, 0.0, 0.0] and record.next_states.tolist() == [3, 1, -1, -1]
    assert int(record.length) == 2 and int(Trajectory.from_steps([], horizon=4).length) == 0
    with ReleaseStore.in_memory() as store:
        agent = live(store, "UCBVI")
        agent.end_episode(agent.begin_episode("a"), Trajectory.from_steps(STEPS, horizon=6))
        assert store.count("block 0, plan 0") == 1


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ("states", "must be a list"),
        ({"state": 1}, "must be a list"),
        ([{}], "Step 0 must be an object with `state`, `action` and `reward`"),
        ([STEPS[0], 7], "Step 1 must be an object"),
        ([STEPS[0] | {"id": 7}], "and nothing else"),
        ([STEPS[0], STEPS[0] | {"state": True}], "`state` of step 1 must be a whole number, 0 or larger"),
        ([STEPS[0] | {"action": 7654.5}], "`action` of step 0"),
        ([STEPS[0] | {"action": -7654}], "`action` of step 0"),
        ([STEPS[0] | {"state": 10**30}], "`state` of step 0"),
        ([STEPS[0] | {"next_state": -2}], "(-1: not recorded)"),
        ([STEPS[0] | {"reward": "7654"}], "`reward` of step 0 must be a finite number"),
        ([STEPS[0] | {"reward": float("nan")}], "`reward` of step 0"),
        ([STEPS[0]] * 5, "5 steps and the study has 4"),
    ],
)
def test_what_is_wrong_with_steps_is_said_without_their_values(steps, words):
    with pytest.raises(ValueError) as caught:
        Trajectory.from_steps(steps, horizon=4)
    assert words in str(caught.value) and "7654" not in str(caught.value)
