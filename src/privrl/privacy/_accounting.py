"""What a list of noisy releases reveals about one person, and how much noise a budget asks for.

A release is written down as an `Event`. One person's loss is the adaptive composition of all events that touch them:
every event without a group and the events of *one* group, because groups are disjoint sets of people, split without
looking at their data (parallel composition). The cost of a list of events is that of the worst group.

- Gaussian releases seen by everybody compose **exactly**: mu-Gaussian differential privacy, mu^2 = sum of the mu_i^2.
- Pure releases at delta = 0 add up: epsilon = sum of the epsilon_i.
- Everything else is a convolution of privacy losses (`dp_accounting`), discretised so that it never reports too little.

`calibrate` goes the other way: from requests with weights and a budget to events that spend the budget.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from privrl.privacy._budget import Budget, BudgetError
from privrl.privacy._release import Adjacency

Mechanism = Literal["gaussian", "laplace", "randomised-response", "pure", "none"]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(5)


# ---------------------------------------------------------------------------------------------- Gaussian, exactly


def _log_gdp_delta(mu: float, epsilon: float) -> float:
    """log of `gdp_delta`.

    With a = mu/2 - epsilon/mu and b = a - mu we have epsilon - b^2/2 = -a^2/2, so both terms share the factor
    e^{-a^2/2}: delta = e^{-a^2/2} (erfcx(-a/√2) - erfcx(-b/√2)) / 2 with the scaled complementary error function.
    """
    from scipy.special import erfcx, ndtr

    a = mu / 2 - epsilon / mu
    u, width = -a / math.sqrt(2), mu / math.sqrt(2)
    if a > 5:  # erfcx(u) would overflow, and there is nothing to cancel: delta is close to 1
        return math.log(float(ndtr(a)) - math.exp(-a * a / 2) * float(erfcx(u + width)) / 2)
    if mu < 0.1:  # the two terms agree in most digits: integrate -erfcx'(s) = 2/√π - 2 s erfcx(s) between them instead
        s = u + width * (_NODES + 1) / 2
        difference = float(_WEIGHTS @ (2 / math.sqrt(math.pi) - 2 * s * erfcx(s))) * width / 2
    else:
        difference = float(erfcx(u) - erfcx(u + width))
    return -a * a / 2 + math.log(difference / 2) if difference > 0 else -math.inf


def gdp_delta(mu: float, epsilon: float) -> float:
    """The exact delta at `epsilon` of a Gaussian release with sensitivity/scale `mu`.

    delta = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu).
    """
    _check(mu >= 0, f"`mu` is {mu}; it must be a number of at least 0.")
    _check(epsilon >= 0, f"`epsilon` is {epsilon}; it must be a number of at least 0.")
    if mu == 0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    return math.exp(_log_gdp_delta(mu, epsilon)) if math.isfinite(epsilon) else 0.0


def gdp_epsilon(mu: float, delta: float) -> float:
    """The exact epsilon at `delta` of a Gaussian release with sensitivity/scale `mu`, rounded up in the last digits."""
    _check(mu >= 0, f"`mu` is {mu}; it must be a number of at least 0.")
    _check(0 <= delta < 1, f"`delta` is {delta}; it must lie in [0, 1).")
    if mu == 0 or (delta > 0 and math.isfinite(mu) and _log_gdp_delta(mu, 0.0) <= math.log(delta)):
        return 0.0
    if delta == 0 or math.isinf(mu):
        return math.inf
    enough = zcdp_epsilon(mu * mu / 2, delta)
    return _bisect(lambda epsilon: _log_gdp_delta(mu, epsilon) > math.log(delta), 0.0, enough)[1]


def gdp_mu(epsilon: float, delta: float) -> float:
    """The largest sensitivity/scale that (`epsilon`, `delta`) pays for; accounted back, it never costs more."""
    _check(0 <= epsilon < math.inf, f"`epsilon` is {epsilon}; it must be a finite number of at least 0.")
    _check(0 < delta < 1, f"`delta` is {delta}; it must lie in (0, 1): Gaussian noise is never pure.")
    low = _zcdp_root(epsilon, delta) * math.sqrt(2)
    high = max(2 * low, delta)
    while _log_gdp_delta(high, epsilon) <= math.log(delta):
        low, high = high, 2 * high
    # The last 1e-10 covers rounding, so that accounting for the answer never exceeds what was asked.
    return _bisect(lambda mu: _log_gdp_delta(mu, epsilon) <= math.log(delta), low, high)[0] * (1 - 1e-10)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """epsilon = rho + 2 sqrt(rho ln(1/delta)), the simple conversion from zCDP; for comparison only.

    Valid for every rho-zCDP release but loose: for Gaussian releases `gdp_epsilon` is exact. It exists to show what a
    published analysis would have claimed.
    """
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


def rdp_epsilon(rho: float, delta: float) -> float:
    """The best epsilon that Rényi divergences a rho (all orders a > 1) give at `delta`; for comparison only.

    Tighter than `zcdp_epsilon` and still loose for Gaussian releases, where `gdp_epsilon` is exact.
    """
    from dp_accounting.rdp import compute_epsilon

    if rho == 0:
        return 0.0
    # The optimum is near order 1 + sqrt(ln(1/delta)/rho); dp_accounting does not use orders below 1.01.
    orders = 1 + math.sqrt(math.log(1 / delta) / rho) * np.geomspace(0.05, 20, 4001)
    orders = np.append(orders[orders > 1.01], 1.02)
    return float(compute_epsilon(orders, orders * rho, delta)[0])


def zcdp_rho(epsilon: float, delta: float) -> float:
    """The rho that `zcdp_epsilon` takes to epsilon: what a paper would spend for (epsilon, delta)."""
    return _zcdp_root(epsilon, delta) ** 2


def _zcdp_root(epsilon: float, delta: float) -> float:
    """The square root of the rho at which `zcdp_epsilon(rho, delta)` is `epsilon`, without cancellation."""
    log_inverse = math.log(1 / delta)
    return epsilon / (math.sqrt(log_inverse + epsilon) + math.sqrt(log_inverse))


def _bisect(left: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """The two neighbours of the point where `left` turns from true (at `low`) to false (at `high`)."""
    for _ in range(2000):
        middle = (low + high) / 2
        if high - low <= 1e-13 * high or not low < middle < high:
            break
        low, high = (middle, high) if left(middle) else (low, middle)
    return low, high


# ------------------------------------------------------------------------------------------------------- Events


@dataclass(frozen=True)
class Event:
    """One release (or `times` alike) as the accountant sees it.

    Arguments:
        name: what the release is called in the ledger.
        mechanism: the law of the noise. `"pure"` is any release known only to be epsilon-differentially private;
            `"none"` is a release without noise.
        parameter: L2 sensitivity over standard deviation (mu) for `"gaussian"`; epsilon for the others (for
            `"laplace"`: L1 sensitivity over scale); infinite for `"none"`.
        times: how often one person is touched by it.
        group: events of different groups touch disjoint people; `None` touches everybody.
        sampling: each release sees each person with this probability, independently; Gaussian only.
        symbols: the number of possible answers of randomised response.

    **Formal guarantee.** The sensitivity inside `parameter` is that of the neighbouring relation the events are
    accounted under, whatever the mechanism. With `sampling` < 1 a person who is not drawn contributes zero, so what
    counts is the norm C of one term: `parameter` is C/scale under add-remove and **2C/scale** under replace-one, even
    where two terms can never be 2C apart (see `_sampled_gaussian`).
    """

    name: str
    mechanism: Mechanism
    parameter: float
    times: int = 1
    group: str | None = None
    sampling: float = 1.0
    symbols: int | None = None

    def __post_init__(self) -> None:
        where = f"of event `{self.name}`"
        _check_mechanism(self.name, self.mechanism)
        _check(self.parameter >= 0, f"`parameter` {where} is {self.parameter}; it must be a number of at least 0.")
        _check(
            self.mechanism != "none" or math.isinf(self.parameter),
            f"`parameter` {where} is {self.parameter}; a release without noise has an infinite one.",
        )
        _check(self.times >= 1, f"`times` {where} is {self.times}; leave an event that never happens out of the list.")
        _check(0 < self.sampling <= 1, f"`sampling` {where} is {self.sampling}; it must lie in (0, 1].")
        _check(
            self.sampling == 1 or self.mechanism == "gaussian",
            f"`sampling` {where} is {self.sampling}, which is accounted for Gaussian noise only, and its mechanism is "
            f"`{self.mechanism}`. Use Gaussian noise, or `sampling=1` (valid, without amplification).",
        )
        if self.mechanism == "randomised-response":
            _check(
                self.symbols is not None and self.symbols >= 2,
                f"`symbols` {where} is {self.symbols}; randomised response needs the number of answers, at least 2.",
            )
        else:
            _check(self.symbols is None, f"`symbols` {where} is {self.symbols}; only randomised response has symbols.")

    def to_json(self) -> dict[str, Any]:
        """A dictionary of plain JSON values; an infinite parameter is written `"inf"`, for JSON has no infinity."""
        return asdict(self) | {"parameter": self.parameter if math.isfinite(self.parameter) else "inf"}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Event":
        """The event that `to_json` wrote."""
        _check_mechanism(content["name"], content["mechanism"])
        return cls(**(content | {"parameter": float(content["parameter"])}))


@dataclass(frozen=True)
class Request:
    """A release whose noise is still to be chosen: an `Event` with a share of the budget instead of a parameter.

    `weight` is the share of all `times` releases together, relative to the other requests.
    """

    name: str
    mechanism: Mechanism
    weight: float = 1.0
    times: int = 1
    group: str | None = None
    sampling: float = 1.0
    symbols: int | None = None

    def __post_init__(self) -> None:
        _check(
            self.mechanism != "none",
            f"Request `{self.name}` asks for a release without noise, which no budget pays for.",
        )
        _check(
            0 < self.weight < math.inf,
            f"`weight` of request `{self.name}` is {self.weight}; a share must be a finite number above 0.",
        )
        self.at(1.0)

    def at(self, parameter: float) -> Event:
        """The event that this request becomes at `parameter`."""
        return Event(self.name, self.mechanism, parameter, self.times, self.group, self.sampling, self.symbols)


def epsilon_of(events: Sequence[Event], delta: float, *, adjacency: Adjacency = "replace-one") -> float:
    """The epsilon at `delta` of everything in `events` together, for the person who pays most.

    Exact for unsampled Gaussian releases and for pure releases at `delta` = 0; an upper bound, tight to 1e-5 or so
    (sampled: 1e-4), otherwise. Infinite if something was released without noise. `adjacency` only matters to sampled
    releases.
    """
    _check(0 <= delta < 1, f"`delta` is {delta}; it must lie in [0, 1).")
    return max(_epsilon(scope, delta, adjacency) for scope in _scopes(events))


def delta_of(events: Sequence[Event], epsilon: float, *, adjacency: Adjacency = "replace-one") -> float:
    """The delta at `epsilon` of everything in `events` together; exact or an upper bound as for `epsilon_of`."""
    _check(epsilon >= 0, f"`epsilon` is {epsilon}; it must be a number of at least 0.")
    return max(_delta(scope, epsilon, adjacency) for scope in _scopes(events))


def rho_of(events: Sequence[Event]) -> float:
    """The zCDP rho of everything in `events` together: mu^2/2 per Gaussian, epsilon^2/2 per pure release.

    Sampling does not lower a rho here: zCDP has no useful amplification by sampling, while the unsampled value stays
    an upper bound because Rényi divergence is jointly quasi-convex. Use `epsilon_of` to see the gain of sampling.
    """
    return max(math.fsum(event.times * event.parameter**2 / 2 for event in scope) for scope in _scopes(events))


def mu_of(events: Sequence[Event]) -> float | None:
    """The exact Gaussian-DP mu of `events`, or `None` where some event is not an unsampled Gaussian release."""
    if not all(event.mechanism == "gaussian" and event.sampling == 1 for event in events):
        return None
    return max(_norm(scope) for scope in _scopes(events))


_Item = TypeVar("_Item", Event, Request)


def _scopes(items: Sequence[_Item]) -> list[list[_Item]]:
    """What one person can meet: everything ungrouped, with one of the groups if there are any."""
    groups: list[str | None] = list(dict.fromkeys(item.group for item in items if item.group is not None))
    return [[item for item in items if item.group in (None, group)] for group in groups or [None]]


def _norm(events: Sequence[Event]) -> float:
    return math.sqrt(sum(event.times * event.parameter**2 for event in events))


def _split(events: Sequence[Event]) -> tuple[float, float, bool]:
    """Total mu as if nothing were sampled, total epsilon of the pure-type events, and whether the mu is exact."""
    gaussian = [event for event in events if event.mechanism == "gaussian"]
    epsilon = sum(event.times * event.parameter for event in events if event.mechanism != "gaussian")
    exact = all(event.sampling == 1 or event.parameter == 0 for event in gaussian)
    return _norm(gaussian), float(epsilon), exact


def _epsilon(events: Sequence[Event], delta: float, adjacency: Adjacency) -> float:
    mu, pure, exact = _split(events)
    # Basic composition, forgetting about sampling: always valid, and exact where one of the two kinds is absent.
    simple = gdp_epsilon(mu, delta) + pure
    if (exact and pure == 0) or delta == 0 or math.isinf(simple):
        return simple
    losses, slack = _losses(events, adjacency)
    return min(simple, float(losses.get_epsilon_for_delta(delta - slack))) if delta > slack else simple


def _delta(events: Sequence[Event], epsilon: float, adjacency: Adjacency) -> float:
    mu, pure, exact = _split(events)
    simple = gdp_delta(mu, epsilon - pure) if pure <= epsilon and math.isfinite(pure) else 1.0
    if (exact and pure == 0) or simple == 0 or math.isinf(mu) or math.isinf(pure):
        return simple
    losses, slack = _losses(events, adjacency)
    return min(simple, float(losses.get_delta_for_epsilon(epsilon)) + slack)


# -------------------------------------------------------------------------------- Privacy losses, discretised upwards


def _losses(events: Sequence[Event], adjacency: Adjacency) -> tuple[Any, float]:
    """The distribution of the total privacy loss, and a bound on the rounding errors of its convolutions.

    Every loss is spread over a grid in the pessimistic way ("connect the dots"): it inflates the variance of each loss
    by about interval^2/6, so the grid follows the root mean square of the losses' sizes.
    """
    alike = Counter[Event]()
    for event in events:
        if event.parameter > 0 and not (event.mechanism == "gaussian" and event.sampling == 1):
            alike[replace(event, name="", group=None, times=1)] += event.times
    mu = _norm([event for event in events if event.mechanism == "gaussian" and event.sampling == 1])
    if mu > 0:  # unsampled Gaussian releases are one Gaussian release, exactly
        alike[Event("", "gaussian", mu)] = 1
    count = sum(alike.values())
    spread = math.sqrt(sum(times * _size(event) ** 2 for event, times in alike.items()))
    interval = spread * max(3e-3 / math.sqrt(count), 4e-5)
    for event in alike:
        if event.sampling < 1:  # these are built point by point, so at most some ten thousand points each
            interval = max(interval, _reach(event) / 2e4)
    atoms = [(times, event.parameter) for event, times in alike.items() if event.mechanism != "gaussian"]
    if atoms and (atom := max(atoms)[1]) > interval:  # losses of exactly +-epsilon lose nothing if they are on the grid
        interval = atom / math.ceil(atom / interval)

    total: Any = None
    for event, times in alike.items():
        losses = _power(_loss(event, interval, adjacency), times)
        total = losses if total is None else total.compose(losses)
    # Measured on up to a million Gaussian releases, where the truth is known: convolutions by Fourier transform are off
    # by less than 1e-14 in delta, in either direction.
    return total, 1e-13 * len(alike)


def _power(losses: Any, times: int) -> Any:
    """`losses` composed with itself, a hundred at a time.

    In one go, `dp_accounting` would take the `times`-th power of a Fourier transform, off by 1e-16 `times` and over a
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


def _loss(event: Event, interval: float, adjacency: Adjacency) -> Any:
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


def _sampled_gaussian(mu: float, sampling: float, interval: float, adjacency: Adjacency) -> Any:
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
    norms, it would not do (terms far from zero reveal who was drawn): that is why `Event` asks for 2C/scale.
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


# -------------------------------------------------------------------------------------------------- Calibration


def calibrate(requests: Sequence[Request], budget: Budget, adjacency: Adjacency = "replace-one") -> tuple[Event, ...]:
    """The least noise that `budget` pays for, split over `requests` by weight: one event per request, in order.

    Approximate and concentrated budgets share out squares, parameter_i^2 = t weight_i/times_i (for Gaussian releases,
    shares of mu^2 = 2 rho); pure ones share out epsilon, parameter_i = t weight_i/times_i. One common t is as large as
    the worst group allows.

    **Formal guarantee.** Under `adjacency`, the cost of the returned events (`epsilon_of` at the budget's delta, or
    `rho_of`) never exceeds the budget, and is at most 0.1% below it.
    """
    if not requests:
        return ()
    weight = max(sum(request.weight for request in scope) for scope in _scopes(requests))
    if budget.kind == "pure":
        assert budget.epsilon is not None
        for request in requests:
            if request.mechanism == "gaussian":
                raise BudgetError(
                    f"Request `{request.name}` asks for Gaussian noise, which is never pure, and the budget is "
                    f"{budget}. Give a `delta` in (0, 1), or use Laplace noise."
                )
        t = budget.epsilon / weight * (1 - 1e-12)  # rounding of the sum may not exceed the budget
        return tuple(request.at(t * request.weight / request.times) for request in requests)

    def events(t: float) -> tuple[Event, ...]:
        return tuple(request.at(t * math.sqrt(request.weight / request.times)) for request in requests)

    if budget.rho is not None:
        return events(math.sqrt(2 * budget.rho / weight) * (1 - 1e-12))
    assert budget.epsilon is not None
    if mu_of(events(1.0)) is not None:
        return events(gdp_mu(budget.epsilon, budget.delta) / math.sqrt(weight))
    start = _zcdp_root(budget.epsilon, budget.delta) * math.sqrt(2 / weight)
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


def _check_mechanism(name: str, mechanism: str) -> None:
    names = ", ".join(f"`{name}`" for name in get_args(Mechanism))
    _check(mechanism in get_args(Mechanism), f"`mechanism` of event `{name}` is {mechanism!r}; use one of {names}.")


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
