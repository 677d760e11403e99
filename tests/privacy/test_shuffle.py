"""Amplification by shuffling: the bound holds for every shuffled mechanism that is small enough to enumerate."""

import itertools
import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privrl.privacy.accounting.shuffling import local_epsilon_for, shuffled_delta, shuffled_epsilon
from privrl.privacy.noise.subset import SubsetSelection


def randomiser(k: int, epsilon: float, d: int) -> np.ndarray:
    """Probability of every set under every symbol, for subset selection; d = 1 is randomised response."""
    p = float(SubsetSelection(k, epsilon, d).keep_probability)
    sets = list(itertools.combinations(range(k), d))
    inside, outside = p / math.comb(k - 1, d - 1), (1 - p) / math.comb(k - 1, d)
    return np.array([[inside if x in z else outside for z in sets] for x in range(k)])


def shuffled(rows: np.ndarray, people: tuple[int, ...]) -> dict[tuple[int, ...], float]:
    """The distribution of the multiset of answers of people with these symbols, by enumeration."""
    found: dict[tuple[int, ...], float] = {(0,) * rows.shape[1]: 1.0}
    for x in people:
        after: dict[tuple[int, ...], float] = defaultdict(float)
        for counts, chance in found.items():
            for y, p in enumerate(rows[x]):
                after[(*counts[:y], counts[y] + 1, *counts[y + 1 :])] += chance * p
        found = after
    return found


def divergence(one: dict, other: dict, epsilon: float) -> float:
    return sum(max(p - math.exp(epsilon) * other.get(y, 0.0), 0.0) for y, p in one.items())


@pytest.mark.parametrize("local", [0.3, 1.0, 2.5])
@pytest.mark.parametrize(("k", "d", "n"), [(2, 1, 2), (2, 1, 5), (2, 1, 9), (3, 1, 4), (4, 2, 3), (4, 1, 4)])
def test_no_shuffled_batch_breaks_the_bound(k: int, d: int, n: int, local: float) -> None:
    """Every data set of the others, every pair of records of one person, every epsilon on a grid."""
    rows = randomiser(k, local, d)
    worst = 0.0
    for others in itertools.combinations_with_replacement(range(k), n - 1):
        distributions = [shuffled(rows, (x, *others)) for x in range(k)]
        for epsilon in (0.0, 0.3 * local, 0.6 * local, 0.95 * local):
            bound = shuffled_delta(local, n, epsilon)
            for one, two in itertools.permutations(distributions, 2):
                exact = divergence(one, two, epsilon)
                assert exact <= bound * (1 + 1e-12)
                worst = max(worst, exact / bound)
    assert worst > 0.2  # the bound is of the right size


def test_queries_that_differ_and_follow_each_other_are_covered() -> None:
    """Two people, two queries dealt out at random; the second depends on the first answer. All answers in order."""
    local, k = 1.2, 3
    rows = randomiser(k, local, 1)

    def distribution(records: tuple[tuple[int, ...], ...]) -> dict[tuple[int, int], float]:
        found: dict[tuple[int, int], float] = defaultdict(float)
        for first, second in ((0, 1), (1, 0)):
            for y, z in itertools.product(range(k), repeat=2):
                asked = 1 + (y == 0)  # the second query is one of two others
                found[y, z] += 0.5 * rows[records[first][0], y] * rows[records[second][asked], z]
        return found

    records = list(itertools.product(range(k), repeat=3))
    for other in records[::4]:
        distributions = [distribution((mine, other)) for mine in records]
        for epsilon in (0.0, 0.5, 1.0):
            bound = shuffled_delta(local, 2, epsilon)
            assert max(divergence(a, b, epsilon) for a, b in itertools.permutations(distributions, 2)) <= bound


def test_the_sum_of_tails_is_the_divergence_of_the_two_numbers() -> None:
    """The definition of P and Q, summed point by point."""
    local, n, epsilon = 1.7, 40, 0.4
    w = math.exp(local)
    total = 0.0
    for c in range(n):
        weight = stats.binom.pmf(c, n - 1, 1 / w)
        a = np.concatenate([stats.binom.pmf(np.arange(c + 1), c, 0.5), [0.0]])
        up = np.concatenate([[0.0], a[:-1]])
        p, q = (w * up + a) / (w + 1), (up + w * a) / (w + 1)
        total += weight * np.maximum(p - math.exp(epsilon) * q, 0.0).sum()
    assert shuffled_delta(local, n, epsilon) == pytest.approx(total, rel=1e-9)


@settings(max_examples=12)
@given(local=st.floats(0.1, 5.0), n=st.integers(1, 3_000), share=st.floats(0.0, 1.0), delta=st.floats(1e-10, 0.1))
@pytest.mark.slow
def test_more_people_and_less_local_epsilon_never_harm(local: float, n: int, share: float, delta: float) -> None:
    epsilon = share * local
    assert shuffled_delta(local, 2 * n, epsilon) <= shuffled_delta(local, n, epsilon) + 3e-13
    assert shuffled_delta(0.9 * local, n, epsilon) <= shuffled_delta(local, n, epsilon) + 3e-13
    found = shuffled_epsilon(local, n, delta)
    assert found <= local and shuffled_delta(local, n, found) <= delta


@pytest.mark.parametrize("n", [1_000, 20_000])
@pytest.mark.parametrize("local", [0.5, 1.4])
def test_it_is_tighter_than_the_closed_form(n: int, local: float) -> None:
    """[Feldman, McMillan, Talwar 2021, Theorem 3.1], where it applies."""
    delta, w = 1e-6, math.exp(local)
    assert local <= math.log(n / (16 * math.log(2 / delta)))
    root = 8 * math.sqrt(w * math.log(4 / delta) / n) + 8 * w / n
    closed = math.log1p((w - 1) / (w + 1) * root)
    assert shuffled_epsilon(local, n, delta) <= closed


@pytest.mark.parametrize(("epsilon", "delta", "n"), [(1.0, 1e-6, 500), (1.0, 1e-6, 5_000), (0.3, 1e-5, 2_000)])
def test_the_inverse(epsilon: float, delta: float, n: int) -> None:
    local = local_epsilon_for(epsilon, delta, n)
    assert local > 1.5 * epsilon
    assert shuffled_epsilon(local, n, delta) <= epsilon * (1 + 1e-9)
    assert shuffled_epsilon(local * 1.001, n, delta) > epsilon
    assert local_epsilon_for(epsilon, delta, 2 * n) > local


def test_known_figures_and_the_ends() -> None:
    assert local_epsilon_for(1.0, 1e-6, 1_000) == pytest.approx(2.7242, abs=1e-3)
    assert shuffled_epsilon(2.0, 1_000, 1e-6) == pytest.approx(0.5455, abs=1e-3)
    assert shuffled_epsilon(2.0, 1, 1e-6) == pytest.approx(2.0, abs=1e-5)  # nobody to hide behind
    assert shuffled_delta(2.0, 10, 2.0) == 0.0
    assert local_epsilon_for(1.0, 1e-6, 5) == pytest.approx(1.0, abs=1e-4)
    assert math.isinf(shuffled_epsilon(math.inf, 10, 1e-6))
    for call in (
        lambda: shuffled_delta(0.0, 5, 1.0),
        lambda: shuffled_delta(1.0, 0, 1.0),
        lambda: shuffled_delta(1.0, 5, -1.0),
        lambda: shuffled_epsilon(1.0, 5, 0.0),
        lambda: local_epsilon_for(math.inf, 1e-6, 5),
        lambda: local_epsilon_for(1.0, 1.0, 5),
    ):
        with pytest.raises(ValueError, match="`"):
            call()
