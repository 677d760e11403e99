"""Sensitivities for people who take part several times: how far one person can move all of a curator's releases.

A person has at most m terms x_1, ..., x_m (`Participation`), each of norm at most C, the statistic's own for one record
and every query; neighbours differ in all of them, in the blocks that they fall into and in how many there are.

**Formal guarantee** (for all records, queries and patterns).

- *Running sums* through an encoder E move by at most C S, S = `sensitivity(participation)` of the mechanism, if the
  person is added or removed, and by twice that if they are replaced: the images of two people are both within C S of
  the image of no person. Let all inner products of columns of E be at least 0, and those of terms at least -k (the
  statistic's `least_inner_product`; k <= C^2 always holds). The inner product of the two images is then at least
  -k times that of the images of two people whose terms are all 1, which is at most S^2 by Cauchy-Schwarz. So the
  squared distance is at most 2 (C^2 + k) S^2. Two people with the pattern that attains S and terms of norm C and inner
  product -k attain it.
- *Sums of blocks* with independent noise are the same with E the identity (`separate`).
- *L1 norms*, for Laplace noise: sums of blocks together move by at most m C, or 2 m C. Running sums move by at most
  C S, or 2 C S, with S the largest sum of the L1 norms of a pattern's columns (`largest_sum`).
- *New queries about all people so far*: each answer moves by at most m C, m sqrt(2 (C^2 + k)) if replaced, and
  each is paid for.

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
    if mechanism == "laplace" or (encoder is not None and not bool((encoder.T @ encoder >= 0.0).all())):
        return 2.0 * one
    least = min(statistic.least_inner_product, 0.0)  # a visit that does not happen contributes zero
    return min(2.0 * one, math.sqrt(2.0 * (one**2 - least)))


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
