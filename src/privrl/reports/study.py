"""What a study of privacy against value found, ready to be shown or written down."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from privrl.plots.means import mean_and_error
from privrl.studies.results.result import Result


@dataclass(frozen=True)
class DemoStudy:
    """What the demo found: exact values of all policies, per repetition, and the policy to keep.

    Attributes:
        baselines: values of `optimal`, `uniform`, `behaviour` (the doctors) and `mode` (their most frequent action).
        non_private: values without noise, per repetition.
        private: values per repetition, by epsilon.
        result: the policy to keep, with unseeded noise; `value` is its value.
        seed: replays the repetitions (not the policy to keep, which nobody can replay).
    """

    recipe: str
    episodes: int
    seed: int
    epsilon: float
    baselines: dict[str, float]
    non_private: tuple[float, ...]
    private: dict[float, tuple[float, ...]]
    result: Result
    value: float
    seconds: float

    @property
    def seeds(self) -> int:
        return len(self.non_private)

    @property
    def chosen_row(self) -> str:
        return f"private, epsilon = {self.epsilon:.3g}"

    def gap_closed(self, values: Sequence[float]) -> float:
        """The part of the way from the doctors to the best possible policy."""
        doctors, best = self.baselines["behaviour"], self.baselines["optimal"]
        return (mean_and_error(values)[0] - doctors) / (best - doctors)

    def rows(self) -> list[tuple[str, tuple[float, ...], float]]:
        """Name, values and gap closed of all policies, from the best possible down to random."""
        named: list[tuple[str, tuple[float, ...]]] = [
            ("best possible", (self.baselines["optimal"],)),
            ("learned without privacy", self.non_private),
            *((f"private, epsilon = {e:.3g}", self.private[e]) for e in sorted(self.private, reverse=True)),
            ("doctors' most frequent treatment", (self.baselines["mode"],)),
            ("doctors", (self.baselines["behaviour"],)),
            ("random treatment", (self.baselines["uniform"],)),
        ]
        return [(name, values, self.gap_closed(values)) for name, values in named]

    def to_json(self) -> dict[str, Any]:
        """Every number of the study and the certificate of the policy that was kept."""
        certificate = self.result.certificate.to_json()
        return {
            "recipe": self.recipe,
            "episodes": self.episodes,
            "epsilon": certificate["epsilon"],
            "delta": certificate["delta"],
            "seed": self.seed,
            "seeds": self.seeds,
            "baselines": self.baselines,
            "non_private": list(self.non_private),
            "private": [{"epsilon": e, "value": list(v)} for e, v in sorted(self.private.items())],
            "value": self.value,
            "certificate": certificate,
            "seconds": self.seconds,
        }
