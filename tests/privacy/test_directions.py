"""Pure local reports of vectors: random directions and Laplace noise, whichever has the smaller variance."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import privrl
from privrl.audit.attacks.local_attacks import _vector_ratio
from privrl.audit.bounds import bound_epsilon
from privrl.contracts.release import Declared
from privrl.contracts.statistic import AbstractStatistic
from privrl.privacy.accounting.composition import epsilon_of
from privrl.privacy.accounting.privacy_budget import BudgetError
from privrl.privacy.noise.distributions import LaplaceNoise
from privrl.privacy.noise.random_words import Words
from privrl.privacy.trust.direction_channels import DirectionChannel, best_report, radius_of
from privrl.privacy.trust.privatizers import Central, Local
from privrl.privacy.trust.published import Published
from privrl.privacy.trust.vector_channels import VectorChannel

N = 40_000
TERMS = [np.zeros(4), np.eye(4)[0], np.full(4, 0.5), np.array([0.3, -0.2, 0.0, 0.1])]


class Ball(AbstractStatistic):
    """A vector of four entries and norm at most 1."""

    shape: tuple = eqx.field(static=True, default=(4,))
    symmetric: bool = eqx.field(static=True, default=False)

    def contribution(self, record, query):
        return record / jnp.maximum(jnp.linalg.norm(record), 1.0)

    def l2(self, adjacency):
        return 2.0 if adjacency == "replace-one" else 1.0

    def l1(self, adjacency):
        return 2.0 * self.l2(adjacency)


DECLARED = Declared("x", Ball(), access="running", times=3)


def channel(epsilon, **given):
    private = Local(epsilon=epsilon, **given)
    return private.channel(DECLARED, private.calibrate([DECLARED]))


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 30.0])
@pytest.mark.parametrize("term", TERMS, ids=str)
def test_reports_are_unbiased_with_the_stated_error(epsilon, term):
    made = channel(epsilon)
    keys = jax.random.split(jax.random.key(0), N)
    reports = np.asarray(jax.jit(jax.vmap(lambda key: made.report(jnp.asarray(term), None, 0, key)))(keys))
    total, count = reports.sum(axis=0), jnp.full(4, float(N))
    release = made.to_release(jnp.asarray(total), count)
    assert np.abs((total - N * term) / float(release.noise.std)).max() < 4.5
    spread = reports.var(axis=0)
    assert (spread <= float(release.noise.variance) / N * (1 + 0.05)).all()
    assert np.abs(total - N * term).max() <= float(release.noise.max_bound(1e-4))
    assert np.linalg.norm(total - N * term) <= float(release.noise.norm_bound(1e-4))


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_given_the_line_a_report_is_a_randomised_response(epsilon):
    """Both records send the same two vectors with the same words, and a lie is as frequent as epsilon says."""
    reports = channel(epsilon).reports()
    lies = 0
    for number in range(3_000):
        sent = []
        for term in (TERMS[1], -TERMS[1]):
            truth = reports.truth(jnp.asarray(term), None, 0)
            sent.append(reports.randomise(truth, Words(number.to_bytes(32, "little"))))
            reports.check(sent[-1])
        np.testing.assert_array_equal(sent[0], -sent[1])  # a term of full norm decides the side
        lies += sent[0][0] < 0  # the first entry has the sign of the inner product
    rate = 1 / (1 + math.exp(epsilon))
    assert abs(lies / 3_000 - rate) < 4.5 * math.sqrt(rate * (1 - rate) / 3_000)


def test_whole_numbers_and_floats_have_one_distribution():
    made = channel(1.0)
    reports, record = made.reports(), jnp.asarray(TERMS[3])
    truth = reports.truth(record, None, 0)
    for randomness in (Words, lambda: jax.random.key(np.random.default_rng().integers(2**30))):
        sums = reports.init()
        for _ in range(2_000):
            sums = sums + reports.to_steps(reports.randomise(truth, randomness()), None, 0)
        value, count = reports.totals(sums)
        error = (np.asarray(value) - 2_000 * TERMS[3]) / (made.radius * math.sqrt(2_000 / 4))
        assert (np.asarray(count) == 2_000).all() and np.abs(error).max() < 4.5


@pytest.mark.parametrize("report", [np.zeros(4), np.full(4, 2**33), np.zeros(3, np.int64), np.full(4, 2**32)], ids=str)
def test_impossible_reports_are_refused(report):
    with pytest.raises(ValueError, match="Expected a report of shape"):
        channel(1.0).reports().check(report)


def test_the_better_mechanism_is_chosen():
    """Directions for small epsilon, Laplace noise for large epsilon; the variances cross where the choice does."""
    for epsilon in np.geomspace(0.1, 50, 40):
        laplace, direction = 2 * (4 / epsilon) ** 2, radius_of(Ball(), epsilon) ** 2 / 4
        assert best_report(Ball(), epsilon) == ("laplace" if laplace <= direction else "directions")
    made, private = channel(0.5), Local(epsilon=0.5)
    assert isinstance(made, DirectionChannel)
    (event,) = private.calibrate([DECLARED]).events()
    assert (event.mechanism, event.symbols) == ("randomised-response", 2)
    noisy, private = channel(30.0), Local(epsilon=30.0)
    assert isinstance(noisy, VectorChannel) and float(noisy.scale) == pytest.approx(4 / 30.0)
    assert private.calibrate([DECLARED]).events()[0].mechanism == "laplace"
    assert epsilon_of(private.calibrate([DECLARED]).events(), 0.0) == pytest.approx(30.0)
    assert isinstance(noisy.to_release(jnp.zeros(4), jnp.ones(4)).noise, LaplaceNoise)


def test_laplace_reports_on_the_lattice_cost_epsilon():
    made = channel(30.0)
    reports = made.reports()
    assert reports.lattice.kind == "l1"
    assert reports.lattice.sensitivity / reports.lattice.scale <= 30.0
    steps = [reports.truth(jnp.asarray(sign * np.full(4, 0.5)), None, 0) for sign in (1, -1)]
    moved = sum(abs(int(d)) for d in steps[0] - steps[1]) * reports.lattice.granularity
    assert 0.999 * 4.0 <= moved <= reports.lattice.sensitivity
    reports.check(reports.randomise(steps[0], Words()))


def test_attacks_reach_the_epsilon_of_a_direction_and_no_more():
    made, one = channel(1.0), jnp.asarray(TERMS[1])

    def scores(world):
        keys = jax.random.split(jax.random.key(world), N)
        return jax.vmap(lambda key: _vector_ratio(made, made.report((2 * world - 1) * one, None, 0, key), -one, one))(
            keys
        )

    both = np.stack([np.asarray(scores(world)) for world in (0, 1)])
    assert np.abs(both).max() == pytest.approx(1.0)
    assert 0.9 < bound_epsilon(both, 0.0, 0.999, gaussian=False) <= 1.0


def test_a_simulation_and_a_server_with_pure_vectors(tmp_path):
    world = privrl.envs.make("riverswim", states=3, horizon=3)
    learner, private = privrl.UCBVI(world.rewards, 3), Local(epsilon=2.0, reports="vectors")
    run = privrl.run(world, learner, private, episodes=60, key=0)
    assert run.certificate.delta == 0.0 and run.certificate.epsilon <= 2.0
    with privrl.ReleaseStore(tmp_path / "server.db") as store:
        server = privrl.Server(learner, private, num_users=40, store=store)
        for i in range(3):
            broadcast = server.broadcast()
            record = world.rollout(broadcast.plan.policy, jax.random.key(i))
            client = privrl.Client(learner, private, store=tmp_path / f"device{i}.db", cap=2.0)
            assert server.absorb(client.report(record, broadcast).to_bytes())
        assert server.num_reports == 3 and server.result().certificate.epsilon <= 2.0


def test_published_laplace_noise_is_certified_at_its_cost():
    """A paper that forgets the levels of its tree: the claim is 1, and the certificate says what it costs."""
    levels = 2
    paper = Published(
        lambda declared, budget: {"x": levels * budget.epsilon},
        "a paper",
        epsilon=1.0,
        mechanism="laplace",
        continual="tree",
    )
    paper.check("Learner", [DECLARED])
    ledger = paper.calibrate([DECLARED])
    made = paper.channel(DECLARED, ledger)
    assert made.mechanism == "laplace" and float(made.sensitivity) == pytest.approx(2 * 4.0)
    assert float(made.scale) == pytest.approx(4.0)
    assert epsilon_of(ledger.events(), 0.0) == pytest.approx(2.0) and paper.claimed["epsilon"] == 1.0
    with pytest.raises(BudgetError, match="Gaussian noise never meets"):
        Published(lambda declared, budget: {}, "a paper", epsilon=1.0)
    with pytest.raises(ValueError, match="with laplace noise"):
        Published(lambda declared, budget: {}, "a paper", epsilon=1.0, mechanism="laplace", continual="honaker")
    assert Central(epsilon=1.0).mechanism_of_rounds == "laplace"
