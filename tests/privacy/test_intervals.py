"""Running sums with Laplace noise: intervals against brute force, and pure guarantees from end to end."""

import functools
import itertools
import json
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import privrl
from privrl.contracts.release import Declared
from privrl.contracts.statistic import AbstractStatistic
from privrl.privacy.continual.epochs import Epochs
from privrl.privacy.continual.intervals import Intervals, best_intervals
from privrl.privacy.continual.mechanisms import BinaryTree, Fresh
from privrl.privacy.continual.participation import ONCE, Participation, largest_sum
from privrl.privacy.noise.distributions import LaplaceNoise
from privrl.privacy.trust.exact_channels import ExactChannel
from privrl.privacy.trust.privatizers import Central
from privrl.studies.results.certification import certify

OFTEN = [Participation(m, d) for m in (1, 2, 3) for d in (0, 1, 3)]
KINDS = {
    "intervals": lambda n: Intervals(n, 2),
    "tree": lambda n: BinaryTree(n, "laplace"),
    "fresh": lambda n: Fresh(n, "laplace"),
    "epochs": lambda n: Epochs.from_lengths(lambda k: Intervals(k, 2), (3, n - 3), 0.5),
}


def patterns(steps, participation):
    """Every pattern of `times` or fewer blocks, as numbers of visits per block."""
    for m in range(1, participation.times + 1):
        for pattern in itertools.combinations_with_replacement(range(steps), m):
            if all(b - a >= participation.distance for a, b in itertools.pairwise(pattern)):
                yield pattern


def brute(scheme, participation):
    columns = np.abs(np.linalg.solve(scheme.matrix(), scheme.sums())).sum(axis=0)
    return max(columns[list(pattern)].sum() for pattern in patterns(scheme.steps, participation))


@pytest.mark.parametrize("kind", KINDS)
def test_sensitivities_are_those_of_the_matrices(kind):
    """The L1 norms of B^-1 A, with B by unit vectors, over every pattern of participation."""
    for steps in (4, 7, 8):
        scheme = KINDS[kind](steps)
        encoder = np.linalg.solve(scheme.matrix(), scheme.sums())
        np.testing.assert_allclose(scheme.columns(), np.abs(encoder).sum(axis=0), atol=1e-12)
        np.testing.assert_allclose(
            (scheme.matrix() ** 2).sum(axis=1), [scheme.variance(t) for t in range(steps)], rtol=1e-12
        )
        np.testing.assert_allclose(
            np.abs(scheme.matrix()).max(axis=1), [scheme.largest_weight(t) for t in range(steps)], rtol=1e-12
        )
        assert scheme.factor == pytest.approx(brute(scheme, ONCE), rel=1e-12)
        for often in OFTEN:
            assert scheme.sensitivity(often) == pytest.approx(brute(scheme, often), rel=1e-12), often


@pytest.mark.parametrize("cover", [1, 2, 3, 4])
def test_no_leaf_is_in_more_intervals_than_the_cover(cover):
    for steps in range(1, 40):
        scheme = Intervals(steps, cover)
        encoder = scheme.encoder()
        assert encoder.sum(axis=0).max() <= cover
        np.testing.assert_array_equal(encoder, np.linalg.solve(scheme.matrix(), scheme.sums()))


@functools.cache
def least_depth(steps, cover):
    """The least sum of depths: p is the last release whose interval begins at the start."""
    if steps == 0 or cover == 0:
        return 0 if steps == 0 else math.inf
    return min(
        least_depth(p - 1, cover - 1) + 1 + least_depth(steps - p, cover) + (steps - p) for p in range(1, steps + 1)
    )


def test_depths_are_the_least_for_their_cover():
    for steps, cover in itertools.product(range(1, 60), (1, 2, 3, 4)):
        assert Intervals(steps, cover)._variances().sum() == least_depth(steps, cover)


def test_errors_of_the_docstring():
    def error(scheme):
        return scheme.factor**2 * scheme._variances().mean()

    best = best_intervals(140, ONCE)
    assert best.cover == 2 and error(best) == pytest.approx(41.1, abs=0.1)
    assert error(Intervals(140, 1)) == pytest.approx(70.5)
    assert error(BinaryTree(140, "laplace")) == pytest.approx(220.8)
    assert best_intervals(20, ONCE).cover == 1
    assert len(best_intervals(2**17, ONCE)._depths) == 2**17  # a release after every person


def test_sums_of_columns_are_exact():
    rng = np.random.default_rng(0)
    for _ in range(20):
        columns = rng.integers(1, 6, rng.integers(1, 8)).astype(float)
        for often in OFTEN:
            true = max(columns[list(pattern)].sum() for pattern in patterns(len(columns), often))
            assert largest_sum(columns, often) == true


@pytest.mark.parametrize("terms", [1, 2, 5, 40])
@pytest.mark.parametrize("failure", [0.3, 0.02])
def test_bounds_on_sums_of_draws_hold_with_their_probability(terms, failure):
    """Equal draws, and draws of different scales that count as fewer of the largest one."""
    rng = np.random.default_rng(terms)
    for scales in (np.ones(terms), 0.8 ** np.arange(terms)):
        noise = LaplaceNoise(1.5, (3, 3), (scales**2).sum())
        drawn = 1.5 * (scales[:, None, None, None] * rng.laplace(size=(terms, 20_000, 3, 3))).sum(axis=0)
        assert drawn.std() == pytest.approx(float(noise.std), rel=0.03)
        for size, bound in (
            (np.abs(drawn).max(axis=(1, 2)), noise.max_bound(failure)),
            (np.linalg.norm(drawn, axis=(1, 2)), noise.norm_bound(failure)),
            (np.linalg.norm(drawn, 2, axis=(1, 2)), noise.spectral_bound(failure)),
        ):
            missed = (size > float(bound)).mean()
            assert missed <= failure + 4.5 * math.sqrt(failure * (1 - failure) / 20_000)
    assert float(noise.max_bound(0.01)) < 1.5 * np.quantile(np.abs(drawn).max(axis=(1, 2)), 0.99)


def test_symmetric_laplace_noise_repeats_its_triangle():
    noise = LaplaceNoise(2.0, (4, 4), symmetric=True)
    drawn = np.asarray(jax.vmap(noise.from_white)(jax.random.laplace(jax.random.key(0), (20_000, 4, 4))))
    np.testing.assert_array_equal(drawn, drawn.transpose(0, 2, 1))
    for failure in (0.3, 0.02):
        allowed = failure + 4.5 * math.sqrt(failure / 20_000)
        assert (np.linalg.norm(drawn, axis=(1, 2)) > float(noise.norm_bound(failure))).mean() <= allowed
        assert (np.linalg.norm(drawn, 2, axis=(1, 2)) > float(noise.spectral_bound(failure))).mean() <= allowed
        assert (np.abs(drawn).max(axis=(1, 2)) > float(noise.max_bound(failure))).mean() <= allowed


class Ball(AbstractStatistic):
    """A vector of L1 norm at most 1, of any sign."""

    shape: tuple = eqx.field(static=True, default=(3,))
    symmetric: bool = eqx.field(static=True, default=False)

    def contribution(self, record, query):
        return record / jnp.maximum(jnp.abs(record).sum(), 1.0)

    def l2(self, adjacency):
        return 2.0 if adjacency == "replace-one" else 1.0

    def l1(self, adjacency):
        return 2.0 if adjacency == "replace-one" else 1.0


@pytest.mark.parametrize("continual", ["best", "tree", "fresh"])
@pytest.mark.parametrize("often", OFTEN, ids=str)
def test_whole_numbers_of_two_people_are_within_the_sensitivity(continual, often):
    """Encoded sums of two people with patterns and records of their own, in steps of the lattice, L1."""
    steps, rng = 7, np.random.default_rng(1)
    private = Central(epsilon=0.7, continual=continual)
    declared = Declared("x", Ball(), access="running", times=steps)
    channel = private.channel(declared, private.calibrate([declared], often))
    exact = ExactChannel.from_channel(channel, steps, 0.7, "replace-one", often, jnp.zeros(3), None)
    assert exact.lattice.kind == "l1" and exact.mechanism == "laplace"
    assert exact.lattice.sensitivity == pytest.approx(float(channel.sensitivity), rel=1e-6)
    assert exact.lattice.sensitivity / exact.lattice.scale <= 0.7
    assert float(channel.sensitivity) == pytest.approx(2.0 * brute(channel.continual, often), rel=1e-9)
    unit = exact.lattice.granularity
    columns = channel.continual.columns()
    ways = sorted(patterns(steps, often), key=lambda way: columns[list(way)].sum())
    furthest = 0
    for _ in range(10):
        vectors = [rng.normal(size=3), rng.dirichlet(np.ones(3)), np.eye(3)[rng.integers(3)]]
        vector = vectors[rng.integers(3)]
        way = ways[-1] if rng.random() < 0.5 else ways[rng.integers(len(ways))]
        images = []
        for sign in (1, -1):
            blocks = [np.zeros(3, np.int64)] * steps
            for block in way:
                blocks[block] = blocks[block] + exact.term(jnp.asarray(sign * vector), None)
            images.append([exact.encode(tuple(blocks[: t + 1])).astype(object) for t in range(steps)])
        moved = sum(abs(int(d)) for a, b in zip(*images, strict=True) for d in a - b)
        assert moved * unit <= exact.lattice.sensitivity
        furthest = max(furthest, moved * unit)
    assert furthest >= 0.999 * exact.lattice.sensitivity


WORLD = privrl.envs.make("riverswim", states=3, horizon=4)


@pytest.mark.parametrize(
    "recipe", ["dp-ucbvi", *(pytest.param(name, marks=pytest.mark.slow) for name in ("dp-lsvi-ucb", "dp-lsvi-ucb++"))]
)
def test_epsilon_alone_serves_running_sums(recipe):
    run = privrl.run(WORLD, recipe, epsilon=2.0, episodes=200, seeds=2, key=0)
    certificate = run.certificate
    assert certificate.delta == 0.0 and 1.999 < certificate.epsilon <= 2.0
    assert {event.mechanism for event in certificate.events} == {"laplace"}
    assert certificate.accountant == "pure composition"
    read = privrl.Certificate.from_json(json.loads(json.dumps(certificate.to_json())))
    assert [p for p in certify(read, None).problems if "polic" not in p and "noise" not in p] == []


@pytest.mark.parametrize("learner", [privrl.OFULQ, pytest.param(privrl.CautiousLQ, marks=pytest.mark.slow)])
def test_linear_control_with_epsilon_alone(learner):
    world = privrl.envs.lq_worlds.LQScalar()
    run = privrl.run(world, learner(world.task), Central(epsilon=5.0), episodes=40, seeds=1, key=0)
    assert run.certificate.delta == 0.0 and np.isfinite(run.total_regret).all()


def test_an_agent_with_a_pure_budget_is_exact_and_restarts(tmp_path):
    """Real people: discrete Laplace noise on a lattice, drawn once, and the same plan after a restart."""
    study = {"world": WORLD, "epsilon": 3.0, "num_users": 60, "fixed_order": True}
    rows = jax.vmap(WORLD.rollout, in_axes=(None, 0))(WORLD.uniform_policy(), jax.random.split(jax.random.key(0), 60))
    policies = []
    for first, last in ((0, 45), (45, 60)):
        with privrl.ReleaseStore(tmp_path / "agent.db") as store:
            agent = privrl.Agent("dp-ucbvi", store=store, max_episodes_per_unit=2, **study)
            if policies:
                np.testing.assert_array_equal(np.asarray(agent.policy.probabilities), policies[-1])
            for i in range(first, last):
                ticket = agent.begin_episode(f"person {i}")
                agent.end_episode(ticket, jax.tree.map(lambda leaf, i=i: np.asarray(leaf[i]), rows))
            policies.append(np.asarray(agent.policy.probabilities))
            certificate = agent.certificate
    assert certificate.delta == 0.0 and certificate.epsilon <= 3.0 and certificate.records_per_unit == 2
    assert {event.mechanism for event in certificate.events} == {"laplace"}


def test_open_ended_sums_with_a_pure_budget():
    run = privrl.run(
        WORLD, "dp-ucbvi", epsilon=2.0, episodes=100, key=0, open_ended=privrl.OpenEnded(first=2, ceiling=2**12)
    )
    assert run.certificate.delta == 0.0 and run.certificate.epsilon <= 2.0


def test_refusals():
    with pytest.raises(ValueError, match="`cover` is 0"):
        Intervals(4, 0)
    with pytest.raises(ValueError, match="same kind of noise"):
        Epochs((Intervals(4, 1), Fresh(4)), (0, 1))
