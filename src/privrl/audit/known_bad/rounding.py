"""Noise added to rounded numbers: sums of floats that the other world cannot produce, and mirrored entries of a
symmetric matrix that are rounded differently and get one draw.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int64, PRNGKeyArray

from privrl.audit.known_bad.case import DELTA, EPSILON, Audited, audit_by_counting, case
from privrl.audit.protocol.relations import find_relations
from privrl.privacy.accounting.gdp import gdp_mu
from privrl.privacy.noise.discrete import discrete_gaussian
from privrl.privacy.noise.distributions import SymmetricNoise
from privrl.privacy.noise.lattice import Lattice, choose_lattice
from privrl.privacy.noise.random_words import Words
from privrl.privacy.noise.symmetric import mirror_triangle, pack_triangle

_SHIFT, _UNIT = 2.0**-6, 2.0**-32
_PEOPLE, _DIM = 700, 3


@functools.cache
def _lattice() -> Lattice:
    mu = gdp_mu(EPSILON, DELTA)
    return choose_lattice(parameter=mu, sensitivity=math.sqrt(2), norm=1.0, filled=_DIM**2, kind="l2")


def _reachable(y: Float[np.ndarray, "2 n m"], total: float) -> Bool[np.ndarray, "2 n m"]:
    """Whether some float z gives total + z == y; if one does, it is y - total or a float next to it."""
    z = y - total
    return np.logical_or.reduce([total + x == y for x in (z, np.nextafter(z, -np.inf), np.nextafter(z, np.inf))])


@case(
    paper="practice",
    trials=4_000,
    flaw="Gaussian noise is added in floating point, as if floats were real numbers",
    proof="0 + z and 1/64 + z round to different sets of floats: a value outside one set rules that world out",
)
def floating_point_noise(key: PRNGKeyArray, trials: int, *, flawed: bool) -> Audited:
    """Many coordinates, all 0 or all 1/64, with noise of scale 1: (1, 1e-5)-private if numbers were real."""
    shape = (2, trials, int((gdp_mu(EPSILON, DELTA) / _SHIFT) ** 2))
    seed = np.asarray(jax.random.bits(key, (8,), "uint32"))
    if flawed:
        noise = np.random.Generator(np.random.Philox(seed.tolist())).standard_normal(shape)
    else:
        noise = _UNIT * discrete_gaussian(Words(seed.tobytes()), round(1 / _UNIT), shape)
    y = noise + _SHIFT * np.arange(2)[:, None, None]

    def logs(total: float) -> Float[np.ndarray, "2 n"]:
        """The log probability of y up to a constant: the density times the spacing of what can come out here."""
        spacing = np.maximum(np.spacing(np.abs(y)), np.spacing(np.abs(y - total))) if flawed else np.float64(_UNIT)
        return np.where(_reachable(y, total), np.log(spacing) - (y - total) ** 2 / 2, -np.inf).sum(axis=-1)

    # If a world is ruled out, the ratio is infinite; any large number represents it.
    return audit_by_counting(np.clip(logs(_SHIFT) - logs(0.0), -1e3, 1e3), detail=f"{shape[-1]} coordinates")


def _uneven(rng: np.random.Generator) -> Float[np.ndarray, "d d"]:
    """Return (w phi_i) phi_j of a weighted Gram matrix that falls on both sides of a lattice point.

    phi_j is chosen so that the product is a lattice point except for rounding. One in a few features works.
    """
    g = _lattice().granularity
    while True:
        w, phi = rng.uniform(0.3, 1.0), rng.uniform(0.2, 0.5, _DIM)
        point = np.floor(w * phi[0] * phi[1] / g) * g
        phi[1] = point / (w * phi[0])
        gram = (w * phi)[:, None] * phi[None, :]
        if np.trunc(gram[0, 1] / g) != np.trunc(gram[1, 0] / g):
            return gram


def _both_triangles(units: Float[np.ndarray, "d d"], people: int) -> Int64[np.ndarray, "d d"]:
    """Release as an earlier version did: every entry is summed, and the noise is mirrored."""
    drawn = np.triu(discrete_gaussian(Words(), _lattice().noise, units.shape))
    return people * np.trunc(units).astype(np.int64) + drawn + np.triu(drawn, 1).T


def _one_triangle(units: Float[np.ndarray, "d d"], people: int) -> Int64[np.ndarray, "d d"]:
    """Release as the shipped code does: a number of the upper triangle stands for both entries."""
    upper = np.trunc(np.asarray(pack_triangle(jnp.asarray(units)))).astype(np.int64)
    return mirror_triangle(_lattice().add_noise(SymmetricNoise(_lattice().scale, _DIM), people * upper, Words()))


@case(
    paper="practice",
    trials=1_000,
    flaw="a symmetric matrix is summed entry by entry, and [i,j] and [j,i] get the same draw",
    proof="(w φᵢ) φⱼ and (w φⱼ) φᵢ round to different whole numbers: their difference is a count, without noise",
)
def mirrored_noise(key: PRNGKeyArray, trials: int, *, flawed: bool) -> Audited:
    """700 people against 701, all with one feature: release[0, 1] - release[1, 0]."""
    units = _uneven(np.random.default_rng(np.asarray(jax.random.key_data(key)))) / _lattice().granularity
    release = _both_triangles if flawed else _one_triangle
    drawn = np.array([[release(units, people) for _ in range(trials)] for people in (_PEOPLE, _PEOPLE + 1)])
    scores = np.abs(drawn[:, :, 0, 1] - drawn[:, :, 1, 0]).astype(float)
    upper = np.triu_indices(_DIM)
    std = np.where(upper[0] == upper[1], 1.0, math.sqrt(0.5)) * _lattice().noise
    related = find_relations(drawn[0][:, *upper], std, "Gram", np.random.default_rng(0))
    detail = f"[0, 1] - [1, 0] is {scores[0, 0]:g} for {_PEOPLE} people and {scores[1, 0]:g} for one more"
    found = audit_by_counting(scores, detail=detail)
    return Audited(found.claimed, found.audited, found.unit, found.caught or bool(related), detail)


CASES = (floating_point_noise, mirrored_noise)
