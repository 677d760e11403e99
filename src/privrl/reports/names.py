"""Names for states, actions and the unit, so that a page speaks of patients and doses, not of numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Names:
    """What states, actions and one unit are called; a number without a name stays a number."""

    states: Sequence[str] = ()
    actions: Sequence[str] = ()
    unit: str | None = None

    def state(self, number: int) -> str:
        return self.states[number] if number < len(self.states) else str(number)

    def action(self, number: int) -> str:
        return self.actions[number] if number < len(self.actions) else str(number)


def read_names(path: Path | None) -> tuple[str, ...]:
    """One name per line, the first for number 0; empty lines stay numbers."""
    if path is None:
        return ()
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple(line.strip() or str(i) for i, line in enumerate(lines))
