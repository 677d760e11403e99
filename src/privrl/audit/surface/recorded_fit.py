"""Record the queries that a learner makes of a curator while it learns, for attacks.

The recorder extends the shipped curator and knows no learner in particular. The learner's declarations and queries
determine what is released about a person.
"""

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from privrl.audit.surface.queries import Query, noise_scale
from privrl.contracts.learner import AbstractOfflineAnalysis, AbstractOfflineLearner, Ask
from privrl.contracts.release import Release
from privrl.contracts.statistic import AbstractStatistic
from privrl.data.dataset import AbstractDataset
from privrl.data.reward_function import RewardFunction
from privrl.privacy.accounting.events import Event
from privrl.privacy.accounting.ledger import Ledger
from privrl.privacy.functions.paths import whiten
from privrl.privacy.functions.released import ReleasedFunction
from privrl.privacy.noise.sources import Seeded, System
from privrl.privacy.trust.curator import Curator
from privrl.privacy.trust.privatizers import AbstractPrivatizer
from privrl.studies.offline.curated_records import secret_of
from privrl.studies.study import Study


@dataclass(frozen=True)
class ValueQuery:
    """A release that is not a sum over people: a vector, or functions on [0, 1], that neighbours move by `distance`.

    Functions have a `beta`, and their distance is that of the kernel exp(-beta|x-y|).
    """

    name: str
    shape: tuple[int, ...]
    distance: float
    bound: float
    scale: float
    beta: float | None = None

    def answers(self, records: object = None) -> Float[np.ndarray, "2 ..."]:
        """Return two values `distance` apart: one entry, or a section of the kernel, whose norm is its height."""
        del records
        change = np.zeros(self.shape)
        if self.beta is None:
            change.flat[0] = 1.0
        else:
            x = np.arange(self.shape[-1]) / (self.shape[-1] - 1)
            change[(0,) * (change.ndim - 1)] = np.exp(-self.beta * np.abs(x - x[self.shape[-1] // 2]))
        half = min(self.distance / 2, self.bound) * (1 - 1e-12)
        return np.stack([-half * change, half * change])

    def release_with(self, curator: Curator, value: Array | None = None) -> Release:
        """Release a value, by default the first of the two; of functions, return the white numbers that were drawn."""
        value = jnp.asarray(self.answers()[0]) if value is None else value
        if self.beta is None:
            return curator.vector(self.name, value, distance=self.distance, bound=self.bound)
        function = curator.function(self.name, value, distance=self.distance, beta=self.beta, bound=self.bound)
        return Release(whiten(function.values, self.beta), function.noise)

    def white(self, values: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """Return values in the form in which the noise is drawn: entry by entry, or the increments of functions."""
        return values if self.beta is None else np.asarray(whiten(jnp.asarray(values), self.beta))


@dataclass(frozen=True)
class Skipped:
    """A release that the learner gave up; its share of the budget went to others."""

    name: str
    to: tuple[str, ...]


class EnoughError(Exception):
    """Enough releases were recorded; later ones are of the same kinds."""


class RecordingCurator(Curator):
    """The shipped curator, which also records every query.

    It returns the answers of a `script` as long as that lasts, and ends the fit after `most` queries.
    """

    def __init__(self, *arguments: Any, script: Sequence[Release] = (), most: float = math.inf) -> None:
        super().__init__(*arguments)
        self._script, self._left = iter(script), most
        self.steps: list[Query | ValueQuery | Skipped] = []

    def __call__(self, name: str, statistic: AbstractStatistic | None = None) -> Release:
        if self._left == 0:
            raise EnoughError
        self._left -= 1
        release = super().__call__(name, statistic)
        asked = self._ledger.declared(name).statistic if statistic is None else statistic
        assert asked is not None
        self.steps.append(Query(name, asked, release=release))
        return next(self._script, release)

    def vector(self, name: str, value: Array, *, distance: float, bound: float) -> Release:
        release = super().vector(name, value, distance=distance, bound=bound)
        self.steps.append(ValueQuery(name, tuple(value.shape), distance, bound, noise_scale(release.noise)))
        return release

    def function(self, name: str, values: Array, *, distance: float, beta: float, bound: float) -> ReleasedFunction:
        released = super().function(name, values, distance=distance, beta=beta, bound=bound)
        self.steps.pop()  # the vector of which the function is made
        self.steps.append(ValueQuery(name, tuple(values.shape), distance, bound, noise_scale(released.noise), beta))
        return released

    def skip(self, name: str, to: tuple[str, ...]) -> None:
        super().skip(name, to)
        self.steps.append(Skipped(name, to))


@dataclass(frozen=True)
class FitTranscript:
    """All queries that a learner made in one fit, in order, with the events that were calibrated for it."""

    learner: AbstractOfflineAnalysis
    privatizer: AbstractPrivatizer
    events: tuple[Event, ...]
    steps: tuple[Query | ValueQuery | Skipped, ...]

    @property
    def queries(self) -> tuple[Query, ...]:
        return tuple(step for step in self.steps if isinstance(step, Query))

    def ledger(self) -> Ledger:
        """Return the ledger as it was calibrated."""
        return Ledger(self.learner.declare(), self.events, self.privatizer.adjacency)

    def concerns(self, step: Query | ValueQuery, group: str | None) -> bool:
        """Whether a release sums over the people of a group."""
        return next(d for d in self.learner.declare() if d.name == step.name).group in (None, group)


def record_fit(
    data: AbstractDataset | RewardFunction,
    learner: AbstractOfflineLearner,
    privatizer: AbstractPrivatizer,
    key: PRNGKeyArray | None = None,
    **settings: object,
) -> FitTranscript:
    """Fit once, as `privrl.fit` does, and record every query; `settings` are those of `RecordingCurator`."""
    return record_queries(data, learner, learner.fit, privatizer, key, **settings)


def record_queries(
    data: AbstractDataset | RewardFunction,
    analysis: AbstractOfflineAnalysis,
    compute: Callable[[Ask], object],
    privatizer: AbstractPrivatizer,
    key: PRNGKeyArray | None = None,
    **settings: Any,
) -> FitTranscript:
    """Record every query of `compute`, the method of an analysis that queries a curator."""
    secret = secret_of(data, analysis)
    study = Study.offline(analysis, privatizer, secret.unit(None, privatizer))
    events, source = study.ledger.events(), System() if key is None else Seeded(key)
    curator = RecordingCurator(secret, study.ledger, source, privatizer.mechanism_of_rounds, **settings)
    with contextlib.suppress(EnoughError):
        compute(curator)
    return FitTranscript(analysis, privatizer, events, tuple(curator.steps))
