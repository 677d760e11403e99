"""Numbers that follow from a certificate: how often an attacker guesses right, and what the budget was spent on."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping

from privrl.learners.trials.trial import Trial
from privrl.privacy.accounting.certificate import Certificate
from privrl.privacy.accounting.composition import mu_of


def is_private(certificate: Certificate) -> bool:
    """Whether the certificate guarantees anything."""
    return certificate.notion != "none" and math.isfinite(certificate.epsilon)


def is_pilot(certificate: Certificate) -> bool:
    """Whether it is the certificate of a randomised trial."""
    return certificate.learner == Trial.__name__


def is_simulated(certificate: Certificate) -> bool:
    """Whether the noise came from a seed, so that it can be reproduced."""
    return certificate.noise_source == "seed"


def compute_worst_rate(certificate: Certificate) -> float:
    """Return the largest success rate of an attacker against any mechanism with this epsilon and delta:
    (e^epsilon + delta)/(1 + e^epsilon). Random guessing has the rate 0.5.

    The attacker sees everything that was published, knows the records of all other people, and decides which of two
    equally likely records of one person was used.

    **Formal guarantee.** An upper bound over all attackers, for the certificate's neighbouring relation.
    """
    return 1 - (1 - certificate.delta) / (math.exp(min(certificate.epsilon, 700.0)) + 1)


def compute_guess_rate(certificate: Certificate) -> float:
    """Return the same rate for the noise that was added: Phi(mu/2) if all of it is Gaussian, which is exact for
    mu-Gaussian privacy, and the worst case otherwise.

    If people were set aside for a choice, a secret coin, which does not depend on the record, selects each with
    probability p. Two mixtures with the same weights are at most as far apart as their parts are on average. A person
    who is set aside takes part in one release only, with pure privacy. The rate is therefore at most
    (1 - p) Phi(mu/2) + p e^epsilon/(1 + e^epsilon), where mu belongs to all other releases.
    """
    if certificate.mu is not None:
        return _gaussian_rate(certificate.mu)
    mu, share = _mu_without_choice(certificate), find_choosing_share(certificate)
    if mu is None or share is None:
        return compute_worst_rate(certificate)
    pure = max(event.parameter for event in certificate.events if event.mechanism == "exponential")
    return (1 - share) * _gaussian_rate(mu) + share / (1 + math.exp(-pure))


def rests_on_choice(certificate: Certificate) -> bool:
    """Whether `compute_guess_rate` averages over who was set aside for a choice."""
    known = find_choosing_share(certificate) is not None and _mu_without_choice(certificate) is not None
    return certificate.mu is None and known


def find_choosing_share(certificate: Certificate) -> float | None:
    """Return the probability that a person was set aside for a choice, if there was one and it is known."""
    groups = [event.group for event in certificate.events if event.mechanism == "exponential"]
    share = certificate.group_shares.get(groups[0]) if groups and groups[0] is not None else None
    return share if share is not None and 0 < share < 1 else None


def _mu_without_choice(certificate: Certificate) -> float | None:
    """Return mu of all releases except the choice, if there are any and all are Gaussian."""
    others = [event for event in certificate.events if event.mechanism != "exponential"]
    return mu_of(others) if others else None


def _gaussian_rate(mu: float) -> float:
    return 0.5 * math.erfc(-mu / 2 / math.sqrt(2))


def count_in_hundred(rate: float) -> int:
    """Return the number of right guesses in 100, rounded up because it is a bound."""
    return min(math.ceil(100 * rate), 100)


def share_budget(certificate: Certificate) -> dict[str, float]:
    """Return the share of the budget of each release: of mu^2 if all noise is Gaussian, of epsilon otherwise.

    Releases about disjoint groups of people cost as much as the most expensive group, so shares can add up to more
    than 1. Without privacy there is no budget, and the result is empty.
    """
    if not is_private(certificate):
        return {}
    power = 2 if all(event.mechanism == "gaussian" for event in certificate.events) else 1
    costs: dict[str, float] = defaultdict(float)
    groups: dict[str | None, float] = defaultdict(float)
    for event in certificate.events:
        costs[event.name] += event.times * event.parameter**power
        groups[event.group] += event.times * event.parameter**power
    all_people = groups.pop(None, 0.0)
    total = all_people + max(groups.values(), default=0.0)
    return {name: cost / total for name, cost in costs.items()}


def find_classes(settings: object) -> Iterator[str]:
    """Yield the names of all classes in recorded settings."""
    if isinstance(settings, Mapping):
        if isinstance(settings.get("class"), str):
            yield settings["class"]
        for value in settings.values():
            yield from find_classes(value)
    elif isinstance(settings, list):
        for value in settings:
            yield from find_classes(value)


def find_terminal_states(certificate: Certificate) -> tuple[int, ...]:
    """Return the states whose entry ends an episode, from the recorded settings of the learner; empty if unknown."""
    found = None if certificate.study is None else _find_setting(certificate.study["learner"], "terminal")
    return tuple(state for state in found if isinstance(state, int)) if isinstance(found, list) else ()


def _find_setting(settings: object, name: str) -> object:
    """Return the first setting of this name, of a class or of a class inside it; `None` if there is none."""
    if not isinstance(settings, Mapping):
        return None
    own = settings.get("settings")
    if not isinstance(own, Mapping):
        return None
    inner = (_find_setting(value, name) for value in own.values())
    return own[name] if name in own else next((value for value in inner if value is not None), None)
