"""Local privacy by vectors: each person sends their whole term with Gaussian or Laplace noise of their own."""

import math
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int64, PRNGKeyArray, PyTree

from privrl.contracts.noise_distribution import AbstractNoise, NoiseKind
from privrl.contracts.release import Release
from privrl.contracts.statistic import AbstractStatistic
from privrl.privacy.noise.lattice import Lattice, choose_lattice
from privrl.privacy.noise.sources import Randomness, white_noise
from privrl.privacy.trust.channels import Number, noise_of, noise_of_sum, sensitivity_of
from privrl.privacy.trust.local_channels import AbstractLocalChannel, AbstractWholeTerms

_MAX_SCALES = 40  # noise exceeds this number of scales with a probability of exp(-800) or exp(-40) (Laplace)


class VectorChannel(AbstractLocalChannel):
    """Each person sends their whole term with noise of their own.

    **Formal guarantee.** Two records give terms at most the replace-one sensitivity apart, so with `scale` >=
    sensitivity / mu each message is mu-GDP, hence locally private, on its own. With Laplace noise and the L1
    sensitivity it is epsilon-locally private for `scale` >= sensitivity / epsilon.
    """

    statistic: AbstractStatistic
    sensitivity: Float[Array, ""]
    scale: Float[Array, ""]
    running: bool = eqx.field(static=True)
    mechanism: NoiseKind = eqx.field(static=True, default="gaussian")

    @property
    def calibration(self) -> tuple[float, float]:
        return float(self.sensitivity), float(self.scale)

    def report(self, record: PyTree, query: PyTree, index: Number, key: PRNGKeyArray) -> Array:
        del index
        noise = noise_of(self.statistic, self.mechanism, self.scale)
        drawn = noise.from_white(white_noise(noise.white, key, self.statistic.shape))
        return self.statistic.contribution(record, query) + drawn

    def decode(self, report: Array, query: PyTree, index: Number) -> tuple[Array, Array]:
        del query, index
        return report, jnp.ones(self.statistic.shape)

    def to_release(self, value: Array, reports: Array) -> Release:
        return Release(value, noise_of_sum(self.statistic, self.mechanism, self.scale, reports.max(), 1.0))

    def reports(self) -> "VectorReports":
        sensitivity, scale = self.calibration
        norm = sensitivity_of(self.statistic, self.mechanism, "add-remove")
        kind, filled = "l1" if self.mechanism == "laplace" else "l2", math.prod(self.statistic.raw_shape)
        # Without noise (infinite epsilon) any fine lattice will do: use that of parameter 1, and draw no noise.
        parameter = sensitivity / scale if scale else 1.0
        lattice = choose_lattice(parameter=parameter, sensitivity=sensitivity, norm=norm, filled=filled, kind=kind)
        if not scale:
            lattice = Lattice(lattice.granularity, norm, lattice.sensitivity, 0, kind)
        return VectorReports(self, lattice)


class VectorReports(AbstractWholeTerms):
    """Whole terms with noise, in steps of a public lattice; for a symmetric matrix its upper triangle.

    **Formal guarantee.** The lattice is that of `choose_lattice` for records that fill every entry, so a report costs
    at most the parameter sensitivity / scale (mu of Gaussian noise, epsilon of Laplace noise). It is clipped to the
    range before it is sent, which is post-processing.
    """

    channel: VectorChannel
    lattice: Lattice

    @property
    def calibration(self) -> tuple[float, float]:
        return self.lattice.sensitivity, self.lattice.scale

    @property
    def shape(self) -> tuple[int, ...]:
        return self.statistic.steps_shape

    @property
    def largest(self) -> int:
        limit = self.lattice.limit
        return (math.isqrt(limit) if self.lattice.kind == "l2" else limit) + _MAX_SCALES * self.lattice.noise

    @property
    def _noise(self) -> AbstractNoise:
        return noise_of(self.statistic, self.channel.mechanism, self.lattice.scale)

    def randomise(self, truth: Int64[np.ndarray, "..."], randomness: Randomness) -> Int64[np.ndarray, "..."]:
        noisy = self.lattice.add_noise(self._noise, truth, randomness) if self.lattice.noise else truth
        return np.clip(noisy, -self.largest, self.largest)

    def checker(self) -> Callable[[np.ndarray], None]:
        shape, largest = self.shape, self.largest

        def check(report: np.ndarray) -> None:
            fits = report.shape == shape and report.dtype == np.int64
            if not (fits and ((report >= -largest) & (report <= largest)).all()):
                raise ValueError(f"Expected a report of shape {shape} with integers from {-largest} to {largest}.")

        return check

    def totals(self, steps: Int64[np.ndarray, " length"]) -> tuple[Array, Array]:
        value = self.lattice.value(self._noise, steps[:-1].reshape(self.shape))
        return value, jnp.full(self.statistic.shape, float(steps[-1]))
