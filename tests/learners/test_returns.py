"""Learners that read how many records there are off releases: the estimate, and plans without noise."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import total

import privrl
from privrl.contracts.release import Release
from privrl.learners.linear.lsvi_ucb_weighted import WeightedLSVIUCB
from privrl.learners.returns import number_of_records
from privrl.privacy.noise.distributions import GaussianNoise
from privrl.studies.loop import next_plan, no_queries

RIVER = privrl.envs.RiverSwim(states=4, horizon=4, kind="osband")
LQ = privrl.envs.lq_worlds.LQScalar()
LEARNERS = {
    "LSVIUCB": (privrl.LSVIUCB(RIVER.features, 4, rewards=RIVER.rewards), RIVER),
    "weighted": (WeightedLSVIUCB(RIVER.features, 4, rewards=RIVER.rewards, smallest_weight=0.5), RIVER),
    "CautiousLQ": (privrl.CautiousLQ(LQ.task), LQ),
    "first states": (privrl.CautiousLQ(LQ.task, first_moment_share=0.2), LQ),
}


@pytest.mark.parametrize("most", [0.0, 5.0, 100.0])
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_the_error_is_within_its_bound_wherever_the_truth_lies(most: float, scale: float) -> None:
    first, z = 40.0, np.random.default_rng(0).normal(size=200_000)
    for share in (0.0, 0.3, 1.0):
        true = first + share * most
        found, variance = number_of_records(*(jnp.asarray(x) for x in (true + scale * z, scale**2, first, most)))
        found = np.asarray(found)
        assert found.min() >= first and found.max() <= first + most
        assert np.mean((found - true) ** 2) <= min(2 * scale**2, most**2) * 1.02 + 1e-12
        assert (found > true).mean() <= 0.162  # 1 - Phi(1), and sampling error
        assert float(variance) == pytest.approx(min(scale**2, most**2 / 12))


@eqx.filter_jit
def _planned(learner, memory, released, seen):
    return next_plan(learner, memory, released, no_queries(), jnp.asarray(seen))


@pytest.mark.parametrize("name", [n if n == "LSVIUCB" else pytest.param(n, marks=pytest.mark.slow) for n in LEARNERS])
def test_without_noise_plans_are_those_of_whoever_knows_the_number(name: str) -> None:
    """12 first arrivals and 20 records, then 40 and 70: as if the number of records were public."""
    learner, env = LEARNERS[name]
    counting = learner.with_returns(1)
    assert (learner.returns, counting.returns) == (0, 1)
    plans = {}
    for reader, told in ((counting, (0, 12, 40)), (learner, (0, 20, 70))):
        memory, plan, records = reader.init(), None, 0
        kept = {d.name: jnp.zeros(d.statistic.shape) for d in reader.declare(4)}
        for seen, until in zip(told, (20, 70, None), strict=True):
            released = {d.name: Release(kept[d.name], GaussianNoise(0.0, d.statistic.shape)) for d in reader.declare(4)}
            memory, plan = _planned(reader, memory, released, seen)
            if until is None:
                break
            keys = jax.random.split(jax.random.key(until), until - records)
            people = jax.jit(jax.vmap(env.rollout, in_axes=(None, 0)))(plan.policy, keys)
            for d in reader.declare(4):
                added = total(d.statistic, people, plan)
                kept[d.name] = added if d.access == "blocks" else kept[d.name] + added
            records = until
        plans[reader.returns] = plan
    for one, other in zip(jax.tree.leaves(plans[0]), jax.tree.leaves(plans[1]), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)


@pytest.mark.parametrize("name", LEARNERS)
def test_refusals(name: str) -> None:
    with pytest.raises(ValueError, match="`returns` is -1"):
        LEARNERS[name][0].with_returns(-1)


def test_learners_that_read_no_number_stay_as_they_are() -> None:
    for learner in (privrl.UCBVI(RIVER.rewards, 4), privrl.UCRLVTR(RIVER.rewards, 4), privrl.OFULQ(LQ.task)):
        assert learner.with_returns(3) is learner
