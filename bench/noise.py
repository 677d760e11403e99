"""Noise for real people: its price against simulated noise and OpenDP's integers, and whether its time betrays it."""

import time

import numpy as np
from scipy import stats

from bench.timing import Row, seconds
from privrl.privacy.noise.discrete import discrete_gaussian, discrete_laplace
from privrl.privacy.noise.random_words import Words

S = 2**33


def against_philox() -> Row:
    """Exact integer Gaussians from AES, against NumPy's float Gaussians from Philox. A price: at most 5 times."""
    simulated = np.random.Generator(np.random.Philox())
    return (
        "1,000,000 Gaussians: NumPy Philox floats / exact integers",
        seconds(lambda: simulated.standard_normal(10**6)),
        seconds(lambda: discrete_gaussian(Words(), S, (10**6,))),
    )


def against_laplace() -> Row:
    """Exact integer Laplace from AES, against NumPy's float Laplace from Philox."""
    simulated = np.random.Generator(np.random.Philox())
    return (
        "1,000,000 Laplace: NumPy Philox floats / exact integers",
        seconds(lambda: simulated.laplace(size=10**6)),
        seconds(lambda: discrete_laplace(Words(), S, (10**6,))),
    )


def against_opendp() -> Row:
    """Two samplers of the same distribution on the integers."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain, metric = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="i64")
    release, zeros = dp.m.make_gaussian(domain, metric, scale=float(S)), [0] * 10_000
    return (
        "10,000 integer Gaussians: OpenDP / exact integers",
        seconds(lambda: release(zeros), 2),
        seconds(lambda: discrete_gaussian(Words(), S, (10_000,))),
    )


def timing(calls: int = 20_000, size: int = 4) -> float:
    """Spearman's correlation of a call's time with the largest |noise| that it drew; standard error 1/sqrt(calls).

    The sampler's number of candidates is independent of its values; a scalar rejection sampler stands at about 0.2.
    """
    stream = Words()
    took, largest = np.empty(calls), np.empty(calls)
    for i in range(calls):
        started = time.perf_counter_ns()
        drawn = discrete_gaussian(stream, S, (size,))
        took[i] = time.perf_counter_ns() - started
        largest[i] = np.abs(drawn).max()
    correlation = float(stats.spearmanr(took, largest).statistic)
    print(f"time against |noise|, {calls:,} calls of {size}: Spearman {correlation:+.4f} (bound 0.03)")
    return correlation


if __name__ == "__main__":
    for row in (against_philox, against_laplace, against_opendp):
        label, plain, ours = row()
        print(f"{label}: {plain:.4g} s / {ours:.4g} s = {plain / ours:.2f}")
    timing(size=1)
    timing()
