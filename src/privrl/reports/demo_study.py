"""The outcome of the sepsis demo: the values of policies with and without privacy."""

from collections.abc import Sequence
from dataclasses import dataclass

from privrl.plots.means import mean_and_error
from privrl.studies.results.result import Result


@dataclass(frozen=True)
class DemoStudy:
    """The exact values of all policies, and the policy that is saved.

    Attributes:
        recipe: the name of the private recipe.
        episodes: the number of stays that every policy is learned from.
        seed: reproduces the repetitions, but not the saved policy, whose noise cannot be reproduced.
        epsilon: the budget of the saved policy.
        baselines: values of `optimal`, `uniform`, `behaviour` (the doctors) and `mode` (their most frequent action).
        non_private: values without noise, one for each repetition.
        private: values by epsilon, one for each repetition.
        result: the saved policy, with noise from the operating system.
        value: the value of the saved policy.
        seconds: the running time.
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
        """The number of repetitions."""
        return len(self.non_private)

    @property
    def chosen_row(self) -> str:
        """The name that `list_policies` gives to policies with the budget of the saved one."""
        return f"private, epsilon = {self.epsilon:.3g}"

    def compute_gap(self, values: Sequence[float]) -> float:
        """Return the mean of the values on a scale where the doctors have 0 and the best possible policy has 1."""
        doctors, best = self.baselines["behaviour"], self.baselines["optimal"]
        return (mean_and_error(values)[0] - doctors) / (best - doctors)

    def list_policies(self) -> list[tuple[str, tuple[float, ...], float]]:
        """Return the name, values and closed gap of all policies, from the best possible down to random treatment."""
        named: list[tuple[str, tuple[float, ...]]] = [
            ("best possible", (self.baselines["optimal"],)),
            ("learned without privacy", self.non_private),
            *((f"private, epsilon = {e:.3g}", self.private[e]) for e in sorted(self.private, reverse=True)),
            ("doctors' most frequent treatment", (self.baselines["mode"],)),
            ("doctors", (self.baselines["behaviour"],)),
            ("random treatment", (self.baselines["uniform"],)),
        ]
        return [(name, values, self.compute_gap(values)) for name, values in named]

    def to_json(self) -> dict[str, object]:
        """Return every number of the study, and the certificate of the saved policy."""
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
