"""The curator's view of a table in shards: exact sums over workers, equal to those of one process.

Ledger, lattice, noise and store stay with the driver. A worker is sent a statistic, the lattice and the key of the
release's coins, and gives back the sum over its people; the sums are whole numbers, so their order does not matter.
"""

from typing import Any

import numpy as np
from jaxtyping import Array, Bool, Float64, Int64

from privrl.contracts.statistic import AbstractStatistic
from privrl.data.tables.shards import Group, Shard, ShardedEpisodes
from privrl.executors.executor import in_place
from privrl.privacy.noise.arithmetic import AbstractArithmetic
from privrl.privacy.noise.poisson_sample import PoissonSample
from privrl.privacy.trust.privatizers import AbstractPrivatizer
from privrl.studies.offline.curated_records import AbstractSecret, Records

NOT_EXACT = (
    "An `executor` adds up whole numbers, and this study has floating-point sums (a `key`, or no privacy), which "
    "depend on the order of addition. Leave out `executor`."
)


class ShardedRecords(AbstractSecret):
    """All people of a table in shards, or a group of them.

    **Formal guarantee.** A release is the one that `Records` would make of the whole table: every person is in one
    shard, record number e has the same coin e, a person's group is a function of their id, and a record's whole numbers
    do not depend on the shard that holds it (on machines whose floating-point arithmetic is the same).

    Arguments:
        records: the same data, for what does not depend on people.
        group: the people that are summed; all of them without a group.
        counts: the number of these people and of their kept episodes in every shard.
    """

    def __init__(
        self, records: Records, data: ShardedEpisodes, group: Group | None, counts: Int64[np.ndarray, "N 2"]
    ) -> None:
        self._records, self._data, self._group, self._counts = records, data, group, counts

    @classmethod
    def of(cls, records: Records, data: ShardedEpisodes) -> "ShardedRecords":
        """Opens the records of all people; checks all shards now."""
        found = [(summary.num_units, summary.num_episodes) for summary in data.summaries()]
        return cls(records, data, None, np.array(found, np.int64))

    @property
    def num_units(self) -> int:
        return int(self._counts[:, 0].sum())

    @property
    def records_per_unit(self) -> int:
        return self._records.records_per_unit

    @property
    def counts(self) -> dict[str, int]:
        return {"users": self.num_units, "episodes": int(self._counts[:, 1].sum())}

    def unit(self, wanted: str | None, privatizer: AbstractPrivatizer) -> str:
        return self._records.unit(wanted, privatizer)

    def notes(self, groups: bool) -> tuple[str, ...]:
        return self._records.notes(groups)

    def digest(self, key: bytes) -> bytes:
        return self._data.digest(key)

    def filled(self, statistic: AbstractStatistic) -> int:
        return self._records.filled(statistic)

    def total(
        self, statistic: AbstractStatistic, included: PoissonSample | None, arithmetic: AbstractArithmetic
    ) -> Array | np.ndarray:
        if not arithmetic.exact:
            raise ValueError(NOT_EXACT)
        self._records.check(statistic, arithmetic)  # what is wrong with every shard is said here
        numbers = self._counts[:, 0 if statistic.per_person else 1]
        firsts = (np.cumsum(numbers) - numbers).tolist()
        executor = self._data.start_executor()
        total = executor.sum_shards(_total, statistic, included, arithmetic, self._group, own=firsts)
        arithmetic.check_room(int(self._counts[:, 1].sum()))
        return total

    def groups(self, key: bytes, purpose: str, edges: Float64[np.ndarray, " G"]) -> "list[Any]":
        parts = [Group(key, purpose, tuple(edges.tolist()), i) for i in range(len(edges) + 1)]
        found = dict(self._data.start_executor().map_shards(_counted, parts))
        counts = np.array([found[i] for i in range(len(found))], np.int64)
        return [ShardedRecords(self._records, self._data, part, counts[:, i]) for i, part in enumerate(parts)]

    def unit_draws(self, key: bytes, purpose: str) -> Float64[np.ndarray, " U"]:
        return self._records.unit_draws(key, purpose)

    def part(self, chosen: Bool[np.ndarray, " U"]) -> "ShardedRecords":
        raise ValueError(NOT_EXACT)


@in_place
def _total(
    shard: Shard,
    statistic: AbstractStatistic,
    included: PoissonSample | None,
    arithmetic: AbstractArithmetic,
    group: Group | None,
    first: int,
    onto: Int64[np.ndarray, "..."] | None,
) -> Int64[np.ndarray, "..."]:
    data = shard.part(group)
    if data.num_episodes == 0:
        return arithmetic.zeros(statistic) if onto is None else onto
    return np.asarray(Records(data, first).total(statistic, included, arithmetic, onto))


def _counted(shard: Shard, groups: list[Group]) -> list[tuple[int, int]]:
    parts = [shard.part(group) for group in groups]
    return [(part.num_units, part.num_episodes) for part in parts]
