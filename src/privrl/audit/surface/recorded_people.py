"""People of a table with cached sums, and people whose groups are recorded."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Array, Bool, Float64, Int64

from privrl.contracts.statistic import AbstractStatistic
from privrl.privacy.noise.arithmetic import AbstractArithmetic
from privrl.privacy.noise.poisson_sample import PoissonSample
from privrl.privacy.trust.people import AbstractPeople


class CachedPeople(AbstractPeople):
    """The shipped people, with exact sums that are computed once. All people are in every sum, whatever the sampling
    is.
    """

    def __init__(self, people: AbstractPeople) -> None:
        self._people = people
        self._filled: dict[int, tuple[AbstractStatistic, int]] = {}
        self._units: dict[tuple[int, AbstractArithmetic], Int64[np.ndarray, "..."]] = {}

    @property
    def num_units(self) -> int:
        return self._people.num_units

    @property
    def records_per_unit(self) -> int:
        return self._people.records_per_unit

    def total(
        self, statistic: AbstractStatistic, included: PoissonSample | None, arithmetic: AbstractArithmetic
    ) -> Array | np.ndarray:
        if not arithmetic.exact:
            return self._people.total(statistic, included, arithmetic)
        self.filled(statistic)  # keeps the statistic, so that no other one gets its number
        key = (id(statistic), arithmetic)
        if key not in self._units:
            self._units[key] = np.asarray(self._people.total(statistic, None, arithmetic))
        return self._units[key]

    def filled(self, statistic: AbstractStatistic) -> int:
        if id(statistic) not in self._filled:
            self._filled[id(statistic)] = (statistic, self._people.filled(statistic))
        return self._filled[id(statistic)][1]

    def part(self, chosen: Bool[np.ndarray, " U"]) -> AbstractPeople:
        return self._people.part(chosen)

    def unit_draws(self, key: bytes, purpose: str) -> Float64[np.ndarray, " U"]:
        return self._people.unit_draws(key, purpose)


class SameTotal(CachedPeople):
    """All people in every group, so that the same total is released again and again."""

    def part(self, chosen: Bool[np.ndarray, " U"]) -> AbstractPeople:
        del chosen
        return self

    def unit_draws(self, key: bytes, purpose: str) -> Float64[np.ndarray, " U"]:
        del key, purpose
        return np.zeros(self.num_units)


class GroupRecorder(CachedPeople):
    """People whose groups are recorded by id in `groups`."""

    def __init__(self, people: AbstractPeople, ids: Sequence[str], groups: list[set[str]]) -> None:
        super().__init__(people)
        self._ids, self._groups = ids, groups

    def part(self, chosen: Bool[np.ndarray, " U"]) -> AbstractPeople:
        self._groups.append({self._ids[i] for i in np.flatnonzero(chosen).tolist()})
        return super().part(chosen)
