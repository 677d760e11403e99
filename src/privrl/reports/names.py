"""Names for states and actions, so that a page speaks of doses and not of numbers; and the unit in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Names:
    """What states and actions are called; a number without a name stays a number."""

    states: Sequence[str] = ()
    actions: Sequence[str] = ()

    def state(self, number: int) -> str:
        return self.states[number] if number < len(self.states) else str(number)

    def state_words(self, number: int) -> str:
        """A state by its name, or as "state 3"."""
        return self.states[number] if number < len(self.states) else f"state {number}"

    def action_words(self, number: int) -> str:
        """An action by its name, or as "action 3"."""
        return self.actions[number] if number < len(self.actions) else f"action {number}"

    def numbered_action(self, number: int) -> str:
        """An action by its number and its name, or as "action 3"."""
        return f"{number}: {self.actions[number]}" if number < len(self.actions) else f"action {number}"

    def to_json(self) -> dict[str, Any]:
        """Those that were given, for `report.json`."""
        found = {"states": list(self.states), "actions": list(self.actions)}
        return {name: value for name, value in found.items() if value}

    def with_known(self, known: Mapping[str, Any]) -> "Names":
        """The same; what was not given is as `to_json` wrote it."""
        return Names(
            self.states or tuple(map(str, known.get("states", ()))),
            self.actions or tuple(map(str, known.get("actions", ()))),
        )

    def action(self, number: int) -> str:
        return self.actions[number] if number < len(self.actions) else str(number)


def noun_of(unit: str) -> str:
    """What one unit of a certificate is called in words: patient, where the certificate names the column `patient_id`.

    A guarantee speaks of this unit and no other, so nothing but the certificate says what it is.
    """
    for ending in ("_id", "_ID", " id", "Id"):
        if unit.endswith(ending) and len(unit) > len(ending):
            return unit.removesuffix(ending)
    return unit


def read_names(path: Path | None) -> tuple[str, ...]:
    """One name per line, the first for number 0; empty lines stay numbers."""
    if path is None:
        return ()
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple(line.strip() or str(i) for i, line in enumerate(lines))
