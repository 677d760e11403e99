"""People who overlap act on older plans than those who come later: what learners make of such blocks."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from clocks import Clock
from contract import total
from test_agent import alone
from test_agent_arrivals import PATIENCE

import privrl
from privrl.contracts.release import Release
from privrl.learners.linear.lsvi_ucb_weighted import WeightedLSVIUCB
from privrl.mdp.types import TabularPolicy
from privrl.privacy.noise.distributions import GaussianNoise
from privrl.studies.loop import next_plan, no_queries

RIVER = privrl.envs.RiverSwim(states=4, horizon=4, kind="osband")
LQ = privrl.envs.lq_worlds.LQScalar()
FINITE = [
    privrl.LSVIUCB(RIVER.features, 4, rewards=RIVER.rewards, growth=3.0),
    WeightedLSVIUCB(RIVER.features, 4, rewards=RIVER.rewards, growth=3.0, smallest_weight=0.5),
    privrl.UCBVI(RIVER.rewards, 4, first_block=3, growth=1.5),
    privrl.UCRLVTR(RIVER.rewards, 4, first_block=3, growth=1.5),
]
LINEAR = [privrl.CautiousLQ(LQ.task, first_block=3), privrl.OFULQ(LQ.task, first_block=3, growth=2.0)]
ONE_PLAN = {"LSVIUCB", "WeightedLSVIUCB", "CautiousLQ"}


never = no_queries()


@eqx.filter_jit
def planned(learner, memory, released, seen):
    return compiled_plan(learner, memory, released, jnp.asarray(seen))


@eqx.filter_jit
def compiled_plan(learner, memory, released, seen):
    return next_plan(learner, memory, released, never, seen)


QUICK = (FINITE[0], FINITE[2])  # one of each kind in the default suite
EVERY = [
    pytest.param(
        learner, marks=[] if any(learner is one for one in QUICK) else pytest.mark.slow, id=type(learner).__name__
    )
    for learner in FINITE + LINEAR
]


@pytest.mark.parametrize("learner", EVERY)
def test_a_mixed_block_is_summed_as_its_learner_can_read_it(tmp_path, learner):
    """The plan of most people where sums must be of one plan, everybody elsewhere; decided from tickets alone."""
    env, start = (RIVER, privrl.Agent) if learner in FINITE else (LQ, privrl.Controller)
    assert learner.one_plan_per_block is (type(learner).__name__ in ONE_PLAN)
    clock, num_users = Clock(), 12
    ends = learner.blocks(num_users)
    mixed = next(block for block in range(1, len(ends)) if ends[block] - ends[block - 1] >= 3)
    first, last = int(ends[mixed - 1]), int(ends[mixed]) - 1
    with privrl.ReleaseStore(tmp_path / "s.db") as store:
        private = privrl.Central(epsilon=3.0, delta=1e-5)
        agent = start(learner, private, num_users=num_users, store=store, patience=PATIENCE, clock=clock)
        tickets, records = [], []
        for person in range(last + 1):
            if person == last:
                clock.time += PATIENCE  # plan `mixed` comes out before the last person of its block arrives
            tickets.append(agent.begin_episode(person))
            records.append(env.rollout(agent.policy, jax.random.fold_in(jax.random.key(2), person)))
            agent.end_episode(tickets[-1], records[-1])
        assert {ticket.plan for ticket in tickets[:last]} == {0}
        assert tickets[last].plan == mixed
        clock.time += PATIENCE
        assert agent.policy is not None
        assert agent._plans.closed == mixed + 1
        units = [
            agent._plans.to_steps(alone(record), ticket.plan)[0][0]
            for ticket, record in zip(tickets, records, strict=True)
        ]
        counting = units[first:last] if learner.one_plan_per_block else units[first : last + 1]
        found = np.concatenate([total().ravel() for total in agent._plans._totals(mixed).values()])
        np.testing.assert_array_equal(found, np.sum(counting, axis=0))
        # The plan is that of the learner that knows which plan the block acted on, and how many of it did not.
        (state, _), (first, _) = agent._plans._made[mixed], agent._plans._made[0]
        memory = learner.acted_on(state.memory, first.memory, jnp.asarray(1))
        released = dict(agent._plans._made[-1][0].released)
        _, expected = planned(learner, memory, released, int(ends[mixed]))
        for one, other in zip(jax.tree.leaves(agent._plans[-1]), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-9)


@pytest.mark.parametrize("learner", FINITE + LINEAR, ids=lambda learner: type(learner).__name__)
def test_without_a_lag_nothing_changes(learner):
    memory = learner.init()
    assert eqx.tree_equal(learner.acted_on(memory, memory, jnp.zeros((), int)), memory)


def exactly(learner, totals):
    return {d.name: Release(totals[d.name], GaussianNoise(0.0, d.statistic.shape)) for d in learner.declare(4)}


@pytest.mark.slow
def test_gram_matrices_are_those_of_the_policy_that_was_played():
    """LSVI-UCB reads a Gram matrix off moments and the policy; of the wrong policy it is another matrix.

    The quick tests see it plan from the policy that was played where a block is mixed.
    """
    learner, people = FINITE[0], 400
    released = exactly(learner, {d.name: jnp.zeros(d.statistic.shape) for d in learner.declare(4)})
    before, _ = planned(learner, learner.init(), released, 0)
    always = lambda a: TabularPolicy(jnp.zeros((4, 4, 2)).at[:, :, a].set(1.0))  # noqa: E731
    old, new = (eqx.tree_at(lambda m: m.policy, before, always(a)) for a in (1, 0))
    keys = jax.random.split(jax.random.key(0), people)
    records = jax.jit(jax.vmap(lambda key: RIVER.rollout(old.policy, key)))(keys)
    totals = {d.name: total(d.statistic, records) for d in learner.declare(4)}
    phi = RIVER.features.of(records.states, records.actions)
    true = jnp.einsum("nhi,nhj->hij", phi, phi)
    for memory, right in ((learner.acted_on(new, old, jnp.zeros((), int)), True), (new, False)):
        after, _ = planned(learner, memory, exactly(learner, totals), people)
        error = float(jnp.abs(after.gram - true).max()) / people
        assert (error < 1e-3) is right, error


def test_a_belief_learns_from_answers_to_an_older_query():
    """CautiousLQ: surprises are relative to what was believed and clipped when these people came."""
    learner = LINEAR[0]
    first, plan = planned(
        learner, learner.init(), exactly(learner, {"surprises": jnp.zeros((2, 1))}), jnp.zeros((), int)
    )

    def after(memory, policy, query, people, seed, acted=None):
        keys = jax.random.split(jax.random.key(seed), people)
        records = jax.jit(jax.vmap(lambda key: LQ.rollout(policy, key)))(keys)
        (declared,) = learner.declare(4)
        totals = {"surprises": total(declared.statistic, records, query)}
        read = memory if acted is None else learner.acted_on(memory, acted, jnp.zeros((), int))
        return planned(learner, read, exactly(learner, totals), memory.seen + people)

    second, _ = after(first, plan.policy, plan, 400, 1)
    truth = LQ.parameters
    errors = {}
    for name, acted in (("right", first), ("wrong", None)):
        third, _ = after(second, plan.policy, plan, 4000, 2, acted)  # a block that still acted on the first plan
        errors[name] = float(jnp.linalg.norm(third.belief.mean - truth))
    assert errors["right"] < 0.5 * errors["wrong"], errors
    assert errors["right"] <= float(jnp.linalg.norm(second.belief.mean - truth)) + 1e-3


def test_a_stay_keeps_its_plan(tmp_path):
    """Across releases, restarts and handles: whoever arrived under plan 0 is steered by plan 0."""
    learner, clock = LINEAR[0], Clock()
    settings = {"num_users": 12, "patience": PATIENCE, "clock": clock}
    radii, ticket = [], None
    for person in range(4):
        with privrl.ReleaseStore(tmp_path / "s.db") as store:
            pump = privrl.Controller(learner, privrl.Central(rho=1e4), store=store, **settings)
            for other in range(3 * person, 3 * person + 3):
                mine = pump.begin_episode(other)
                ticket = mine if ticket is None else ticket
                pump.end_episode(mine, LQ.rollout(pump.policy, jax.random.fold_in(jax.random.key(4), other)))
            u, v = pump.act(privrl.Ticket.from_json(json.loads(json.dumps(ticket.to_json()))), np.array([0.5]), 0)
            np.testing.assert_allclose(u - v, np.asarray(pump._plans[0].policy.gains[0]) @ np.array([0.5]))
            assert np.linalg.norm(v) == pytest.approx(float(pump._plans[0].policy.radius))
            radii.append(float(pump.policy.radius))
            clock.time += PATIENCE
    assert len(set(radii)) == len(radii)  # a new plan each time
