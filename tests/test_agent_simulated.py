"""Agents and controllers decide as the simulation with the same key: a public list in fixed order, and people who come
and go as a simulation whose plans lag. Every kind of learner, and everybody once or up to twice."""

import itertools

import jax
import numpy as np
import pytest
from clocks import Clock
from contract import tiny_world
from test_agent_arrivals import PATIENCE

import privrl
from privrl.learners.linear.lsvi_ucb_weighted import WeightedLSVIUCB
from privrl.studies.simulation.simulated_loop import SimulationKeys

ENV, LQ = tiny_world(horizon=3), privrl.envs.lq_worlds.LQScalar()
LSVI = {"features": ENV.features, "horizon": 3, "rewards": ENV.rewards, "growth": 2.0}
LEARNERS = {
    "UCBVI": privrl.UCBVI(ENV.rewards, 3, first_block=5, growth=1.5),
    "UCRLVTR": privrl.UCRLVTR(ENV.rewards, 3, first_block=5, growth=1.5),
    "LSVIUCB": privrl.LSVIUCB(**LSVI),
    "weighted": WeightedLSVIUCB(**LSVI, smallest_weight=0.5),
    "CautiousLQ": privrl.CautiousLQ(LQ.task, first_block=8),
    "OFULQ": privrl.OFULQ(LQ.task, first_block=8, growth=2.0),
}
PRIVATE, USERS = privrl.Central(epsilon=3.0, delta=1e-5), 40
QUICK = {("LSVIUCB", 2, 1), ("CautiousLQ", 2, 1)}
CASES = [
    pytest.param(*case, marks=[] if case in QUICK else pytest.mark.slow)
    for case in itertools.product(LEARNERS, (1, 2), (0, 1, 3))
]


@pytest.mark.parametrize(("name", "m", "delay"), CASES)
def test_decides_as_the_simulation(name: str, m: int, delay: int) -> None:
    """Without a delay in fixed order, every second visit by somebody who was there before. With one, blocks arrive in
    steps of patience/(delay + 1), so each one closes when the one `delay` + 1 later arrives."""
    learner, env = LEARNERS[name], LQ if name.endswith("LQ") else ENV
    key, ends, often = jax.random.key(8), learner.blocks(USERS), {"max_episodes_per_unit": m}
    simulated = privrl.run(env, learner, PRIVATE, episodes=USERS, key=key, flow=False, delay=delay, **often)
    seed, clock, regret = jax.random.split(key, (1, 1))[0, 0], Clock(), []
    rollout = jax.jit(lambda policy, block, person: env.rollout(policy, SimulationKeys.of(seed).person(block, person)))
    start = privrl.Controller if env is LQ else privrl.Agent
    how = {"patience": PATIENCE, "clock": clock} if delay else {"fixed_order": True}
    with privrl.ReleaseStore.in_memory() as store:
        agent = start(learner, PRIVATE, num_users=USERS, store=store, key=seed, **how, **often)
        for block, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            clock.time = block * PATIENCE / (delay + 1)
            for slot in range(begin, end):
                visit = {"visit": slot} if m > 1 and not delay else {}
                ticket = agent.begin_episode(slot // m if visit else slot, **visit)
                assert (ticket.number, ticket.plan) == (slot, max(0, block - delay))
                policy = agent.plans[ticket.plan].policy
                agent.end_episode(ticket, jax.tree.map(np.asarray, rollout(policy, block, slot)))
            regret.append(float(env.regret(policy)))
        clock.time += PATIENCE
        last = agent.policy
    error = 1e-8 if env is LQ else 0.0  # finite worlds to the last bit; a controller's plan is compiled on its own
    np.testing.assert_allclose(regret, simulated.block_regret[0], rtol=0.0, atol=error)
    for one, other in zip(jax.tree.leaves(last), jax.tree.leaves(simulated.policy), strict=True):
        np.testing.assert_allclose(one, other[0], rtol=0.0, atol=error)
