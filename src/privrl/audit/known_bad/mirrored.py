"""Both triangles of a symmetric matrix in whole numbers, and one draw of noise for both: their difference has none."""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int64, PRNGKeyArray

from privrl.audit.known_bad.case import Audited, Case
from privrl.audit.known_bad.two_worlds import DELTA, EPSILON, by_counting
from privrl.audit.relations import relations
from privrl.privacy.accounting.gdp import gdp_mu
from privrl.privacy.noise.discrete import discrete_gaussian
from privrl.privacy.noise.lattice import lattice_for
from privrl.privacy.noise.laws import SymmetricNoise
from privrl.privacy.noise.symmetric import mirrored, packed
from privrl.privacy.noise.words import Words

_Drawing = Callable[[int, Words], Int64[np.ndarray, "d d"]]
_PEOPLE, _DIM = 700, 3
_LATTICE = lattice_for(parameter=gdp_mu(EPSILON, DELTA), sensitivity=math.sqrt(2), norm=1.0, filled=_DIM**2, kind="l2")


def _uneven(rng: np.random.Generator) -> Float[np.ndarray, "d d"]:
    """(w phi_i) phi_j of a weighted Gram matrix that falls on both sides of a lattice point.

    phi_j is chosen so that the product is a lattice point but for rounding; one in a few features will do.
    """
    while True:
        w, phi = rng.uniform(0.3, 1.0), rng.uniform(0.2, 0.5, _DIM)
        point = np.floor(w * phi[0] * phi[1] / _LATTICE.granularity) * _LATTICE.granularity
        phi[1] = point / (w * phi[0])
        gram = (w * phi)[:, None] * phi[None, :]
        if np.trunc(gram[0, 1] / _LATTICE.granularity) != np.trunc(gram[1, 0] / _LATTICE.granularity):
            return gram


def _both_triangles(gram: Float[np.ndarray, "d d"]) -> _Drawing:
    """The lattice as it was: every entry is summed, and the noise is mirrored."""
    units = np.trunc(gram / _LATTICE.granularity).astype(np.int64)

    def release(people: int, words: Words) -> Int64[np.ndarray, "d d"]:
        drawn = np.triu(discrete_gaussian(words, _LATTICE.noise, units.shape))
        return people * units + drawn + np.triu(drawn, 1).T

    return release


def _one_triangle(gram: Float[np.ndarray, "d d"]) -> _Drawing:
    """The shipped one: a number of the upper triangle stands for both."""
    units = np.trunc(np.asarray(packed(jnp.asarray(gram))) / _LATTICE.granularity).astype(np.int64)
    law = SymmetricNoise(_LATTICE.scale, _DIM)
    return lambda people, words: mirrored(_LATTICE.noisy(law, people * units, words))


def _subtract_triangles(key: PRNGKeyArray, trials: int, *, once: bool) -> Audited:
    """700 people against 701, all with one feature: release[0, 1] - release[1, 0]."""
    gram = _uneven(np.random.default_rng(np.asarray(jax.random.key_data(key))))
    release = (_one_triangle if once else _both_triangles)(gram)
    drawn = np.array([[release(people, Words()) for _ in range(trials)] for people in (_PEOPLE, _PEOPLE + 1)])
    scores = np.abs(drawn[:, :, 0, 1] - drawn[:, :, 1, 0]).astype(float)
    upper = np.triu_indices(_DIM)
    std = np.where(upper[0] == upper[1], 1.0, math.sqrt(0.5)) * _LATTICE.noise
    related = relations(drawn[0][:, *upper], std, "Gram", np.random.default_rng(0))
    detail = f"[0, 1] - [1, 0] is {scores[0, 0]:g} for {_PEOPLE} people and {scores[1, 0]:g} for one more"
    found = by_counting(scores, detail=detail)
    return Audited(found.claimed, found.audited, found.unit, found.caught or bool(related), detail)


CASES = (
    Case(
        name="mirrored-noise",
        paper="practice",
        flaw="a symmetric matrix is summed entry by entry, and [i,j] and [j,i] get the same draw",
        proof="(w φᵢ) φⱼ and (w φⱼ) φᵢ round to different whole numbers: their difference is a count, without noise",
        attack=functools.partial(_subtract_triangles, once=False),
        trials=1_000,
        corrected=functools.partial(_subtract_triangles, once=True),
    ),
)
