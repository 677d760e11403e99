"""One budget for all studies of the same people, in a file that every study reserves its cost in before it starts.

The file is a `ReleaseStore` with three pools. A study takes part of one or two of them, and nothing is ever returned:

- **mu^2** pays for Gaussian releases, which add up by their mu^2, and for others by the mu that dominates their
  epsilon (`gdp_cost`). The pool holds the square of the mu that (epsilon - epsilon', delta - delta') pays for.
- **epsilon'** and **delta'**, set aside when the budget is made, pay for studies that are known to be
  (epsilon, delta)-differentially private only, such as those with Poisson sampling, and for pure ones.

**Formal guarantee.** All studies that have reserved, together, are (epsilon, delta)-differentially private for one
unit, even if results of some decide which other studies are made, with which budgets, and while others are still
running (`docs/proofs/accounting.md`). Costs are rounded up and pools down, to multiples of a power of two that is
2^-38 of a pool or less. Sums of such numbers are exact in floating point, and the tolerance of the store's limit
(1e-12) is below one multiple, so the limit is exact too.

A reservation is a release of the store without a value of interest: one transaction, a trigger that refuses to exceed
the limit, a hash chain and an audit log. A process that dies at any time has reserved its cost or not; if a study is
resumed under the same id, it is not charged again.

A reservation pays for one store of a study. The guarantee therefore assumes that the store of a study is not copied or
restored from its reservation on: two copies that are resumed have the same id and each draw noise, under one
reservation. The audit log of the study's store (`--store-log`) refuses the copy that lacks events of the other.

**Older copies.** A copy of the file that was restored has forgotten later studies. The audit log detects this: it is
made with the budget, its place is written in the budget, and a reservation is in the log before it is returned. A
budget whose log is missing is refused. If budget and log are both replaced by older copies of one time, nothing is
detected. The protocol of the store is that of every `ReleaseStore` with a log (`store/log.py`), also while the budget
is made: the file and its first event, the first line of the log, the terms, their line. A process that dies in between
leaves a budget without terms, which nothing can be reserved in and `create` completes.
"""

import hashlib
import json
import math
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any, TypedDict, get_args

import numpy as np
from jaxtyping import Int64

from privrl.contracts.printing import printable
from privrl.contracts.statistic import Adjacency
from privrl.privacy.accounting.certificate import Certificate
from privrl.privacy.accounting.composition import epsilon_of, gdp_cost
from privrl.privacy.accounting.events import Event
from privrl.privacy.accounting.gdp import dominating_mu, gdp_epsilon, gdp_mu
from privrl.privacy.accounting.privacy_budget import Budget, BudgetError
from privrl.privacy.store.errors import StoreBudgetError, StoreError
from privrl.privacy.store.release_store import ADDRESSES, ReleaseStore, place_of, store_exists

MU, EPSILON, DELTA = "mu^2", "epsilon", "delta"
_KIND = "budget of several studies"
_STUDY_ID = "id in shared budgets"
_BITS = 39  # of a pool, counted in its steps; 2^39 * 1e-12 < 1
_STUDIES = 10  # that find an equal part of delta', each
_NAME_LENGTH = 200
_RESERVATION = re.compile(r"study ([0-9a-f]{32}) of a shared budget ")


@dataclass(frozen=True)
class EarlierStudy:
    """A study that has reserved its cost in a shared budget.

    Attributes:
        study: its id, random.
        name: what it was called.
        date: the UTC date on which it reserved.
        mu: of Gaussian privacy, the root of what it took of the pool mu^2.
        epsilon, delta: what it took of the parts that were set aside.
    """

    study: str
    name: str
    date: str
    mu: float
    epsilon: float
    delta: float


class BudgetView(TypedDict):
    """The public content of a shared budget, as JSON: its terms, its studies, and how much of each pool is left."""

    epsilon: float
    delta: float
    unit: str
    adjacency: Adjacency
    other_epsilon: float
    other_delta: float
    log: str | None
    pools: dict[str, dict[str, float]]
    left: dict[str, float]
    studies: list[dict[str, Any]]


@dataclass(frozen=True)
class BudgetTerms:
    """What a shared budget promises: (epsilon, delta) for everything about one unit.

    Attributes:
        unit: the column whose ids are the people.
        adjacency: what two neighbouring tables differ by; the same in all studies.
        other_epsilon, other_delta: the parts of epsilon and delta for studies that are not Gaussian.
        log: the place of the audit log, a path or a name in the folder of the budget; empty if there is none.
    """

    epsilon: float
    delta: float
    unit: str
    adjacency: Adjacency
    other_epsilon: float
    other_delta: float
    log: str

    def __post_init__(self) -> None:
        Budget.of(epsilon=self.epsilon, delta=self.delta)
        if not 0 < self.delta < 1:
            raise BudgetError(f"`delta` is {self.delta}; it must lie strictly between 0 and 1.")
        if self.adjacency not in get_args(Adjacency):
            raise ValueError(f"`adjacency` is {self.adjacency!r}; use one of {', '.join(get_args(Adjacency))}.")
        if not self.unit.strip() or self.unit != printable(self.unit):
            raise ValueError("`unit` is empty or not printable; give the name of the column that identifies people.")
        if not isinstance(self.log, str) or self.log != printable(self.log):
            raise ValueError("`log` is not printable; give the audit log a path without control characters.")
        for name, part, whole in (
            ("other_epsilon", self.other_epsilon, self.epsilon),
            ("other_delta", self.other_delta, self.delta),
        ):
            if not 0 <= part < whole:
                raise BudgetError(f"`{name}` is {part:g}; it must be at least 0 and below {whole:g}.")

    @property
    def gaussian(self) -> tuple[float, float]:
        """The epsilon and delta that pay for Gaussian releases, rounded down."""
        epsilon = Fraction(self.epsilon) - Fraction(self.other_epsilon)
        return _float_below(epsilon), _float_below(Fraction(self.delta) - Fraction(self.other_delta))

    @property
    def limits(self) -> dict[str, float]:
        """The size of each pool, rounded down to its step."""
        sizes = {
            MU: _float_below(Fraction(gdp_mu(*self.gaussian)) ** 2),
            EPSILON: self.other_epsilon,
            DELTA: self.other_delta,
        }
        return {pool: _round_down(size) for pool, size in sizes.items()}

    def charges(self, events: Sequence[Event], left: Mapping[str, Fraction]) -> dict[str, Fraction]:
        """What a study with these releases takes of each pool: the way that takes the smallest share, if it fits.

        Gaussian releases have one way, mu^2. A study with other noise may instead be taken as a whole, at its epsilon:
        by the mu that dominates it, or from `other_epsilon`. With Poisson sampling this epsilon is the one at a tenth
        of the pool `other_delta`, rounded down to its step, which the study takes too: ten such studies fit.
        """
        limits = self.limits
        ways = [{MU: gdp_cost(events)}]
        if any(event.mechanism != "gaussian" or event.sampling < 1 for event in events):
            delta = _round_down(limits[DELTA], _STUDIES) if any(event.sampling < 1 for event in events) else 0.0
            epsilon = epsilon_of(events, delta, adjacency=self.adjacency)
            if math.isfinite(epsilon):
                ways.append({MU: Fraction(dominating_mu(epsilon)) ** 2, DELTA: Fraction(delta)})
                ways.append({MU: Fraction(0), EPSILON: Fraction(epsilon), DELTA: Fraction(delta)})
        rounded = [{pool: _round_up(amount, limits[pool]) for pool, amount in way.items()} for way in ways]
        rounded.sort(key=lambda way: max(_share(charge, limits[pool]) for pool, charge in way.items()))
        fitting = (way for way in rounded if all(charge <= left[pool] for pool, charge in way.items()))
        return next(fitting, rounded[0])


@dataclass(frozen=True)
class SharedBudget:
    """One budget for all studies of the same people.

    >>> terms = {"epsilon": 3, "delta": 1e-6, "unit": "patient_id"}
    >>> budget = privrl.SharedBudget.create("patients.budget", **terms)
    >>> [study.name for study in budget.studies()]
    []

    Pass it, or its path, as `budget` to `privrl.fit`, `privrl.evaluate`, `privrl.choose` or `privrl.Agent`.

    Arguments:
        path: the file, or the postgresql:// address, that `create` made.
        log: the audit log, which refuses an older copy, if it is not at the place that is written in the budget.

    Raises:
        ValueError: the budget cannot be opened, or is too small for a study that reserves.
    """

    path: str | os.PathLike[str]
    log: str | os.PathLike[str] | None = None

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        epsilon: float,
        delta: float,
        unit: str,
        adjacency: Adjacency = "replace-one",
        other_epsilon: float = 0.0,
        other_delta: float | None = None,
        log: str | os.PathLike[str] | None = None,
    ) -> "SharedBudget":
        """Makes the file. If it exists with the same terms, nothing changes.

        Arguments:
            path: the file, or the postgresql:// address.
            epsilon, delta: what all studies together may reveal about one unit.
            unit: the column whose ids are the people, for example "patient_id". Studies with another one are refused.
            adjacency: what two neighbouring tables differ by; studies with another relation are refused.
            other_epsilon, other_delta: the parts of `epsilon` and `delta` for studies that are not Gaussian (a tenth
                of `delta` unless given). Gaussian releases have the rest.
            log: where to keep the audit log, best on another disk. By default it is beside the file, under its name
                and `.log`; a postgresql:// address has none unless it is given.

        Raises:
            BudgetError: the terms are not a budget.
            StudyMismatchError: the file exists with other terms, or is the store of a study.
            StoreError: the file exists and its audit log is missing, or the other way round.
        """
        part = delta / 10 if other_delta is None else other_delta
        written = _written_place(path, log)
        terms = BudgetTerms(float(epsilon), float(delta), unit, adjacency, float(other_epsilon), part, written)
        limits = terms.limits
        if not limits[MU] > 0:
            raise BudgetError(f"Nothing is left of `epsilon` = {epsilon:g} and `delta` = {delta:g} to be spent.")
        if store_exists(path):
            with ReleaseStore(path) as store:  # without its log, as nothing is written if it has terms
                declared = store.describe()["study"]
                if declared is not None:
                    own = declared.get("log") if log is None and declared.get("kind") == _KIND else None
                    terms = replace(terms, log=own) if isinstance(own, str) else terms
                    store.open_study({"kind": _KIND, **asdict(terms)}, limits)
            if declared is not None:
                with cls(path, log)._open():
                    return cls(path, log)
        with ReleaseStore(path, log=_log_at(path, terms.log)) as store:
            store.open_study({"kind": _KIND, **asdict(terms)}, limits)
        return cls(path, log)

    @property
    def terms(self) -> BudgetTerms:
        """What the budget promises."""
        with self._open() as (_, terms):
            return terms

    @property
    def place(self) -> str:
        """The path or address, without user and password."""
        return place_of(self.path)

    def reserve(
        self,
        planned: Certificate | Sequence[Event],
        unit: str,
        name: str,
        *,
        adjacency: Adjacency = "replace-one",
        study: str | None = None,
    ) -> EarlierStudy:
        """Reserves the cost of a study, before it releases anything. The reservation is never returned.

        Arguments:
            planned: everything that the study may release: calibrated events, or a certificate of them.
            unit: the column whose ids are the people of the study.
            name: what the study is called in the list of studies.
            adjacency: what neighbouring tables of the study differ by; a certificate states its own.
            study: the id of a durable study (`study_id`). Its cost is reserved once, however often it is resumed.
                Without it, every call is a new study.

        Raises:
            BudgetError: the study needs more than is left. Nothing was reserved.
            ValueError: the study protects another unit, or has another neighbouring relation or trust model.
        """
        if isinstance(planned, Certificate):
            if planned.notion not in ("central", "joint"):
                raise ValueError(
                    f"The certificate is of {planned.notion!r} privacy; a shared budget pays for studies of a trusted "
                    "curator. Leave out `budget`."
                )
            adjacency, planned = planned.adjacency, planned.events
        with self._open() as (store, terms):
            self._check(terms, unit, adjacency)
            return _reserve(store, self.place, terms, tuple(planned), name, study or secrets.token_hex(16))

    def studies(self) -> list[EarlierStudy]:
        """All studies that have reserved, in the order of their dates."""
        with self._open() as (store, _):
            return _studies(store)

    def describe(self) -> BudgetView:
        """Terms, studies, and what was reserved and is left of each pool, as JSON."""
        with self._open() as (store, terms):
            shown, studies = store.describe(), _studies(store)
        pools = {
            pool: {"limit": limit, "reserved": shown["spent"][pool], "left": limit - shown["spent"][pool]}
            for pool, limit in shown["limits"].items()
        }
        _, delta = terms.gaussian
        left = {"epsilon": gdp_epsilon(math.sqrt(pools[MU]["left"]), delta), "delta": delta}
        return BudgetView(
            epsilon=terms.epsilon,
            delta=terms.delta,
            unit=terms.unit,
            adjacency=terms.adjacency,
            other_epsilon=terms.other_epsilon,
            other_delta=terms.other_delta,
            log=self._log_of(terms),
            pools=pools,
            left=left,
            studies=[asdict(study) for study in studies],
        )

    @contextmanager
    def _open(self) -> Iterator[tuple[ReleaseStore, BudgetTerms]]:
        """The open store, which is not older than its log, and its terms."""
        if not store_exists(self.path):
            raise ValueError(f"There is no budget `{self.place}`. Make one: `privrl budget init`.")
        with ReleaseStore(self.path, after_crash="redraw") as store:  # the terms say where the log is
            terms = self._read_terms(store)
            log = self._log_of(terms)
            if log is None:
                yield store, terms
                return
        if not os.path.isfile(log):
            raise StoreError(
                f"The audit log `{log}` of the budget `{self.place}` is missing, so privrl cannot tell whether the "
                "budget is an older copy. Nothing was reserved. Restore the log. If it was moved, say where it is: "
                "`--budget-log`, or `SharedBudget(path, log=...)`. If you know that the budget is the newest copy, "
                f"begin another log once: `privrl store new-log {self.place} {log}`."
            )
        with ReleaseStore(self.path, log=log, after_crash="redraw") as store:
            if self._read_terms(store) != terms:
                raise StoreError(f"`{self.place}` was exchanged while it was opened. Nothing was reserved.")
            yield store, terms

    def _log_of(self, terms: BudgetTerms) -> str | None:
        """Where the audit log is; `None` if the budget has none."""
        return _log_at(self.path, terms.log) if self.log is None else os.fspath(self.log)

    def _read_terms(self, store: ReleaseStore) -> BudgetTerms:
        shown = store.describe()
        declared: dict[str, Any] = dict(shown["study"] or {})
        if declared.pop("kind", None) != _KIND:
            raise StoreError(f"`{self.place}` is not a budget. Make one: `privrl budget init`.")
        try:
            terms = BudgetTerms(**declared)
        except TypeError as error:
            raise StoreError(f"`{self.place}` is not a budget that this version of privrl can read.") from error
        if any(shown["limits"][pool] > limit * (1 + 1e-9) for pool, limit in terms.limits.items()):
            raise StoreError(f"The pools of `{self.place}` are larger than its epsilon and delta pay for.")
        return terms

    def _check(self, terms: BudgetTerms, unit: str, adjacency: Adjacency) -> None:
        if unit != terms.unit:
            raise ValueError(
                f"The study protects `{printable(unit)}` and the budget `{self.place}` is for `{terms.unit}`. Nothing "
                "was reserved. Use a table with this column as its unit, or a budget of its own."
            )
        if adjacency != terms.adjacency:
            raise ValueError(
                f"`adjacency` is {adjacency!r} and the budget `{self.place}` is for {terms.adjacency!r}. Nothing was "
                "reserved. Give the study the same relation."
            )


AnySharedBudget = SharedBudget | str | os.PathLike[str]
"""A shared budget, or its path."""


def reserve(
    budget: AnySharedBudget,
    planned: Certificate | Sequence[Event],
    unit: str,
    name: str,
    *,
    adjacency: Adjacency = "replace-one",
    study: str | None = None,
) -> EarlierStudy:
    """Reserves the cost of a study in a shared budget, given as an object or a path; see `SharedBudget.reserve`."""
    return shared(budget).reserve(planned, unit, name, adjacency=adjacency, study=study)


def shared(budget: AnySharedBudget) -> SharedBudget:
    """The budget, given as an object or a path."""
    return budget if isinstance(budget, SharedBudget) else SharedBudget(budget)


def describe_reservation(study: str, terms: BudgetTerms) -> str:
    """The sentence by which a certificate names its study in a shared budget; `find_study` reads it."""
    return (
        f"study {study} of a shared budget of epsilon {terms.epsilon:g} and delta {terms.delta:g} for all studies of "
        f"the same {terms.unit}"
    )


def find_study(note: str) -> str | None:
    """The id of the study that a note of a certificate names; `None` if the note is about something else."""
    found = _RESERVATION.match(note)
    return None if found is None else found[1]


def study_id(store: ReleaseStore) -> str:
    """The id of the study in a store, drawn once: resuming the study reserves nothing more."""
    return store.fact(_STUDY_ID, lambda: secrets.token_hex(16).encode()).decode()


def has_study_id(store: ReleaseStore) -> bool:
    """Whether the study in a store was ever begun with a shared budget."""
    return store.has_fact(_STUDY_ID)


def _written_place(path: str | os.PathLike[str], log: str | os.PathLike[str] | None) -> str:
    """What a new budget says about the place of its log: a name if it is in the same folder, so that both may be moved
    together, else a whole path; empty without a log."""
    if isinstance(path, str) and path.startswith(ADDRESSES):
        own, beside = None, ""
    else:
        own = os.path.realpath(path)
        beside = f"{os.path.basename(own)}.log"
    if log is None:
        return beside
    folder, name = os.path.split(os.path.realpath(log))
    if not os.path.isdir(folder):
        raise ValueError(f"There is no folder `{folder}` for the audit log. Make it first.")
    if own is not None and folder == os.path.dirname(own):
        if name in {os.path.basename(own) + end for end in ("", "-wal", "-shm", "-journal", ".lock")}:
            raise ValueError("`log` is a file of the budget itself. Give the audit log a file of its own.")
        return name
    return os.path.join(folder, name)


def _log_at(path: str | os.PathLike[str], written: str) -> str | None:
    """The place of a log, from what the budget at `path` says about it."""
    return os.path.join(os.path.dirname(os.path.realpath(path)), written) if written else None


def _reserve(
    store: ReleaseStore, place: str, terms: BudgetTerms, events: tuple[Event, ...], name: str, study: str
) -> EarlierStudy:
    shown = store.describe()
    digest = hashlib.sha256(json.dumps([event.to_json() for event in events]).encode()).hexdigest()
    rows = {DELTA: f"{study} {DELTA}", EPSILON: f"{study} {EPSILON}", MU: study}  # in the order of writing
    written = next((found for row in rows.values() if (found := store.distribution(row)) is not None), None)
    if written is None:
        left = {pool: Fraction(limit) - Fraction(shown["spent"][pool]) for pool, limit in shown["limits"].items()}
        charges = terms.charges(events, left)
        if any(charge > left[pool] for pool, charge in charges.items()):
            raise _refusal(place, terms, charges, left)
        content = {"name": _one_line(name), "events": digest, "charges": {p: float(c) for p, c in charges.items()}}
        written = json.dumps(content).encode()
    content = json.loads(written)
    if content["events"] != digest:
        raise ValueError(
            f"The study `{content['name']}` has reserved the cost of other releases in `{place}`. Resume it as it was "
            "declared, or begin a new study."
        )
    try:
        for pool, row in rows.items():
            if content["charges"].get(pool) or pool == MU:
                store.release(row, pool, content["charges"][pool], _nothing, distribution=written)
    except StoreBudgetError as error:
        raise BudgetError(
            f"Another study has reserved the rest of `{place}` meanwhile. Nothing was released."
        ) from error
    return next(found for found in _studies(store) if found.study == study)


def _studies(store: ReleaseStore) -> list[EarlierStudy]:
    """The studies with all of their rows; the row of mu^2 is the last one."""
    found = []
    for row in store.describe()["releases"]:
        if row["pool"] == MU:
            content = json.loads(store.distribution(row["name"]) or b"")
            taken = content["charges"]
            parts = math.sqrt(taken[MU]), taken.get(EPSILON, 0.0), taken.get(DELTA, 0.0)
            found.append(EarlierStudy(row["name"], content["name"], row["date"], *parts))
    return found


def _refusal(
    place: str, terms: BudgetTerms, charges: Mapping[str, Fraction], left: Mapping[str, Fraction]
) -> BudgetError:
    _, delta = terms.gaussian
    rest = gdp_epsilon(math.sqrt(left[MU]), delta)
    needs = " and ".join(
        f"{float(charge):.4g} of {pool}, of which {float(left[pool]):.4g} is left"
        for pool, charge in charges.items()
        if charge > left[pool]
    )
    return BudgetError(
        f"The study needs {needs} in `{place}`. Nothing was reserved. A study with Gaussian noise may have at most "
        f"epsilon {rest:.3g} at delta {delta:.3g}. Lower the study's epsilon."
    )


def _share(charge: Fraction, limit: float) -> float:
    if not charge:
        return 0.0
    return math.inf if limit == 0 else float(charge / Fraction(limit))


def _step(limit: float) -> Fraction:
    """The power of two of which the limit and all charges of a pool are multiples."""
    return Fraction(2) ** (math.frexp(limit)[1] - _BITS)


def _round_down(limit: float, parts: int = 1) -> float:
    """The limit of a pool, or one of equal parts of it, a multiple of the pool's step."""
    return float(Fraction(limit) / parts // _step(limit) * _step(limit)) if limit else 0.0


def _round_up(amount: Fraction, limit: float) -> Fraction:
    """A charge to a pool, a multiple of its step."""
    return -(-amount // _step(limit)) * _step(limit) if limit else amount


def _float_below(value: Fraction) -> float:
    """The largest float that does not exceed a number."""
    nearest = float(value)
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, -math.inf)


def _one_line(name: str) -> str:
    return printable(name)[:_NAME_LENGTH]


def _nothing() -> Int64[np.ndarray, "0"]:
    return np.zeros(0, np.int64)
