"""The findings of attacks on the protocol: on how releases are made, not on how much noise they have."""

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def to_json_object(report: "DataclassInstance", **more: object) -> dict[str, object]:
    """Return the fields of a dataclass and more as a JSON object, in which numbers that are not finite are the string
    "inf".
    """
    content = asdict(report) | more
    return {k: "inf" if isinstance(v, float) and not math.isfinite(v) else v for k, v in content.items()}


@dataclass(frozen=True)
class Finding:
    """The outcome of one attack: its name, how many comparisons it made, and a sentence for each break that it found.

    An attack that finds nothing proves nothing. Each sentence in `found` is a break, however large the noise is. An
    attack that was not run has made no comparison, and `not_run` says why.
    """

    attack: str
    tried: int
    found: tuple[str, ...] = ()
    not_run: str = ""

    @property
    def broken(self) -> bool:
        return bool(self.found)

    def to_json(self) -> dict[str, object]:
        return to_json_object(self, found=list(self.found), broken=self.broken)

    def __str__(self) -> str:
        if self.not_run:
            return f"{self.attack}: not run, because {self.not_run}"
        lines = [f"{self.attack}: {'BROKEN' if self.broken else 'nothing found'} ({self.tried:,} comparisons)"]
        return "\n".join([*lines, *(f"    {line}" for line in self.found)])
