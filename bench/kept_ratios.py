"""The ratios that `bench/ratios.json` keeps, and what became slower than they say.

Both sides of a ratio are measured in one run on one machine, so that ratios of different machines can be compared,
within a tolerance. `python -m bench --keep` replaces the kept ratios by those that it measures.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("ratios.json")
TOLERANCE = 2.0
"""A ratio may fall by this factor before it counts as slower: other work on the machine moves ratios too."""


@dataclass(frozen=True)
class Kept:
    """Ratios by the name of their row, and the factor by which a ratio may fall."""

    tolerance: float
    ratios: Mapping[str, float]

    @classmethod
    def from_file(cls, file: Path = FILE) -> "Kept":
        content = json.loads(file.read_text())
        return cls(float(content["tolerance"]), {name: float(ratio) for name, ratio in content["ratios"].items()})

    def write(self, file: Path = FILE) -> None:
        rounded = {name: float(f"{ratio:.3g}") for name, ratio in self.ratios.items()}
        file.write_text(json.dumps({"tolerance": self.tolerance, "ratios": rounded}, indent=1) + "\n")

    def slower(self, measured: Mapping[str, float]) -> Iterator[str]:
        """A line for every row whose ratio fell by more than the tolerance, and for every row that is missing."""
        for name, kept in self.ratios.items():
            if name not in measured:
                yield f"not measured: {name} (kept ratio {kept:.3g})"
            elif not measured[name] * self.tolerance >= kept:  # also if the ratio is not a number
                yield f"slower: {name}: ratio {measured[name]:.3g}, kept {kept:.3g}"

    def new(self, measured: Mapping[str, float]) -> Iterator[str]:
        """A line for every row that has no kept ratio yet."""
        for name, ratio in measured.items():
            if name not in self.ratios:
                yield f"no kept ratio yet: {name}: {ratio:.3g}"
