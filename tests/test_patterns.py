"""A toy learner for each pattern of people, queries and noise, so that no later algorithm needs a special case.

| pattern                                                        | toy           | who will use it                |
|----------------------------------------------------------------|---------------|--------------------------------|
| rounds over one data set, sensitivity set by earlier releases  | `Rounds`      | PEVI, VAPVI, TDFP              |
| one histogram, the rest is post-processing                     | `Histogram`   | APVI                           |
| running sums over blocks at public times                       | `Running`     | UCBVI, LSVI-UCB                |
| a fresh release of everything after every user                 | `Everything`  | LSVI-UCB++ as published        |
| disjoint blocks, each with its own clip level                  | `Blocks`      | CautiousLQ                     |
| one message per user, answering a public query              | `Message`     | UCRL-VTR, UCBVI under `Local`  |
| gradient steps on Poisson samples of users                     | `Gradient`    | FQI, DP-SGD                    |
| a released function                                            | `Function`    | functional noise               |
| plans sampled with public randomness                           | `Posterior`   | posterior sampling             |
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import (
    BUDGET,
    check_certificate,
    check_offline,
    check_online,
    check_sensitivity,
    hostile_trajectories,
    stack,
    tiny_data,
    tiny_world,
)

import privrl
from privrl.contracts.learner import AbstractOfflineLearner, AbstractOnlineLearner, Plan, Solution
from privrl.contracts.release import Declared
from privrl.contracts.statistic import AbstractCategorical, AbstractStatistic
from privrl.mdp.types import TabularPolicy, Transitions
from privrl.privacy.continual.mechanisms import every, geometric_schedule
from privrl.privacy.functions.paths import mesh_points
from privrl.privacy.noise.bounding import clip_by_norm
from privrl.statistics.counts import TransitionCounts, VisitCounts
from privrl.studies.loop import next_plan
from privrl.studies.simulation.simulated_loop import SimulationKeys

H, S, A = 4, 3, 2


def policy_of(scores):
    """Some policy that depends on every released number."""
    return TabularPolicy(jax.nn.softmax(jnp.broadcast_to(scores, (H, S, A)), axis=-1))


class Vector(AbstractStatistic):
    """Per (s, a) the sum of a person's rewards there, times `weights`, clipped to norm `bound`."""

    weights: jax.Array
    bound: float = eqx.field(static=True)
    shape: tuple = eqx.field(static=True, default=(S, A))
    symmetric: bool = eqx.field(static=True, default=False)

    def contribution(self, record, query):
        rows = Transitions.from_trajectory(record)
        scale = jnp.ones(()) if query is None else query.query  # a public clip level rescales the query
        rewards = jnp.where(rows.count > 0, rows.reward, 0.0)
        table = jnp.zeros((S, A)).at[rows.state, rows.action].add(rewards, mode="drop")
        return clip_by_norm(table * self.weights / scale, self.bound)

    def l2(self, adjacency):
        return (2.0 if adjacency == "replace-one" else 1.0) * self.bound

    def l1(self, adjacency):
        return math.sqrt(S * A) * self.l2(adjacency)


class Rounds(AbstractOfflineLearner):
    """Asks twice; what it asks the second time, and how sensitive that is, depends on the first answer."""

    horizon: int = eqx.field(static=True, default=H)
    space = (S, A)

    def bounds(self):
        return {"rewards": "estimated"}

    def declare(self):
        return (Declared("first"), Declared("second", weight=2.0), Declared("spare"))

    def fit(self, ask):
        first = ask("first", Vector(jnp.ones((S, A)), 2.0))
        weights = jax.nn.sigmoid(first.value)
        ask.skip("spare", ("second",))
        second = ask("second", Vector(weights, 2.0 * float(weights.max())))
        return Solution(policy_of(first.value + second.value))


class Histogram(AbstractOfflineLearner):
    """One table of counts."""

    horizon: int = eqx.field(static=True, default=H)
    space = (S, A)

    def bounds(self):
        return {"rewards": "known"}

    def declare(self):
        return (Declared("visits", VisitCounts(S, A, H, "pooled", contribution_norm=1.5)),)

    def fit(self, ask):
        return Solution(policy_of(ask("visits").value / 10))


class Gradient(AbstractOfflineLearner):
    """Noisy gradient steps on Poisson samples of people."""

    horizon: int = eqx.field(static=True, default=H)
    space = (S, A)

    def bounds(self):
        return {"rewards": "estimated"}

    def declare(self):
        return (Declared("gradient", times=5, sampling=0.3),)

    def fit(self, ask):
        Q = jnp.zeros((S, A))
        for _ in range(5):
            Q = Q + 0.01 * ask("gradient", Vector(jnp.ones((S, A)) - Q, 1.0)).value
        return Solution(policy_of(Q))


class Function(AbstractOfflineLearner):
    """Releases a function and asks it whatever it likes."""

    horizon: int = eqx.field(static=True, default=H)
    space = (S, A)

    def bounds(self):
        return {"rewards": "known"}

    def declare(self):
        return (Declared("function"),)

    def fit(self, ask):
        f = ask.function("function", jnp.sin(3 * mesh_points(6)), distance=0.5, beta=2.0, bound=1.0)
        points = jnp.linspace(0.0, 1.0, S * A)
        assert np.array_equal(f(points), f(points[::-1])[::-1])  # asked twice, in another order: the same answers
        return Solution(policy_of(f(points).reshape(S, A)))


class _Online(AbstractOnlineLearner):
    """What the online toys share: no memory, and rewards that are known."""

    def bounds(self):
        return {"rewards": "known"}

    def init(self):
        return jnp.zeros((S, A))


class Running(_Online):
    """Running counts at geometric times."""

    horizon: int = eqx.field(static=True, default=H)

    def schedule(self, num_users):
        return geometric_schedule(num_users, 1.5)

    def declare(self, num_blocks):
        return (Declared("visits", VisitCounts(S, A, H), access="running", times=num_blocks),)

    def plan(self, memory, released, ask, num_seen):
        return memory, Plan(policy_of(released["visits"].value.sum(axis=0) / 10))


class Revisited(AbstractStatistic):
    """Keeps n(s, a, s') and answers n V for whatever V in [0, 1] is asked about."""

    shape: tuple = eqx.field(static=True, default=(S, A))
    symmetric: bool = eqx.field(static=True, default=False)

    @property
    def raw_shape(self):
        return (S, A, S)

    def contribution(self, record, query):
        return TransitionCounts(S, A, H, "pooled").contribution(record, query)

    def answer(self, total, query):
        return total @ jnp.clip(jnp.ones(S) if query is None else query, 0.0, 1.0)

    def l2(self, adjacency):
        return H * (math.sqrt(2.0) if adjacency == "replace-one" else 1.0)

    def l1(self, adjacency):
        return H * (2.0 if adjacency == "replace-one" else 1.0)


class Everything(_Online):
    """After every user asks two queries about everybody, the second made from the first answer."""

    horizon: int = eqx.field(static=True, default=H)

    def schedule(self, num_users):
        return every(num_users, 1)

    def declare(self, num_blocks):
        return (Declared("values", Revisited(), access="rounds", times=2 * num_blocks),)

    def plan(self, memory, released, ask, num_seen):
        first = ask("values", 0, jnp.ones(S))
        second = ask("values", 1, jax.nn.sigmoid(first.value.sum(axis=-1)))
        return memory, Plan(policy_of(second.value / 10))


class Blocks(_Online):
    """Each block has a clip level of its own, learned from earlier blocks; each person is in one block."""

    horizon: int = eqx.field(static=True, default=H)

    def schedule(self, num_users):
        return geometric_schedule(num_users, 2.0)

    def declare(self, num_blocks):
        return (Declared("sums", Vector(jnp.ones((S, A)), 1.0), access="blocks", times=num_blocks),)

    def plan(self, memory, released, ask, num_seen):
        memory = 0.5 * memory + released["sums"].value
        clip = 1.0 + jnp.abs(memory).max()  # from releases, so public
        return memory, Plan(policy_of(memory), clip)


class Answer(AbstractCategorical):
    """Whether the person's first action was good (1), bad (0), or there was none (2); the good one is published."""

    shape: tuple = eqx.field(static=True, default=(S, A))
    symmetric: bool = eqx.field(static=True, default=False)
    num_symbols: int = eqx.field(static=True, default=3)

    def contribution(self, record, query):
        return self.tally(jax.nn.one_hot(self.symbol(record, query, jnp.zeros((), int)), 3), query, jnp.zeros((), int))

    def symbol(self, record, query, index):
        good = 0 if query is None else query.query
        return jnp.where(record.length > 0, (record.actions[0] == good).astype(int), 2)

    def tally(self, frequencies, query, index):
        return jnp.zeros((S, A)).at[index % S].set(frequencies[:2])

    def l2(self, adjacency):
        return math.sqrt(2.0) if adjacency == "replace-one" else 1.0

    def l1(self, adjacency):
        return 2.0 if adjacency == "replace-one" else 1.0


class Message(_Online):
    """One small answer per person to a query that changes from block to block."""

    horizon: int = eqx.field(static=True, default=H)

    def schedule(self, num_users):
        return geometric_schedule(num_users, 1.5, 4)

    def declare(self, num_blocks):
        return (Declared("answers", Answer(), access="running", times=num_blocks),)

    def plan(self, memory, released, ask, num_seen):
        scores = released["answers"].value / (1 + num_seen.astype(float))
        return memory, Plan(policy_of(scores), (scores[0, 1] > scores[0, 0]).astype(int))


class Posterior(_Online):
    """Posterior sampling: plans in a world drawn, with the public key of the plan, from what counts make likely.

    Counts below what noise explains are taken to be nothing, so that unknown pairs keep their wide prior.
    """

    rewards: jax.Array
    horizon: int = eqx.field(static=True)

    def schedule(self, num_users):
        return geometric_schedule(num_users, 1.3)

    def declare(self, num_blocks):
        _, states, actions = self.rewards.shape
        counts = TransitionCounts(states, actions, self.horizon, "pooled")
        return (Declared("transitions", counts, access="running", times=num_blocks),)

    def init(self):
        return None

    def plan(self, memory, released, ask, num_seen, *, key=None):
        r, counts = self.rewards[0], released["transitions"]
        n = jnp.where(counts.value > 2 * counts.noise.std, counts.value, 0.0)
        P = jax.random.dirichlet(key, n + 1 / len(r))
        V, Q = jnp.zeros(len(r)), []
        for _ in range(self.horizon):
            Q.append(r + P @ V)
            V = Q[-1].max(axis=-1)
        return memory, Plan(TabularPolicy.greedy(jnp.stack(Q[::-1])))


def slow(toy):
    """For patterns whose contract a real learner holds in the default run."""
    return pytest.param(toy, marks=pytest.mark.slow)


@pytest.mark.parametrize("toy", [Rounds(), slow(Histogram()), slow(Gradient())], ids=lambda toy: type(toy).__name__)
def test_offline_patterns(toy):
    check_offline(toy, tiny_data(tiny_world()))


@pytest.mark.parametrize("toy", [slow(Running()), Everything(), slow(Blocks())], ids=lambda toy: type(toy).__name__)
def test_online_patterns(toy):
    local = (privrl.Local(**BUDGET),)
    check_online(toy, tiny_world(), episodes=12, local=local)
    statistic = toy.declare(1)[0].statistic
    check_sensitivity(statistic, hostile_trajectories(H, S, A))


@pytest.mark.slow
def test_one_message_per_user():
    toy = Message()
    check_online(
        toy, tiny_world(), episodes=12, local=(privrl.Local(epsilon=BUDGET["epsilon"]), privrl.Local(**BUDGET))
    )
    check_sensitivity(toy.declare(1)[0].statistic, hostile_trajectories(H, S, A))


RIVER = privrl.envs.RiverSwim(states=3, horizon=6, kind="osband")
SAMPLER = Posterior(RIVER.rewards, RIVER.horizon)
CENTRAL = privrl.Central(epsilon=3.0, delta=1e-5)


@pytest.mark.slow
def test_posterior_sampling_learns_privately():
    run = privrl.run(RIVER, SAMPLER, CENTRAL, episodes=3_000, seeds=8, key=jax.random.key(0))
    uniform = float(RIVER.regret(RIVER.uniform_policy()))
    assert run.block_regret[:, -3:].mean() < 0.3 * uniform


def test_a_sampled_plan_needs_the_loops_randomness():
    with pytest.raises(ValueError, match="plans at random: give `key`"):
        next_plan(SAMPLER, None, {}, None, jnp.zeros((), int))


@pytest.mark.slow
def test_a_sampled_plan_is_the_same_in_a_simulation_and_for_every_handle_of_an_agent(tmp_path):
    key, users = jax.random.key(7), 20
    simulated = privrl.run(RIVER, SAMPLER, CENTRAL, episodes=users, seeds=8, key=key, flow=False)
    assert np.ptp(simulated.block_regret[:, 0]) > 0  # nobody has come yet: seeds differ by the key of the plan alone
    seed, ends = jax.random.split(key, (1, 8))[0, 0], SAMPLER.blocks(users)
    settings = {"num_users": users, "fixed_order": True}
    with privrl.ReleaseStore(tmp_path / "a.db") as store:
        handles = [privrl.Agent(SAMPLER, CENTRAL, store=store, key=seed, **settings) for _ in range(2)]
        regret = []
        for i in range(users):
            agent, block = handles[i % 2], int(np.searchsorted(ends, i, side="right"))
            regret.append(float(RIVER.regret(agent.policy)))
            record = RIVER.rollout(agent.policy, SimulationKeys.of(seed).person(block, i))
            agent.end_episode(agent.begin_episode(i), record)
        np.testing.assert_allclose(np.asarray(regret)[[0, *ends[:-1]]], simulated.block_regret[0], atol=1e-9)
        for agent in handles:
            np.testing.assert_array_equal(agent.policy.probabilities, simulated.policy.probabilities[0])


def test_without_a_seed_the_public_randomness_of_plans_is_kept_in_the_store(tmp_path):
    users = 12

    def published(path):
        with privrl.ReleaseStore(path) as store:
            agent = privrl.Agent(SAMPLER, CENTRAL, store=store, num_users=users, fixed_order=True)
            for i in range(agent.num_arrived, agent.num_arrived + 6):
                record = RIVER.rollout(agent.policy, jax.random.fold_in(jax.random.key(0), i))
                agent.end_episode(agent.begin_episode(i), record)
            other = privrl.Agent(SAMPLER, CENTRAL, store=store, num_users=users, fixed_order=True)
            assert agent._plans.closed == other._plans.closed > 1
            for number in range(agent._plans.closed + 1):
                assert eqx.tree_equal(agent._plans[number], other._plans[number])
            return store.fact("plans", bytes)

    first = published(tmp_path / "a.db")
    assert published(tmp_path / "a.db") == first  # after a restart
    assert published(tmp_path / "b.db") != first
    with privrl.ReleaseStore(tmp_path / "c.db") as store:
        local = (SAMPLER, privrl.Local(epsilon=2.0, delta=1e-5))
        one, two = (privrl.Server(*local, num_users=users, store=store) for _ in range(2))
        assert eqx.tree_equal(one._plans[0], two._plans[0])


def test_a_released_function():
    data = tiny_data(tiny_world())
    key = jax.random.key(4)
    result = privrl.fit(data, Function(), privrl.Central(**BUDGET), key=key)
    check_certificate(result.certificate, BUDGET["epsilon"], BUDGET["delta"], "central")
    again = privrl.fit(data, Function(), privrl.Central(**BUDGET), key=key)
    np.testing.assert_array_equal(result.policy.probabilities, again.policy.probabilities)
    other = privrl.fit(data, Function(), privrl.Central(**BUDGET), key=jax.random.key(5))
    assert not np.allclose(result.policy.probabilities, other.policy.probabilities)


def test_a_share_that_is_skipped_is_spent_elsewhere():
    """The trade keeps the total: mu^2 of the spare release goes to the second one."""
    result = privrl.fit(tiny_data(tiny_world()), Rounds(), privrl.Central(rho=1.0), key=jax.random.key(0))
    cost = {event.name: event.parameter**2 for event in result.certificate.events}
    assert set(cost) == {"first", "second"}
    np.testing.assert_allclose([cost["first"], cost["second"]], [0.5, 1.5])
    np.testing.assert_allclose(result.certificate.rho, 1.0)


def test_more_than_declared_is_refused_before_anybody_is_touched():
    class Greedy(Rounds):
        def declare(self):
            return (Declared("first", times=1), Declared("second"), Declared("spare"))

        def fit(self, ask):
            ask("first", Vector(jnp.ones((S, A)), 2.0))
            return ask("first", Vector(jnp.ones((S, A)), 2.0))

    with pytest.raises(privrl.privacy.OverspentError, match="first"):
        privrl.fit(tiny_data(tiny_world()), Greedy(), privrl.Central(**BUDGET), key=jax.random.key(0))


def test_a_loop_that_releases_more_than_declared_is_refused():
    class Greedy(Everything):
        def declare(self, num_blocks):
            return (Declared("values", Revisited(), access="rounds", times=2 * num_blocks - 1),)

    with pytest.raises(privrl.privacy.OverspentError, match="values"):
        privrl.run(tiny_world(), Greedy(), privrl.Central(**BUDGET), episodes=3, key=jax.random.key(0))


def test_sampled_releases_cover_the_norm_and_not_only_the_distance():
    """Counts differ by sqrt(2) under replacement but have norm 1: with sampling the noise must cover 2, not sqrt(2)."""

    class Sampled(Gradient):
        def declare(self):
            return (Declared("gradient", VisitCounts(S, A, H, stage=0), times=1, sampling=0.5),)

        def fit(self, ask):
            return Solution(policy_of(ask("gradient").value))

    result = privrl.fit(tiny_data(tiny_world()), Sampled(), privrl.Central(**BUDGET), key=jax.random.key(0))
    assert result.certificate.releases[0]["noise"][0]["sensitivity"] == 2.0


def test_hostile_records_are_really_hostile():
    records = hostile_trajectories(H, S, A)
    assert (
        bool((records.states < 0).any()) and bool((records.length > H).any()) and bool(jnp.isnan(records.rewards).any())
    )
    assert jax.tree.leaves(stack([records, records]))[0].shape[0] == 2
