"""What a list of noisy releases reveals about one person, and how much noise a budget needs.

A release is written down as an `Event`. One person's loss is the adaptive composition of all events that touch them:
every event without a group and the events of *one* group, because groups are disjoint sets of people, split without
looking at their data (parallel composition). The cost of a list of events is that of the worst group.

- Gaussian releases about all people compose **exactly**: mu-Gaussian differential privacy, mu^2 = sum of the mu_i^2.
- Pure releases at delta = 0 add up: epsilon = sum of the epsilon_i.
- Shuffled answers alone have the bound of `shuffling.py`; together with other releases they count as local answers.
- All else is a convolution of privacy losses (`dp_accounting`), discretised so that it never reports too little.

`calibrate` is the inverse: it turns requests with weights and a budget into events that spend the budget.
"""

import functools
import math
from collections.abc import Callable, Collection, Sequence
from fractions import Fraction
from typing import TypeVar

from privrl.contracts.statistic import Adjacency
from privrl.privacy.accounting.events import Event, Request
from privrl.privacy.accounting.gdp import check, dominating_mu, gdp_epsilon, gdp_mu, zcdp_root
from privrl.privacy.accounting.losses import gaussian_norm, loss_distribution
from privrl.privacy.accounting.privacy_budget import Budget, BudgetError
from privrl.privacy.accounting.shuffling import shuffled_epsilon


def epsilon_of(events: Sequence[Event], delta: float, *, adjacency: Adjacency = "replace-one") -> float:
    """The epsilon at `delta` of everything in `events` together, for the person with the largest loss.

    Exact for unsampled Gaussian releases and for pure releases at `delta` = 0; an upper bound, tight to 1e-5 or so
    (sampled: 1e-4), otherwise. Infinite if something was released without noise. `adjacency` only matters to sampled
    releases.
    """
    check(0 <= delta < 1, f"`delta` is {delta}; it must lie in [0, 1).")
    return max(_epsilon(tuple(scope), delta, adjacency) for scope in _scopes(events))


def rho_of(events: Sequence[Event]) -> float:
    """The zCDP rho of everything in `events` together: mu^2/2 per Gaussian, epsilon^2/2 per pure release.

    Sampling does not lower a rho here: zCDP has no useful amplification by sampling, while the unsampled value stays
    an upper bound because Rényi divergence is jointly quasi-convex. Use `epsilon_of` to see the gain of sampling.
    """
    return max(math.fsum(event.times * event.parameter**2 / 2 for event in scope) for scope in _scopes(events))


def mu_of(events: Sequence[Event]) -> float | None:
    """The exact Gaussian-DP mu of `events`, or `None` if some event is not an unsampled Gaussian release."""
    if not all(event.mechanism == "gaussian" and event.sampling == 1 for event in events):
        return None
    return max(gaussian_norm(scope) for scope in _scopes(events))


def gdp_cost(events: Sequence[Event]) -> Fraction:
    """A mu^2 such that `events` together are mu-GDP, also if each is chosen after the results of the ones before.

    A Gaussian release costs its mu^2, whether or not it is sampled, and any other release the square of the mu that
    dominates its epsilon. The sum is exact.

    Raises:
        BudgetError: something is released without noise, or almost.
    """
    for event in events:
        if math.isinf(event.parameter):
            raise BudgetError(f"The release `{event.name}` has no noise, and no budget pays for it.")
    return max(sum((_gdp_square(event) for event in scope), Fraction(0)) for scope in _scopes(events))


def _gdp_square(event: Event) -> Fraction:
    mu = event.parameter if event.mechanism == "gaussian" else dominating_mu(event.parameter)
    if math.isinf(mu):
        raise BudgetError(f"The release `{event.name}` has epsilon {event.parameter:g}, and no budget pays for it.")
    return event.times * Fraction(mu) ** 2


_Item = TypeVar("_Item", Event, Request)


def _scopes(items: Sequence[_Item]) -> list[list[_Item]]:
    """The events that one person can be part of: all without a group, and those of one group, if there are any."""
    groups: list[str | None] = list(dict.fromkeys(item.group for item in items if item.group is not None))
    return [[item for item in items if item.group in (None, group)] for group in groups or [None]]


def _split(events: Sequence[Event]) -> tuple[float, float, bool]:
    """Total mu as if nothing were sampled, total epsilon of the pure-type events, and whether the mu is exact."""
    gaussian = [event for event in events if event.mechanism == "gaussian"]
    epsilon = sum(event.times * event.parameter for event in events if event.mechanism != "gaussian")
    exact = all(event.sampling == 1 or event.parameter == 0 for event in gaussian)
    return gaussian_norm(gaussian), float(epsilon), exact


def _only_shuffled(events: Sequence[Event]) -> Event | None:
    """The one shuffled release, if a person is part of nothing else."""
    return events[0] if len(events) == 1 and events[0].mechanism == "shuffled" and events[0].times == 1 else None


@functools.lru_cache(maxsize=1024)  # repetitions of one study calibrate and certify the same events
def _epsilon(events: tuple[Event, ...], delta: float, adjacency: Adjacency) -> float:
    mu, pure, exact = _split(events)
    # Basic composition without sampling: always valid, and exact if one of the two kinds is absent.
    simple = gdp_epsilon(mu, delta) + pure
    if shuffled := _only_shuffled(events):
        return min(simple, shuffled_epsilon(shuffled.parameter, shuffled.batch or 1, delta) if delta > 0 else simple)
    choice = all(event.mechanism == "exponential" for event in events)  # its epsilon is fixed, and there is no more
    if (exact and pure == 0) or choice or delta == 0 or math.isinf(simple):
        return simple
    losses, slack = loss_distribution(events, adjacency)
    return min(simple, float(losses.get_epsilon_for_delta(delta - slack))) if delta > slack else simple


def calibrate(requests: Sequence[Request], budget: Budget, adjacency: Adjacency = "replace-one") -> tuple[Event, ...]:
    """The least noise that `budget` pays for, split over `requests` by weight: one event per request, in order.

    Approximate and concentrated budgets share out squares, parameter_i^2 = t weight_i/times_i (for Gaussian releases,
    shares of mu^2 = 2 rho); pure ones share out epsilon, parameter_i = t weight_i/times_i. One common t is as large as
    the worst group allows. A choice (`"exponential"`) is the only release of its group: it has the budget's whole
    epsilon as a pure one (sqrt(2 rho) of a concentrated budget), and a weight means nothing.

    **Formal guarantee.** Under `adjacency`, the cost of the returned events (`epsilon_of` at the budget's delta, or
    `rho_of`) never exceeds the budget, and is at most 0.1% below it.
    """
    choices = {request.name for request in requests if request.mechanism == "exponential"}
    check_alone(requests, choices)
    whole = math.sqrt(2 * budget.rho) if budget.rho is not None else budget.epsilon
    assert whole is not None
    rest = iter(_shared(tuple(r for r in requests if r.name not in choices), budget, adjacency))
    return tuple(request.at(whole * (1 - 1e-12)) if request.name in choices else next(rest) for request in requests)


def check_alone(items: Sequence[_Item], choices: Collection[str]) -> None:
    """Refuses a choice that touches people whom another release touches too."""
    for scope in _scopes(items):
        names = [item.name for item in scope]
        if len(names) > 1 and set(names) & set(choices):
            raise BudgetError(
                f"The releases {names} touch the same people, and one of them is a choice, whose epsilon is that of "
                "the whole budget. Give the choice a `group` of its own, and give the other releases groups, too."
            )


def _shared(requests: Sequence[Request], budget: Budget, adjacency: Adjacency) -> tuple[Event, ...]:
    """The events of sums."""
    if not requests:
        return ()
    weight = max(sum(request.weight for request in scope) for scope in _scopes(requests))
    if budget.kind == "pure":
        assert budget.epsilon is not None
        for request in requests:
            if request.mechanism == "gaussian":
                raise BudgetError(
                    f"`{request.name}` requests Gaussian noise, which is never pure, and the budget is "
                    f"{budget}. Give a `delta` in (0, 1), or use Laplace noise."
                )
        t = budget.epsilon / weight * (1 - 1e-12)  # so that rounding of the sum cannot exceed the budget
        return tuple(request.at(t * request.weight / request.times) for request in requests)

    def events(t: float) -> tuple[Event, ...]:
        return tuple(request.at(t * math.sqrt(request.weight / request.times)) for request in requests)

    if budget.rho is not None:
        return events(math.sqrt(2 * budget.rho / weight) * (1 - 1e-12))
    assert budget.epsilon is not None
    if mu_of(events(1.0)) is not None:
        return events(gdp_mu(budget.epsilon, budget.delta) / math.sqrt(weight))
    start = zcdp_root(budget.epsilon, budget.delta) * math.sqrt(2 / weight)
    return events(_largest(lambda t: epsilon_of(events(t), budget.delta, adjacency=adjacency), budget.epsilon, start))


def _largest(cost: Callable[[float], float], target: float, t: float) -> float:
    """A t with 0.9995 target <= cost(t) <= target, for an increasing and nearly smooth cost, from a first guess.

    Costs are expensive, so: bracket, then interpolate between logarithms, with a bisection now and then for safety.
    """
    low, high, low_cost, high_cost = 0.0, math.inf, 0.0, math.inf
    for attempt in range(100):
        spent = cost(t)
        if spent <= target:
            low, low_cost = t, spent
            if spent >= 0.9995 * target:
                break
        else:
            high, high_cost = t, spent
        if math.isinf(high):
            t = low * min(max(target / max(low_cost, 1e-9 * target), 1.02), 2.0)
        elif low == 0:
            t = high * max(target / high_cost, 0.25) * 0.98
        elif low_cost < 0.05 * target or attempt % 4 == 3:
            t = math.sqrt(low * high)
        else:
            share = math.log(0.99975 * target / low_cost) / math.log(high_cost / low_cost)
            t = low * (high / low) ** min(max(share, 0.02), 0.98)
    return low
