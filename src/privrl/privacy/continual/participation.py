"""How far one person can move a sequence of running sums if they may return.

A person's terms x_1, ..., x_m, each of L2 norm at most D, go into blocks b_1 <= ... <= b_m of their choice, at least
`distance` blocks apart (0: several may fall into one block). With encoder E (the releases are B (E x + scale z)) they
move E x by sum_i E[:, b_i] (x) x_i, whose squared norm is sum_ij G[b_i, b_j] <x_i, x_j> with the Gram matrix
G = E^T E, at most D^2 sum_ij |G[b_i, b_j]|; equal terms attain it if G >= 0.

**Formal guarantee.** `largest` is at least the square root of the largest sum_ij |G[b_i, b_j]| over all patterns, so
adding or removing a person, for every pattern, moves E x by at most D times it. Replacing one person by another, with
patterns and terms of their own, moves E x by at most twice that (triangle inequality), and by at most sqrt 2 times that
if G >= 0 and any two terms of any two people have inner product at least 0: then the images have such inner products,
too.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

_MAX_TIMES = 2**20  # largest `times`, and largest product of blocks and `times`, so that `largest` takes seconds


@dataclass(frozen=True)
class Participation:
    """How often one person may take part, and the least distance between two of their blocks.

    Attributes:
        times: m, the largest number of terms of one person that count.
        distance: from one of a person's blocks to the next; 0 if nothing is known, so that all may be the same block.
    """

    times: int = 1
    distance: int = 0

    def __post_init__(self) -> None:
        if self.times < 1:
            raise ValueError(f"`times` is {self.times}; it must be at least 1.")
        if self.times > _MAX_TIMES:
            raise ValueError(f"`times` is {self.times:,}; it must be at most {_MAX_TIMES:,}.")
        if self.distance < 0:
            raise ValueError(f"`distance` is {self.distance}; it must be at least 0.")

    def earliest(self, steps: int) -> tuple[int, ...]:
        """The pattern 0, distance, 2 distance, ... as far as there are blocks."""
        return tuple(i * self.distance for i in range(self.times) if i * self.distance < steps)


ONCE = Participation()
"""Each person takes part once."""


def pattern_norm(gram: Float64[np.ndarray, "steps steps"], pattern: tuple[int, ...]) -> float:
    """sqrt(sum_ij |G[b_i, b_j]|) of one pattern of blocks."""
    return float(np.sqrt(np.abs(gram[np.ix_(pattern, pattern)]).sum()))


def largest(gram: Float64[np.ndarray, "steps steps"], participation: Participation) -> float:
    """An upper bound on `pattern_norm` over all patterns: exact if no two different blocks of one pattern meet.

    In sum_i sum_j |G[b_i, b_j]| the inner sum is at most r(b_i), the largest over patterns that hold block b_i; and the
    sum of r over a pattern is at most its largest over all patterns. Both are additive over blocks, so `_best` finds
    them by dynamic programming. If |G| is diagonal for all blocks of one pattern (distance at least the band of E),
    r(b) = G[b, b], and the bound is attained.
    """
    size, m, distance = np.abs(gram), participation.times, participation.distance
    steps = len(size)
    if steps * m > _MAX_TIMES:
        raise ValueError(
            f"Taking part {m:,} times in {steps:,} blocks has too many patterns to bound. Use fewer blocks, or a "
            "smaller `times`."
        )
    holding = np.empty(steps)
    for b in range(steps):
        before = _best(size[b, : b + 1][::-1], m, distance)  # before[k]: at most k blocks, b the last of them
        after = _best(size[b, b:], m, distance)
        holding[b] = max(before[k] + after[m + 1 - k] for k in range(1, m + 1)) - size[b, b]
    return float(np.sqrt(max(_best(holding[b:], m, distance)[m] for b in range(steps))))


def largest_sum(columns: Float64[np.ndarray, " steps"], participation: Participation) -> float:
    """The largest sum of L1 norms of the columns of a pattern, over all patterns: exact, by dynamic programming.

    Terms of L1 norm at most D in blocks b_1, ..., b_m move E x by at most D sum_i |E e_{b_i}|_1 in L1 norm. If E has
    no negative entries, equal terms without negative entries attain it.
    """
    m, distance, steps = participation.times, participation.distance, len(columns)
    if distance == 0:
        return m * float(columns.max())
    best = np.zeros(steps + distance)  # best[i]: of blocks i, i + 1, ..., with at most k of them
    for _ in range(min(m, -(-steps // distance))):
        taken = columns + best[distance:]
        best[:steps] = np.maximum.accumulate(taken[::-1])[::-1]
    return float(best[0])


def separate(steps: int, participation: Participation) -> float:
    """`largest` of the identity, exactly: sums of blocks, each with noise of its own.

    In blocks of their own m terms move m sums by 1 each, and in one block one sum by m.
    """
    if participation.distance == 0:
        return float(participation.times)
    return math.sqrt(min(participation.times, math.ceil(steps / participation.distance)))


def _best(weights: Float64[np.ndarray, " n"], m: int, distance: int) -> Float64[np.ndarray, " k"]:
    """For k = 0, ..., m: the largest sum of weights >= 0 of k or fewer blocks, at least `distance` apart, of which the
    first is block 0 (which counts as often as it is repeated)."""
    n = len(weights)
    best = np.zeros((m + 1, n + max(distance, 1)))  # best[k, i]: of blocks i, i + 1, ...
    first = np.zeros(m + 1)
    for k in range(1, m + 1):
        taken = weights + best[k - 1, distance : distance + n]
        best[k, :n] = np.maximum.accumulate(taken[::-1])[::-1]
        first[k] = taken[0]
    return first
