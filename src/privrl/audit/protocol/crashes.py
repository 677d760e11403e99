"""Two worlds on one store, with a crash in between at every point of its protocol.

Releases before a crash are public. After the crash the same program may start again, or with another row, another
person at the top of the table, or another setting of the learner. In each case the cost of everything that was
drawn, recomputed from the distributions in the store, must stay within the certificate for every person. No person
may be summed in two groups that are accounted for as disjoint. A table or learner that differs from the first one
must be refused. Agents on a store, killed anywhere and started again, must release what they would have released
without the crash.
"""

import collections
import contextlib
import dataclasses
import itertools
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from privrl.audit.findings import Finding
from privrl.audit.surface.neighbouring_records import AnyRecords, leaf_bytes, pick_records, widen_records
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
from privrl.studies.live.agent import Agent, Controller
from privrl.studies.offline.fitting import fit

CRASHES = "crashes"
Data = AbstractDataset | RewardFunction
_POINTS = 10  # crashes per attack, at most


class CrashError(RuntimeError):
    """Stands for the end of a process."""


class MortalStore(ReleaseStore):
    """A store whose process dies when it passes a point for the n-th time. It records the points that it passes."""

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


def choose_crash_points(passed: Sequence[str], rng: np.random.Generator) -> list[tuple[str, int]]:
    """Choose where to crash: every kind of point at one of its passages, at random, but not too many."""
    counts = {point: passed.count(point) for point in dict.fromkeys(passed)}
    chosen = [(point, int(rng.integers(1, count + 1))) for point, count in counts.items()]
    return chosen if len(chosen) <= _POINTS else [chosen[i] for i in sorted(rng.permutation(len(chosen))[:_POINTS])]


@contextlib.contextmanager
def temporary_store() -> Iterator[Path]:
    """Provide a path for a store that is deleted afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "store.db"


# ------------------------------------------------------------------------------------------------------------ tables


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One process that fits: its queries, its people and its curator."""

    fit: FitTranscript
    people: AbstractPeople
    curator: type[Curator] = Curator
    skips: bool = True

    def run(self, store: ReleaseStore) -> None:
        """Put the recorded queries to the curator, in order."""
        ledger = self.fit.ledger()
        store.open_study({"recorded": True}, ledger.limits())
        curator = self.curator(self.people, ledger, System(), self.fit.privatizer.mechanism_of_rounds, store)
        for step in self.fit.steps:
            if not isinstance(step, Skipped):
                step.release_with(curator)
            elif self.skips:
                curator.skip(step.name, step.to)


def measure_spending(store: ReleaseStore, events: Sequence[Event]) -> dict[str, float]:
    """Return the cost of everything in a store as shares of what `events` certify, from the distributions that were
    used.

    For each pool of noise that adds up (mu^2 of Gaussian noise, epsilon of Laplace noise) this is the cost of the
    worst group. Sampled releases are compared one by one, and so is their number.
    """
    by_name = {event.name: event for event in events}
    used: dict[str, list[float]] = {name: [] for name in by_name}
    for row in store.describe()["releases"]:
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


def spend_after_crash(
    first: Attempt, second: Attempt, point: str, passage: int, after_crash: Literal["burn", "redraw"]
) -> dict[str, float]:
    """Kill one attempt at a point, run another one on the same store, and return what was spent as shares of the
    certificate.
    """
    with temporary_store() as path:
        with contextlib.suppress(CrashError), MortalStore(path, point, passage, after_crash=after_crash) as mortal:
            first.run(mortal)
        with ReleaseStore(path, after_crash=after_crash) as store:
            with contextlib.suppress(StoreError, ValueError):  # refused, or its budget is lost
                second.run(store)
            return measure_spending(store, first.fit.events) if store.describe()["releases"] else {}


def list_passed_points(attempt: Attempt) -> list[str]:
    """Return the points of the protocol that an attempt passes if it is not killed, in order."""
    with temporary_store() as path, MortalStore(path) as store:
        attempt.run(store)
        return store.passed


def attack_fit(
    first: Attempt,
    again: Sequence[tuple[str, Attempt]],
    rng: np.random.Generator,
    groups: list[list[set[str]]],
    data: Data,
    others: Sequence[tuple[str, Data]],
) -> Finding:
    """Kill the first attempt at chosen points and start another one on the same store, in the same world or in
    another.

    `groups` are the lists that the `GroupRecorder` people of the attempts write into. Then kill `fit` of `data`
    after its first reservation, and start it again with the `others`, or with another learner.
    """
    found: list[str] = []
    points = choose_crash_points(list_passed_points(first), rng)
    for number, (point, passage) in enumerate(points):
        what, second = again[number % len(again)]
        for members in groups:
            members.clear()
        used = spend_after_crash(first, second, point, passage, ("burn", "redraw")[number % 2])
        where = f"killed at {point} ({passage}), then {what}"
        found += [f"{where}: {name} costs {x:.4f} of the certificate" for name, x in used.items() if x > 1 + 1e-9]
        if both := count_in_two_groups(groups):
            found.append(f"{where}: {both} people are in more than one group")
    learner, privatizer = first.fit.learner, first.fit.privatizer
    assert isinstance(learner, AbstractOfflineLearner)
    attempts = [(what, table, learner) for what, table in others]
    attempts += [(f"another `{name}`", data, other) for name, other in vary_settings(learner)]
    with temporary_store() as path:
        with contextlib.suppress(CrashError), MortalStore(path, "reserve:committed") as mortal:
            fit(data, learner, privatizer, store=mortal)
        for what, table, other in attempts:
            with ReleaseStore(path) as restarted:
                before = restarted.describe()["releases"]
                try:
                    fit(table, other, privatizer, store=restarted)
                    found.append(f"a fit that has begun continues with {what}")
                except StudyMismatchError:
                    if restarted.describe()["releases"] != before:
                        found.append(f"with {what}, a budget was reserved before the refusal")
    return Finding(CRASHES, len(points) + len(attempts), tuple(found))


def count_in_two_groups(attempts: Sequence[Sequence[set[str]]]) -> int:
    """Count the ids that are in different groups of two attempts (each attempt lists its groups in the same order)."""
    by_group = (set().union(*same) for same in itertools.zip_longest(*attempts, fillvalue=set()))
    return sum(number > 1 for number in collections.Counter(itertools.chain(*by_group)).values())


def vary_settings(learner: AbstractOfflineLearner, most: int = 2) -> list[tuple[str, AbstractOfflineLearner]]:
    """Return copies of the learner with one number slightly changed: the first few fields that allow it."""
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


def attack_agent(
    make: Callable[[ReleaseStore], Agent | Controller], records: AnyRecords, people: int, rng: np.random.Generator
) -> Finding:
    """Kill an agent on a store at chosen points, start it again, and send every record once more."""

    def drive(store: ReleaseStore) -> bytes:
        agent = make(store)
        for i in range(people):
            ticket = agent.begin_episode(f"person {i}")
            agent.end_episode(ticket, widen_records(pick_records(records, i)))
        return leaf_bytes(agent.policy)

    def released(store: ReleaseStore) -> list[tuple[object, ...]]:
        rows = store.describe()["releases"]
        return [(row["name"], store.distribution(row["name"]), leaf_bytes(store.value(row["name"]))) for row in rows]

    with temporary_store() as path, MortalStore(path, after_crash="redraw") as store:
        policy, whole = drive(store), released(store)
        points = choose_crash_points(store.passed, rng)
    found: list[str] = []
    for point, passage in points:
        with temporary_store() as path:
            with contextlib.suppress(CrashError), MortalStore(path, point, passage, after_crash="redraw") as store:
                drive(store)
            with ReleaseStore(path, after_crash="redraw") as restarted:
                if drive(restarted) != policy or released(restarted) != whole:
                    found.append(f"an agent killed at {point} ({passage}) releases something else after its restart")
    return Finding(CRASHES, len(points), tuple(found))
