"""Names for states and actions, so that a page can show doses instead of numbers; and the noun for a privacy unit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class Names:
    """The names of states and actions, by number. A state or action without a name is shown as its number.

    `doses` is how many intervals the dose of each drug has, if actions are doses, which have an order.
    """

    states: Sequence[str] = ()
    actions: Sequence[str] = ()
    doses: Sequence[int] = ()

    def name_state(self, number: int, prefix: str = "") -> str:
        """Return the name of a state, or `prefix` and its number."""
        return self.states[number] if 0 <= number < len(self.states) else f"{prefix}{number}"

    def name_action(self, number: int, prefix: str = "") -> str:
        """Return the name of an action, or `prefix` and its number."""
        return self.actions[number] if 0 <= number < len(self.actions) else f"{prefix}{number}"

    def number_action(self, number: int) -> str:
        """Return the number and the name of an action, or for example "action 3"."""
        return f"{number}: {self.actions[number]}" if 0 <= number < len(self.actions) else f"action {number}"

    def with_doses(self, doses: Sequence[int]) -> "Names":
        """Return these names for actions that are doses: how many intervals each drug has."""
        return replace(self, doses=tuple(doses))

    def to_json(self) -> dict[str, list[str]]:
        """Return the names that were given, for `report.json`."""
        found = {"states": list(self.states), "actions": list(self.actions)}
        return {name: value for name, value in found.items() if value}

    def fill_from(self, known: Mapping[str, Sequence[object]]) -> "Names":
        """Return these names, with those that `to_json` wrote in place of missing ones."""
        return Names(
            self.states or tuple(map(str, known.get("states", ()))),
            self.actions or tuple(map(str, known.get("actions", ()))),
            self.doses,
        )


def to_noun(unit: str) -> str:
    """Return the noun for the unit of a certificate: "patient" if the certificate names the column `patient_id`.

    A guarantee is about this unit only, so the noun comes from the certificate and from nothing else.
    """
    for ending in ("_id", "_ID", " id", "Id"):
        if unit.endswith(ending) and len(unit) > len(ending):
            return unit.removesuffix(ending)
    return unit


def read_names(path: Path | None) -> tuple[str, ...]:
    """Read one name per line, the first for number 0. An empty line leaves its number without a name."""
    if path is None:
        return ()
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple(line.strip() or str(i) for i, line in enumerate(lines))
