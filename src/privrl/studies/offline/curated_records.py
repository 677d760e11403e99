"""What a curator holds: the episodes of a data set at rest, summed in bounded memory, or one secret function."""

import abc

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float64, Int64

from privrl.contracts.learner import AbstractOfflineAnalysis
from privrl.contracts.statistic import AbstractStatistic
from privrl.data.dataset import AbstractDataset
from privrl.data.reward_function import RewardFunction
from privrl.data.tables.part import Part
from privrl.privacy.noise.arithmetic import AbstractArithmetic
from privrl.privacy.noise.lattice import count_filled_by_blocks
from privrl.privacy.noise.poisson_sample import PoissonSample
from privrl.privacy.trust.people import AbstractPeople
from privrl.privacy.trust.privatizers import AbstractPrivatizer, PairingError
from privrl.studies.memory import check_sum
from privrl.studies.offline.summands import EpisodeSummands

_FUNCTION = "reward function"
_NO_PERSON = "what is hidden is the reward function; people whose data shaped it are not protected by this certificate"
_GROUPS = (
    "people were split into groups by a pseudorandom function of their ids under a secret key: for a person replaced "
    "by one of another id the guarantee of the split is computational"
)


class AbstractSecret(AbstractPeople):
    """What a curator holds, with what a study needs to know about it."""

    @property
    @abc.abstractmethod
    def counts(self) -> dict[str, int]:
        """How much of it there is; public where the number of people is."""

    @abc.abstractmethod
    def unit(self, wanted: str | None, privatizer: AbstractPrivatizer) -> str:
        """What one privacy unit is called; refuses what cannot be claimed of it."""

    @abc.abstractmethod
    def notes(self, groups: bool) -> tuple[str, ...]:
        """What the certificate adds; `groups` says whether units were split by a keyed function of their ids."""

    @abc.abstractmethod
    def digest(self, key: bytes) -> bytes:
        """A keyed digest, to notice another secret; it says nothing without the key."""


class SecretFunction(AbstractSecret):
    """One reward function and no people: sums over people are zero."""

    num_units = 0
    records_per_unit = 1

    def __init__(self, data: RewardFunction) -> None:
        self._data = data

    @property
    def counts(self) -> dict[str, int]:
        return {"users": 0, "episodes": 0}

    @classmethod
    def of(cls, data: RewardFunction, learner: AbstractOfflineAnalysis) -> "SecretFunction":
        """Refuses a function that the learner's world has no room for."""
        places = learner.space[0]
        if len(data.values) != places:
            raise ValueError(
                f"The reward function has {len(data.values)} mesh points and the learner's world has {places} places. "
                "Let both agree."
            )
        return cls(data)

    @property
    def function(self) -> Float[Array, " n"]:
        return jnp.asarray(self._data.values)

    def unit(self, wanted: str | None, privatizer: AbstractPrivatizer) -> str:
        if wanted not in (None, _FUNCTION):
            raise ValueError(
                f"`unit` is {wanted!r}; what is hidden here is which of two similar reward functions was used, and no "
                "person. Leave `unit` out."
            )
        if privatizer.adjacency != "replace-one":
            raise ValueError(
                f"`adjacency` is {privatizer.adjacency!r}; a reward function can be replaced by a similar one, but not "
                "removed. Use 'replace-one'."
            )
        return _FUNCTION

    def notes(self, groups: bool) -> tuple[str, ...]:
        del groups
        return (_NO_PERSON,)

    def digest(self, key: bytes) -> bytes:
        return self._data.digest(key)

    def total(
        self, statistic: AbstractStatistic, included: PoissonSample | None, arithmetic: AbstractArithmetic
    ) -> Array | np.ndarray:
        del included
        return arithmetic.zeros(statistic)

    def filled(self, statistic: AbstractStatistic) -> int:
        return 1

    def part(self, chosen: Bool[np.ndarray, " U"]) -> "SecretFunction":
        return self

    def unit_draws(self, key: bytes, purpose: str) -> Float64[np.ndarray, " U"]:
        del key, purpose
        return np.zeros(0)


class Records(AbstractSecret):
    """The curator's view of a data set: exact sums over kept episodes, in bounded memory.

    Where the data are one shard of several, `first` is the number of kept records before it: coins are by number.
    """

    def __init__(self, data: AbstractDataset, first: int = 0) -> None:
        self._data, self._first = data, first

    @classmethod
    def of(cls, data: AbstractDataset, learner: AbstractOfflineAnalysis) -> "Records":
        """Refuses data that do not fit the learner."""
        if data.horizon != learner.horizon:
            raise ValueError(
                f"The data have `horizon`={data.horizon} and the learner has `horizon`={learner.horizon}. Let both "
                "agree."
            )
        if data.reward_range[0] < 0.0 or data.reward_range[1] > 1.0:
            raise ValueError(
                f"`reward_range` of the data is {data.reward_range}; learners need rewards in [0, 1]. Rescale the "
                "rewards with public constants before reading the table."
            )
        numbered, num_actions = learner.space
        data = data.with_sizes(None if learner.measurements else numbered, num_actions)
        if data.features != learner.measurements:
            raise ValueError(
                f"The data have the columns {_listed(data.features)}, and the learner {_listed(learner.measurements)}. "
                "Let both agree, in names, bounds and order."
            )
        return cls(data)

    @property
    def data(self) -> AbstractDataset:
        return self._data

    @property
    def num_units(self) -> int:
        return self._data.num_units

    @property
    def records_per_unit(self) -> int:
        return self._data.max_episodes_per_unit

    @property
    def counts(self) -> dict[str, int]:
        return {"users": self.num_units, "episodes": self._data.num_episodes}

    def unit(self, wanted: str | None, privatizer: AbstractPrivatizer) -> str:
        del privatizer
        return wanted or "unit"

    def notes(self, groups: bool) -> tuple[str, ...]:
        return (_GROUPS,) if groups else ()

    def digest(self, key: bytes) -> bytes:
        return self._data.digest(key)

    def part(self, chosen: Bool[np.ndarray, " U"]) -> "Records":
        return Records(Part(self._data, chosen))

    def unit_draws(self, key: bytes, purpose: str) -> Float64[np.ndarray, " U"]:
        return self._data.unit_draws(key, purpose)

    def total(
        self,
        statistic: AbstractStatistic,
        included: PoissonSample | None,
        arithmetic: AbstractArithmetic,
        onto: Int64[np.ndarray, "..."] | None = None,
    ) -> Array | np.ndarray:
        """As of all people; in whole numbers also added onto the sum of other people, which must not be used again."""
        self.check(statistic, arithmetic)
        marks = None if included is None else lambda first, count: included.draws(self._first + first, count)
        return arithmetic.sum_records(statistic, EpisodeSummands(self._data, statistic, marks), onto)

    def check(self, statistic: AbstractStatistic, arithmetic: AbstractArithmetic) -> None:
        """Refuses a statistic that cannot be summed; no record is read."""
        check_sum(statistic)
        arithmetic.check(statistic, EpisodeSummands(self._data, statistic))

    def filled(self, statistic: AbstractStatistic) -> int:
        return count_filled_by_blocks(statistic, EpisodeSummands(self._data, statistic).block_shape)


def secret_of(data: AbstractDataset | RewardFunction, learner: AbstractOfflineAnalysis) -> AbstractSecret:
    """What the curator holds, checked against what the learner learns from."""
    if (learner.learns_from == "reward function") != isinstance(data, RewardFunction):
        raise PairingError(
            f"`{type(data).__name__}` and `{type(learner).__name__}` do not go together. A `RewardFunction` is learnt "
            "from by `FunctionalReward`; people's episodes by an offline learner such as `QLearning`."
        )
    return SecretFunction.of(data, learner) if isinstance(data, RewardFunction) else Records.of(data, learner)


def _listed(columns: tuple[object, ...]) -> str:
    return ", ".join(f"`{column}`" for column in columns)
