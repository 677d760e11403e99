"""Exact relations: is there any combination of the numbers in a release that has no noise of its own?

Every released number must have a draw of its own. If two of them share one (the mirrored entries of a matrix, two
releases from one draw), or if some combination of them cancels all draws, then what this combination says of people is
published as it is, and no epsilon covers it. So the same total is released many times by the shipped code with exact
noise, and the releases are searched for what stays the same: entries without noise, entries that differ by a constant
(or add up to one), and any other direction in which the draws have no spread. The rank of the noise must be the number
of released numbers: m for m numbers, d (d + 1)/2 for a symmetric matrix, whose mirrored entries must be equal to the
last bit, whatever people contributed.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64, Int64, Shaped

from privrl.audit.findings import Finding
from privrl.audit.people import SameTotal
from privrl.audit.recorded_fit import FitTranscript, Given, Skipped
from privrl.audit.recorded_run import RunTranscript
from privrl.audit.records import picked, wide
from privrl.audit.statistics import Asked
from privrl.contracts.release import Release
from privrl.contracts.statistic import AbstractStatistic
from privrl.privacy.accounting.ledger import Ledger
from privrl.privacy.continual.exact import ExactStream
from privrl.privacy.functions.paths import whiten
from privrl.privacy.noise.sources import System, standard_normal
from privrl.privacy.noise.symmetric import on_diagonal
from privrl.privacy.noise.words import Words
from privrl.privacy.trust.channels import RoundsChannel
from privrl.privacy.trust.curator import AbstractPeople, Curator
from privrl.privacy.trust.local_channels import AbstractLocalChannel, SymbolChannel

EXACT_RELATIONS = "exact-relations"
_BLOCK = 64  # numbers whose joint rank is taken at once, from
_DRAWS = 3 * _BLOCK  # so many draws: the least spread of independent noise is then about 1 - sqrt(1/3) of its scale
_LEAST = 0.05
_EQUAL = 1e-9  # of the noise; a lattice has at least 2^32 points per scale


def relations(
    draws: Shaped[np.ndarray, "n *shape"], std: Float[np.ndarray, "*shape"], what: str, rng: np.random.Generator
) -> list[str]:
    """What `n` releases of the same total have in common beyond their number, for claimed standard deviations."""
    flat = (draws - draws[:1]).reshape(len(draws), -1).astype(float) / np.broadcast_to(std, draws.shape[1:]).ravel()
    alike: dict[tuple[float, ...], int] = {}
    own, found = [], []
    for i in range(flat.shape[1]):
        column = flat[1:, i]
        if np.abs(column).max() <= _EQUAL:
            found.append(f"{what}: entry {i} is the same in every draw")
            continue
        sign = np.sign(column[0]) or 1.0
        j = alike.setdefault(tuple(np.round(sign * column[:3], 8)), i)
        if j != i and np.abs(flat[:, i] - flat[:, j] * np.sign(flat[1, j]) * sign).max() <= _EQUAL:
            found.append(f"{what}: entries {j} and {i} share one draw")
            continue
        own.append(i)
    blocks = max(1, min(4, len(own) // _BLOCK))
    for _ in range(blocks if own else 0):
        some = np.sort(rng.permutation(own)[:_BLOCK])
        spread, direction = _least_spread(flat[:, some])
        if spread < _LEAST:
            heavy = some[np.argsort(-np.abs(direction))[:4]].tolist()
            found.append(f"{what}: a combination of entries {heavy} (and others) has {spread:.2g} of its noise")
    return found[:8]


def _least_spread(draws: Float64[np.ndarray, "n m"]) -> tuple[float, Float64[np.ndarray, " m"]]:
    """The smallest standard deviation of a combination with weights of norm 1, and these weights."""
    _, values, directions = np.linalg.svd(draws - draws.mean(axis=0), full_matrices=False)
    return float(values[-1]) / np.sqrt(len(draws) - 1), directions[-1]


def asymmetry(release: Release, what: str) -> list[str]:
    """What a released symmetric matrix says twice, and not alike."""
    value = np.asarray(release.value)
    apart = np.argwhere(value != value.T)
    if not len(apart):
        return []
    i, j = apart[0]
    return [f"{what}: [{i}, {j}] - [{j}, {i}] is {value[i, j] - value[j, i]:.6g}, without noise"]


class Lopsided(AbstractStatistic):
    """A statistic whose matrices are symmetric but for the last bits, and rounded to different whole numbers.

    As where (w phi_i) phi_j and (w phi_j) phi_i fall on both sides of a lattice point: a person adds `step` below the
    diagonal and a little less above it.
    """

    inner: AbstractStatistic
    step: Float[Array, ""]
    shape: tuple[int, ...]
    symmetric: bool

    def __init__(self, inner: AbstractStatistic, step: float) -> None:
        self.inner, self.shape, self.symmetric = inner, inner.shape, inner.symmetric
        self.step = jnp.asarray(step)

    def contribution(self, record: Any, question: Any) -> Array:
        whole = jnp.full(self.shape, self.step) * (record.length > 0)
        return jnp.where(jnp.triu(jnp.ones(self.shape, bool), 1), whole * (1.0 - 2.0**-40), whole)

    def l2(self, adjacency: Any) -> float:
        return self.inner.l2(adjacency)

    def l1(self, adjacency: Any) -> float:
        return self.inner.l1(adjacency)


def of_fit(
    fit: FitTranscript,
    people: AbstractPeople,
    rng: np.random.Generator,
    curator_of: Callable[[AbstractPeople, Ledger], Curator] | None = None,
) -> Finding:
    """Every kind of release that a learner asked for, made again and again by the shipped curator.

    `curator_of` puts another curator in its place (known-bad ones).
    """
    declared = fit.learner.declare()
    mechanism = fit.privatizer.mechanism_of_rounds

    def shipped(people: AbstractPeople, ledger: Ledger) -> Curator:
        return Curator(people, ledger, System(), mechanism)

    def released(step: Asked | Given, people: AbstractPeople, statistic: AbstractStatistic | None) -> Release:
        ledger = Ledger(declared, fit.events, fit.privatizer.adjacency)
        curator = (curator_of or shipped)(people, ledger)
        if isinstance(step, Asked):
            fixed = ledger.declared(step.name).statistic is not None and statistic is step.statistic
            return curator(step.name, None if fixed else statistic)
        value = jnp.asarray(step.neighbours()[0])
        if step.beta is None:
            return curator.vector(step.name, value, distance=step.distance, bound=step.bound)
        function = curator.function(step.name, value, distance=step.distance, beta=step.beta, bound=step.bound)
        return Release(whiten(function.values, step.beta), function.noise)  # the numbers that were drawn

    found: list[str] = []
    tried = 0
    seen: set[str] = set()
    for step in fit.steps:
        if isinstance(step, Skipped) or step.name in seen:
            continue
        seen.add(step.name)
        same = SameTotal(people)
        statistic = step.statistic if isinstance(step, Asked) else None
        releases = [released(step, same, statistic) for _ in range(_DRAWS)]
        values = np.stack([np.asarray(release.value) for release in releases])
        std = np.sqrt(np.broadcast_to(np.asarray(releases[0].noise.variance), values.shape[1:]))
        if statistic is not None and statistic.symmetric:
            found += asymmetry(releases[0], step.name)
            found += _lopsided(step, people, statistic, fit, released)
            rows, columns = np.triu_indices(statistic.shape[0])
            values, std = values[:, rows, columns], std[rows, columns]
        found += relations(values, std, step.name, rng)
        tried += values[0].size
    return Finding(EXACT_RELATIONS, tried, tuple(found))


def _lopsided(
    step: Asked | Given,
    people: AbstractPeople,
    statistic: AbstractStatistic,
    fit: FitTranscript,
    released: Callable[[Asked | Given, AbstractPeople, AbstractStatistic | None], Release],
) -> list[str]:
    """The same release where everybody's matrix is rounded differently above and below the diagonal."""
    declared = next(d for d in fit.learner.declare() if d.name == step.name)
    if declared.statistic is not None or not isinstance(step, Asked) or step.release is None:
        return []
    spread = float(np.max(np.asarray(step.release.noise.std)))
    uneven = Lopsided(statistic, 2.0 ** (np.floor(np.log2(spread)) - 20))  # a multiple of any lattice of that noise
    return asymmetry(released(step, people, uneven), f"{step.name}, uneven matrices")


def of_run(run: RunTranscript, records: Any, rng: np.random.Generator) -> Finding:
    """Everything that an online learner releases, by the exact stream, by reports, or by answers of a simulation."""
    found: list[str] = []
    tried = 0
    record = jax.tree.map(lambda x: jnp.asarray(x[0]), wide(picked(records, np.arange(1))))
    for name, channel in run.channels.items():
        if isinstance(channel, SymbolChannel):
            continue  # an answer at random has no noise to cancel
        statistic = channel.statistic
        if isinstance(channel, AbstractLocalChannel):
            reports = channel.reports()
            if reports.law is None or not reports.law[1] > 0.0:
                continue
            truth = reports.truth(record, run.plans[0], 0)
            values = np.stack([reports.randomised(truth, Words()) for _ in range(_DRAWS)])
            std = _units_std(statistic, _spread(values), values.shape[1:])
        elif isinstance(channel, RoundsChannel):
            _, _, _, question = next(q for q in run.questions if q[0] == name)
            values, std = _answers(channel, question, rng)
        else:
            values, std = _stream(run, name, record, found)
        found += relations(values, std, name, rng)
        tried += values[0].size
    return Finding(EXACT_RELATIONS, tried, tuple(found))


def _stream(
    run: RunTranscript, name: str, record: Any, found: list[str]
) -> tuple[Int64[np.ndarray, "n t *shape"], Float[np.ndarray, "..."]]:
    """The noisy encoded sums of all blocks, from the shipped stream."""
    parameter, blocks = run.ledger.parameter(name), len(run.ends)
    stream = ExactStream(run.channels[name], blocks, parameter, run.privatizer.adjacency, record, run.plans[0])
    one = stream.units(record, run.plans[0])
    encoded = [stream.encoded(np.stack([one] * (t + 1))) for t in range(blocks)]
    draws = np.stack([[stream.noisy(total, Words()) for total in encoded] for _ in range(_DRAWS)])
    if stream.statistic.symmetric:
        found += asymmetry(stream.release(list(draws[0])), name)
    return draws, _units_std(stream.statistic, float(stream.lattice.noise), draws.shape[1:])


def _answers(
    channel: RoundsChannel, question: Any, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "n *shape"], Float[np.ndarray, "*shape"]]:
    """Answers of a simulated curator, who is the only one that answers new questions about people who left."""
    keys = jax.random.split(jax.random.key(int(rng.integers(2**31))), _DRAWS)
    memory = channel.init()

    def one(key: Any) -> Array:
        return channel.ask(memory, question, lambda i: standard_normal(key, channel.statistic.shape)).value

    release = channel.ask(memory, question, lambda i: jnp.zeros(channel.statistic.shape))
    values = np.asarray(jax.vmap(one)(keys))
    return values, np.sqrt(np.broadcast_to(np.asarray(release.noise.variance), values.shape[1:]))


def _spread(values: Int64[np.ndarray, "n *shape"]) -> float:
    """The noise in reports, whose lattice is not public to an attacker: that of the noisiest number."""
    return float(values.astype(float).std(axis=0).max())


def _units_std(statistic: AbstractStatistic, noise: float, shape: tuple[int, ...]) -> Float[np.ndarray, "..."]:
    """Per whole number; beside the diagonal of a symmetric matrix the noise is smaller by sqrt 2."""
    if not statistic.symmetric:
        return np.full(shape, noise)
    one = np.where(on_diagonal(np.zeros(statistic.units_shape)), noise, noise / np.sqrt(2.0))
    return np.broadcast_to(one, shape)
