"""Gaussian noise in floating point: sums that the other world cannot produce."""

import functools

import jax
import numpy as np
from jaxtyping import Bool, Float, PRNGKeyArray

from privrl.audit.known_bad.case import Audited, Case
from privrl.audit.known_bad.two_worlds import DELTA, EPSILON, by_counting
from privrl.privacy.accounting.gdp import gdp_mu
from privrl.privacy.noise.discrete import discrete_gaussian
from privrl.privacy.noise.words import Words

_SHIFT, _UNIT = 2.0**-6, 2.0**-32
_COORDINATES = int((gdp_mu(EPSILON, DELTA) / _SHIFT) ** 2)


def _reachable(y: Float[np.ndarray, "2 n m"], total: float) -> Bool[np.ndarray, "2 n m"]:
    """Whether some float z gives total + z == y; if one does, it is y - total or a float next to it."""
    z = y - total
    return np.logical_or.reduce([total + x == y for x in (z, np.nextafter(z, -np.inf), np.nextafter(z, np.inf))])


def _logs(y: Float[np.ndarray, "2 n m"], total: float, *, lattice: bool) -> Float[np.ndarray, "2 n"]:
    """The log probability of an output up to a constant: the density times the spacing of what can come out here."""
    spacing = np.full_like(y, _UNIT) if lattice else np.maximum(np.spacing(np.abs(y)), np.spacing(np.abs(y - total)))
    logs = np.log(spacing) - (y - total) ** 2 / 2
    return np.where(_reachable(y, total), logs, -np.inf).sum(axis=-1)


def _tell_by_the_last_bits(key: PRNGKeyArray, trials: int, *, lattice: bool) -> Audited:
    """Many coordinates, all 0 or all 1/64, with noise of scale 1: (1, 1e-5)-private if numbers were real."""
    shape = (2, trials, _COORDINATES)
    seed = np.asarray(jax.random.bits(key, (8,), "uint32"))
    if lattice:
        noise = _UNIT * discrete_gaussian(Words(seed.tobytes()), round(1 / _UNIT), shape)
    else:
        noise = np.random.Generator(np.random.Philox(seed.tolist())).standard_normal(shape)
    y = noise + _SHIFT * np.arange(2)[:, None, None]
    zero, one = (_logs(y, total, lattice=lattice) for total in (0.0, _SHIFT))
    # Where a world is ruled out the ratio is infinite; any large number says so.
    return by_counting(np.clip(one - zero, -1e3, 1e3), detail=f"{_COORDINATES} coordinates")


CASES = (
    Case(
        name="floating-point-noise",
        paper="practice",
        flaw="Gaussian noise is added in floating point, as if floats were real numbers",
        proof="0 + z and 1/64 + z round to different sets of floats: a value outside one set rules that world out",
        attack=functools.partial(_tell_by_the_last_bits, lattice=False),
        trials=4_000,
        corrected=functools.partial(_tell_by_the_last_bits, lattice=True),
    ),
)
