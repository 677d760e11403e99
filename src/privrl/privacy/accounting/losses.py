"""Distributions of the privacy loss of mixed releases, discretised so that they never report too little."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from privrl.contracts.statistic import Adjacency
from privrl.privacy.accounting.events import Event

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution


def loss_distribution(events: Sequence[Event], adjacency: Adjacency) -> "tuple[PrivacyLossDistribution, float]":
    """The distribution of the total privacy loss, and a bound on the rounding errors of its convolutions.

    Every loss is spread over a grid in the pessimistic way ("connect the dots"): it inflates the variance of each loss
    by about interval^2/6, so the grid follows the root mean square of the losses' sizes.
    """
    alike = Counter[Event]()
    for event in events:
        if event.parameter > 0 and not (event.mechanism == "gaussian" and event.sampling == 1):
            alike[replace(event, name="", group=None, times=1)] += event.times
    mu = gaussian_norm([event for event in events if event.mechanism == "gaussian" and event.sampling == 1])
    if mu > 0:  # unsampled Gaussian releases are one Gaussian release, exactly
        alike[Event("", "gaussian", mu)] = 1
    count = sum(alike.values())
    spread = math.sqrt(sum(times * _size(event) ** 2 for event, times in alike.items()))
    interval = spread * max(3e-3 / math.sqrt(count), 4e-5)
    for event in alike:
        if event.sampling < 1:  # these are built point by point, so they get at most some ten thousand points each
            interval = max(interval, _reach(event) / 2e4)
    atoms = [(times, event.parameter) for event, times in alike.items() if event.mechanism != "gaussian"]
    if atoms and (atom := max(atoms)[1]) > interval:  # losses of exactly +-epsilon lose nothing if they are on the grid
        interval = atom / math.ceil(atom / interval)

    total: "PrivacyLossDistribution | None" = None
    for event, times in alike.items():
        losses = _power(_loss(event, interval, adjacency), times)
        total = losses if total is None else total.compose(losses)
    # Measured on up to a million Gaussian releases, where the truth is known: convolutions by Fourier transform are off
    # by less than 1e-14 in delta, in either direction.
    return total, 1e-13 * len(alike)


def _power(losses: "PrivacyLossDistribution", times: int) -> "PrivacyLossDistribution":
    """`losses` composed with itself `times` times, a hundred at a time.

    At once, `dp_accounting` would take the `times`-th power of a Fourier transform, off by 1e-16 `times` and over a
    needlessly long range.
    """
    block = 100
    if times <= block:
        return losses.self_compose(times, tail_mass_truncation=1e-18)
    whole = _power(losses, times // block).self_compose(block, tail_mass_truncation=1e-18)
    return whole.compose(_power(losses, times % block)) if times % block else whole


def _size(event: Event) -> float:
    """The order of magnitude of one loss's standard deviation."""
    return event.sampling * event.parameter if event.mechanism == "gaussian" else min(event.parameter, 1.0)


def _reach(event: Event) -> float:
    """The order of magnitude of the largest loss of one sampled Gaussian release (ten standard deviations out)."""
    exponent = event.parameter * (10 + event.parameter)
    return float(np.logaddexp(math.log1p(-event.sampling), math.log(event.sampling) + exponent))


def _loss(event: Event, interval: float, adjacency: Adjacency) -> "PrivacyLossDistribution":
    """The privacy loss of one event.

    For Laplace noise on a vector the one-dimensional pair at the full L1 distance is the worst: the density is
    log-concave, so its trade-off functions f satisfy 1 - f_{s+t} = (1 - f_s) after (1 - f_t), which is the least that a
    chain of two steps can keep, and moving one coordinate after the other is such a chain.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld

    if event.mechanism == "gaussian":
        return _sampled_gaussian(event.parameter, event.sampling, interval, adjacency)
    if event.mechanism == "laplace":
        return pld.from_laplace_mechanism(1 / event.parameter, value_discretization_interval=interval)
    # Randomised response over k symbols has losses epsilon, -epsilon and 0; k = 2 is the worst epsilon-DP release.
    symbols = event.symbols or 2
    epsilon = event.parameter
    lie = math.exp(-epsilon) / (1 + (symbols - 1) * math.exp(-epsilon))
    masses: dict[int, float] = {}
    for loss, mass in ((epsilon, lie * math.exp(epsilon)), (-epsilon, lie), (0.0, (symbols - 2) * lie)):
        # Between the two grid points around it, in the proportions that keep the mass and the mean of e^-loss.
        below = math.floor(loss / interval)
        above_share = math.expm1(below * interval - loss) / math.expm1(-interval)
        for point, share in ((below, 1 - above_share), (below + 1, above_share)):
            if mass * share > 0:
                masses[point] = masses.get(point, 0.0) + mass * share
    return pld.PrivacyLossDistribution.create_from_rounded_probability(masses, 0.0, interval)


def _sampled_gaussian(mu: float, sampling: float, interval: float, adjacency: Adjacency) -> "PrivacyLossDistribution":
    """The privacy loss of a Gaussian release of a sum over a Poisson sample, noise of standard deviation 1.

    **Formal guarantee.** A term has norm at most C; who is not drawn (probability 1 - q) adds zero. Conditionally on
    the other people the outputs are P_x = (1-q) N(0, I) + q N(x, I) up to a common shift, and joint convexity of
    H_α(P‖Q) = sup_S P(S) - α Q(S) lets us stop there.

    *add-remove*: P_x against N(0, I); the worst |x| = C = mu, in both orders (well known).

    *replace-one*: P_a against P_b, |a|, |b| <= C = mu/2. The worst pair is a = C, b = -C on a line:
    1. For α >= 1, H_α(P_a‖P_b) = ∫ [q φ_a - α q φ_b - (α-1)(1-q) φ_0]_+. In polar coordinates of the plane of a and b
       (other directions factor out), on every circle φ_0 is constant and φ_a, φ_b are functions that decrease with
       the angle from a and from b. ∫[f - h]_+ = ∫f - ∫min(f, h), and by the layer-cake formula ∫min(f, h) on the circle
       is an integral of lengths of the overlap of two arcs centred at a and at b: it shrinks as the angle between
       them grows. So with |a| and |b| fixed, opposite directions are the worst.
    2. On a line with b <= 0 <= a the ratio P_a/P_b increases in x, so the best S is a half-line x > t, and P_a(x > t)
       grows with a while P_b(x > t) shrinks with b: a = C, b = -C.
    3. α < 1 follows from H_α(P‖Q) = 1 - α + α H_{1/α}(Q‖P) and the symmetry of the pair.
    With q = 1 it is N(C, 1) against N(-C, 1): the unsampled release. If only |a - b| <= 2C were known and not the
    norms, it would not do (terms far from zero reveal who was drawn): that is why `Event` takes 2C/scale.
    """
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution as pld

    replaced = adjacency == "replace-one" and sampling < 1
    return pld.from_gaussian_mechanism(
        1.0,
        sensitivity=mu / 2 if replaced else mu,  # under REPLACE_ONE, dp_accounting itself places terms at +-sensitivity
        sampling_prob=sampling,
        value_discretization_interval=interval,
        neighboring_relation=NeighboringRelation.REPLACE_ONE if replaced else NeighboringRelation.ADD_OR_REMOVE_ONE,
    )


def gaussian_norm(events: Sequence[Event]) -> float:
    """The mu of Gaussian releases together."""
    return math.sqrt(sum(event.times * event.parameter**2 for event in events))
