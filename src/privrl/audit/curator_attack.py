"""The attack on a curator: answers about a data set at rest, in rounds."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from privrl.audit.attacks import AbstractAttack, likelihood_ratio
from privrl.audit.recorded_fit import FitTranscript, Given, Skipped, scale_of
from privrl.audit.statistics import Asked
from privrl.contracts.release import Declared, Release
from privrl.contracts.statistic import AbstractStatistic
from privrl.privacy.accounting.ledger import Ledger
from privrl.privacy.functions.paths import whiten
from privrl.privacy.noise.sources import Seeded
from privrl.privacy.trust.curator import AbstractPeople, Curator


class _Person(AbstractPeople):
    """One person, as the curator needs people; everybody else is known to the attacker and is left out."""

    num_units = 1
    records_per_unit = 1

    def __init__(self) -> None:
        self.term: Array = jnp.zeros(())

    def total(self, statistic: AbstractStatistic, included: Callable[[int], np.ndarray] | None) -> Array:
        del statistic, included  # who is drawn by a coin is decided in `CuratorAttack`, so that runs can be vectorised
        return self.term

    def units(self, *arguments: Any) -> Any:
        raise NotImplementedError("Attacks use seeded noise.")

    def filled(self, statistic: AbstractStatistic) -> int:
        raise NotImplementedError("Attacks use seeded noise.")

    def part(self, chosen: Bool[np.ndarray, " U"]) -> "AbstractPeople":
        return self if chosen[0] else _Nobody()

    def coins(self, key: bytes, purpose: str) -> Any:
        raise NotImplementedError("Attacks use seeded noise.")


class _Nobody(_Person):
    """The people of a group that the person in question is not in."""

    def total(self, statistic: AbstractStatistic, included: Callable[[int], np.ndarray] | None) -> Array:
        return jnp.zeros(statistic.shape)


class _InGroup(Seeded):
    """Seeded noise; the coin that puts the person into a group is fixed, so that each group can be attacked."""

    def __init__(self, key: PRNGKeyArray, coin: float) -> None:
        super().__init__(key)
        self._coin = coin

    def uniform(self, label: Any, shape: tuple[int, ...]) -> Any:
        del label
        return np.full(shape, self._coin)


@dataclass(frozen=True)
class CuratorAttack(AbstractAttack):
    """A curator's answers about a data set at rest, with the shipped `Curator` and its ledger.

    `pair` holds, for every step of the transcript, the exact answer in either world (stacked), and nothing for a skip.
    """

    transcript: FitTranscript
    pair: tuple[Float[np.ndarray, "2 ..."] | None, ...]
    group: str | None = None

    @property
    def mu(self) -> float | None:
        if any(event.mechanism != "gaussian" or event.sampling < 1 for event in self.transcript.events):
            return None
        total = 0.0
        for step, answers in zip(self.transcript.steps, self.pair, strict=True):
            if isinstance(step, Given) and answers is not None:
                total += (step.apart(answers) / step.scale) ** 2
            elif isinstance(step, Asked) and answers is not None and in_scope(self.transcript, step, self.group):
                total += float(((answers[1] - answers[0]) ** 2).sum()) * curator_weight(step) ** 2
        return math.sqrt(total)

    def run(self, world: int) -> Callable[[Any], Array]:
        privatizer, declared = self.transcript.privatizer, self.transcript.learner.declare()
        groups = self._ledger(declared).groups
        coin = (groups.index(self.group) + 0.5) / len(groups) if self.group is not None else 0.5

        def one(key: PRNGKeyArray) -> Array:
            ledger, person = self._ledger(declared), _Person()
            curator = Curator(person, ledger, _InGroup(key, coin), privatizer.mechanism_of_rounds)
            score = jnp.zeros(())
            for number, (step, answers) in enumerate(zip(self.transcript.steps, self.pair, strict=True)):
                if isinstance(step, Skipped):
                    curator.skip(step.name, step.to)
                    continue
                assert answers is not None
                if isinstance(step, Given):
                    score = score + _given_ratio(curator, step, answers, world)
                    continue
                share = ledger.declared(step.name).sampling
                term = jnp.asarray(answers[world]).reshape(step.statistic.shape)
                if share < 1.0:
                    term = jnp.where(jax.random.uniform(jax.random.fold_in(key, number)) < share, term, 0.0)
                person.term = term
                left_open = ledger.declared(step.name).statistic is None
                release = curator(step.name, step.statistic if left_open else None)
                if in_scope(self.transcript, step, self.group):
                    score = score + likelihood_ratio(release, answers[0], answers[1], share)
            return score

        return jax.vmap(one)  # not compiled as a whole: sensitivities are computed on the host, as in `fit`

    def _ledger(self, declared: tuple[Declared, ...]) -> Ledger:
        return Ledger(declared, self.transcript.events, self.transcript.privatizer.adjacency)


def _given_ratio(curator: Curator, step: Given, answers: Float[np.ndarray, "2 ..."], world: int) -> Float[Array, ""]:
    """The score of a release that is no sum over people."""
    zero, one = jnp.asarray(answers)
    value = one if world else zero
    if step.beta is None:
        return likelihood_ratio(curator.vector(step.name, value, distance=step.distance, bound=step.bound), zero, one)
    released = curator.function(step.name, value, distance=step.distance, beta=step.beta, bound=step.bound)
    white = Release(whiten(released.values, step.beta), released.noise)
    return likelihood_ratio(white, whiten(zero, step.beta), whiten(one, step.beta))


def in_scope(transcript: FitTranscript, step: Asked, group: str | None) -> bool:
    """Whether a release sums over the people of a group."""
    declared = next(d for d in transcript.learner.declare() if d.name == step.name)
    return declared.group in (None, group)


def curator_weight(step: Asked) -> float:
    """What one unit of a person's answer amounts to, in units of the noise of its release."""
    assert step.release is not None
    scale = scale_of(step.release.noise)
    return 1.0 / scale if scale > 0 else math.inf
