"""A certificate in words that a doctor or an ethics board can read, and what the budget was spent on."""

import bisect
import math
from collections import defaultdict

from privrl.evaluation.chooser import WHO_CHOOSE
from privrl.privacy.accounting.certificate import Certificate
from privrl.privacy.accounting.composition import mu_of
from privrl.privacy.noise.sources import Seeded


def worst_rate(certificate: Certificate) -> float:
    """How often an attacker is right who must tell two possible records of one person apart, in the worst case of any
    mechanism with this epsilon and delta: (e^epsilon + delta)/(1 + e^epsilon). A coin is right with 0.5.

    The attacker sees everything published and knows everybody else's record; both records are equally likely before.

    **Formal guarantee.** An upper bound over all attackers, for the certificate's neighbouring relation.
    """
    return 1 - (1 - certificate.delta) / (math.exp(min(certificate.epsilon, 700.0)) + 1)


def guess_rate(certificate: Certificate) -> float:
    """The same for the noise that was added: Phi(mu/2) where all of it is Gaussian, which is exact for mu-Gaussian
    privacy, and the worst case otherwise.

    Where people choose, a secret coin that does not look at the record puts somebody among them with probability p. Two
    mixtures with the same weights are at most as far apart as their parts are on average, and those who choose meet one
    release, of pure privacy: (1 - p) Phi(mu/2) + p e^epsilon/(1 + e^epsilon), with mu that of all others.
    """
    if certificate.mu is not None:
        return _gaussian_rate(certificate.mu)
    mu, share = _others(certificate), choosing_share(certificate)
    if mu is None or share is None:
        return worst_rate(certificate)
    pure = max(event.parameter for event in certificate.events if event.mechanism == "exponential")
    return (1 - share) * _gaussian_rate(mu) + share / (1 + math.exp(-pure))


def choosing_share(certificate: Certificate) -> float | None:
    """The probability with which somebody is among those who choose, where there is a choice and it is known."""
    chosen = any(event.mechanism == "exponential" for event in certificate.events)
    share = certificate.bounds.get(WHO_CHOOSE)
    return float(share) if chosen and isinstance(share, (int, float)) and 0 < share < 1 else None


def _others(certificate: Certificate) -> float | None:
    """mu of all releases but the choice, where there are any and all of them are Gaussian."""
    others = [event for event in certificate.events if event.mechanism != "exponential"]
    return mu_of(others) if others else None


def _gaussian_rate(mu: float) -> float:
    return 0.5 * math.erfc(-mu / 2 / math.sqrt(2))


def in_hundred(rate: float) -> int:
    """In how many of 100 cases the best attacker guesses right at most; rounded up, for it is a bound."""
    return min(math.ceil(100 * rate), 100)


WORST_CASE = "the worst case of any mechanism with this epsilon, e^epsilon/(1 + e^epsilon)"
EXACT = "exact for the noise that was added"


def guesses(certificate: Certificate) -> str:
    """How many of 100 guesses are right, by both bounds, each with its name."""
    worst = in_hundred(worst_rate(certificate))
    share = choosing_share(certificate)
    if certificate.mu is None and share is not None and _others(certificate) is not None:
        found = in_hundred(guess_rate(certificate))
        return (
            f"in at most {found} of 100 cases (for the noise that was added, before secret coins decide who is among "
            f"the {share:.0%} who choose; for one of these, and in {WORST_CASE}, {worst}); a coin is right in 50"
        )
    if certificate.mu is None:
        return f"in at most {worst} of 100 cases ({WORST_CASE}); a coin is right in 50"
    exact = in_hundred(guess_rate(certificate))
    return f"in at most {exact} of 100 cases ({EXACT}; {WORST_CASE}, is {worst}); a coin is right in 50"


def is_private(certificate: Certificate) -> bool:
    return certificate.notion != "none" and math.isfinite(certificate.epsilon)


def is_simulated(certificate: Certificate) -> bool:
    return certificate.noise_source == Seeded.description


def shares(certificate: Certificate) -> dict[str, float]:
    """The part of the budget that each release was given: of mu^2 where all noise is Gaussian, of epsilon otherwise.

    Groups of releases about disjoint people cost the largest of them, so their parts can add up to more than 1.
    Without privacy there is no budget and the answer is empty.
    """
    if not is_private(certificate):
        return {}
    power = 2 if all(event.mechanism == "gaussian" for event in certificate.events) else 1
    costs: dict[str, float] = defaultdict(float)
    groups: dict[str | None, float] = defaultdict(float)
    for event in certificate.events:
        costs[event.name] += event.times * event.parameter**power
        groups[event.group] += event.times * event.parameter**power
    everybody = groups.pop(None, 0.0)
    total = everybody + max(groups.values(), default=0.0)
    return {name: cost / total for name, cost in costs.items()}


def in_words(certificate: Certificate) -> list[tuple[str, str]]:
    """Questions that people ask about a certificate, with their answers."""
    if not is_private(certificate):
        return [("Is anybody protected?", "No. This result was made without privacy and may reveal anything.")]
    unit = certificate.unit
    return [
        (
            "Who is protected?",
            f"Every single {unit}, as a whole: all that was recorded about it counts as one secret, not each entry on "
            f"its own. {_records(certificate)}",
        ),
        ("What can somebody find out?", _attack(certificate)),
        ("What do epsilon and delta say?", _parameters(certificate)),
        ("Who saw the real records?", _NOTION[certificate.notion].format(unit=unit)),
        (
            "What is not protected?",
            f"What is true of all {unit}s together, such as which treatment tends to help: that is what the policy is "
            f"for. {_count(certificate)} And the same records used again, for another policy or for tuning this one, "
            "cost again: the budgets add up.",
        ),
        ("Where did the noise come from?", _noise(certificate)),
        (
            "Can this be checked?",
            f"Yes. Every noisy sum that was published is listed with its noise, and `privrl certify` computes "
            f"epsilon again from that list ({certificate.accountant}). It checks the arithmetic; who wrote the file, "
            "only a signature can prove.",
        ),
    ]


_NOTION = {
    "central": "Whoever ran privrl on the table; nobody else needs to. All that came out of it is covered, also where "
    "readers pool what they know.",
    "joint": "Whoever ran the service. What one {unit} was shown was chosen with its own record in view and is not "
    "covered; everything that all the others were shown is.",
    "shuffle": "Nobody, as long as the shuffler does its work: answers were randomised on the {unit}'s own device, and "
    "the shuffler passed them on without saying whose they are.",
    "local": "Nobody. Noise was added before anything left the {unit}'s own device.",
}


_RATES = (0.6, 0.75, 0.9)
_HOW_MUCH = ("Very little", "Little", "Something", "Possibly much (a weak budget)")


def _attack(certificate: Certificate) -> str:
    how_much = _HOW_MUCH[bisect.bisect(_RATES, guess_rate(certificate))]
    return (
        f"{how_much} about one {certificate.unit}. Imagine somebody who knows every "
        "other record completely, sees all that was published, and has to guess which of two possible records was the "
        f"real one. Whatever method they use, they are right {guesses(certificate)}."
    )


def _parameters(certificate: Certificate) -> str:
    factor = math.exp(min(certificate.epsilon, 700.0))
    slack = f", but for a chance of one in {round(1 / certificate.delta):,}" if certificate.delta > 0 else ""
    return (
        f"Epsilon is {certificate.epsilon:.3g}: any conclusion that somebody draws from the policy is at most "
        f"{factor:.3g} times as likely with this {certificate.unit}'s record as with any other record in its place"
        f"{slack}. Smaller is safer, and 0 would reveal nothing."
    )


def _records(certificate: Certificate) -> str:
    most = certificate.bounds.get("episodes per unit")
    if most is None:
        return f"Each {certificate.unit} counts once."
    if most == 1:
        return f"Each {certificate.unit} counts with one episode; further ones, if any, were left out at random."
    return (
        f"Each {certificate.unit} counts with at most {most} episodes; further ones, if any, were left out at random. "
        "How many these were is not public."
    )


def _count(certificate: Certificate) -> str:
    if certificate.adjacency == "replace-one":
        return f"The number of {certificate.unit}s is public."
    return f"Whether one {certificate.unit} is in the table at all is protected too."


def _noise(certificate: Certificate) -> str:
    if is_simulated(certificate):
        return "From a seed, so that the run can be repeated. This is a simulation: it protects nobody real."
    return (
        f"From {certificate.noise_source.split(',')[0]}, in whole numbers, so that no last bit gives anybody away. "
        "Nobody, the authors of privrl included, can draw it again."
    )
