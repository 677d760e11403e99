"""The pilot that would settle what an evaluation leaves open, from public numbers and releases alone."""

import math
import shlex
from dataclasses import dataclass
from typing import Any

from privrl.evaluation.estimates import Evaluation

EPSILON, DELTA = 1.0, 1e-6
"""The budget of the suggested pilot."""
_USUAL = 0.05  # the gain to look for if the evaluation names none, as a share of the range
_MARGIN = 0.01


@dataclass(frozen=True)
class NextPilot:
    """A pilot that shows a gain in nine of ten cases.

    Attributes:
        people: its largest number of people; `None` if a million are not enough.
        gain: the gain, on the scale of the outcome.
        points: the same in hundredths, if outcomes lie between 0 and 1.
        folder: where the policy is saved; `None` if there is no policy.
        worse: whether the policy was found worse than practice.
    """

    people: int | None
    gain: float
    points: int | None
    folder: str | None
    worse: bool = False

    @property
    def sentence(self) -> str:
        """The suggestion as a sentence."""
        if self.worse:
            return "No pilot is suggested, because the policy was found worse than current practice."
        gain = f"{self.gain:.3g}" if self.points is None else f"{self.points} points"
        gain = "1 point" if self.points == 1 else gain
        if self.people is None:
            return f"A pilot of a million people would not show a gain of {gain} reliably at epsilon {EPSILON:g}."
        shows = (
            f"a pilot with {self.people:,} people would show a gain of {gain} in nine of ten cases at epsilon "
            f"{EPSILON:g}, whatever was not recorded"
        )
        if self.folder is None:
            return f"Next step: {shows}. It needs the policy, which was not kept: fit without `--require-better`."
        return (
            f"Next step: {shows} (`privrl pilot init {shlex.quote(self.folder)} --people {self.people} "
            f"--epsilon {EPSILON:g} --delta {DELTA:g} --out pilot.toml`)."
        )

    def to_json(self) -> dict[str, Any]:
        """The suggestion as JSON."""
        if self.worse:
            return {"people": None, "gain": None, "sentence": self.sentence}
        numbers = {"people": self.people, "gain": self.gain, "epsilon": EPSILON, "delta": DELTA, "power": 0.9}
        return {**numbers, "sentence": self.sentence}


def suggest_pilot(
    evaluation: Evaluation, return_range: tuple[float, float] | None, folder: str | None = "POLICY"
) -> NextPilot:
    """Suggests a pilot of the whole advice, for the gain that the model of the evaluation names, or for a usual one.

    Arguments:
        evaluation: released estimates.
        return_range: the range of returns that the evaluation enforced; 0 to 1 by default.
        folder: where the policy is saved; `None` if there is no policy.
    """
    from privrl.learners.trials.trial import find_people

    low, high = return_range or (0.0, 1.0)
    width = high - low
    practice = min(max((evaluation.practice.value - low) / width, _MARGIN), 1 - 2 * _MARGIN)
    named = evaluation.model_gain
    gain = _USUAL if named is None or named.value < _MARGIN * width else named.value / width
    share = max(math.floor(100 * min(gain, 1 - _MARGIN - practice)), 1) / 100
    people = find_people(practice, share, epsilon=EPSILON, delta=DELTA)
    points = round(100 * share) if (low, high) == (0.0, 1.0) else None
    return NextPilot(people, share * width, points, folder, evaluation.verdict == "worse")
