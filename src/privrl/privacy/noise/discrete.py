"""Noise on the integers, drawn exactly: discrete Gaussian, discrete Laplace, randomised response, random sets.

Floating-point noise reveals its input: one sum plus noise can be a number that another sum plus noise cannot be. The
draws here are integers with exactly the distribution that they claim, so every integer can come from every sum, with
the probability that the accountant assumes. Floats occur only as a filter, with a rigorous bound on their error.

One sampler serves both distributions. Let P(y) be proportional to exp(-phi(|y|/s)), where phi(x) = x^2/2 (Gaussian) or
phi(x) = x (Laplace), and write |y| = k s + u with 0 <= u < s. A candidate is

    k  with probability proportional to exp(-phi(k)),
    u  uniform on 0, ..., s - 1,
    a  random sign,

and it is accepted with probability exp(phi(k) - phi(k + u/s)), unless it is the negative zero. An accepted candidate is
y with probability proportional to exp(-phi(k)) exp(phi(k) - phi(k + u/s)) = exp(-phi(|y|/s)): the distribution,
exactly.

**Two comparisons decide a candidate**: of one uniform real R with the cumulative weights of k, and of another with the
acceptance probability. R is known by its first 64 bits. A filter decides almost always: the upper 40 bits of R lie in
another cell than any cumulative weight; R is further than 2^-40 from the acceptance probability in float64, whose
error is below 2^-47. What the filter leaves open is decided by `_Uniform.below`: intervals that contain the number,
in as many digits as it takes, against R extended by as many random bits as it takes. So the distribution has no error
and no cut tail, and the width of the filter changes no decision.

**Draws are independent.** The pairs (C_i, A_i), a candidate and whether it is accepted, are independent with one
distribution. They are decided where they stand, and the first n accepted ones are returned, in their order. For T_1 <
T_2 < ... the accepted positions, the probability that T_j = t_j and C_{T_j} = c_j for all j is the product of P(A = 0)
over the rejected positions and of P(A = 1) P(C = c_j | A = 1) over j: values are independent of each other and of the
positions, with the distribution of C given A = 1. How many candidates are made at a time depends on how many values are
missing, that is on positions only. (To put candidates that need the exact comparison behind the others would break
this: they would more often be the last ones, which are cut off.)

**Time reveals nothing about values.** It depends on the number of candidates, which is independent of the values
(above), and every candidate goes through the same array operations whether it is accepted or not. Only the exact
comparison takes longer. Fewer than one candidate in 2^35 needs it, and per candidate that bounds the total variation
distance between time and values as they are and independent ones.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from math import ceil, inf, isqrt, prod

import numpy as np
from jaxtyping import Bool, Float64, Int64, UInt64

from privrl.privacy.noise.random_words import Words, quotient

_BITS = 40  # bits of a word that look up k
_BAND = 2.0**-40  # distance from the acceptance probability within which floats do not decide
_CHUNK = 1 << 15  # candidates at a time: their arrays stay in cache
_MAX_SCALE = 2**56
_TRUTH_BITS = 128  # bits of the draw that decides whether an answer is true
_MAX_EXPONENT = Fraction(64)  # the largest exponent of one Bernoulli draw


@dataclass(frozen=True)
class _Distribution:
    """The exponent phi, exactly; its rise phi(k + x) - phi(k), in floats; and how many candidates are accepted."""

    phi: Callable[[Fraction], Fraction]
    rise: Callable[[Float64[np.ndarray, " n"], Float64[np.ndarray, " n"]], Float64[np.ndarray, " n"]]
    rate: float  # a little below the truth, which is sqrt(pi/2) / sum exp(-k^2/2) = 0.7148 and 1 - 1/e or more


_GAUSSIAN = _Distribution(lambda x: x * x / 2, lambda k, x: x * (k + 0.5 * x), 0.71)
_LAPLACE = _Distribution(lambda x: x, lambda k, x: x, 0.63)


def discrete_gaussian(words: Words, s: int, shape: tuple[int, ...]) -> Int64[np.ndarray, "..."]:
    """Independent integers with P(n) proportional to exp(-n^2 / (2 s^2)), for an integer s from 1 to 2^56.

    **Formal guarantee.** Added to an integer vector of L2 sensitivity D it is rho-zCDP with rho = D^2 / (2 s^2). For
    s >= 2^16 it is within a factor exp(3e-34) per coordinate and point of a post-processing of N(0, s^2 - 4), so it is
    mu-GDP with mu = D / sqrt(s^2 - 4), up to that factor; the proof is in `docs/proofs/noise.md`.

    A number beyond 2^63 raises `OverflowError`; the probability is below e^-8000 at the largest scale.
    """
    return _draw(words, _GAUSSIAN, _checked("s", s), shape)


def discrete_laplace(words: Words, t: int, shape: tuple[int, ...]) -> Int64[np.ndarray, "..."]:
    """Independent integers with P(n) proportional to exp(-|n| / t), for an integer t from 1 to 2^56.

    **Formal guarantee.** Added to an integer vector of L1 sensitivity D it is epsilon-DP with epsilon = D / t.

    A number beyond 2^63 raises `OverflowError`; the probability is below e^-126 at the largest scale.
    """
    return _draw(words, _LAPLACE, _checked("t", t), shape)


def select(words: Words, symbol: int, num_symbols: int, size: int, epsilon: float) -> Int64[np.ndarray, " d"]:
    """Subset selection: `size` of the symbols 0, ..., num_symbols - 1, sorted; the true one is probably among them.

    With `size` 1 this is randomised response.

    The probability that it is not is `lie_threshold` / 2^128. The others are the first of an exactly uniform sequence
    of distinct wrong symbols. The same random words are drawn whether the truth is in the set or not.

    **Formal guarantee.** The set is epsilon-locally private: its probabilities under two symbols have a ratio of at
    most e^epsilon, rounding included (see `SubsetSelection` for the proof). `epsilon=inf` with `size` 1 hides nothing.
    """
    if not (0 <= symbol < num_symbols <= 2**32 and 1 <= size < num_symbols):
        raise ValueError(
            f"`symbol` must be one of 0, ..., `num_symbols` - 1, `num_symbols` = {num_symbols} at most 2**32, and "
            f"`size` = {size} at least 1 and below it."
        )
    threshold = lie_threshold(num_symbols, epsilon, size)
    chance = int.from_bytes(words.take(_TRUTH_BITS // 64).tobytes(), "little")
    others = [other for other in range(num_symbols) if other != symbol]
    for i in range(size):  # the first steps of a Fisher-Yates shuffle
        j = i + int(words.below(num_symbols - 1 - i, 1)[0])
        others[i], others[j] = others[j], others[i]
    kept = (symbol, others[size - 1])[chance < threshold]
    return np.sort(np.array([*others[: size - 1], kept], np.int64))


def draw_bernoulli_exp(words: Words, exponent: Fraction) -> bool:
    """Draws true with probability exactly exp(-exponent), for an exponent of 0 or more.

    The draw is the conjunction of independent draws with exponents of at most `_MAX_EXPONENT`, of which the first
    almost always decides. So exp(-exponent), which has exponent/2.3 digits, is never written out.
    """
    while exponent > _MAX_EXPONENT:
        if not _draw_once(words, _MAX_EXPONENT):
            return False
        exponent -= _MAX_EXPONENT
    return _draw_once(words, exponent)


def _draw_once(words: Words, exponent: Fraction) -> bool:
    return _Uniform(words, int(words.take(1)[0])).below(functools.partial(_exp, exponent))


@functools.lru_cache(maxsize=256)
def lie_threshold(num_symbols: int, epsilon: float, size: int = 1) -> int:
    """The probability of a lie, (k - d) / (d e^epsilon + k - d) for sets of d of k symbols, in units of 2^-128.

    It is rounded up. More lies do not weaken privacy as long as the truth stays the likeliest answer, which
    epsilon >= 2^-64 ensures.
    """
    if not epsilon >= 2.0**-64:
        raise ValueError(f"`epsilon` is {epsilon}; it must be at least 2**-64, or `inf`.")
    if epsilon == inf:
        return 0
    others = Fraction(num_symbols - size, size)
    lies = others * _exp(Fraction(epsilon), 60)[1]  # against one truth; the upper bound, so that lies are not too few
    return ceil(lies / (1 + lies) * 2**_TRUTH_BITS)


def _checked(name: str, scale: int) -> int:
    if not 1 <= scale <= _MAX_SCALE:
        raise ValueError(
            f"`{name}` is {scale}; it must be an integer from 1 to 2**56. Choose a granularity for which noise spans "
            "some 2**32 steps."
        )
    return scale


def _draw(words: Words, distribution: _Distribution, scale: int, shape: tuple[int, ...]) -> Int64[np.ndarray, "..."]:
    """Draws candidates and returns the first accepted ones, in their order."""
    count = prod(shape)
    out, have = np.empty(count, np.int64), 0
    while have < count:
        missing = count - have
        # Almost always enough for all missing values, so that small requests of one size take the same time.
        batch = min(_CHUNK, int(missing / distribution.rate) + 4 * isqrt(missing) + 32)
        values, accepted = _candidates(words, distribution, scale, batch)
        kept = np.compress(accepted, values)[:missing]
        out[have : have + len(kept)] = kept
        have += len(kept)
    return out.reshape(shape)


def _candidates(
    words: Words, distribution: _Distribution, scale: int, count: int
) -> tuple[Int64[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    """Draws independent candidates from three words each, and decides which of them are accepted."""
    which, where, whether = words.take(3 * count).reshape(3, count)
    k = _blocks(words, distribution, which)
    if int(k.max(initial=0)) > (2**63 - 1) // scale - 1:
        raise OverflowError(f"Noise of scale {scale} went beyond 64 bits. Use a coarser granularity.")
    u = quotient(where, scale)
    negative = (where & np.uint64(1)).view(np.int64)
    # `quotient` may exceed the scale: x > 1 is harmless here, and refused below.
    chance = np.exp(-distribution.rise(k.astype(np.float64), u * (1.0 / scale)))
    margin = chance - (whether >> np.uint64(11)).view(np.int64) * 2.0**-53
    accepted = margin > 0.0
    for i in np.flatnonzero(np.abs(margin) <= _BAND):
        block, x = Fraction(int(k[i])), Fraction(int(u[i]), scale)
        exponent = distribution.phi(block + x) - distribution.phi(block)
        accepted[i] = _Uniform(words, int(whether[i])).below(functools.partial(_exp, exponent))
    size = k * scale + u
    accepted &= (u < scale) & (size >= negative)
    return (size ^ -negative) + negative, accepted


def _blocks(words: Words, distribution: _Distribution, first: UInt64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
    """k with probability proportional to exp(-phi(k)): the number of cumulative weights at or below a uniform real."""
    cells = (first >> np.uint64(64 - _BITS)).view(np.int64)
    k, unsure = np.zeros(len(first), np.int8), np.zeros(len(first), bool)
    for edge in _edges(distribution, _BITS):
        k += cells > edge
        unsure |= cells == edge
    blocks = k.astype(np.int64)
    for i in np.flatnonzero(unsure):
        exact, block = _Uniform(words, int(first[i])), 0
        while not exact.below(functools.partial(_cumulative, distribution, block)):
            block += 1
        blocks[i] = block
    return blocks


@functools.cache
def _edges(distribution: _Distribution, bits: int) -> tuple[int, ...]:
    """The cells of width 2^-bits that hold a cumulative weight; the last of them, 2^bits - 1, holds the whole tail."""
    edges: list[int] = []
    while not edges or edges[-1] < 2**bits - 1:
        low, high = (int(bound * 2**bits) for bound in _cumulative(distribution, len(edges), 60))
        if low != high:
            raise ArithmeticError("60 digits do not separate a cell from its neighbour.")
        edges.append(low)
    return tuple(edges)


@functools.lru_cache(maxsize=1024)
def _cumulative(distribution: _Distribution, k: int, digits: int) -> tuple[Fraction, Fraction]:
    """Bounds on the sum of exp(-phi(j)) over j <= k, divided by the sum over all j."""
    low = high = head_low = head_high = Fraction(0)
    j, step = 0, (Fraction(1), Fraction(1))
    while j <= k or step[1] > Fraction(1, 10**digits):
        step = _exp(distribution.phi(Fraction(j)), digits)
        low, high = low + step[0], high + step[1]
        if j == k:
            head_low, head_high = low, high
        j += 1
    # Weights fall by a factor of e^(-1/2) or more at each step, so those from j on sum to less than 3 exp(-phi(j)).
    tail = 3 * _exp(distribution.phi(Fraction(j)), digits)[1]
    return head_low / (head_low + high - head_high + tail), head_high / (head_high + low - head_low)


def _exp(exponent: Fraction, digits: int) -> tuple[Fraction, Fraction]:
    """Bounds on exp(-exponent), relatively closer than 10^-digits to each other, for an exponent of 0 or more.

    `decimal` rounds quotients and exponentials correctly: with r = 10^(1 - precision), the exponent a is off by at most
    a r, and the exponential by a factor of at most 1 + r, so the relative error is below 2 (a + 1) r.
    """
    if exponent == 0:
        return Fraction(1), Fraction(1)
    size = ceil(exponent) + 1
    precision = digits + len(str(size)) + 3
    context = Context(precision, ROUND_HALF_EVEN, MIN_EMIN, MAX_EMAX)
    ratio = context.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    value = Fraction(context.exp(ratio.copy_negate()))
    error = value * 2 * size / 10 ** (precision - 1)
    return value - error, value + error


class _Uniform:
    """A uniform real in [0, 1), known by its first bits. More bits are drawn if a comparison needs them."""

    def __init__(self, words: Words, word: int) -> None:
        self._words, self._value, self._bits = words, word, 64

    def below(self, bounds: Callable[[int], tuple[Fraction, Fraction]]) -> bool:
        """Whether it lies below the number that `bounds(digits)` encloses; both are refined until it is certain."""
        while True:
            low, high = bounds(self._bits // 3 + 8)  # 10^-digits is far below 2^-bits
            scale = 2**self._bits
            if self._value + 1 <= low * scale:
                return True
            if self._value >= high * scale:
                return False
            self._value = (self._value << 64) | int(self._words.take(1)[0])
            self._bits += 64
