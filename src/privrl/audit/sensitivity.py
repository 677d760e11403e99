"""Sensitivity search: can any two people move a release further than its noise allows?

The search starts from every pair of records of a tiny world, or from random, extreme and malformed records. From
the best pair it climbs: it changes something on either side, and keeps what moves the two further apart. It
measures distances in floating point, as statistics are written, and on the lattice, in the whole numbers that noise
is added to.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int, Shaped

from privrl.audit.findings import to_json_object
from privrl.audit.surface.neighbouring_records import (
    AnyRecords,
    join_records,
    mutate_records,
    pick_records,
    widen_records,
)
from privrl.audit.surface.queries import CHUNK, Query, as_taken_by
from privrl.contracts.statistic import AbstractStatistic, Adjacency
from privrl.privacy.noise.lattice import LatticeError, choose_lattice, count_filled

Norm = Literal["l2", "l1"]
Arithmetic = Literal["float", "lattice"]
_ALIKE = 6  # releases of one name to search: the first, the last, and some in between
_TOLERANCE = {"float": 1e-9, "lattice": 1e-14}  # whole numbers are compared exactly, except for the last digit


@dataclass(frozen=True)
class Sensitivity:
    """The furthest that one person was found to move a release, and the sensitivity that its noise is calibrated for.

    A ratio above 1 refutes the declared sensitivity. A ratio far below 1 is not a fault: the bound is loose, or the
    search is weak. On the lattice, `declared` is what its guarantee states in whole steps: for two records the
    sensitivity with all rounding, for one record the norm that is enforced.
    """

    release: str
    statistic: str
    adjacency: Adjacency
    norm: Norm
    found: float
    declared: float
    arithmetic: Arithmetic = "float"

    @property
    def ratio(self) -> float:
        return self.found / self.declared

    @property
    def broken(self) -> bool:
        return not self.ratio <= 1.0 + _TOLERANCE[self.arithmetic]

    def to_json(self) -> dict[str, object]:
        return to_json_object(self, ratio=self.ratio)


def sensitivities(
    statistic: AbstractStatistic,
    records: AnyRecords,
    *,
    published: object = None,
    query: object = None,
    rounds: int = 0,
    seed: int = 0,
) -> tuple[Sensitivity, ...]:
    """Search for records that break the bounds of a statistic: L2 and L1, both relations, in floats and on a lattice.

    Arguments:
        statistic: your own, or one of `privrl.statistics`.
        records: stacked records, such as `adversarial_records(horizon, num_states, num_actions)`.
        published: what was published when these people took part (`query` of `contribution`).
        query: the query afterwards (`query` of `answer`).
        rounds: how many rounds to climb from the best pair of records.
        seed: the seed of the climb.

    Returns:
        The largest distance of two records' terms and the largest norm of one, each with its declared bound. Use
        `any(found.broken for found in ...)`.
    """
    asked = Query(type(statistic).__name__, statistic, published, query)
    both: tuple[Norm, ...] = ("l2", "l1")
    return search_sensitivities([asked], records, np.random.default_rng(seed), rounds=rounds, norms=both, lattice=both)


def search_sensitivities(
    asked: Sequence[Query],
    records: AnyRecords,
    rng: np.random.Generator,
    *,
    rounds: int = 12,
    norms: tuple[Norm, ...] = ("l2",),
    lattice: tuple[Norm, ...] = (),
) -> tuple[Sensitivity, ...]:
    """Find the worst sensitivity of every release name, relation and norm.

    Arguments:
        asked: the queries to search. Of the queries with one name, a few are searched.
        records: stacked records to begin with.
        rng: the randomness of the climb.
        rounds: how many rounds to climb.
        norms: the norms to measure in floating point.
        lattice: the norms to measure in whole numbers as well.
    """
    found: dict[tuple[str, str, Adjacency, Norm, Arithmetic], Sensitivity] = {}
    for one in _some_of_each(asked):
        X = one.answers(records)
        i, j, _ = find_farthest(X)
        pair = climb(one.answers, pick_records(records, np.array([i, j])), rng, rounds)
        X = np.concatenate([X, one.answers(pair)])
        joined, filled = None, 0
        if lattice and one.on_lattice:
            joined, filled = (
                join_records(pair, records),
                count_filled(
                    one.statistic, widen_records(pick_records(as_taken_by(one.statistic, pair), 0)), one.published
                ),
            )
        for norm in norms:
            for s in _moved(one, norm, X, joined if norm in lattice else None, filled):
                key = (s.release, s.statistic, s.adjacency, s.norm, s.arithmetic)
                if key not in found or not s.ratio <= found[key].ratio:
                    found[key] = s
    return tuple(found.values())


def _moved(
    one: Query, norm: Norm, X: Float[np.ndarray, "N D"], records: AnyRecords | None, filled: int
) -> Iterator[Sensitivity]:
    """Measure how far two answers are apart, and how large one answer is.

    In floats; and in the whole numbers of a release's lattice if there are `records`, two of which fill `filled`
    entries. Yields nothing if the statistic has no bound in this norm.
    """
    norm_of_one, kind = _declared(one, norm, "add-remove"), type(one.statistic).__name__
    for adjacency in ("replace-one", "add-remove"):
        declared = _declared(one, norm, adjacency)
        if declared is None or norm_of_one is None:
            return
        yield Sensitivity(one.name, kind, adjacency, norm, _largest(X, norm, adjacency), declared)
        if records is None:
            continue
        lattice = choose_lattice(parameter=1.0, sensitivity=declared, norm=norm_of_one, filled=filled, kind=norm)
        limit = lattice.granularity * (math.sqrt(lattice.limit) if norm == "l2" else float(lattice.limit))
        try:
            found = lattice.granularity * _largest(one.to_steps(records, lattice), norm, adjacency)
        except LatticeError:
            found = math.inf
        covered = lattice.sensitivity if adjacency == "replace-one" else limit
        yield Sensitivity(one.name, kind, adjacency, norm, found, covered, "lattice")


def _largest(X: Shaped[np.ndarray, "N D"], norm: Norm, adjacency: Adjacency) -> float:
    """Return the largest distance of two rows, or the largest norm of one; exactly for whole numbers."""
    if not np.isfinite(X).all():
        return math.inf
    if adjacency == "add-remove":
        return max(_norm(row, norm) for row in X)
    if norm == "l2":
        i, j, _ = find_farthest(X.astype(float))
        return _norm(X[i] - X[j], norm)
    rows = np.unique(X, axis=0)
    rows = rows[np.argsort(-np.abs(rows).sum(axis=1))[:800]]  # the largest rows are furthest apart
    return max(float(np.abs(rows - row[None]).sum(axis=1).max()) for row in rows)


def _norm(row: Shaped[np.ndarray, " D"], norm: Norm) -> float:
    if norm == "l1":
        return float(np.abs(row).sum())
    if row.dtype.kind == "i":
        return math.sqrt(sum(n * n for n in row[row != 0].tolist()))  # Python's integers do not overflow
    return float(np.linalg.norm(row))


def climb(
    answers: Callable[[AnyRecords], Float[np.ndarray, "N D"]], pair: AnyRecords, rng: np.random.Generator, rounds: int
) -> AnyRecords:
    """Change both of two stacked records at random for `rounds` rounds, and keep the pair that is furthest apart."""
    half = CHUNK // 2
    for _ in range(rounds):
        changed = mutate_records(pick_records(pair, np.repeat([0, 1], half)), rng)
        rest = (pick_records(changed, slice(side + 1, side + half)) for side in (0, half))
        first, second = (
            pick_records(pair, slice(side, side + 1)) for side in (0, 1)
        )  # stay in the running as they are
        changed = join_records(first, next(rest), second, next(rest))
        X = answers(changed)
        left, right = X[:half], X[half:]
        if not np.isfinite(X).all():
            return pick_records(changed, np.array([int(np.argmin(np.isfinite(X).all(axis=1))), half]))
        i, j = np.unravel_index(int(_squared(left, right).argmax()), (half, half))
        pair = pick_records(changed, np.array([i, half + j]))
    return pair


def find_farthest(X: Float[np.ndarray, "N D"]) -> tuple[int, int, float]:
    """Find the two rows furthest apart in L2 norm; a row that is not finite is infinitely far from everything."""
    broken = ~np.isfinite(X).all(axis=1)
    if broken.any():
        return int(np.argmax(broken)), 0, math.inf
    _, first = np.unique(X, axis=0, return_index=True)
    rows = X[first]
    best = (0, 0, -1.0)
    for start in range(0, len(rows), 1024):
        squares = _squared(rows[start : start + 1024], rows)
        row, column = divmod(int(squares.argmax()), len(rows))
        if squares[row, column] > best[2]:
            best = (int(first[start + row]), int(first[column]), float(squares[row, column]))
    i, j, _ = best
    return i, j, float(np.linalg.norm(X[i] - X[j]))


def _squared(left: Float[np.ndarray, "N D"], right: Float[np.ndarray, "M D"]) -> Float[np.ndarray, "N M"]:
    return (left**2).sum(1)[:, None] + (right**2).sum(1)[None, :] - 2.0 * left @ right.T


def _declared(asked: Query, norm: Norm, adjacency: Adjacency) -> float | None:
    """Return the declared bound; `None` if the statistic has none in L1 norm."""
    if norm == "l2":
        return float(asked.statistic.l2(adjacency))
    try:
        return float(asked.statistic.l1(adjacency))
    except ValueError:  # "is released with Gaussian noise"
        return None


def _some_of_each(asked: Sequence[Query]) -> list[Query]:
    chosen: list[Query] = []
    for name in dict.fromkeys(one.name for one in asked):
        alike = [one for one in asked if one.name == name]
        spots: Int[np.ndarray, " k"] = np.unique(np.linspace(0, len(alike) - 1, min(_ALIKE, len(alike))).astype(int))
        chosen.extend(alike[i] for i in spots)
    return chosen
