"""The curator, as a learner inside another one sees it: releases have names of its own, and people are of one group."""

from typing import Any

from privrl.contracts.learner import Ask
from privrl.contracts.release import Release
from privrl.contracts.statistic import AbstractStatistic


def renamed(prefix: str, name: str) -> str:
    """What a release of an inner learner is called outside."""
    return f"{prefix}: {name}"


class Renamed:
    """Passes on what an inner learner asks for, under the names that the outer one has declared."""

    def __init__(self, ask: Ask, prefix: str, group: str | None) -> None:
        self._ask, self._prefix, self._group = ask, prefix, group

    def __call__(self, name: str, statistic: AbstractStatistic | None = None) -> Release:
        return self._ask(renamed(self._prefix, name), statistic)

    def secret(self, name: str, *, distance: float, beta: float) -> Any:
        return self._ask.secret(renamed(self._prefix, name), distance=distance, beta=beta)

    def people(self, group: str | None = None) -> int:
        return self._ask.people(self._group if group is None else group)

    def skip(self, name: str, to: tuple[str, ...]) -> None:
        self._ask.skip(renamed(self._prefix, name), tuple(renamed(self._prefix, other) for other in to))
