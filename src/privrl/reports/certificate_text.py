"""Explain a certificate to readers who are not experts: what it protects, what it reveals, and what was released."""

import bisect
import math
import re

from privrl.evaluation.evaluated import EVALUATE
from privrl.privacy.accounting.certificate import Certificate
from privrl.privacy.noise.sources import ORIGIN_WORDS
from privrl.recipes.all_recipes import algorithms
from privrl.reports.certificate_facts import (
    compute_guess_rate,
    compute_worst_rate,
    count_in_hundred,
    find_choosing_share,
    find_classes,
    is_pilot,
    is_private,
    is_simulated,
    rests_on_choice,
    share_budget,
)

WORST_CASE = "the worst case of any mechanism with this epsilon, e^epsilon/(1 + e^epsilon)"
EXACT = "exact for the noise that was added"


def describe_guesses(certificate: Certificate) -> str:
    """Say how many of 100 guesses of an attacker are right at most, by both bounds."""
    worst, rate = (count_in_hundred(compute(certificate)) for compute in (compute_worst_rate, compute_guess_rate))
    if rests_on_choice(certificate):
        share = find_choosing_share(certificate)
        how = (
            f"on average over the secret draw that sets aside {share:.0%} for selection; for those, and in "
            f"{WORST_CASE}, {worst}"
        )
    elif certificate.mu is None:
        how = WORST_CASE
    else:
        how = f"{EXACT}; {WORST_CASE}, is {worst}"
    return f"in at most {rate} of 100 cases ({how}); random guessing is right in 50"


def explain_certificate(certificate: Certificate) -> list[tuple[str, str]]:
    """Return questions that readers ask about a certificate, each with its answer."""
    if not is_private(certificate):
        return [("Is anyone protected?", "No. This result was made without privacy and may reveal any record.")]
    unit = certificate.unit
    return [
        (
            "Who is protected?",
            f"Every {unit}. Everything recorded about a {unit} is protected together, not entry by entry. "
            f"{_explain_records(certificate)}",
        ),
        ("What can an attacker find out?", _explain_attack(certificate)),
        ("What do epsilon and delta mean?", _explain_parameters(certificate)),
        ("Who saw the real records?", _NOTION[certificate.notion].format(unit=unit)),
        ("What is not protected?", _explain_unprotected(certificate)),
        ("Where did the noise come from?", _explain_noise(certificate)),
        (
            "Can this be checked?",
            "Yes. The certificate lists every release with its noise, and `privrl certify` computes epsilon again from "
            f"that list ({certificate.accountant}). The command checks the arithmetic. Only a signature proves who "
            "wrote the file.",
        ),
    ]


_NOTION = {
    "central": "The person or organisation that ran privrl on the table. The guarantee covers everything that was "
    "released, even if readers combine what they know.",
    "joint": "The operator of the service. The guarantee does not cover what a {unit} was shown themselves, because "
    "that was chosen with their own record in view. It covers everything that all others were shown.",
    "shuffle": "Only the {unit}'s own device, if the shuffler works as intended: the device randomised each answer, "
    "and the shuffler forwarded the answers without revealing whose they are.",
    "local": "Only the {unit}'s own device. It added the noise before it sent anything.",
}

_RATES = (0.6, 0.75, 0.9)
_HOW_MUCH = ("Very little", "Little", "Something", "Possibly much (the budget is weak)")


def _explain_attack(certificate: Certificate) -> str:
    how_much = _HOW_MUCH[bisect.bisect(_RATES, compute_guess_rate(certificate))]
    return (
        f"{how_much} about one {certificate.unit}. Imagine an attacker who knows every other record, sees everything "
        "that was published, and has to guess which of two possible records was the real one. With any method, the "
        f"attacker is right {describe_guesses(certificate)}."
    )


def _explain_parameters(certificate: Certificate) -> str:
    factor, source = math.exp(min(certificate.epsilon, 700.0)), "pilot" if is_pilot(certificate) else "policy"
    slack = f", except with a probability of one in {round(1 / certificate.delta):,}" if certificate.delta > 0 else ""
    return (
        f"Epsilon is {certificate.epsilon:.3g}: any conclusion drawn from the {source} is at most {factor:.3g} times "
        f"as likely with one {certificate.unit}'s record as with any other record in its place{slack}. Smaller values "
        "protect better; 0 would reveal nothing."
    )


def _explain_records(certificate: Certificate) -> str:
    most, unit = certificate.records_per_unit, certificate.unit
    if is_pilot(certificate):
        return f"Each {unit} counts once, in the arm that was drawn when they first arrived."
    if most is None:
        return f"Each {unit} is counted once."
    if most == 1:
        return f"One episode of each {unit} is used; if there were more, the first one in the data."
    return (
        f"At most {most} episodes of each {unit} are used; if there were more, the first ones in the data. The number "
        "of unused episodes is not public."
    )


def _explain_unprotected(certificate: Certificate) -> str:
    unit = certificate.unit
    if is_pilot(certificate):
        return (
            f"Facts about all {unit}s together, such as which arm does better: the pilot is meant to reveal these. Who "
            f"took part and when, and each {unit}'s arm and group, are public. If the same records are used again, the "
            "budgets add up."
        )
    return (
        f"Facts about all {unit}s together, such as which treatment tends to help: the policy is meant to reveal "
        f"these. {_explain_count(certificate)} If the same records are used again, for another policy or to tune "
        "this one, the budgets add up."
    )


def _explain_count(certificate: Certificate) -> str:
    if certificate.adjacency == "replace-one":
        return f"The number of {certificate.unit}s is public."
    return f"Whether a {certificate.unit} is in the table at all is protected too."


def _explain_noise(certificate: Certificate) -> str:
    if is_simulated(certificate):
        return "From a seed, so that the run can be repeated. This is a simulation and protects no real person."
    source = ORIGIN_WORDS[certificate.noise_source].split(",")[0]
    return (
        f"From {source}. The noise consists of whole numbers, so that rounding reveals nothing. It cannot be "
        "reproduced by anyone, including the authors of privrl."
    )


_COMPARISON = {
    "practice": "the mean return under current practice",
    "practice-table": "how often current practice takes the advised action in each state",
    "practice-spread": "how much returns differ between people under current practice",
    "practice-slope": "how returns under current practice depend on how well people are expected to fare",
    "unsupported": "the share of decisions with too little data to advise",
    "changed": "the share of decisions that the policy changes",
    "residuals": "whether current practice depends on the recorded state only",
    "balance": "whether the probabilities used for current practice describe how these people were treated",
    "gain": "what the policy with limited advice adds",
    "gain-square": "how much that differs between people",
    "influences": "how strong an unrecorded influence would have to be to overturn the verdict",
    "group-people": "how many people each group has",
    "group-practice": "how far the returns of each group are from the mean return, under current practice",
    "group-gain": "what the policy with limited advice adds in each group",
    "group-gain-square": "how much that differs between people",
    "outcome-practice": "the mean of the second outcome under current practice",
    "outcome-slope": "how the second outcome depends on how well people are expected to fare",
    "outcome-gain": "what the policy with limited advice adds to the second outcome",
    "outcome-gain-square": "how much that differs between people",
    "nuisance": "how one value feature changes along an episode, for the model of the whole advice",
    "model-gain": "what the whole advice adds, according to a model",
    "model-square": "how much that differs between people",
}


def describe_releases(certificate: Certificate) -> dict[str, str]:
    """Say what each release of the certificate is, if that is known. Numbered ones (`round-1`, ...) appear once."""
    classes = {certificate.learner, *(name.rpartition(".")[2] for name in find_classes(certificate.study))}
    names = list(dict.fromkeys(re.sub(r"-\d+$", "", str(name)) for name in share_budget(certificate)))
    known: dict[str, str] = {}
    for kind, algorithm in algorithms.items():
        known |= algorithm.said_of(name.rpartition(": ")[2] for name in names) if kind.__name__ in classes else {}
    found: dict[str, str] = {}
    for name in names:
        part, _, own = name.rpartition(": ")
        compared = part == EVALUATE or certificate.learner == "Evaluator"
        words = _COMPARISON.get(own) if compared else known.get(own)
        found |= {} if words is None else {name: words}
    return found
