"""The ledger: what was declared, what it may cost, and what was released.

A learner *declares* its releases, a privatizer *calibrates* them, the run *counts* them here, and the ledger
*reconciles*. Fewer releases than declared are allowed (the certificate covers the declared cost); one more is refused
before any data is read. No entry is ever written from traced code.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypedDict

from privrl.contracts.release import Declared
from privrl.contracts.statistic import Adjacency
from privrl.privacy.accounting.composition import check_alone
from privrl.privacy.accounting.events import Event
from privrl.privacy.accounting.privacy_budget import BudgetError
from privrl.privacy.continual.participation import ONCE, Participation

_GAUSSIAN = "Gaussian noise, mu^2"


class NoiseRecord(TypedDict):
    """Sensitivity and scale of noise that was drawn, and how often."""

    sensitivity: float
    scale: float
    times: int


class ReleaseRecord(TypedDict):
    """How often a release was declared and made, and the noise that was drawn."""

    name: str
    access: str
    declared: int
    counted: int
    skipped: int
    burnt: int
    noise: list[NoiseRecord]


class OverspentError(RuntimeError):
    """More releases were requested than declared. Nothing was released."""


@dataclass
class _Line:
    """One declared name: its event, the parameters of the releases still to come, and what was released."""

    declared: Declared
    event: Event
    ahead: list[float]
    spent: list[float] = field(default_factory=list)
    counted: int = 0
    skipped: int = 0
    burnt: int = 0
    noise: Counter[tuple[float, float]] = field(default_factory=Counter)


class Ledger:
    """Counts releases against declarations. Noise scales come from here only.

    Arguments:
        declared: the learner's declarations.
        events: their calibrated cost, one event each, in the same order.
        adjacency, participation: the neighbouring relation that the sensitivities refer to, and how often a person may
            take part in it.

    The events must account for a choice as a choice or as a release without noise, and a choice must be alone in its
    group.
    """

    def __init__(
        self,
        declared: Sequence[Declared],
        events: Sequence[Event],
        adjacency: Adjacency,
        participation: Participation = ONCE,
    ) -> None:
        self.adjacency, self.participation = adjacency, participation
        self._lines = {d.name: _Line(d, e, [e.parameter] * e.times) for d, e in zip(declared, events, strict=True)}
        if len(self._lines) != len(declared):
            names = [d.name for d in declared]
            raise ValueError(f"Release names must be distinct; {names} were declared.")
        choices = {d.name for d in declared if d.access == "choice"}
        for event in events:
            if event.name in choices and event.mechanism not in ("exponential", "none"):
                raise BudgetError(
                    f"Release `{event.name}` is a choice, which is made by a noisy maximum, but it is accounted as "
                    f"{event.mechanism!r}. Nothing was released. Use `Central(...)`."
                )
        check_alone(events, choices)

    def declared(self, name: str) -> Declared:
        """The declaration of a name. Refuses an undeclared name."""
        return self._line(name).declared

    @property
    def groups(self) -> dict[str, float]:
        """The groups of disjoint people that were declared, in order, and the probability of being in each."""
        given: dict[str, float | None] = {}
        for line in self._lines.values():
            group, share = line.declared.group, line.declared.group_share
            if group is not None:
                if share is not None and given.get(group) not in (None, share):
                    raise ValueError(f"Group `{group}` has shares {given[group]} and {share}. Declare one.")
                given[group] = share if share is not None else given.get(group)
        rest = 1.0 - sum(share for share in given.values() if share is not None)
        open_groups = sum(share is None for share in given.values())
        if given and (rest <= 0 if open_groups else abs(rest) > 1e-9):
            raise ValueError(f"The shares of the groups {list(given)} do not add up to 1.")
        return {group: rest / open_groups if share is None else share for group, share in given.items()}

    def parameter(self, name: str) -> float:
        """The calibrated parameter of a streamed name: mu for Gaussian noise, epsilon for the others."""
        return self._line(name).event.parameter

    def spend(self, name: str) -> float:
        """Counts one more release of a name and returns its parameter. Refuses if no declared release is left."""
        line = self._line(name)
        if line.counted >= line.declared.times + line.burnt or not line.ahead:
            raise OverspentError(
                f"Release `{name}` was declared {line.declared.times} times and all of them are spent. Nothing was "
                "released. Declare more releases before any data is read."
            )
        line.counted += 1
        line.spent.append(line.ahead.pop(0))
        return line.spent[-1]

    def skip(self, name: str, to: Sequence[str]) -> None:
        """Gives up the next release of `name` and shares its budget among the releases of `to` still to come.

        **Formal guarantee.** For Gaussian noise the total of mu^2 is fixed in advance and never exceeded, for all
        choices that depend on earlier releases: a privacy filter for Gaussian differential privacy. Only unsampled
        Gaussian releases of the same group can trade, and not streamed ones, because their noise is fixed when they
        begin.
        """
        line = self._line(name)
        others = [self._line(other) for other in to]
        for trader in (line, *others):
            e, streamed = trader.event, trader.declared.access != "rounds"
            if not self._adds_up(e) or e.group != line.event.group or streamed:
                raise ValueError(
                    f"The budget of `{name}` cannot move to `{e.name}`: only Gaussian releases of one group that are "
                    "queried one by one, without sampling, can trade their shares."
                )
        count = sum(len(other.ahead) for other in others) - (name in to)
        if not line.ahead or not count:
            raise OverspentError(f"`{name}` has no release left to skip, or {list(to)} have none to come.")
        gain = line.ahead.pop(0) ** 2 / count
        line.skipped += 1
        for other in others:
            other.ahead[:] = [(mu**2 + gain) ** 0.5 for mu in other.ahead]

    def burn(self, name: str) -> None:
        """Counts the last release of `name` as lost, and pays for one more from the releases still to come.

        **Formal guarantee.** What was lost stays counted, at its full cost. The total of mu^2 stays what it was
        calibrated to: the shares ahead of the same pool shrink by one factor, so this is a privacy filter like `skip`.
        Whether a release was lost does not depend on data beyond earlier releases. Refused if there is nothing to
        share: no release ahead, or noise other than unsampled Gaussian noise.
        """
        line, pool = self._line(name), self.pool(name)
        lines = [other for other in self._lines.values() if self.pool(other.event.name) == pool]
        total = sum(mu**2 for other in lines for mu in other.ahead)
        if not self._adds_up(line.event) or line.declared.access != "rounds" or not total:
            raise OverspentError(f"A release of `{name}` was lost, and no budget is left to make it again.")
        lost = line.spent[-1]
        line.ahead.insert(0, lost)
        line.burnt += 1
        shrink = (total / (total + lost**2)) ** 0.5
        for other in lines:
            other.ahead[:] = [mu * shrink for mu in other.ahead]

    def pool(self, name: str) -> str:
        """The pool that pays for a release: Gaussian releases of one group share one, others have their own."""
        event = self._line(name).event
        if not self._adds_up(event):
            return f"release {name}"
        return _GAUSSIAN if event.group is None else f"{_GAUSSIAN} of group {event.group}"

    def charge(self, name: str, parameter: float) -> float:
        """The charge of one release to its pool: mu^2 for Gaussian noise, otherwise 1 of the declared number."""
        return parameter**2 if self._adds_up(self._line(name).event) else 1.0

    @staticmethod
    def _adds_up(event: Event) -> bool:
        """Whether releases add up by their mu^2: unsampled Gaussian noise."""
        return event.mechanism == "gaussian" and event.sampling == 1

    def limits(self) -> dict[str, float]:
        """The charge of all declared releases to each pool: the hard budget. Skipping and burning do not change it."""
        limits: dict[str, float] = {}
        for name, line in self._lines.items():
            pool = self.pool(name)
            charges = [self.charge(name, parameter) for parameter in line.spent + line.ahead]
            limits[pool] = limits.get(pool, 0.0) + sum(charges)
        return limits

    def record(self, name: str, sensitivity: float, scale: float) -> None:
        """Records the noise of a release: the sensitivity that it was calibrated for, and its scale. Both are
        public.
        """
        self._line(name).noise[(float(sensitivity), float(scale))] += 1

    def reconcile(self, name: str, count: int, calibration: tuple[float, float] | None) -> None:
        """Records what a stream or a compiled loop has made so far. A later call replaces the record.

        Arguments:
            count: the number of releases. More releases than declared are an error.
            calibration: the sensitivity and the scale of the noise that was drawn; `None` for randomised response.
        """
        line = self._line(name)
        if count > line.declared.times:
            raise OverspentError(
                f"Release `{name}` was declared {line.declared.times} times, but {count} releases were made. "
                "Streamed releases are made at the end of every block: declare `times=num_blocks`."
            )
        line.counted = count
        line.noise.clear()
        if calibration is not None and count:
            line.noise[(float(calibration[0]), float(calibration[1]))] = min(count, line.event.times)

    def events(self) -> tuple[Event, ...]:
        """What the certificate covers: every declared release, made or not, with its parameter after trades."""
        events = []
        for line in self._lines.values():
            for parameter, times in Counter(line.spent + line.ahead).items():
                events.append(replace(line.event, parameter=parameter, times=times))
        return tuple(events)

    def releases(self) -> list[ReleaseRecord]:
        """The public record of every declared name, for the certificate."""
        return [
            {
                "name": name,
                "access": line.declared.access,
                "declared": line.declared.times,
                "counted": line.counted,
                "skipped": line.skipped,
                "burnt": line.burnt,
                "noise": [
                    {"sensitivity": sensitivity, "scale": scale, "times": times}
                    for (sensitivity, scale), times in line.noise.items()
                ],
            }
            for name, line in self._lines.items()
        ]

    def _line(self, name: str) -> _Line:
        if name not in self._lines:
            raise OverspentError(
                f"Release `{name}` was not declared; the declared releases are {sorted(self._lines)}. Nothing was "
                "released. Add it to the learner's `declare`."
            )
        return self._lines[name]
