"""What a learner really asks of a curator, written down while it learns: the surface that is attacked.

Nothing is known about any learner in particular. Its declarations, and what it asks, say what is released about a
person; a recorder in the place of the shipped curator, which it extends, keeps them.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from privrl.audit.statistics import Asked
from privrl.contracts.learner import AbstractOfflineLearner
from privrl.contracts.noise import AbstractNoise
from privrl.contracts.release import Release
from privrl.contracts.statistic import AbstractStatistic
from privrl.data.dataset import AbstractDataset
from privrl.data.reward_function import RewardFunction
from privrl.learners.functional.functional_reward import FunctionalReward
from privrl.privacy.accounting.events import Event
from privrl.privacy.accounting.ledger import Ledger
from privrl.privacy.functions.released import ReleasedFunction, rkhs_norm
from privrl.privacy.noise.sources import Seeded, System
from privrl.privacy.trust.curator import Curator
from privrl.privacy.trust.privatizers import AbstractPrivatizer
from privrl.studies.people import Nobody as _Nobody
from privrl.studies.people import Records as _Records


@dataclass(frozen=True)
class Given:
    """A release that is no sum over people: a vector, or functions on [0, 1], that neighbours move by `distance`.

    Functions have a `beta`, and their distance is that of the kernel exp(-beta|x-y|).
    """

    name: str
    shape: tuple[int, ...]
    distance: float
    bound: float
    scale: float
    beta: float | None = None

    def neighbours(self) -> Float[np.ndarray, "2 ..."]:
        """Two values exactly `distance` apart: one entry, or a section of the kernel, whose norm is its height."""
        change = np.zeros(self.shape)
        if self.beta is None:
            change.flat[0] = 1.0
        else:
            x = np.arange(self.shape[-1]) / (self.shape[-1] - 1)
            change[(0,) * (change.ndim - 1)] = np.exp(-self.beta * np.abs(x - x[self.shape[-1] // 2]))
        half = min(self.distance / 2, self.bound) * (1 - 1e-12)
        return np.stack([-half * change, half * change])

    def apart(self, pair: Float[np.ndarray, "2 ..."]) -> float:
        """The distance of two such values."""
        change = jnp.asarray(pair[1] - pair[0])
        return float(jnp.linalg.norm(change.ravel()) if self.beta is None else rkhs_norm(change, self.beta))


@dataclass(frozen=True)
class Skipped:
    """A release that was given up; its share went to others."""

    name: str
    to: tuple[str, ...]


class RecordingCurator(Curator):
    """The shipped curator, with everything that is asked of it written down."""

    def __init__(self, people: Any, ledger: Ledger, source: Any, mechanism: Any) -> None:
        super().__init__(people, ledger, source, mechanism)
        self.steps: list[Asked | Given | Skipped] = []

    def __call__(self, name: str, statistic: AbstractStatistic | None = None) -> Release:
        release = super().__call__(name, statistic)
        asked = self._ledger.declared(name).statistic if statistic is None else statistic
        assert asked is not None
        self.steps.append(Asked(name, asked, release=release))
        return release

    def vector(self, name: str, value: Array, *, distance: float, bound: float) -> Release:
        release = super().vector(name, value, distance=distance, bound=bound)
        self.steps.append(Given(name, tuple(value.shape), distance, bound, scale_of(release.noise)))
        return release

    def function(self, name: str, values: Array, *, distance: float, beta: float, bound: float) -> ReleasedFunction:
        released = super().function(name, values, distance=distance, beta=beta, bound=bound)
        self.steps.pop()  # the vector of which the function is made
        self.steps.append(Given(name, tuple(values.shape), distance, bound, scale_of(released.noise), beta))
        return released

    def skip(self, name: str, to: tuple[str, ...]) -> None:
        super().skip(name, to)
        self.steps.append(Skipped(name, to))


@dataclass(frozen=True)
class FitTranscript:
    """All that a learner asked of a curator in one fit, in order, with the events that were calibrated for it."""

    learner: AbstractOfflineLearner | FunctionalReward
    privatizer: AbstractPrivatizer
    events: tuple[Event, ...]
    steps: tuple[Asked | Given | Skipped, ...]

    @property
    def asked(self) -> tuple[Asked, ...]:
        return tuple(step for step in self.steps if isinstance(step, Asked))


def record_fit(
    data: AbstractDataset | RewardFunction,
    learner: AbstractOfflineLearner | FunctionalReward,
    privatizer: AbstractPrivatizer,
    key: PRNGKeyArray | None,
) -> FitTranscript:
    """Fits once, as `privrl.fit` does, and writes down every question."""
    declared = learner.declare()
    privatizer.check(type(learner).__name__, declared)
    ledger = privatizer.calibrate(declared)
    events = ledger.events()
    source = System() if key is None else Seeded(key)
    if isinstance(data, RewardFunction):
        assert isinstance(learner, FunctionalReward)
        curator = RecordingCurator(_Nobody(), ledger, source, privatizer.mechanism_of_rounds)
        values = jnp.asarray(data.values)
        learner.fit(
            lambda name, *, distance, beta: curator.function(name, values, distance=distance, beta=beta, bound=1.0)
        )
    else:
        assert isinstance(learner, AbstractOfflineLearner)
        people = _Records(data.bounded(*learner.space))
        curator = RecordingCurator(people, ledger, source, privatizer.mechanism_of_rounds)
        learner.fit(curator)
    return FitTranscript(learner, privatizer, events, tuple(curator.steps))


def scale_of(noise: AbstractNoise) -> float:
    """The scale of a law of noise that has one."""
    return float(noise.scale)  # type: ignore[attr-defined]
