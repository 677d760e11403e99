"""Channels: what leaves people and what is released, with the declared noise, drawn once."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from privrl.contracts.release import Declared
from privrl.contracts.statistic import AbstractCategorical
from privrl.privacy.accounting.composition import epsilon_of
from privrl.privacy.noise.random_words import Words
from privrl.privacy.noise.subset import SubsetSelection
from privrl.privacy.trust.privatizers import Central, Local, NonPrivate

N = 20_000


class Indicator(AbstractCategorical):
    """Which of three symbols the record is; N copies of the same query, to see a distribution at once."""

    shape: tuple = eqx.field(static=True, default=(3,))
    symmetric: bool = eqx.field(static=True, default=False)
    num_symbols: int = eqx.field(static=True, default=3)

    def contribution(self, record, query):
        return jax.nn.one_hot(record, self.num_symbols)

    def symbol(self, record, query, index):
        return record

    def tally(self, frequencies, query, index):
        return frequencies

    def l2(self, adjacency):
        return 2.0**0.5 if adjacency == "replace-one" else 1.0

    def l1(self, adjacency):
        return 2.0 if adjacency == "replace-one" else 1.0


def channel(privatizer, access="running", times=6):
    declared = Declared("x", Indicator(), access=access, times=times)
    return privatizer.channel(declared, privatizer.calibrate([declared]))


def no_noise(i):
    raise AssertionError("no noise is drawn here")


def streamed(made, totals, key):
    """All releases of a stream, with the white noise of step t and part i drawn from its own key."""
    memory, releases = made.init(), []
    for t, total in enumerate(totals):

        def fresh(i, t=t):
            return jax.random.normal(jax.random.fold_in(jax.random.fold_in(key, t), i), (3,))

        memory, release = made.publish(memory, total, jnp.asarray(t), fresh)
        releases.append(release)
    return releases


@pytest.mark.parametrize(
    "continual",  # the errors of all mechanisms by themselves are in `test_continual.py`
    ["square-root", *(pytest.param(other, marks=pytest.mark.slow) for other in ("honaker", "tree", "fresh"))],
)
def test_running_sums_have_the_error_they_say(continual):
    made = channel(Central(rho=1.0, continual=continual))
    totals = [jnp.full(3, float(t)) for t in range(6)]
    keys = jax.random.split(jax.random.key(0), N)
    values = jax.jit(jax.vmap(lambda key: jnp.stack([r.value for r in streamed(made, totals, key)])))(keys)
    error = np.asarray(values) - np.cumsum([np.full(3, t) for t in range(6)], axis=0)
    stated = [float(r.noise.std) for r in streamed(made, totals, keys[0])]
    np.testing.assert_allclose(error.std(axis=(0, 2)), stated, rtol=4.5 / np.sqrt(2 * 3 * N))


def test_blocks_do_not_add_up():
    made = channel(NonPrivate(), "blocks")
    values = [np.asarray(r.value) for r in streamed(made, [jnp.full(3, 1.0), jnp.full(3, 5.0)], jax.random.key(0))]
    np.testing.assert_array_equal(values, [[1, 1, 1], [5, 5, 5]])


def test_rounds_answer_only_when_asked():
    made = channel(Central(rho=1.0), "rounds", times=3)
    memory, release = made.publish(made.init(), jnp.ones(3), jnp.asarray(0), no_noise)
    assert release is None and made.empty() is None
    answer = made.ask(memory, None, lambda i: jnp.array([1.0, -1.0, 0.0]))
    np.testing.assert_allclose(answer.value, 1 + float(made.scale) * np.array([1, -1, 0]))


@pytest.mark.parametrize("privatizer", [Local(epsilon=1.0), Local(epsilon=1.0, delta=1e-5)], ids=["symbols", "vector"])
def test_local_terms_are_unbiased_with_the_stated_error(privatizer):
    made = channel(privatizer)
    keys = jax.random.split(jax.random.key(1), N)
    symbols = jnp.arange(N) % 3
    values, reports = jax.jit(jax.vmap(lambda s, k: made.term(s, None, jnp.asarray(0), k)))(symbols, keys)
    _, release = made.publish(made.init(), (values.sum(0), reports.sum(0)), jnp.asarray(0), no_noise)
    exact = np.bincount(np.asarray(symbols), minlength=3)
    error = (np.asarray(release.value) - exact) / np.asarray(release.noise.std)
    assert np.abs(error).max() < 4.5
    np.testing.assert_array_equal(np.asarray(reports.sum(0)), N)


def test_a_vector_is_sent_with_the_noise_of_its_budget():
    """The noise of one message is its sensitivity over mu: a chi-square test at 4.5 standard errors."""
    budget = Local(epsilon=1.0, delta=1e-5)
    ledger = budget.calibrate((Declared("sums", Indicator(), access="running", times=6),))
    sent = budget.channel(Declared("sums", Indicator(), access="running", times=6), ledger)
    keys = jax.random.split(jax.random.key(5), N)
    record = jnp.asarray(1)
    reports = jax.jit(jax.vmap(lambda key: sent.report(record, None, jnp.zeros((), int), key)))(keys)
    scale = Indicator().l2("replace-one") / ledger.parameter("sums")
    z = (np.asarray(reports) - np.eye(3)[1]) / scale
    assert abs((z**2).sum() - z.size) < 4.5 * (2 * z.size) ** 0.5


def test_local_without_noise_is_exact():
    made = channel(Local(epsilon=float("inf")))
    value, _ = made.term(jnp.asarray(2), None, jnp.asarray(0), jax.random.key(0))
    np.testing.assert_array_equal(value, [0, 0, 1])


def test_one_report_is_as_private_as_claimed():
    """Over all true symbols and answers, the ratio of probabilities is exactly e^epsilon, no more."""
    made = channel(Local(epsilon=1.0))
    coins = (np.arange(600) + 0.5) / 600
    orders = np.array(list(itertools.permutations([0.2, 0.5, 0.8])))
    u = jnp.asarray([[coin, *order] for coin in coins for order in orders])
    each = jax.vmap(jax.vmap(made.response.respond, (None, 0)), (0, None))
    answers = np.asarray(each(jnp.arange(3), u))
    assert (answers.sum(axis=-1) == 1).all()
    distribution = answers.mean(axis=1)
    ratio = max(distribution[:, y].max() / distribution[:, y].min() for y in range(3))
    assert ratio == pytest.approx(np.e, rel=0.02)  # the grid has 600 steps


@pytest.mark.parametrize("symbol", [-5, 3, 10**9])
def test_a_symbol_out_of_range_does_not_give_itself_away(symbol):
    made = channel(Local(epsilon=1.0))
    truthful, lying = jnp.array([0.99, 0.1, 0.2, 0.3]), jnp.array([0.0, 0.99, 0.2, 0.3])
    for white in (truthful, lying):
        assert int(made.response.respond(made.symbol(jnp.asarray(symbol), None, jnp.asarray(0)), white).sum()) == 1
    sent = made.reports().randomise(made.reports().truth(jnp.asarray(symbol), None, 0), Words())
    assert sent.shape == (1,) and 0 <= sent[0] < 3


def test_what_is_accounted_dominates_what_is_sent():
    """Randomised response where the set has one symbol; any epsilon-private answer where it has more."""
    one = Declared("x", Indicator(), access="running")
    two = Declared("x", Indicator(shape=(6,), num_symbols=6), access="running")
    ledgers = [Local(epsilon=0.5).calibrate([declared]) for declared in (one, two)]
    assert [(e.mechanism, e.symbols) for ledger in ledgers for e in ledger.events()] == [
        ("randomised-response", 3),
        ("pure", None),
    ]
    k, d, epsilon = 6, 2, 0.5
    p = float(SubsetSelection(k, epsilon, d).keep_probability)
    for below in (0.0, 0.3, 0.45):
        only_one = p * (k - d) / (k - 1)  # the set holds the first symbol and not the second, when the first is true
        exact = only_one * (1 - np.exp(below - epsilon))
        assert epsilon_of(ledgers[1].events(), exact) >= below
