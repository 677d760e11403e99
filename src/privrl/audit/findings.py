"""What an attack on the protocol found: on how releases are made, not on how much noise is in them."""

import math
from dataclasses import asdict, dataclass
from typing import Any


def json_of(report: Any, **more: Any) -> dict[str, Any]:
    """The fields of a dataclass and more, as a JSON object; what is not finite is written as the string "inf"."""
    content = asdict(report) | more
    return {k: "inf" if isinstance(v, float) and not math.isfinite(v) else v for k, v in content.items()}


@dataclass(frozen=True)
class Finding:
    """One attack: its name, how many comparisons it made, and everything that it found, in words.

    Nothing found proves nothing; each line that was found is a break, whatever the noise.
    """

    attack: str
    tried: int
    found: tuple[str, ...] = ()

    @property
    def broken(self) -> bool:
        return bool(self.found)

    def to_json(self) -> dict[str, Any]:
        return json_of(self, found=list(self.found), broken=self.broken)

    def __str__(self) -> str:
        lines = [f"{self.attack}: {'BROKEN' if self.broken else 'nothing found'} ({self.tried:,} comparisons)"]
        return "\n".join([*lines, *(f"    {line}" for line in self.found)])
