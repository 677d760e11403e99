"""Sensitivities for people who take part several times: how far one person can move all of a curator's releases.

A person has at most m terms x_1, ..., x_m (`Participation`), each of norm at most C, the statistic's own for one record
and every query; neighbours differ in all of them, in the blocks that they fall into and in how many there are.

**Formal guarantee** (for all records, queries and patterns).

- *Running sums* through an encoder E move by at most C S, S = `sensitivity(participation)` of the mechanism, if the
  person is added or removed, and by twice that if they are replaced: the images of two people are both within C S of
  the image of no person. If all inner products of columns of E and of terms are at least 0, so are those of images, and
  the squared distance is at most the sum of two squared norms: sqrt 2 C S.
- *Sums of blocks* with independent noise are the same with E the identity (`separate`).
- *L1 norms*, for Laplace noise: sums of blocks together move by at most m C, or 2 m C. Running sums move by at most
  C S, or 2 C S, with S the largest sum of the L1 norms of a pattern's columns (`largest_sum`).
- *New queries about all people so far*: each answer moves by at most m C, 2 m C if replaced (sqrt 2 m C if terms have
  inner products at least 0), and each is paid for.

With m = 1 both people are in the same block, and the bound is the statistic's for two records.

The releases are adaptive: terms and blocks may depend on what was released before.
`docs/proofs/arrivals.md#people-who-return` shows that this costs nothing if the bound holds for every course of events.
"""

import math

import numpy as np
from jaxtyping import Float64

from privrl.contracts.release import Access
from privrl.contracts.statistic import AbstractStatistic, Adjacency
from privrl.privacy.continual.mechanisms import AbstractContinual
from privrl.privacy.continual.participation import Participation, largest, largest_sum, separate
from privrl.privacy.trust.channels import NoiseKind, sensitivity_of


def distance_of_people(
    statistic: AbstractStatistic,
    mechanism: NoiseKind,
    adjacency: Adjacency,
    participation: Participation,
    encoder: Float64[np.ndarray, "steps steps"] | None = None,
) -> float:
    """The factor of `reach` in the bound: the distance of two records, or that of two people's terms.

    Arguments:
        encoder: the encoder of running sums, if it may have negative entries.
    """
    if participation.times == 1:
        return sensitivity_of(statistic, mechanism, adjacency)
    one = sensitivity_of(statistic, mechanism, "add-remove")
    if adjacency == "add-remove":
        return one
    apart = mechanism == "gaussian" and statistic.nonnegative
    if apart and encoder is not None:
        apart = bool((encoder.T @ encoder >= 0.0).all())
    return one * (math.sqrt(2.0) if apart else 2.0)


def reach(mechanism: NoiseKind, access: Access, steps: int, participation: Participation) -> float:
    """How far terms of norm 1 move sums of blocks, or the answer to a query."""
    if mechanism == "laplace" or access == "rounds":
        return float(participation.times)
    return separate(steps, participation)


def encoded_reach(
    continual: AbstractContinual, encoder: Float64[np.ndarray, "steps steps"], participation: Participation
) -> float:
    """How far terms of norm 1 move running sums that are released through `encoder`, B^-1 A of the mechanism, rounded.

    For Laplace noise it is exact, in L1 norm. For Gaussian noise and people who take part once it is the largest column
    norm. Otherwise it is the bound for any matrix or, if the encoder is the mechanism's own, that of the mechanism,
    with m times the largest column norm of the rounding.
    """
    if continual.noise == "laplace":
        return largest_sum(np.abs(encoder).sum(axis=0), participation)
    if participation.times == 1:
        return math.sqrt(float((encoder**2).sum(axis=0).max()))
    bound, own = largest(encoder.T @ encoder, participation), continual.encoder()
    if own.shape != encoder.shape:
        return bound
    rounded = float(np.linalg.norm(encoder - own, axis=0).max())
    return min(bound, continual.sensitivity(participation) + participation.times * rounded)
