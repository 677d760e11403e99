"""The attack on a curator, who answers queries about a data set at rest."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float64, Key, PRNGKeyArray

from privrl.audit.attacks.attack import AbstractAttack, likelihood_ratio, noise_weight
from privrl.audit.surface.recorded_fit import FitTranscript, Skipped
from privrl.contracts.statistic import AbstractStatistic
from privrl.privacy.noise.arithmetic import AbstractArithmetic
from privrl.privacy.noise.sources import Seeded
from privrl.privacy.trust.curator import Curator
from privrl.privacy.trust.people import AbstractPeople


class _Person(AbstractPeople):
    """One person in the place of all people. The attacker knows the other people, so they are left out."""

    num_units = 1
    records_per_unit = 1

    def __init__(self) -> None:
        self.term: Array | None = None

    def total(self, statistic: AbstractStatistic, included: object, arithmetic: AbstractArithmetic) -> Array:
        del included, arithmetic  # `CuratorAttack` samples the person, for all runs at once
        return jnp.zeros(statistic.shape) if self.term is None else self.term

    def filled(self, statistic: AbstractStatistic) -> int:
        raise NotImplementedError("Attacks use seeded noise.")

    def part(self, chosen: Bool[np.ndarray, " U"]) -> "AbstractPeople":
        return self if chosen[0] else _Person()  # the other groups are empty

    def unit_draws(self, key: bytes, purpose: str) -> Float64[np.ndarray, " U"]:
        raise NotImplementedError("Attacks use seeded noise.")


class _InGroup(Seeded):
    """Seeded noise with a fixed draw for the person's group, so that each group can be attacked."""

    def __init__(self, key: PRNGKeyArray, coin: float) -> None:
        super().__init__(key)
        self._coin = coin

    def uniform(self, label: object, shape: tuple[int, ...]) -> Any:
        del label
        return np.full(shape, self._coin)

    def secret(self, label: object) -> bytes:
        del label  # `_Person` uses no draws
        return bytes(32)


@dataclass(frozen=True)
class CuratorAttack(AbstractAttack):
    """An attack on a curator's answers about a data set at rest, with the shipped `Curator` and its ledger.

    `pair` has, for every step of the transcript, the exact answers in both worlds (stacked), and `None` for a skip.
    """

    transcript: FitTranscript
    pair: tuple[Float[np.ndarray, "2 ..."] | None, ...]
    group: str | None = None

    def distances(self) -> list[float] | None:
        if any(event.mechanism != "gaussian" or event.sampling < 1 for event in self.transcript.events):
            return None
        return [
            float(np.linalg.norm(np.diff(step.white(answers), axis=0))) * noise_weight(step.scale)
            for step, answers in zip(self.transcript.steps, self.pair, strict=True)
            if not isinstance(step, Skipped) and answers is not None and self.transcript.concerns(step, self.group)
        ]

    def run(self, world: int) -> Callable[[Key[Array, " n"]], Array]:
        transcript, groups = self.transcript, self.transcript.ledger().groups
        before = list(itertools.takewhile(lambda group: group != self.group, groups))
        coin = 0.5 if self.group is None else sum(groups[g] for g in before) + groups[self.group] / 2

        def one(key: PRNGKeyArray) -> Array:
            ledger, person = transcript.ledger(), _Person()
            curator = Curator(person, ledger, _InGroup(key, coin), transcript.privatizer.mechanism_of_rounds)
            score = jnp.zeros(())
            for number, (step, answers) in enumerate(zip(transcript.steps, self.pair, strict=True)):
                if isinstance(step, Skipped):
                    curator.skip(step.name, step.to)
                    continue
                assert answers is not None
                share = ledger.declared(step.name).sampling
                term = jnp.asarray(answers[world]).reshape(step.shape)
                if share < 1.0:
                    term = jnp.where(jax.random.uniform(jax.random.fold_in(key, number)) < share, term, 0.0)
                person.term = term
                release = step.release_with(curator, term)
                if transcript.concerns(step, self.group):
                    exact = step.white(answers)
                    score = score + likelihood_ratio(release, exact[0], exact[1], share)
            return score

        return jax.vmap(one)  # not compiled as a whole: sensitivities are computed on the host, as in `fit`
