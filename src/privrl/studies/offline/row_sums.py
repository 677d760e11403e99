"""The distinct rows of a table, each with how often it is there, as an exact sum of a statistic is made of them."""

import math
from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from privrl.mdp.types import Transitions
from privrl.privacy.noise.arithmetic import RepeatedBlocks
from privrl.statistics.row_statistics import AbstractRowStatistic
from privrl.studies.offline.batched_sums import LANES, WORKING

_ROWS = 2**18  # that are summed at once, where a block is a number


def blocks_of_rows(statistic: AbstractRowStatistic, rows: Transitions) -> Iterator[RepeatedBlocks]:
    """The blocks of a statistic that adds one for every row, from the distinct rows and their counts.

    Rows are taken in pieces whose blocks fit in bounded memory: sums of whole numbers are the same in any order.

    **Formal guarantee.** What a row adds does not depend on other rows. Programs for arrays of different lengths give
    different last bits, and the number of distinct rows depends on all people: one more person could move all others'
    whole numbers. So where a term is a floating-point number (a statistic of one step), rows are summed in arrays of
    one length, which follows from the public shape of a block; a place in them does not matter (see `batch_size`).
    Without a step, terms are 0 or 1 (`SumHints.row_by_row`), which no program rounds, and few lengths make for few
    programs.
    """
    if statistic.hints.ignores_next_state:
        rows = _without_next_states(rows)
    blank = jax.tree.map(lambda x: x[:1], rows)
    block = math.prod(jax.eval_shape(statistic.terms, blank)[1].shape[1:])
    number, most = len(rows.count), max(1, min(_ROWS, WORKING // block) // LANES) * LANES
    size = most if statistic.stage is not None else min(most, _size_for(number))
    rows = jax.tree.map(np.asarray, rows)  # cut and filled up here, where nothing is compiled for every length
    for first in range(0, number, size):
        missing = max(0, first + size - number)
        part = jax.tree.map(lambda x: np.pad(x[first : first + size], (0, missing)), rows)  # noqa: B023
        yield RepeatedBlocks(*_terms(statistic, part))


def _size_for(rows: int) -> int:
    """A multiple of `LANES` with room for this number of rows, at most an eighth larger if there are many; there are
    eight such multiples between a power of 2 and the next."""
    step = max(LANES, 2 ** ((rows - 1).bit_length() - 4))
    return math.ceil(rows / step) * step


def _without_next_states(rows: Transitions) -> Transitions:
    """Rows that differ in the next state alone as one, with their counts added up."""
    keys = np.stack([np.asarray(x) for x in (rows.step, rows.state, rows.action)], axis=-1)
    distinct, place = np.unique(keys, axis=0, return_inverse=True)
    count = np.bincount(place.ravel(), weights=np.asarray(rows.count), minlength=len(distinct))
    step, state, action = distinct.T
    none = np.full(len(distinct), -1)
    return Transitions(step, state, action, none, count, np.zeros(len(distinct)))


@eqx.filter_jit
def _terms(statistic: AbstractRowStatistic, rows: Transitions) -> tuple[Array, Array, Array]:
    """The term of each distinct row as if it were there once, and how often it is there."""
    once = eqx.tree_at(lambda r: (r.count, r.reward), rows, ((rows.count > 0) * 1.0, jnp.zeros_like(rows.reward)))
    return *statistic.terms(once), jnp.rint(rows.count).astype(int)
