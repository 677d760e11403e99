"""Exact relations: is there any combination of the numbers in a release that has no noise of its own?

Every released number must have a draw of its own. If two of them share one (the mirrored entries of a matrix, two
releases from one draw), or if some combination of them cancels all draws, then that combination is published
without noise, and no epsilon covers it. So the shipped code releases the same total many times with exact noise,
and the releases are searched for what stays the same: entries without noise, entries that differ by a constant (or
add up to one), and any other direction in which the draws have no spread. The rank of the noise must be the number
of released numbers: m for m numbers, d (d + 1)/2 for a symmetric matrix, whose mirrored entries must be equal to
the last bit, whatever people contributed.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int64, PRNGKeyArray, Shaped

from privrl.audit.findings import Finding
from privrl.audit.surface.neighbouring_records import AnyRecords, pick_records, widen_records
from privrl.audit.surface.queries import Query
from privrl.audit.surface.recorded_fit import FitTranscript, Skipped, ValueQuery
from privrl.audit.surface.recorded_people import SameTotal
from privrl.audit.surface.recorded_run import RunTranscript
from privrl.contracts.release import Release
from privrl.contracts.statistic import AbstractStatistic, Adjacency
from privrl.mdp.lq import LQTrajectory
from privrl.mdp.types import Trajectory
from privrl.privacy.noise.random_words import Words
from privrl.privacy.noise.sources import System, standard_normal
from privrl.privacy.noise.symmetric import on_diagonal
from privrl.privacy.trust.channels import AbstractCuratorChannel, RoundsChannel
from privrl.privacy.trust.curator import Curator
from privrl.privacy.trust.exact_channels import ExactChannel
from privrl.privacy.trust.local_channels import AbstractLocalChannel
from privrl.privacy.trust.people import AbstractPeople
from privrl.privacy.trust.symbol_channels import SymbolChannel

EXACT_RELATIONS = "exact-relations"
_BLOCK = 64  # numbers whose joint rank is computed at once
_DRAWS = 3 * _BLOCK  # with these, the least spread of independent noise is about 1 - sqrt(1/3) of its scale
_LEAST = 0.05  # a smaller spread, as a share of the scale, is a finding
_EQUAL = 1e-9  # as a share of the noise; a lattice has at least 2^32 points per scale


def find_relations(
    draws: Shaped[np.ndarray, "n *shape"], std: Float[np.ndarray, "..."], what: str, rng: np.random.Generator
) -> list[str]:
    """Find what `n` releases of the same total have in common, for claimed standard deviations."""
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
        centred = flat[:, some] - flat[:, some].mean(axis=0)
        _, values, directions = np.linalg.svd(centred, full_matrices=False)
        spread = float(values[-1]) / np.sqrt(len(draws) - 1)  # the least of all combinations with weights of norm 1
        if spread < _LEAST:
            heavy = some[np.argsort(-np.abs(directions[-1]))[:4]].tolist()
            found.append(f"{what}: a combination of entries {heavy} (and others) has {spread:.2g} of its noise")
    return found[:8]


def find_asymmetry(release: Release, what: str) -> list[str]:
    """Find two mirrored entries of a released symmetric matrix that differ."""
    value = np.asarray(release.value)
    apart = np.argwhere(value != value.T)
    if not len(apart):
        return []
    i, j = apart[0]
    return [f"{what}: [{i}, {j}] - [{j}, {i}] is {value[i, j] - value[j, i]:.6g}, without noise"]


class Lopsided(AbstractStatistic):
    """A statistic whose matrices are symmetric except for the last bits, and are rounded to different whole numbers.

    This happens if (w phi_i) phi_j and (w phi_j) phi_i fall on both sides of a lattice point. A person adds `step`
    below the diagonal and a little less above it.
    """

    inner: AbstractStatistic
    step: Float[Array, ""]
    shape: tuple[int, ...]
    symmetric: bool

    def __init__(self, inner: AbstractStatistic, step: float) -> None:
        self.inner, self.shape, self.symmetric = inner, inner.shape, inner.symmetric
        self.step = jnp.asarray(step)

    def contribution(self, record: Trajectory | LQTrajectory, query: object) -> Array:
        whole = jnp.full(self.shape, self.step) * (record.length > 0)
        return jnp.where(jnp.triu(jnp.ones(self.shape, bool), 1), whole * (1.0 - 2.0**-40), whole)

    def l2(self, adjacency: Adjacency) -> float:
        return self.inner.l2(adjacency)

    def l1(self, adjacency: Adjacency) -> float:
        return self.inner.l1(adjacency)


def attack_fit(fit: FitTranscript, people: AbstractPeople, rng: np.random.Generator) -> Finding:
    """Make every kind of release that a learner asked for, many times, with the shipped curator."""

    def released(step: Query | ValueQuery, people: AbstractPeople) -> Release:
        return step.release_with(Curator(people, fit.ledger(), System(), fit.privatizer.mechanism_of_rounds))

    found: list[str] = []
    tried = 0
    seen: set[str] = set()
    for step in fit.steps:
        if isinstance(step, Skipped) or step.name in seen:
            continue
        seen.add(step.name)
        same = SameTotal(people)
        releases = [released(step, same) for _ in range(_DRAWS)]
        values = np.stack([np.asarray(release.value) for release in releases])
        std = np.broadcast_to(releases[0].noise.std, values.shape[1:])
        if isinstance(step, Query) and step.statistic.symmetric:
            found += find_asymmetry(releases[0], step.name)
            if fit.ledger().declared(step.name).statistic is None:
                unit = 2.0 ** (np.floor(np.log2(std.max())) - 20)  # a multiple of any lattice of that noise
                uneven = Query(step.name, Lopsided(step.statistic, unit))
                found += find_asymmetry(released(uneven, people), f"{step.name}, uneven matrices")
            rows, columns = np.triu_indices(step.shape[0])
            values, std = values[:, rows, columns], std[rows, columns]
        found += find_relations(values, std, step.name, rng)
        tried += values[0].size
    return Finding(EXACT_RELATIONS, tried, tuple(found))


def attack_run(run: RunTranscript, records: AnyRecords, rng: np.random.Generator) -> Finding:
    """Make every release of an online learner many times: by the exact stream, by reports, or by answers of a
    simulation.
    """
    found: list[str] = []
    tried = 0
    record = jax.tree.map(jnp.asarray, widen_records(pick_records(records, 0)))
    for name, channel in run.channels.items():
        if isinstance(channel, SymbolChannel):
            continue  # randomised answers have no noise that could cancel
        if isinstance(channel, AbstractLocalChannel):
            reports = channel.reports()
            if reports.calibration is None or not reports.calibration[1] > 0.0:
                continue
            truth = reports.truth(record, run.plans[0], 0)
            values = np.stack([reports.randomise(truth, Words()) for _ in range(_DRAWS)])
            noisiest = float(values.astype(float).std(axis=0).max())  # the lattice of reports is not public
            std = _units_std(channel.statistic, noisiest)
        elif isinstance(channel, RoundsChannel):
            _, _, _, query = next(q for q in run.queries if q[0] == name)
            values, std = _answers(channel, query, rng)
        else:
            values, std = _stream(run, name, record, found)
        found += find_relations(values, std, name, rng)
        tried += values[0].size
    return Finding(EXACT_RELATIONS, tried, tuple(found))


def _stream(
    run: RunTranscript, name: str, record: AnyRecords, found: list[str]
) -> tuple[Int64[np.ndarray, "n t *shape"], Float[np.ndarray, "..."]]:
    """Draw the noisy encoded sums of all blocks, from the shipped stream."""
    parameter, blocks = run.ledger.parameter(name), len(run.ends)
    channel = run.channels[name]
    assert isinstance(channel, AbstractCuratorChannel)
    often = run.ledger.participation
    stream = ExactChannel.from_channel(
        channel, blocks, parameter, run.privatizer.adjacency, often, record, run.plans[0]
    )
    one = stream.term(record, run.plans[0])
    encoded = [stream.encode((one,) * (t + 1)) for t in range(blocks)]
    draws = np.stack([[stream.add_noise(total, Words()) for total in encoded] for _ in range(_DRAWS)])
    if stream.statistic.symmetric:
        found += find_asymmetry(stream.decode(tuple(draws[0])), name)
    return draws, _units_std(stream.statistic, float(stream.lattice.noise))


def _answers(
    channel: RoundsChannel, query: object, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "n *shape"], Float[np.ndarray, "..."]]:
    """Draw answers of a simulated curator. Only simulations answer new queries about people who have left."""
    keys = jax.random.split(jax.random.key(int(rng.integers(2**31))), _DRAWS)
    memory = channel.init()

    def one(key: PRNGKeyArray) -> Array:
        return channel.ask(memory, query, lambda i: standard_normal(key, channel.statistic.shape)).value

    release = channel.ask(memory, query, lambda i: jnp.zeros(channel.statistic.shape))
    values = np.asarray(jax.vmap(one)(keys))
    return values, np.asarray(release.noise.std)


def _units_std(statistic: AbstractStatistic, noise: float) -> Float[np.ndarray, "..."]:
    """Return the standard deviation of each whole number; off the diagonal of a symmetric matrix it is smaller by sqrt
    2.
    """
    diagonal = on_diagonal(np.zeros(statistic.steps_shape)) if statistic.symmetric else True
    return np.where(diagonal, noise, noise / np.sqrt(2.0))
