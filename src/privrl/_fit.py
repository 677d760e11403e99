"""`fit`: a table of people in, a policy and its certificate out."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int64, PRNGKeyArray

from privrl._result import Result
from privrl.data import AbstractDataset, Part
from privrl.learners import AbstractLearner, AbstractOfflineLearner
from privrl.mdp import TabularPolicy, Trajectory, Transitions
from privrl.privacy import (
    AbstractPeople,
    AbstractPrivatizer,
    AbstractStatistic,
    Curator,
    Lattice,
    Ledger,
    PairingError,
    ReleaseStore,
    Seeded,
    System,
    filled_by,
    lattice_of_blocks,
    lattice_total,
)
from privrl.statistics import AbstractRowStatistic


def fit(
    data: AbstractDataset,
    learner: AbstractLearner,
    privatizer: AbstractPrivatizer,
    *,
    key: PRNGKeyArray | None = None,
    unit: str = "unit",
    store: ReleaseStore | None = None,
) -> Result:
    """Learns a policy from a data set at rest.

    Arguments:
        data: the people, from `privrl.data`. A pass over the table checks every row, and nothing is released from a
            pass that finds a fault.
        learner: an offline learner such as `APVI`.
        privatizer: `Central(...)`, or `NonPrivate()`.
        key: seeded, replayable noise for simulations; leave it out on real people, and exact noise on a lattice comes
            from the operating system's cryptographic randomness.
        unit: what one privacy unit is called in the certificate, for example "patient".
        store: a `ReleaseStore` in which every release is kept before it is used, with a hard budget. Interrupted and
            called again with the same arguments and store, `fit` reads what was released and goes on from there.

    Returns:
        the policy and the certificate.
    """
    if not isinstance(learner, AbstractOfflineLearner):
        raise PairingError(
            f"`{type(learner).__name__}` learns while people take part, so it has nothing to ask of a table. Use "
            "`privrl.run` with an environment, or an offline learner such as `APVI`."
        )
    if data.horizon != learner.horizon:
        raise ValueError(
            f"The data have `horizon`={data.horizon} and the learner has `horizon`={learner.horizon}. Let both agree."
        )
    if data.reward_range[0] < 0.0 or data.reward_range[1] > 1.0:
        raise ValueError(
            f"`reward_range` of the data is {data.reward_range}; learners need rewards in [0, 1]. Rescale the rewards "
            "with public constants before reading the table."
        )
    name = type(learner).__name__
    declared = learner.declare()
    privatizer.check(name, declared)
    ledger = privatizer.calibrate(declared)
    people = _Records(data.bounded(*learner.space))
    source = System() if key is None else Seeded(key)
    if store is not None:
        _open(store, key, learner, privatizer, ledger, unit)
    policy = learner.fit(Curator(people, ledger, source, privatizer.mechanism_of_rounds, store))
    if isinstance(policy, TabularPolicy) and policy.probabilities.shape != (learner.horizon, *learner.space):
        raise ValueError(
            f"`{name}.fit` returned a policy of shape {policy.probabilities.shape}; it must have steps, "
            f"states and actions: {(learner.horizon, *learner.space)}."
        )
    certificate = privatizer.certificate(
        ledger,
        learner=name,
        unit=unit,
        bounds={**learner.bounds(), "episodes per unit": data.max_episodes_per_unit},
        noise_source=source.description,
        notes=() if store is None else store.notes(),
    )
    return Result(policy, certificate, {"users": people.num_units, "episodes": people.num_episodes})


def _open(
    store: ReleaseStore,
    key: PRNGKeyArray | None,
    learner: AbstractOfflineLearner,
    privatizer: AbstractPrivatizer,
    ledger: Ledger,
    unit: str,
) -> None:
    """Writes what is going to be released into the store, or checks that it is the same as before a crash."""
    if key is not None or privatizer.notion == "none":
        raise ValueError(
            "A `store` keeps the releases of real people. Leave out `key` (simulated noise protects nobody), and give "
            "a budget."
        )
    study = {
        "verb": "fit",
        "learner": type(learner).__name__,
        "bounds": {name: str(value) for name, value in learner.bounds().items()},
        "events": [event.to_json() for event in ledger.events()],
        "adjacency": privatizer.adjacency,
        "unit": unit,
    }
    store.open_study(study, ledger.limits())


class _Records(AbstractPeople):
    """The curator's view of a data set: exact sums over kept episodes, in bounded memory."""

    def __init__(self, data: AbstractDataset) -> None:
        self._data = data

    @property
    def num_units(self) -> int:
        return self._data.num_units

    @property
    def num_episodes(self) -> int:
        return self._data.num_episodes

    @property
    def records_per_unit(self) -> int:
        return self._data.max_episodes_per_unit

    def part(self, chosen: Bool[np.ndarray, " U"]) -> "_Records":
        return _Records(Part(self._data, chosen))

    def total(self, statistic: AbstractStatistic, included: Callable[[int], np.ndarray] | None) -> Array:
        if isinstance(statistic, AbstractRowStatistic) and statistic.plain and included is None:
            return _shaped(statistic, _of_rows(statistic, self._rows(statistic)))
        _refuse_unless_empty_is_zero(statistic, self._data.horizon)
        summed = jnp.zeros(statistic.raw_shape)
        for batch in self._data.batches(check_first=False):  # the sum is used only if the whole pass was faultless
            taking_part = np.asarray(batch.length) > 0
            if included is not None:
                taking_part &= included(len(taking_part))
            part = _of_batch(statistic, jax.tree.map(_wide, batch), jnp.asarray(taking_part))
            summed = summed + _shaped(statistic, part)
        return summed

    def units(
        self, statistic: AbstractStatistic, included: Callable[[int], np.ndarray] | None, lattice: Lattice
    ) -> Int64[np.ndarray, "..."]:
        contribution = jax.eval_shape(statistic.contribution, _empty(self._data.horizon), None)
        _check_shape(statistic, contribution.shape)
        _refuse_unless_empty_is_zero(statistic, self._data.horizon)
        if isinstance(statistic, AbstractRowStatistic) and statistic.row_by_row and included is None:
            rows = self._rows(statistic)
            once = eqx.tree_at(
                lambda r: (r.count, r.reward), rows, ((rows.count > 0) * 1.0, jnp.zeros_like(rows.reward))
            )
            slots, blocks = _terms(statistic, once)
            lattice.check_room(int(rows.count.sum()))
            return lattice_of_blocks(slots, blocks, jnp.rint(rows.count).astype(int), statistic.raw_shape, lattice)
        summed, records = np.zeros(statistic.raw_shape, np.int64), 0
        for batch in self._data.batches(check_first=False):
            taking_part = np.asarray(batch.length) > 0
            if included is not None:
                taking_part &= included(len(taking_part))
            summed += lattice_total(statistic, jax.tree.map(_wide, batch), None, jnp.asarray(taking_part), lattice)
            records += len(taking_part)
        lattice.check_room(records)
        return summed

    def filled(self, statistic: AbstractStatistic) -> int:
        return filled_by(statistic, _empty(self._data.horizon), None)

    def _rows(self, statistic: AbstractRowStatistic) -> Transitions:
        """The distinct transitions; only those of its step for a statistic of one step, in arrays of one size."""
        rows = self._data.transitions()
        if statistic.stage is None:
            return jax.tree.map(_wide, rows)
        ends = np.searchsorted(rows.step, np.arange(self._data.horizon + 1))  # rows are sorted by step
        first, last = ends[int(statistic.stage) : int(statistic.stage) + 2]
        size = int(np.max(np.diff(ends)))
        return jax.tree.map(lambda x: _wide(np.pad(x[first:last], (0, size - (last - first)))), rows)


def _shaped(statistic: AbstractStatistic, total: Array) -> Array:
    _check_shape(statistic, total.shape)
    return total


def _check_shape(statistic: AbstractStatistic, shape: tuple[int, ...]) -> None:
    if shape != statistic.raw_shape:
        raise ValueError(
            f"`{type(statistic).__name__}` contributes arrays of shape {shape}, not the {statistic.raw_shape} that its "
            "sensitivity speaks of. Nothing was released."
        )


def _refuse_unless_empty_is_zero(statistic: AbstractStatistic, horizon: int) -> None:
    """Batches are filled up with empty records, so these must contribute nothing (rows of count 0 never do)."""
    if isinstance(statistic, AbstractRowStatistic):
        return
    if bool(jnp.any(statistic.contribution(_empty(horizon), None) != 0)):
        raise ValueError(
            f"`{type(statistic).__name__}` contributes something for an empty record (`length` 0), which must "
            "contribute zero. Nothing was released."
        )


def _empty(horizon: int) -> Trajectory:
    """A record without steps."""
    zeros = jnp.zeros(horizon, int)
    return Trajectory(zeros, zeros, jnp.zeros(horizon), zeros - 1, jnp.zeros((), int))


def _wide(x: np.ndarray) -> Array:
    """The array in 64 bits, as all arithmetic here is."""
    return jnp.asarray(x, float if np.issubdtype(x.dtype, np.floating) else int)


@eqx.filter_jit
def _of_rows(statistic: AbstractRowStatistic, rows: Any) -> Array:
    return statistic.of_rows(rows)


@eqx.filter_jit
def _terms(statistic: AbstractRowStatistic, rows: Any) -> tuple[Array, Array]:
    return statistic.terms(rows)


@eqx.filter_jit
def _of_batch(statistic: AbstractStatistic, batch: Trajectory, taking_part: Array) -> Array:
    """The sum over one batch; those who do not take part have an episode of length 0, which contributes nothing."""
    masked = eqx.tree_at(lambda b: b.length, batch, jnp.where(taking_part, batch.length, 0))
    return statistic.total(masked, None)
