"""Every online recipe with people who come back when they like: how many records there are is read off releases."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from clocks import Clock
from contract import tiny_world
from test_agent_arrivals import PATIENCE

import privrl
from privrl.contracts.learner import AbstractOnlineLearner
from privrl.envs.lq_worlds import LQScalar
from privrl.recipes.all_recipes import recipes
from privrl.studies.results.certification import certify

ENV, LQ = tiny_world(horizon=3), LQScalar()
KEY = jax.random.key(4)
CONTROL = {"private-lq", "private-ofu-lq", "private-ofu-lq@paper"}
COUNTING = {"dp-lsvi-ucb", "dp-lsvi-ucb++", "private-lq"}  # those that read how many records there are
QUICK = ("dp-lsvi-ucb", "private-lq")


def built(recipe):
    """The learner of a recipe for one of the two worlds, if it is one for an `Agent` or a `Controller`."""
    for env in (ENV, LQ):
        try:
            learner = recipe.build(env)
        except (TypeError, ValueError, AttributeError):
            continue
        if isinstance(learner, AbstractOnlineLearner) and all(d.access != "rounds" for d in learner.declare(3)):
            return learner, env
    return None


LIVE = {name: found for name, recipe in recipes.items() if recipe.trust == "central" and (found := built(recipe))}
EVERY = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in LIVE]


def test_only_recipes_that_ask_again_are_left_out():
    central = {name: recipe for name, recipe in recipes.items() if recipe.trust == "central"}
    online = {name for name, recipe in central.items() if recipe.family in ("online", "control")}
    assert set(LIVE) <= online and set(LIVE) >= COUNTING | CONTROL
    for name in online - set(LIVE):
        assert any(declared.access == "rounds" for declared in central[name].build(ENV).declare(3)), name


def course(name, returns, m=3, key=KEY):
    """People arrive in blocks, and all come back at once; one of them `returns` times more, whenever somebody comes."""
    learner, env = LIVE[name]
    people = next(k for k in range(4, 200) if len(learner.blocks(k)) >= 3)
    private, clock = privrl.Central(epsilon=1.0, delta=1e-5), Clock()
    kind = privrl.Controller if env is LQ else privrl.Agent
    views = []
    with privrl.ReleaseStore.in_memory() as store:
        agent = kind(
            learner, private, num_users=people, store=store, patience=PATIENCE, clock=clock, key=key,
            max_episodes_per_unit=m,
        )  # fmt: skip
        records = jax.jit(jax.vmap(env.rollout, in_axes=(None, 0)))(
            agent.policy, jax.random.split(jax.random.key(5), people)
        )
        records = [jax.tree.map(lambda x: np.asarray(x)[i], records) for i in range(people)]  # noqa: B023
        agent.begin_episode("her")
        for number in range(1, people):
            for i in range(returns):
                agent.end_episode(agent.begin_episode("her", visit=f"{number} {i}"), records[0])
            for visit in ("", "at once"):
                ticket = agent.begin_episode(number, visit=visit)
                agent.end_episode(ticket, records[number])
                views.append((ticket.number, ticket.plan, agent._arrivals.block(ticket), agent.deadline(ticket)))
            views.append((agent.num_arrived, agent.next_closing))
            clock.time += PATIENCE / 3
        clock.time += 2 * PATIENCE
        assert agent.plans.closed == len(learner.blocks(people))
        plans = [
            np.asarray(x).tobytes().hex()
            for i in range(agent.plans.closed + 1)
            for x in jax.tree.leaves(agent.plans[i])
        ]
        views.append((plans, agent.result().report, agent.certificate.releases, store.describe()))
        return json.dumps(views, default=str), agent.result()


@pytest.mark.parametrize("name", EVERY)
def test_returns_show_in_releases_alone(name, blind):
    """Given the releases, everything that others see is the same, whether or not somebody comes back, and how often."""
    (never, _), (often, _) = (course(name, returns) for returns in (0, 2))
    assert never == often


@pytest.mark.parametrize("name", EVERY)
def test_every_recipe_learns_from_people_who_come_back(name):
    """With real noise; its certificate follows from its settings."""
    _, result = course(name, 1, m=2, key=None)
    assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(result.policy))
    assert certify(result.certificate, result.policy).problems == []
    assert result.certificate.epsilon <= 1.0 + 1e-6
    settings = result.certificate.study["learner"]["settings"]
    assert settings.get("returns") == (1 if name in COUNTING else None)
