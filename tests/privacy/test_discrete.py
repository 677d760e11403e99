"""Noise on the integers. Chi-square tests reject at p < 1e-6, z-tests at |z| > 4.5 (p < 7e-6)."""

import itertools
import math
import random
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from privacy import canonne
from scipy import integrate, stats

from privrl.privacy.noise import discrete as _discrete
from privrl.privacy.noise.discrete import discrete_gaussian, discrete_laplace, draw_bernoulli_exp, lie_threshold, select
from privrl.privacy.noise.random_words import Words, quotient

KEY = bytes(range(32))
SAMPLERS = [discrete_gaussian, discrete_laplace]
DISTRIBUTIONS = {discrete_gaussian: _discrete._GAUSSIAN, discrete_laplace: _discrete._LAPLACE}
PHI = {discrete_gaussian: lambda x: x * x / 2, discrete_laplace: abs}


class Scripted(Words):
    """A stream that says what it is told."""

    def __init__(self, *words: int) -> None:
        super().__init__()
        self.script = list(words)

    def take(self, count: int) -> np.ndarray:
        said, self.script = self.script[:count], self.script[count:]
        assert len(said) == count, "more words were asked for than there are"
        return np.array(said, np.uint64)


class Counting(Words):
    """A stream that notes how many words it was asked for, each time."""

    def __init__(self, key: bytes | None = None) -> None:
        super().__init__(key)
        self.asked: list[int] = []

    def take(self, count: int) -> np.ndarray:
        self.asked.append(count)
        return super().take(count)


def atoms(sampler: Callable, scale: int, edge: int) -> np.ndarray:
    """Probabilities of -edge or less, -edge + 1, ..., edge - 1, edge or more."""
    n = np.arange(-60 * scale, 60 * scale + 1)
    p = np.exp(-PHI[sampler](n / scale))
    p /= p.sum()
    middle = p[np.abs(n) < edge]
    return np.r_[p[n <= -edge].sum(), middle, p[n >= edge].sum()]


def tally(drawn: np.ndarray, edge: int) -> np.ndarray:
    return np.bincount(np.clip(drawn, -edge, edge).ravel() + edge, minlength=2 * edge + 1)


def pvalue(sampler: Callable, scale: int, drawn: np.ndarray, edge: int) -> float:
    return stats.chisquare(tally(drawn, edge), atoms(sampler, scale, edge) * drawn.size).pvalue


def exp_bounds(e: Fraction, digits: int) -> tuple[Fraction, Fraction]:
    """exp(-e) enclosed without `decimal`: neighbouring partial sums of the alternating series, once its terms fall."""
    total, term, j = Fraction(1), Fraction(1), 0
    while j <= e or term > Fraction(1, 10**digits):
        j += 1
        term *= e / j
        total += -term if j % 2 else term
    before = total + (term if j % 2 else -term)
    return min(total, before), max(total, before)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize(("scale", "edge"), [(1, 4), (2, 8), (5, 20)])
def test_atoms(sampler: Callable, scale: int, edge: int) -> None:
    drawn = sampler(Words(KEY), scale, (1000, 1000))
    assert drawn.dtype == np.int64 and drawn.shape == (1000, 1000)
    assert pvalue(sampler, scale, drawn, edge) > 1e-6
    wrong = pvalue(sampler, scale, np.where(drawn == 0, 0, drawn + (np.arange(1000) % 50 == 0)), edge)
    assert wrong < 1e-6  # the test sees two draws in a hundred that are one too large


@pytest.mark.parametrize("scale", [2**33, pytest.param(2**42 + 12_345, marks=pytest.mark.slow)])
def test_variance_to_two_in_a_thousand(scale: int) -> None:
    stream, rounds, count = Words(KEY), 40, 10**6
    squares = sum(float(np.square(discrete_gaussian(stream, scale, (count,)) / scale).sum()) for _ in range(rounds))
    ratio, sd = squares / (rounds * count), math.sqrt(2 / (rounds * count))
    assert abs(ratio - 1) < 4.5 * sd
    assert stats.norm.cdf(0.002 / sd - 4.5) > 0.9999  # the power against a variance that is 0.2% off, either way
    assert abs(1.002 * ratio - 1) > 4.5 * sd and abs(0.998 * ratio - 1) > 4.5 * sd


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_shape_at_large_scales(sampler: Callable) -> None:
    distribution = stats.norm if sampler is discrete_gaussian else stats.laplace
    for scale in (2**33, 2**56, 3**30):
        drawn = sampler(Words(KEY), scale, (200_000,))
        assert stats.kstest(drawn / scale, distribution.cdf).pvalue > 1e-6
        low = np.bincount((drawn & 255).astype(np.int64), minlength=256)  # and no integer is left out
        assert stats.chisquare(low).pvalue > 1e-6


@pytest.mark.slow
def test_a_hundred_million_draws() -> None:
    s, stream, rounds = 2**33, Words(KEY), 100
    edges = np.linspace(-5, 5, 201)
    counts = np.zeros(202)
    for _ in range(rounds):
        counts += np.bincount(
            np.searchsorted(edges, discrete_gaussian(stream, s, (10**6,)) / s, "right"), minlength=202
        )
    p = np.diff(np.r_[0.0, stats.norm.cdf(edges), 1.0])
    p[101:] = p[100::-1]  # symmetric; the upper tail keeps its digits
    assert stats.chisquare(counts, p * counts.sum()).pvalue > 1e-6
    for tail in (3, 4, 5):
        outside = counts[: 1 + (5 - tail) * 20].sum() + counts[-1 - (5 - tail) * 20 :].sum()
        mean = 2 * stats.norm.sf(tail) * counts.sum()
        assert stats.poisson.cdf(outside, mean) > 1e-6 and stats.poisson.sf(outside - 1, mean) > 1e-6


@pytest.mark.parametrize("s", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_agreement_with_other_samplers(s: int) -> None:
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    domain, metric = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="i64")
    source, edge = random.Random(7), 3 * s
    ours = tally(discrete_gaussian(Words(KEY), s, (200_000,)), edge)
    others = {
        "opendp": dp.m.make_gaussian(domain, metric, scale=float(s))([0] * 20_000),
        "canonne": [canonne.gaussian(source, s) for _ in range(20_000)],
    }
    for name, drawn in others.items():
        counts = tally(np.array(drawn), edge)
        assert stats.chi2_contingency([ours, counts]).pvalue > 1e-6, name
        assert stats.chi2_contingency([ours, tally(2 * np.array(drawn), edge)]).pvalue < 1e-6


def test_laplace_agrees_with_integers_only() -> None:
    source = random.Random(8)
    drawn = [canonne.laplace(source, 3) for _ in range(20_000)]
    ours = tally(discrete_laplace(Words(KEY), 3, (200_000,)), 15)
    assert stats.chi2_contingency([ours, tally(np.array(drawn), 15)]).pvalue > 1e-6


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("scale", [1, 5, 2**33, 2**56])
def test_the_filter_changes_no_decision(sampler: Callable, scale: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same words, with every comparison finished exactly, give the same draws; so do filters in between."""
    expected = sampler(Words(KEY), scale, (1_500,))
    for bits, band in ((1, 2.0), (3, 0.1), (12, 1e-3)):
        with monkeypatch.context() as patch:
            patch.setattr(_discrete, "_BITS", bits)
            patch.setattr(_discrete, "_BAND", band)
            np.testing.assert_array_equal(sampler(Words(KEY), scale, (1_500,)), expected)


@example(4, (0, 0), -1)
@given(st.integers(0, 2**33 - 1), st.sampled_from([(0, 0), (2**63 + 2**61, 1)]), st.sampled_from([-1, 1]))
def test_what_floats_cannot_tell_is_decided_exactly(u: int, block: tuple[int, int], side: int) -> None:
    """R is one unit of 2^-64 beside the acceptance probability, which has 53 bits as a float.

    Where the probability is all but a multiple of 2^-64, more bits of R may be asked for; they must not matter.
    """
    word, k = block
    x = Fraction(u, 2**33)
    chance = int(exp_bounds(x * (k + x / 2), 40)[0] * 2**64)
    if 0 < chance + side < 2**64:
        for more in (0, 2**64 - 1):
            script = Scripted(word, 2 * u * 2**30, chance + side, more, more)
            values, accepted = _discrete._candidates(script, _discrete._GAUSSIAN, 2**33, 1)
            assert values.tolist() == [k * 2**33 + u] and accepted.tolist() == [side < 0]


def test_the_distribution_of_exact_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_discrete, "_BITS", 1)
    monkeypatch.setattr(_discrete, "_BAND", 2.0)
    assert pvalue(discrete_gaussian, 2, discrete_gaussian(Words(), 2, (30_000,)), 6) > 1e-6


def test_the_float_filter_is_far_more_exact_than_its_band() -> None:
    rng = np.random.default_rng(0)
    for distribution in DISTRIBUTIONS.values():
        for s in (3, 2**33 + 1, 2**56 - 1):
            k, u = rng.integers(0, 9, 300), rng.integers(0, s, 300)
            chance = np.exp(-distribution.rise(k.astype(float), u * (1.0 / s)))
            for block, inside, float_chance in zip(k.tolist(), u.tolist(), chance.tolist(), strict=True):
                x = Fraction(inside, s)
                low, high = exp_bounds(distribution.phi(block + x) - distribution.phi(Fraction(block)), 25)
                assert low - Fraction(1, 2**47) < Fraction(float_chance) < high + Fraction(1, 2**47)


@given(st.fractions(0, 12, max_denominator=2**70), st.integers(10, 80))
def test_enclosures_of_the_exponential(e: Fraction, digits: int) -> None:
    low, high = _discrete._exp(e, digits)
    inner_low, inner_high = exp_bounds(e, digits + 20)
    assert low <= inner_high and inner_low <= high  # the two enclosures meet,
    assert high - low <= high / 10**digits  # and ours is as narrow as it says
    if e:
        assert low < inner_low and inner_high < high  # wide enough to contain one that is far narrower


@pytest.mark.parametrize("distribution", DISTRIBUTIONS.values())
def test_enclosures_of_cumulative_weights(distribution: _discrete._Distribution) -> None:
    weights = [math.exp(-distribution.phi(Fraction(j))) for j in range(60)]
    for k in range(12):
        low, high = _discrete._cumulative(distribution, k, 40)
        assert low < high < low + Fraction(1, 10**39)
        assert float(low) == pytest.approx(math.fsum(weights[: k + 1]) / math.fsum(weights), rel=1e-14)
    closed = 1 - exp_bounds(Fraction(4), 60)[0]  # 1 - e^-(k+1) for the Laplace blocks
    low, high = _discrete._cumulative(_discrete._LAPLACE, 3, 40)
    assert low < closed < high


@given(st.fractions(Fraction(1, 1000), 6, max_denominator=2**60), st.integers(1, 3), st.sampled_from([-1, 1]))
def test_more_bits_are_drawn_until_a_comparison_is_certain(e: Fraction, extra: int, side: int) -> None:
    """R shares its first 64, 128 or 192 bits with the threshold, and its next word lies beside the threshold's."""
    bits = 64 * (extra + 1)
    near = int(exp_bounds(e, 100)[0] * 2**bits)
    words = [(near + side >> 64 * i) % 2**64 for i in range(extra, -1, -1)]
    stream = Scripted(*words[1:])
    assert _discrete._Uniform(stream, words[0]).below(partial(_discrete._exp, e)) == (side < 0)
    if (near + side) >> 64 == near >> 64:
        assert not stream.script  # all of them were needed


def test_the_tail_has_no_end() -> None:
    """The last cell holds all k from 7 on: which one, more bits decide, however deep."""
    total = math.fsum(math.exp(-j * j / 2) for j in range(40))
    for k in (7, 8, 9, 12, 15):
        above = math.fsum(math.exp(-j * j / 2) for j in range(k, 40)) / total  # P(K >= k)
        for factor, block in ((0.99, k), (1.01, k - 1)):
            r = 2**192 - int(above * factor * 2**192)
            words = [(r >> shift) % 2**64 for shift in (128, 64, 0)]
            drawn = _discrete._blocks(Scripted(*words[1:]), _discrete._GAUSSIAN, np.array(words[:1], np.uint64))
            assert drawn.tolist() == [block]


def test_no_negative_zero_and_both_signs() -> None:
    def draw(k_word: int, u: int, sign: int) -> tuple[int, bool]:
        q = 2**63 // 5
        words = Scripted(k_word, 2 * u * q + sign, 0)
        values, accepted = _discrete._candidates(words, _discrete._GAUSSIAN, 5, 1)
        return int(values[0]), bool(accepted[0])

    assert draw(0, 0, 0) == (0, True)
    assert draw(0, 0, 1) == (0, False)
    assert draw(0, 3, 0) == (3, True) and draw(0, 3, 1) == (-3, True)
    assert draw(2**63 + 2**61, 2, 1) == (-7, True)  # the second block
    beyond = 2**64 - 1
    assert quotient(np.array([beyond], np.uint64), 5)[0] == 5
    assert not _discrete._candidates(Scripted(0, beyond, 0), _discrete._GAUSSIAN, 5, 1)[1][0]


def test_beyond_64_bits_is_an_error() -> None:
    r = 2**320 - int(Fraction(math.exp(-128.5)) * 2**320)  # K = 128 for the geometric blocks
    words = [(r >> shift) % 2**64 for shift in (256, 192, 128, 64, 0)]
    with pytest.raises(OverflowError, match="coarser granularity"):
        _discrete._candidates(Scripted(words[0], 0, 0, *words[1:]), _discrete._LAPLACE, 2**56, 1)
    with pytest.raises(ValueError, match="`s` is 0"):
        discrete_gaussian(Words(), 0, (1,))
    with pytest.raises(ValueError, match="`t` is 72057594037927937"):
        discrete_laplace(Words(), 2**56 + 1, (1,))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_draws_are_independent_of_their_neighbours_and_places(sampler: Callable) -> None:
    x = sampler(Words(KEY), 2**33, (10**6,)) / 2**33
    for y in (x, np.abs(x)):
        centred = (y - y.mean()) / y.std()
        for lag in (1, 2, 1000):
            assert abs((centred[lag:] * centred[:-lag]).sum()) < 4.5 * math.sqrt(len(x) - lag)
    stream = Words(KEY)  # the last of a few draws has the distribution of all
    last = np.array([sampler(stream, 2, (3,))[2] for _ in range(5_000)])
    assert pvalue(sampler, 2, last, 5) > 1e-6


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_waiting_tells_nothing_about_values(sampler: Callable) -> None:
    """The number of candidates up to an accepted one, against its size; and one draw always takes the same words."""
    values, accepted = _discrete._candidates(Words(KEY), DISTRIBUTIONS[sampler], 2**33, 10**6)
    at = np.flatnonzero(accepted)
    wait, size = np.diff(at), np.abs(values[at[1:]])
    assert abs(stats.spearmanr(wait, size).statistic) * math.sqrt(len(wait)) < 4.5
    rejected = np.abs(values[:-1][accepted[1:] & ~accepted[:-1]])  # the value before tells nothing either
    after = np.abs(values[1:][accepted[1:] & ~accepted[:-1]])
    assert abs(stats.spearmanr(rejected, after).statistic) * math.sqrt(len(after)) < 4.5

    stream = Counting()
    for _ in range(500):
        sampler(stream, 2**33, ())
    assert len(stream.asked) == 500 and len(set(stream.asked)) == 1


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_first_accepted_candidates_in_their_order(sampler: Callable) -> None:
    count = 2 * _discrete._CHUNK
    stream, replay = Counting(KEY), Words(KEY)
    drawn = sampler(stream, 5, (count,))
    batches = [_discrete._candidates(replay, DISTRIBUTIONS[sampler], 5, words // 3) for words in stream.asked]
    assert len(batches) > 2
    np.testing.assert_array_equal(drawn, np.concatenate([values[kept] for values, kept in batches])[:count])


@settings(max_examples=50)
@given(st.sampled_from(SAMPLERS), st.integers(1, 2**56), st.lists(st.integers(0, 4), max_size=3))
def test_types_and_shapes(sampler: Callable, scale: int, shape: list[int]) -> None:
    drawn = sampler(Words(), scale, tuple(shape))
    assert drawn.dtype == np.int64 and drawn.shape == tuple(shape)
    # Beyond 60 scales lies a draw with probability e^-60 or less.
    assert (np.abs(drawn) <= min(60 * scale, 2**63 - 1)).all()


EPSILONS = [1e-6, 0.1, math.log(3), 1.0, 5.0, 20.0, 50.0]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("k", [2, 3, 17, 1000])
def test_the_least_lie_that_keeps_the_ratio(k: int, epsilon: float) -> None:
    """In fractions: truth / lie <= e^epsilon, and one unit of 2^-128 less would break it."""
    low, high = exp_bounds(Fraction(epsilon), 120)
    threshold = lie_threshold(k, epsilon)

    def ratio(lies: int) -> Fraction:
        lie = Fraction(lies, 2**128)
        return (1 - lie) / (lie / (k - 1))

    assert 1 <= ratio(threshold) <= 1 / high  # 1 / high is the lower bound on e^epsilon
    assert ratio(threshold - 1) > 1 / low


def answer(stream: Words, symbol: int, num_symbols: int, epsilon: float) -> int:
    """Randomised response: subset selection of one symbol."""
    return int(select(stream, symbol, num_symbols, 1, epsilon)[0])


def test_randomised_response_in_frequencies_and_at_the_ends() -> None:
    stream = Words(KEY)
    counts = np.bincount([answer(stream, 2, 5, 1.0) for _ in range(20_000)], minlength=5)
    p = np.exp(np.arange(5) == 2, dtype=float)
    assert stats.chisquare(counts, p / p.sum() * 20_000).pvalue > 1e-6
    assert {answer(stream, 2, 5, math.inf) for _ in range(50)} == {2}
    assert {answer(stream, 2, 5, 1e6) for _ in range(50)} == {2} and lie_threshold(5, 1e6) == 1
    for symbol, size in ((5, 5), (-1, 5), (0, 0), (0, 2**32 + 1)):
        with pytest.raises(ValueError, match="`symbol` must be one of"):
            answer(stream, symbol, size, 1.0)
    for epsilon in (0.0, -1.0, math.nan, 2.0**-65):
        with pytest.raises(ValueError, match="`epsilon` is"):
            answer(stream, 0, 2, epsilon)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(("k", "d"), [(3, 2), (6, 2), (17, 8), (1000, 268)])
def test_the_least_lie_that_keeps_the_ratio_of_sets(k: int, d: int, epsilon: float) -> None:
    """In fractions: P(a set with the truth) / P(one without) <= e^epsilon, and a unit of 2^-128 less would break it."""
    low, high = exp_bounds(Fraction(epsilon), 120)
    threshold = lie_threshold(k, epsilon, d)

    def ratio(lies: int) -> Fraction:
        lie = Fraction(lies, 2**128)
        return (1 - lie) / math.comb(k - 1, d - 1) / (lie / math.comb(k - 1, d))

    assert 1 <= ratio(threshold) <= 1 / high
    assert ratio(threshold - 1) > 1 / low


def test_select_takes_every_set_alike_and_the_same_words() -> None:
    """All scripts of words for sets of 2 of 4 symbols: with the truth, each other once in 3; without, each pair."""
    k, d, epsilon = 4, 2, 0.3
    threshold, first, second = lie_threshold(k, epsilon, d), 2**63 // 3, 2**63 // 2
    for symbol in range(k):
        for coin in (threshold - 1, threshold):
            answers = []
            for i, j in itertools.product(range(3), range(2)):
                stream = Scripted(coin % 2**64, coin >> 64, 2 * i * first, 2 * j * second)
                answers.append(tuple(select(stream, symbol, k, d, epsilon).tolist()))
                assert not stream.script
            others = [x for x in range(k) if x != symbol]
            with_truth = [tuple(sorted((symbol, other))) for other in others]
            allowed = list(itertools.combinations(others, 2)) if coin < threshold else with_truth
            assert sorted(answers) == sorted(2 * allowed)


def wobble(t: float) -> float:
    """eta(t) = 2 sum_j exp(-2 pi^2 t^2 j^2): how far the normaliser Z(x) of rounding with parameter t strays from
    sqrt(2 pi) t, relatively."""
    return 2 * sum(math.exp(-2 * math.pi**2 * t * t * j * j) for j in range(1, 9))


def test_kappa() -> None:
    """The design notes' constant: Z(0) / Z(1/2) - 1 = 2 eta at t = 2, summed directly in 60 digits."""
    with localcontext() as context:
        context.prec = 60
        at = {
            x: sum(((-((Decimal(m) - x) ** 2)) / 8).exp() for m in range(-60, 61)) for x in (Decimal(0), Decimal("0.5"))
        }
        spread = float(at[Decimal(0)] / at[Decimal("0.5")] - 1)
    assert spread == pytest.approx(2 * wobble(2.0), rel=1e-12)
    kappa = -math.log1p(-wobble(2.0)) + 2 * wobble(2.0**16)
    assert 1e-34 < kappa < 3e-34


@pytest.mark.parametrize(("s", "t"), [(1.5, 0.5), (3.0, 0.5), (3.0, 0.6)])
def test_rounding_a_gaussian_gives_the_discrete_gaussian(s: float, t: float) -> None:
    """The lemma itself, by quadrature, at a t so small that its error term shows."""
    total = sum(math.exp(-n * n / (2 * s * s)) for n in range(-60, 61))

    def rounded(n: int) -> float:
        def integrand(x: float) -> float:
            z = sum(math.exp(-((m - x) ** 2) / (2 * t * t)) for m in range(math.floor(x) - 9, math.floor(x) + 11))
            return stats.norm.pdf(x, scale=math.sqrt(s * s - t * t)) * math.exp(-((n - x) ** 2) / (2 * t * t)) / z

        return integrate.quad(integrand, n - 9 * t, n + 9 * t, epsabs=0, epsrel=1e-10, limit=200)[0]

    logs = [math.log(math.exp(-n * n / (2 * s * s)) / total / rounded(n)) for n in range(4)]
    kappa = -math.log1p(-wobble(t)) + wobble(s)
    assert max(map(abs, logs)) <= kappa
    assert max(map(abs, logs)) > 1e-7  # the quadrature would see an error: it is good to 1e-10


def test_a_coin_is_the_product_of_smaller_ones_and_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, a coin of exponent 1e6 took .4 s, and one of 1e12 wrote down a number of 4e11 digits."""
    words, tosses = Words(bytes(32)), 4000
    assert not any(draw_bernoulli_exp(words, Fraction(10) ** size) for size in (3, 6, 12, 18))
    for most in (Fraction(64), Fraction(1, 3)):
        monkeypatch.setattr(_discrete, "_MAX_EXPONENT", most)
        heads = sum(draw_bernoulli_exp(words, Fraction(7, 10)) for _ in range(tosses))
        assert stats.binomtest(heads, tosses, math.exp(-0.7)).pvalue > 1e-4


def laplace_delta(shift: float, ratio: float) -> float:
    """The delta at ln(ratio) of Laplace noise on two numbers that are `shift` scales apart."""
    if ratio >= math.exp(shift):
        return 0.0
    return 1 - ratio if ratio <= math.exp(-shift) else 1 - math.sqrt(ratio * math.exp(-shift))


@pytest.mark.parametrize("scale", [1, 3, 20])
@pytest.mark.parametrize("steps", [(1,), (4,), (30,), (1, 1), (2, 3), (1, 1, 1)])
def test_discrete_laplace_noise_is_almost_as_good_as_laplace_noise(scale: int, steps: tuple[int, ...]) -> None:
    """At most 1/(4 t^2) scales more per coordinate that differs (docs/proofs/noise.md), and none would be too few."""
    n = {1: 40, 2: 25, 3: 12}[len(steps)] * (scale if len(steps) < 3 else 1) + max(steps)
    places, a = np.arange(-n, n + 1), math.exp(-1 / scale)
    law = (1 - a) / (1 + a) * a ** np.abs(places)
    zero = one = np.ones(1)
    for m in steps:
        moved = (1 - a) / (1 + a) * a ** np.abs(places - m)
        zero, one = np.outer(zero, law).ravel(), np.outer(one, moved).ravel()
    short = 0.0
    for epsilon in np.linspace(-sum(steps) / scale - 0.3, sum(steps) / scale + 0.3, 61):
        ratio = math.exp(epsilon)
        found = np.maximum(one - ratio * zero, 0.0).sum()
        cut_off = (1 + ratio) * (1 - min(zero.sum(), one.sum()))
        more = len(steps) / (4 * scale**2)
        assert found <= laplace_delta(sum(steps) / scale + more, ratio) + cut_off + 1e-12
        short = max(short, found - laplace_delta(sum(steps) / scale, ratio))
    assert short > 0 or len(steps) > 1
