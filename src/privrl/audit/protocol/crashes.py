"""Two worlds on one store, with a crash in between at every point of its protocol.

What was released before a crash stays released. So whatever happens afterwards (the same program again, another row,
another person on top of the table, another setting of the learner) the cost of everything that was drawn, recomputed
from the distributions in the store, must stay within the certificate for every person; nobody may be summed up in two
groups that are accounted for as disjoint; and a table or learner that is not the one that began is refused. Agents on a
store, killed anywhere and started again, must release what they would have released undisturbed.
"""

import collections
import contextlib
import dataclasses
import itertools
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privrl.audit.findings import Finding
from privrl.audit.surface.neighbouring_records import bytes_of, picked, wide
from privrl.audit.surface.recorded_fit import FitTranscript, Skipped
from privrl.contracts.learner import AbstractOfflineLearner
from privrl.data.dataset import AbstractDataset
from privrl.data.reward_function import RewardFunction
from privrl.privacy.accounting.events import Event
from privrl.privacy.noise.lattice import Lattice
from privrl.privacy.noise.sources import System
from privrl.privacy.store.errors import StoreError, StudyMismatchError
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.curator import Curator
from privrl.privacy.trust.people import AbstractPeople
from privrl.studies.learner_settings import settings_of
from privrl.studies.offline.fit import fit

CRASHES = "crashes"
Data = AbstractDataset | RewardFunction
_POINTS = 10


class CrashError(RuntimeError):
    """Stands for the end of a process."""


class MortalStore(ReleaseStore):
    """A store whose process dies when it passes a point for the n-th time; it writes down what it passes."""

    def __init__(self, path: Path, point: str = "", passage: int = 1, **options: Any) -> None:
        self.passed: list[str] = []
        self._point, self._left = "", passage
        super().__init__(path, **options)
        self._point = point
        self.passed.clear()

    def __enter__(self) -> "MortalStore":
        return self

    def _reached(self, point: str) -> None:
        self.passed.append(point)
        if point == self._point:
            self._left -= 1
            if self._left == 0:
                raise CrashError(point)


def crash_points(passed: Sequence[str], rng: np.random.Generator) -> list[tuple[str, int]]:
    """Where to crash: every kind of point at one of its passages, chosen at random; a few more of the same kinds."""
    counts = {point: passed.count(point) for point in dict.fromkeys(passed)}
    chosen = [(point, int(rng.integers(1, count + 1))) for point, count in counts.items()]
    return chosen if len(chosen) <= _POINTS else [chosen[i] for i in sorted(rng.permutation(len(chosen))[:_POINTS])]


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A path for a store that is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "store.db"


# ------------------------------------------------------------------------------------------------------------ tables


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One process that fits: what it is to be asked, about whom, with which curator."""

    fit: FitTranscript
    people: AbstractPeople
    curator: type[Curator] = Curator
    skips: bool = True

    def run(self, store: ReleaseStore) -> None:
        """Puts the recorded queries to the curator, in order."""
        ledger = self.fit.ledger()
        store.open_study({"recorded": True}, ledger.limits())
        curator = self.curator(self.people, ledger, System(), self.fit.privatizer.mechanism_of_rounds, store)
        for step in self.fit.steps:
            if not isinstance(step, Skipped):
                step.released_by(curator)
            elif self.skips:
                curator.skip(step.name, step.to)


def spent(store: ReleaseStore, events: Sequence[Event]) -> dict[str, float]:
    """What everything in a store costs, from the distributions that were used, as shares of what `events` certify.

    Per pool of noise that adds up (mu^2 of Gaussian noise, epsilon of Laplace noise), the worst group; sampled releases
    one by one, and their number.
    """
    by_name = {event.name: event for event in events}
    used: dict[str, list[float]] = {name: [] for name in by_name}
    for row in store.shown()["releases"]:
        lattice = Lattice.from_bytes(store.distribution(row["name"]) or b"")
        units = lattice.sensitivity / lattice.granularity
        spread = math.sqrt(lattice.noise**2 - 4.0) if lattice.kind == "l2" else float(lattice.noise)
        used[row["name"].rsplit("/", 1)[0]].append(units / spread)
    shares: dict[str, float] = {}
    for mechanism, power in (("gaussian", 2), ("laplace", 1)):
        plain = [event for event in events if event.mechanism == mechanism and event.sampling == 1.0]
        if plain:
            allowed = _worst(plain, {event.name: [event.parameter] * event.times for event in plain}, power)
            shares[mechanism] = _worst(plain, used, power) / allowed
    for event in events:
        if event.sampling < 1.0 and used[event.name]:
            shares[f"sampled {event.name}"] = max(used[event.name]) / event.parameter
            shares[f"number of {event.name}"] = len(used[event.name]) / event.times
    return shares


def _worst(events: Sequence[Event], parameters: dict[str, list[float]], power: int) -> float:
    groups = {event.group for event in events} - {None} or {None}
    cost = {event.name: sum(p**power for p in parameters[event.name]) for event in events}
    return max(sum(cost[e.name] for e in events if e.group in (None, group)) for group in groups)


def crashed(first: Attempt, second: Attempt, point: str, passage: int, after_crash: Any) -> dict[str, float]:
    """What is spent, as shares of the certificate, after one attempt was killed at a point and another one went on."""
    with scratch() as path:
        with contextlib.suppress(CrashError), MortalStore(path, point, passage, after_crash=after_crash) as mortal:
            first.run(mortal)
        with ReleaseStore(path, after_crash=after_crash) as store:
            with contextlib.suppress(StoreError, ValueError):  # refused, or burnt for good
                second.run(store)
            return spent(store, first.fit.events) if store.shown()["releases"] else {}


def passed_by(attempt: Attempt) -> list[str]:
    """The points of the protocol that an undisturbed attempt passes, in order."""
    with scratch() as path, MortalStore(path) as store:
        attempt.run(store)
        return store.passed


def of_fit(
    first: Attempt,
    again: Sequence[tuple[str, Attempt]],
    rng: np.random.Generator,
    groups: list[list[set[str]]],
    data: Data,
    others: Sequence[tuple[str, Data]],
) -> Finding:
    """Kills the first attempt at chosen points and starts another one on the same store, the world changed or not.

    `groups` are the lists that `Listening` people of the attempts write into. Then kills `fit` of `data` after its
    first reservation, and starts it again with the `others`, or with another learner.
    """
    found: list[str] = []
    points = crash_points(passed_by(first), rng)
    for number, (point, passage) in enumerate(points):
        what, second = again[number % len(again)]
        for members in groups:
            members.clear()
        used = crashed(first, second, point, passage, ("burn", "redraw")[number % 2])
        where = f"killed at {point} ({passage}), then {what}"
        found += [f"{where}: {name} costs {x:.4f} of the certificate" for name, x in used.items() if x > 1 + 1e-9]
        if both := in_two_groups(groups):
            found.append(f"{where}: {both} people are in more than one group")
    learner, privatizer = first.fit.learner, first.fit.privatizer
    assert isinstance(learner, AbstractOfflineLearner)
    attempts = [(what, table, learner) for what, table in others]
    attempts += [(f"another `{name}`", data, other) for name, other in changed_settings(learner)]
    with scratch() as path:
        with contextlib.suppress(CrashError), MortalStore(path, "reserve:committed") as mortal:
            fit(data, learner, privatizer, store=mortal)
        for what, table, other in attempts:
            with ReleaseStore(path) as restarted:
                before = restarted.shown()["releases"]
                try:
                    fit(table, other, privatizer, store=restarted)
                    found.append(f"a fit that was begun goes on with {what}")
                except StudyMismatchError:
                    if restarted.shown()["releases"] != before:
                        found.append(f"with {what} something was reserved before it was refused")
    return Finding(CRASHES, len(points) + len(attempts), tuple(found))


def in_two_groups(attempts: Sequence[Sequence[set[str]]]) -> int:
    """How many ids are in different groups of two attempts (each attempt lists its groups in the same order)."""
    by_group = (set().union(*same) for same in itertools.zip_longest(*attempts, fillvalue=set()))
    return sum(number > 1 for number in collections.Counter(itertools.chain(*by_group)).values())


def changed_settings(learner: Any, most: int = 2) -> list[tuple[str, Any]]:
    """The learner with one number changed by a little: the first few fields that can be."""
    changed = []
    for field in dataclasses.fields(learner):
        value = getattr(learner, field.name)
        if not field.init or isinstance(value, bool) or not isinstance(value, float):
            continue
        with contextlib.suppress(ValueError):
            other = dataclasses.replace(learner, **{field.name: value * 0.875 + 0.0078125})
            if settings_of(other) != settings_of(learner):
                changed.append((field.name, other))
    return changed[:most]


# ------------------------------------------------------------------------------------------------------------ agents


def of_agent(make: Callable[[ReleaseStore], Any], records: Any, people: int, rng: np.random.Generator) -> Finding:
    """An agent on a store, killed at chosen points and started again by somebody who sends everything once more."""

    def drive(store: ReleaseStore) -> bytes:
        agent = make(store)
        for i in range(people):
            ticket = agent.begin_episode(f"person {i}")
            agent.end_episode(ticket, wide(picked(records, i)))
        return bytes_of(agent.policy)

    def released(store: ReleaseStore) -> list[tuple[Any, ...]]:
        rows = store.shown()["releases"]
        return [(row["name"], store.distribution(row["name"]), bytes_of(store.value(row["name"]))) for row in rows]

    with scratch() as path, MortalStore(path, after_crash="redraw") as store:
        policy, whole = drive(store), released(store)
        points = crash_points(store.passed, rng)
    found: list[str] = []
    for point, passage in points:
        with scratch() as path:
            with contextlib.suppress(CrashError), MortalStore(path, point, passage, after_crash="redraw") as store:
                drive(store)
            with ReleaseStore(path, after_crash="redraw") as restarted:
                if drive(restarted) != policy or released(restarted) != whole:
                    found.append(f"an agent killed at {point} ({passage}) goes on to release something else")
    return Finding(CRASHES, len(points), tuple(found))
