"""What an evaluation says: estimates with their intervals, what was refused, and a verdict in one line.

All numbers are functions of releases alone, in the world's own units. Intervals are two-sided (`low`, `high`) and
one-sided (`lower`, `upper`), each at 95%, and their standard error holds sampling error and privacy noise together.
"""

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypedDict

import numpy as np

from privrl.contracts.noise_distribution import AbstractNoise
from privrl.contracts.untrusted import MALFORMED, convert
from privrl.mdp.assistance import AbstractAssisted, to_json_number
from privrl.mdp.assisted import AssistedPolicy
from privrl.mdp.assisted_measured import AssistedMeasuredPolicy

Standing = Literal["better", "worse", "not shown"]
_NORMAL = (1.959964, 1.644854)  # quantiles at 97.5% and 95%, in standard deviations
_EVIDENT = 3.0 / _NORMAL[0]  # three standard errors, in half widths
NEGLIGIBLE = 0.027
"""Practice is taken to follow the recorded state alone where all entries of `PracticeResiduals` are surely below."""
_LAPLACE = (2.118284, 1.644854)  # -ln(.05)/sqrt(2); its 95% quantile, 1.628, is below that of a normal


@dataclass(frozen=True)
class Interval:
    """An estimate, the ends of its two-sided interval, and those of the two one-sided ones."""

    value: float
    low: float
    high: float
    lower: float
    upper: float

    @classmethod
    def of(cls, value: float, variance: float, people: int, noise: AbstractNoise, allowance: float = 0.0) -> "Interval":
        """Around a mean over `people` of terms of this variance, released as a sum with this noise.

        `allowance` widens it on both sides, for what is not random.
        """
        se = math.sqrt(variance / people + float(np.max(noise.variance)) / people**2)
        two, one = _LAPLACE if noise.white == "laplace" else _NORMAL
        two, one = two * se + allowance, one * se + allowance
        return cls(value, value - two, value + two, value - one, value + one)

    def scaled(self, unit: float, origin: float = 0.0) -> "Interval":
        """The same in other units; `unit` is positive."""
        return Interval(*(origin + unit * end for end in asdict(self).values()))

    def wider(self, by: float) -> "Interval":
        """The same value with ends further out."""
        return Interval(self.value, self.low - by, self.high + by, self.lower - by, self.upper + by)

    @property
    def half(self) -> float:
        """Half the width of the two-sided interval."""
        return (self.high - self.low) / 2.0

    @property
    def evidently_not_zero(self) -> bool:
        """Whether 0 is more than three standard errors away."""
        return abs(self.value) > _EVIDENT * self.half

    def words(self, sign: str = "+") -> str:
        """Value and two-sided interval, three decimals."""
        return f"{self.value:{sign}.3f} [{self.low:{sign}.3f}, {self.high:{sign}.3f}]"


def variance_bound(mean: float, largest: float) -> float:
    """The largest variance of a number in [0, largest] with this mean: mean (largest - mean), by x^2 <= largest x."""
    mean = min(max(mean, 0.0), largest)
    return mean * (largest - mean)


class _Written(TypedDict):
    """The types of an `evaluation.json`."""

    policy: dict[str, Any]
    people: int
    practice: Interval
    unsupported: Interval
    balance: Interval | None
    gain: Interval | None
    assisted_gain: Interval | None
    model_gain: Interval | None
    trend: Interval | None
    continuity: Interval | None
    arrival: Interval | None
    public: bool
    sensitivity: float | str | None
    refused: list[str]
    verdict: str
    held_back: str | None


@dataclass(frozen=True)
class Evaluation:
    """How an assisted policy compares with practice.

    Attributes:
        policy: the assisted policy that was evaluated.
        people: the public number of people who were in it.
        practice: practice's mean return.
        gain: certified: what the assisted policy adds to it, if practice depends on the recorded state alone.
        assisted_gain: the same without a guarantee, where the probabilities of practice are estimated in cells of
            measurements (`mdp/assisted_measured.py`).
        model_gain: what the whole advice adds, by a model, without a guarantee.
        balance: the mean weight, which is 1 if the probabilities of practice are right.
        unsupported: share of decisions without supported advice.
        trend, continuity, arrival: what practice does beyond the recorded state, against the trend of the state, the
            decision before, and at the first decision of a stay; 0 if it follows the recorded state alone
            (`statistics/practice_residuals.py`).
        public: whether the probabilities of practice were, so that a gain can be certified.
        sensitivity: the odds ratio of an unrecorded influence that would overturn the verdict (`influence.py`).
        refused: why something is missing, in words.
    """

    policy: AbstractAssisted = field(compare=False)
    people: int
    practice: Interval
    unsupported: Interval
    balance: Interval | None = None
    gain: Interval | None = None
    assisted_gain: Interval | None = None
    model_gain: Interval | None = None
    trend: Interval | None = None
    continuity: Interval | None = None
    arrival: Interval | None = None
    public: bool = False
    sensitivity: float | None = None
    refused: tuple[str, ...] = ()

    @property
    def verdict(self) -> Standing:
        """From the certified gain alone; without one, nothing is shown."""
        return verdict_of(self.gain)

    @property
    def held_back(self) -> str | None:
        """Why the assisted policy is not handed out, so that every decision stays with practice; None where it is.

        It is handed out where the releases show that practice follows the recorded state alone (up to `NEGLIGIBLE`),
        and the estimate of the gain is above 0, or, where none is certified, the lower end of what is estimated
        without a guarantee is. A policy that is
        worse by h is then handed out with probability Phi(-h/se), so it costs h Phi(-h/se) on average: at most .17
        standard errors, whatever h is.
        """
        checks = [one for one in (self.trend, self.continuity, self.arrival) if one is not None]
        if any(one.evidently_not_zero for one in checks):
            return _FOLLOWS_MORE
        if not checks or any(max(abs(one.lower), abs(one.upper)) > NEGLIGIBLE for one in checks):
            return "There are too few people to see whether practice follows the recorded state alone."
        if self.public and self.balance is not None and not self.balance.low <= 1.0 <= self.balance.high:
            return "The probabilities of practice that were given are not how these people were treated."
        estimated = self.assisted_gain or self.model_gain
        if self.gain is None and estimated is None:
            return "There is no estimate of what the advice would change."
        seen = self.gain.value if self.gain is not None else estimated.lower  # type: ignore[union-attr]
        return None if seen > 0.0 else "No gain is seen."

    @property
    def handed_out(self) -> AbstractAssisted:
        """The assisted policy, without any advice where it is held back."""
        return self.policy if self.held_back is None else self.policy.without_advice()

    @property
    def line(self) -> str:
        """The verdict in one line."""
        if self.gain is not None and self.verdict == "better":
            return f"Better than practice, by at least {self.gain.lower:+.3f} with 95% confidence."
        if self.gain is not None and self.verdict == "worse":
            return f"Worse than practice: {self.gain.words()}."
        return "Not shown to be better than practice."

    @property
    def words(self) -> str:
        """Everything that was estimated, in sentences."""
        said = [f"Practice {self.practice.words('')}."]
        ratio = self.policy.max_ratio
        if self.gain is not None:
            raised = f"With advice raised to {ratio:g} times its frequency: {self.gain.words()}"
            said.append(f"{raised}; at least {self.gain.lower:+.3f} with 95% confidence.")
        if self.assisted_gain is not None:
            raised = f"With advice raised to {ratio:g} times its frequency (practice estimated, no guarantee)"
            said.append(f"{raised}: {self.assisted_gain.words()}.")
        if self.model_gain is not None:
            said.append(f"Full advice (model, no guarantee): {self.model_gain.words()}.")
        said.append(f"Advice without evidence: {max(self.unsupported.value, 0.0):.0%} of decisions left to practice.")
        if self.sensitivity is not None:
            said.append(
                "To overturn this verdict, an influence that was not recorded would have to change the odds of the "
                f"advised treatment by a factor of {self.sensitivity:.2f} over a stay."
            )
        if self.held_back is not None:
            said.append(f"{self.held_back} The policy is held back: every decision is left as it is today.")
        return " ".join((*said, *self.refused))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; numbers that are not finite are written as text."""
        intervals = {name: getattr(self, name) for name in _INTERVALS}
        return {
            "policy": self.policy.to_json(),
            "people": self.people,
            **{name: None if one is None else asdict(one) for name, one in intervals.items()},
            "public": self.public,
            "sensitivity": None if self.sensitivity is None else to_json_number(self.sensitivity),
            "refused": list(self.refused),
            "verdict": self.verdict,
            "held_back": self.held_back,
        }

    @classmethod
    def from_json(cls, content: Any) -> "Evaluation":
        """What `to_json` wrote; anything else, such as a verdict that does not follow from the numbers, is refused."""
        written = convert(content, _Written, "The evaluation")
        kept, sensitivity = written["policy"], written["sensitivity"]
        try:
            read = cls(
                policy=(AssistedMeasuredPolicy if "kind" in kept else AssistedPolicy).from_json(kept),
                people=written["people"],
                public=written["public"],
                sensitivity=None if sensitivity is None else float(sensitivity),
                refused=tuple(written["refused"]),
                **{name: written[name] for name in _INTERVALS},  # type: ignore[literal-required]
            )
            again = read.to_json()
        except MALFORMED as error:
            raise ValueError("The evaluation is malformed: it holds no assisted policy.") from error
        wrong = sorted(name for name in {*again, *content} if name not in content or again.get(name) != content[name])
        if wrong:
            named = ", ".join(f"`{name}`" for name in wrong)
            raise ValueError(f"The evaluation was changed or damaged: {named} does not follow from its numbers.")
        return read


_CHECKS = ("trend", "continuity", "arrival")
_INTERVALS = ("practice", "unsupported", "balance", "gain", "assisted_gain", "model_gain", *_CHECKS)
_FOLLOWS_MORE = "Practice follows more than the recorded state, so a comparison would be biased, and no gain is given."


def verdict_of(gain: Interval | None) -> Standing:
    """Better where the one-sided lower end is above 0, worse where the two-sided interval is below."""
    if gain is not None and gain.lower > 0.0:
        return "better"
    return "worse" if gain is not None and gain.high < 0.0 else "not shown"
