"""What every learner owes, whoever wrote it: checked for all recipes and for a toy learner of every pattern."""

import dataclasses
import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from draws import record_draws

import privrl
from privrl import testing
from privrl.audit.surface.adversarial_records import adversarial_lq_records, adversarial_records
from privrl.audit.surface.queries import Query
from privrl.audit.surface.recorded_fit import record_fit
from privrl.audit.surface.recorded_run import record_run
from privrl.contracts.statistic import AbstractStatistic
from privrl.envs.lq_worlds import LQEnv
from privrl.mdp.types import TabularPolicy, Trajectory
from privrl.privacy.trust.privatizers import PairingError
from privrl.testing import check_sensitivities

BUDGET = {"epsilon": 2.0, "delta": 1e-5}
KEY = jax.random.key(11)


def tiny_world(horizon=4, **settings):
    """A small random world, the same for everybody."""
    return privrl.audit.tiny_world(horizon, **settings)


def tiny_data(env, episodes=200, seed=1):
    sampled = env.sample(env.behaviour_policy(), episodes, jax.random.key(seed))
    return privrl.data.Episodes.from_trajectories(sampled, num_states=env.num_states, num_actions=env.num_actions)


def all_trajectories(horizon, num_states, num_actions, rewards=(0.0, 1.0), lengths=None):
    """Every record that can be told apart: states, actions, last next state, rewards, and every length."""
    for length in lengths if lengths is not None else range(horizon + 1):
        for states in itertools.product(range(num_states), repeat=length + 1):
            for actions in itertools.product(range(num_actions), repeat=length):
                for reward in itertools.product(rewards, repeat=length):
                    pad = horizon - length
                    yield Trajectory(
                        np.array([*states[:-1], *[0] * pad], int),
                        np.array([*actions, *[0] * pad], int),
                        np.array([*reward, *[0.0] * pad], float),
                        np.array([*states[1:], *[-1] * pad], int),
                        np.array(length),
                    )


def stack(trajectories):
    """Many records as one batch; on the host, where nothing is compiled for their number."""
    return jax.tree.map(lambda *xs: jnp.asarray(np.stack(xs)), *trajectories)


def hostile_trajectories(horizon, num_states, num_actions, seed=0, count=480):
    """Extreme and malformed records: out of range, infinite, not a number, longer than allowed, and worse."""
    made = adversarial_records(horizon, num_states, num_actions, count=count, seed=seed)
    return jax.tree.map(jnp.asarray, made)


@eqx.filter_jit
def compiled(function, *arguments):
    """What a method gives, as one program."""
    return function(*arguments)


@eqx.filter_jit
def contribution(statistic: AbstractStatistic, record, query=None):
    """One person's term, as one program; step by step, each operation would be compiled by itself."""
    return statistic.contribution(record, query)


@eqx.filter_jit
def total(statistic: AbstractStatistic, records, query=None):
    """The sum over a batch of records, as one program."""
    return statistic.total(records, query)


@eqx.filter_jit
def of_rows(statistic: AbstractStatistic, rows):
    """The sum over a table of transitions, as one program."""
    return statistic.of_rows(rows)


def distances(statistic: AbstractStatistic, records, query=None):
    """The largest L2 and L1 distance between two records' answers, and the largest norms, by brute force."""
    x = np.unique(Query("", statistic, query, query).answers(records), axis=0)
    l2 = np.sqrt(np.maximum((x**2).sum(1)[:, None] + (x**2).sum(1) - 2 * x @ x.T, 0)).max()
    l1 = max(np.abs(x - row).sum(1).max() for row in x)
    return {
        ("replace-one", "l2"): l2,
        ("replace-one", "l1"): l1,
        ("add-remove", "l2"): np.linalg.norm(x, axis=1).max(),
        ("add-remove", "l1"): np.abs(x).sum(1).max(),
    }


def check_sensitivity(statistic: AbstractStatistic, records, query=None):
    """No pair of records breaks the declared sensitivities, under either relation."""
    check_asked([Query(type(statistic).__name__, statistic, query, query)], records)


def check_asked(asked, records):
    """The same for everything that a learner asks, with the plans and queries of a recorded run.

    In floating point: whole numbers are made of the same blocks by the same code for all statistics, and are searched
    once for each in `statistics/test_search.py`.
    """
    check_sensitivities(asked, records)


def check_certificate(certificate, epsilon, delta, notion):
    testing.check_certificate(certificate, epsilon, delta, notion)
    again = privrl.Certificate.from_json(certificate.to_json())
    assert again.to_json() == certificate.to_json()
    check_derived(certificate)


def check_derived(certificate):
    """Every number follows from the recorded settings; those of a learner that is not privrl's own are not derived."""
    unbound = dataclasses.replace(certificate, result_sha256="")  # whatever the policy
    result = privrl.Result(TabularPolicy.uniform(1, 2, 2), unbound)
    verdict = privrl.certify(result.certificate, result.policy, allow_non_private=True)
    failed = [check for check in verdict.checks if not check.ok]
    strange = not certificate.study["learner"]["class"].startswith("privrl.")
    assert [check.name for check in failed] == ["settings"] * strange, failed


def equal(left, right, tolerance=0.0):
    leaves = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    return all(np.max(np.abs(np.asarray(x) - np.asarray(y))) <= tolerance for x, y in leaves)


def check_fits(learner, data, budget=BUDGET, mechanism="gaussian"):
    """No noise equals non-private, bit for bit; same key, same result; certificate; fresh noise."""
    exact = privrl.fit(data, learner, privrl.NonPrivate(), key=KEY)
    noiseless = privrl.fit(data, learner, privrl.Central(epsilon=math.inf, mechanism=mechanism), key=KEY)
    assert equal(exact.policy, noiseless.policy)
    assert math.isinf(exact.certificate.epsilon) and exact.certificate.notion == "none"
    assert math.isinf(noiseless.certificate.epsilon)

    private = privrl.Central(**budget, mechanism=mechanism)
    first = privrl.fit(data, learner, private, key=KEY)
    with record_draws() as drawn:
        again = privrl.fit(data, learner, private, key=KEY)
    assert len(drawn) == len(set(drawn)) > 0
    assert sum(r["counted"] for r in first.certificate.releases) <= len(drawn)
    assert equal(first.policy, again.policy)
    check_certificate(first.certificate, budget["epsilon"], budget.get("delta", 0.0), "central")
    assert first.certificate.noise_source == "seed"
    unseeded = privrl.fit(data, learner, private)
    assert unseeded.certificate.noise_source == "system"
    for probabilities in jax.tree.leaves(first.policy):
        assert np.allclose(np.asarray(probabilities).sum(-1), 1)


def check_offline(learner, data, budget=BUDGET, mechanism="gaussian"):
    """All that `check_fits` checks, the sensitivities of everything that is asked, and who cannot serve it."""
    check_fits(learner, data, budget, mechanism)
    asked = record_fit(data, learner, privrl.Central(**budget, mechanism=mechanism), KEY).queries
    check_asked(asked, hostile_trajectories(learner.horizon, *learner.space))
    with pytest.raises(PairingError, match="already left"):
        privrl.fit(data, learner, privrl.Local(**budget))


def check_online(learner, env, budget=BUDGET, episodes=60, local=None):
    """The same for learners that plan while people take part, under every privatizer that can serve them."""
    key = jax.random.key(12)
    settings = {"episodes": episodes, "seeds": 2, "key": key, "flow": False}
    exact = privrl.run(env, learner, privrl.NonPrivate(adjacency="add-remove"), **settings)  # a relation without claims
    assert math.isinf(exact.certificate.epsilon) and exact.certificate.notion == "none"

    private, runs, keys = privrl.Central(**budget), [], []
    with record_draws() as drawn:  # budgets are numbers: one program for all three
        for privatizer in (privrl.Central(epsilon=math.inf), private, private):
            runs.append(privrl.run(env, learner, privatizer, **settings))
            jax.effects_barrier()
            keys.append(sorted(drawn))
            drawn.clear()
    noiseless, first, again = runs
    np.testing.assert_allclose(exact.block_regret, noiseless.block_regret, atol=1e-8)
    assert keys[0] == keys[1] == keys[2] and len(keys[0]) == len(set(keys[0])) > 0
    np.testing.assert_array_equal(first.block_regret, again.block_regret)
    check_certificate(first.certificate, budget["epsilon"], budget["delta"], "joint")
    assert first.regret.shape == (2, episodes)
    np.testing.assert_allclose(first.regret.sum(1), first.total_regret)
    assert (first.block_regret > -1e-12).all()

    recorded = record_run(env, learner, private, key)
    asked = [one for block in {0, len(recorded.ends) - 1} for one in recorded.queries_about(block)]
    if isinstance(env, LQEnv):
        check_asked(asked, adversarial_lq_records(env.horizon, learner.task.state_dim, learner.task.input_dim))
    else:
        check_asked(asked, hostile_trajectories(env.horizon, env.num_states, env.num_actions))

    declared = learner.declare(3)
    if any(d.access == "rounds" for d in declared):
        with pytest.raises(PairingError, match="already left"):
            privrl.run(env, learner, privrl.Local(**budget), **settings)
        return
    for privatizer in local or ():
        with record_draws() as drawn:
            result = privrl.run(env, learner, privatizer, **settings)
        assert len(drawn) == len(set(drawn)) >= 2 * episodes
        check_certificate(result.certificate, budget["epsilon"], privatizer.delta or 0.0, "local")
