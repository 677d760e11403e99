"""What an evaluation says about groups of people and about a second outcome. Neither decides on a release."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from privrl.evaluation.confidence import Interval

FEWEST_IN_GROUP = 100
"""With fewer people, by the noisy number, nothing more is said about a group."""
_DEVIATIONS = 5.0  # of the noise in the number: then ratios are close to normal
_TOO_FEW = "too few people"


def are_few(people: float, deviation: float) -> bool:
    """Whether a noisy number of people, with this standard deviation, is not clearly large enough."""
    return people < max(FEWEST_IN_GROUP, _DEVIATIONS * deviation)


@dataclass(frozen=True)
class GroupEstimate:
    """What is known about the people of one group.

    Attributes:
        name: of the group, public.
        people: how many of them were evaluated, a noisy number.
        deviation: the standard deviation of its noise.
        practice: the mean return under current practice; `None` if there are too few people.
        gain: what the chosen policy adds; `None` too if no gain is given for all people.
    """

    name: str
    people: float
    deviation: float
    practice: Interval | None = None
    gain: Interval | None = None

    def __post_init__(self) -> None:
        if self.few != (self.practice is None) or (self.few and self.gain is not None):
            raise ValueError(
                f"The evaluation is malformed: what it says of the group `{self.name}` does not follow from its number "
                "of people."
            )

    @property
    def few(self) -> bool:
        """Whether there are too few people to say more."""
        return are_few(self.people, self.deviation)

    @property
    def harmed(self) -> bool:
        """Whether the whole interval of the gain is below 0."""
        return self.gain is not None and self.gain.high < 0.0

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """The group, its number of people, practice and gain, for tables."""
        if self.practice is None:
            return self.name, _TOO_FEW, "", ""
        gain = "" if self.gain is None else self.gain.words()
        return self.name, f"about {round(self.people):,}", self.practice.words(""), gain

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, with what follows from the numbers."""
        return {
            "name": self.name,
            "people": self.people,
            "deviation": self.deviation,
            "too_few": self.few,
            "practice": None if self.practice is None else asdict(self.practice),
            "gain": None if self.gain is None else asdict(self.gain),
            "harmed": self.harmed,
        }


def worst_first(groups: Iterable[GroupEstimate]) -> tuple[GroupEstimate, ...]:
    """By gain, and by practice without one; groups of too few people come last."""

    def rank(group: GroupEstimate) -> tuple[bool, float, float]:
        gain, practice = (0.0 if one is None else one.value for one in (group.gain, group.practice))
        return group.few, gain, practice

    return tuple(sorted(groups, key=rank))


@dataclass(frozen=True)
class OutcomeEstimate:
    """What is known about a second outcome, in its own unit.

    Attributes:
        name: of the column.
        largest: the public largest total of an episode.
        practice: the mean total of an episode under current practice.
        difference: what the chosen policy adds to it; `None` if no gain is given.
    """

    name: str
    largest: float
    practice: Interval
    difference: Interval | None = None

    @property
    def words(self) -> str:
        """Both in a sentence."""
        said = f"The mean of `{self.name}` per episode is {self._of(self.practice)} under current practice"
        if self.difference is None:
            return f"{said}."
        return f"{said}, and the policy changes it by {self._of(self.difference, '+')}."

    def _of(self, interval: Interval, sign: str = "") -> str:
        """With as many decimals as the largest total needs for three digits of it."""
        places = next((n for n in range(6) if self.largest * 10**n >= 1000.0), 6)
        ends = (f"{end:{sign},.{places}f}" for end in (interval.value, interval.low, interval.high))
        value, low, high = ends
        return f"{value} [{low}, {high}]"

    @property
    def cells(self) -> tuple[tuple[str, str], ...]:
        """Rows of a table: what, and its value with its interval."""
        rows = [("current practice", self._of(self.practice))]
        rows += [] if self.difference is None else [("change under the policy", self._of(self.difference, "+"))]
        return tuple(rows)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)
