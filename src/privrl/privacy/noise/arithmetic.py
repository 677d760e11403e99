"""The two arithmetics of a release behind one interface: floating point for simulations, whole numbers for people.

Whoever makes a release adds up contributions (`total`), adds noise (`noisy`) and reads the result (`release`), and need
not know which of the two it is. `Floating` is here; `Lattice` is in `lattice.py`.
"""

import abc
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from privrl.contracts.noise_distribution import AbstractNoise
from privrl.contracts.release import Release
from privrl.contracts.statistic import AbstractStatistic
from privrl.privacy.noise.maximum import MaximumNoise
from privrl.privacy.noise.sources import white_noise


class AbstractArithmetic(abc.ABC):
    """How one release is computed: what its sums consist of, and where its noise comes from."""

    sensitivity: float
    """How far one person can move the sum, the arithmetic's own rounding included."""

    @property
    @abc.abstractmethod
    def scale(self) -> float:
        """The scale of the noise."""

    @abc.abstractmethod
    def zeros(self, statistic: AbstractStatistic) -> Any:
        """The sum over nobody."""

    @abc.abstractmethod
    def total(self, statistic: AbstractStatistic, records: Any, question: Any, taking_part: Bool[Array, " B"]) -> Any:
        """The sum of the contributions of the records of a batch that take part; the others are empty records."""

    def plus(
        self,
        total: Any,
        statistic: AbstractStatistic,
        records: Any,
        question: Any,
        taking_part: Bool[Array, " B"],
        entries: int,
    ) -> Any:
        """A sum with one more batch in it; the sum that was passed must not be used again. `entries` is the largest
        number of entries that one record has in its blocks."""
        del entries
        return total + self.total(statistic, records, question, taking_part)

    @abc.abstractmethod
    def check_room(self, records: int) -> None:
        """Refuses sums over so many records that could not be represented."""

    @abc.abstractmethod
    def noisy(self, law: AbstractNoise, total: Any, randomness: Any) -> Any:
        """The sum with new noise of the law, whose scale is `scale`."""

    @abc.abstractmethod
    def release(self, law: AbstractNoise, noisy: Any) -> Release:
        """A noisy sum, or one that needs no noise, as a learner sees it."""


@dataclass(frozen=True)
class Floating(AbstractArithmetic):
    """Floating-point sums with seeded noise: for simulations, and without noise where no privacy is claimed.

    Which floats can come out depends on the sum, so this noise protects nobody, whatever its scale.
    """

    sensitivity: float
    parameter: float

    @property
    def scale(self) -> float:
        return self.sensitivity / self.parameter

    def zeros(self, statistic: AbstractStatistic) -> Float[Array, "..."]:
        return jnp.zeros(statistic.raw_shape)

    def total(
        self, statistic: AbstractStatistic, records: Any, question: Any, taking_part: Bool[Array, " B"]
    ) -> Float[Array, "..."]:
        del taking_part  # the others are empty, and contribute nothing
        total = _summed(statistic, records, question)
        check_shape(statistic, total.shape)
        return total

    def check_room(self, records: int) -> None:
        del records  # floats round, and never leave their range in sums of bounded terms

    def noisy(self, law: AbstractNoise, total: Float[Array, "..."], randomness: PRNGKeyArray) -> Float[Array, "..."]:
        return total + law.scaled(white_noise(law.white, randomness, law.shape))

    def release(self, law: AbstractNoise, noisy: Float[Array, "..."]) -> Release:
        return Release(jnp.argmax(noisy)[None] if isinstance(law, MaximumNoise) else jnp.asarray(noisy), law)


@eqx.filter_jit
def _summed(statistic: AbstractStatistic, records: Any, question: Any) -> Float[Array, "..."]:
    return statistic.total(records, question)


def empty_contributes(statistic: AbstractStatistic) -> str:
    """What is said of a statistic that cannot be summed in batches, which are filled up with empty records."""
    return (
        f"`{type(statistic).__name__}` contributes something for an empty record (`length` 0), which must contribute "
        "zero. Nothing was released."
    )


def check_shape(statistic: AbstractStatistic, shape: tuple[int, ...]) -> None:
    """Refuses a statistic that contributes other arrays than those its sensitivity speaks of."""
    if shape != statistic.raw_shape:
        raise ValueError(
            f"`{type(statistic).__name__}` contributes arrays of shape {shape}, not the {statistic.raw_shape} that its "
            "sensitivity speaks of. Nothing was released."
        )
