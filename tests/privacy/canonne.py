"""The discrete Gaussian by integers alone: rejection as in Canonne, Kamath and Steinke, "The Discrete Gaussian for
Differential Privacy" (2020), one draw at a time. Slow and simple; a cross-check of the sampler that is fast.

It takes its randomness from a `random.Random`, so that it shares nothing with the code it checks.
"""

import random
from fractions import Fraction


def bernoulli(source: random.Random, chance: Fraction) -> bool:
    return source.randrange(chance.denominator) < chance.numerator


def bernoulli_exp(source: random.Random, gamma: Fraction) -> bool:
    """True with probability exp(-gamma): the parity of how long a chain of coins gamma/1, gamma/2, ... runs."""
    while gamma > 1:
        if not bernoulli_exp(source, Fraction(1)):
            return False
        gamma -= 1
    k = 1
    while bernoulli(source, gamma / k):
        k += 1
    return k % 2 == 1


def laplace(source: random.Random, t: int) -> int:
    """P(n) proportional to exp(-|n| / t)."""
    while True:
        u = source.randrange(t)
        if not bernoulli_exp(source, Fraction(u, t)):
            continue
        v = 0
        while bernoulli_exp(source, Fraction(1)):
            v += 1
        size, negative = u + t * v, bernoulli(source, Fraction(1, 2))
        if size or not negative:
            return -size if negative else size


def gaussian(source: random.Random, s: int) -> int:
    """P(n) proportional to exp(-n^2 / (2 s^2)): a discrete Laplace of scale s + 1, thinned."""
    t = s + 1
    while True:
        y = laplace(source, t)
        if bernoulli_exp(source, (abs(y) - Fraction(s * s, t)) ** 2 / (2 * s * s)):
            return y
