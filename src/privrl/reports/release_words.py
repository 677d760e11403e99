"""What each release of a certificate is, in words: those of algorithms, and those of a comparison with practice."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from privrl.evaluation.evaluated import EVALUATE
from privrl.privacy.accounting.certificate import Certificate
from privrl.recipes.all_recipes import algorithms
from privrl.reports.words import shares

_COMPARISON = {
    "practice": "how well people fare today, on average",
    "practice-table": "how often practice takes the advised action in each state",
    "unsupported": "in how many decisions no advice has enough evidence",
    "residuals": "whether practice follows the recorded state alone",
    "balance": "whether the probabilities of practice are those by which these people were treated",
    "gain": "what the assisted policy adds",
    "gain-square": "how much that differs from person to person",
    "influences": "how strong an unrecorded influence would have to be to overturn the verdict",
    "nuisance": "how one value feature moves along a stay, for the model of the whole advice",
    "model-gain": "what the whole advice adds, by a model",
    "model-square": "how much that differs from person to person",
}


def release_words(certificate: Certificate) -> dict[str, str]:
    """What the releases of this certificate are, where that is known; numbered ones (`round-1`, `round-2`) once."""
    classes = {certificate.learner, *(name.rpartition(".")[2] for name in classes_of(certificate.study))}
    names = list(dict.fromkeys(re.sub(r"-\d+$", "", str(name)) for name in shares(certificate)))
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


def classes_of(settings: Any) -> Iterator[str]:
    """The names of all classes in recorded settings."""
    if isinstance(settings, Mapping):
        if isinstance(settings.get("class"), str):
            yield settings["class"]
        for value in settings.values():
            yield from classes_of(value)
    elif isinstance(settings, list):
        for value in settings:
            yield from classes_of(value)
