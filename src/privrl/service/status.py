"""The status of a study for its operator: one list, which the page, the JSON responses and the metrics read.

**Formal guarantee.** Everything here is a function of the declaration, of arrivals, of the clock and of releases. Two
runs that differ in one person's record, or in whether it came, show the same, except for durations. Durations come from
probes, which are sent at fixed times, and from requests that do not depend on records. Whether such a request found the
queue full may depend on records. The number of people *counted* in a central study appears nowhere.
"""

import itertools
from typing import Any

import msgspec
import numpy as np

from privrl.service.bodies import PilotAnswer, write_time
from privrl.service.counters import Counters, Measurements
from privrl.service.pilot_study import PilotStudy
from privrl.service.served_studies import AbstractServedStudy, PublicView, ServedStudies
from privrl.studies.live.arrivals import QUEUE
from privrl.studies.open_ended import OpenEnded

_NUMBERS = "tickets"  # the ranges of `Server`


class Quantiles(msgspec.Struct, frozen=True):
    """The median and the 99th percentile of the latest measurements."""

    p50: float
    p99: float


class Histogram(msgspec.Struct, frozen=True):
    """All measurements since the start: how many were at most each bound, and their sum."""

    buckets: dict[str, int]
    sum: float


class KeyStatus(msgspec.Struct, frozen=True):
    """A key without its secret. `people` is the number who first arrived with it since this process started."""

    name: str
    role: str
    added: str
    expires: str | None
    people: int


class StudyStatus(msgspec.Struct, frozen=True):
    """A study as its operator sees it.

    Attributes:
        max_episodes_per_unit: visits of one person that count, or are reported.
        users: people, or reports if devices make several (`counting`); null if the study is open-ended.
        epoch: of the next release, from 1, if the study is open-ended.
        tickets: issued tickets; in a local study, reserved numbers.
        plan: the number of the plan in force.
        blocks: the public ends of the blocks, of which the first `closed` are closed.
        declared, spent: charges of each pool.
        releases: number of releases, by status.
        seconds, durations: duration of requests and probes; quantiles of the latest, and all since the start.
        reports_per_commit: of a local study. In a central study that depends on records.
        failures: of the store, after which it was opened again.
        clock_behind: seconds by which the clock is behind the latest arrival of a central study.
        last_probe: when the writer last answered a probe. Its last commit depends on records.
        last_release: when the last block of a central study closed, a public time.
        next_release_seconds: until the open block closes; null until the block is full.
    """

    name: str
    kind: str
    state: str
    recipe: str
    max_episodes_per_unit: int
    users: int | None
    counting: str
    epoch: int | None
    epsilon: float
    delta: float | None
    tickets: int
    plan: int
    closed: int
    blocks: list[int]
    declared: dict[str, float]
    spent: dict[str, float]
    releases: dict[str, int]
    refusals: dict[str, int]
    seconds: dict[str, Quantiles]
    durations: dict[str, Histogram]
    reports_per_commit: Histogram
    failures: int
    clock_behind: float
    last_probe: str | None
    last_release: str | None
    next_release_seconds: float | None
    keys: list[KeyStatus]
    certificate: dict[str, Any]
    pilot: PilotAnswer | None


class ServiceStatus(msgspec.Struct, frozen=True):
    """All studies that a key may see, and requests that name no study."""

    studies: list[StudyStatus]
    refusals: dict[str, int]
    seconds: dict[str, Quantiles]
    durations: dict[str, Histogram]
    tls_expires: str | None


def study_status(study: AbstractServedStudy) -> StudyStatus:
    """Return the status of one study."""
    file, view = study.file, study.view
    releases: dict[str, int] = {}
    for release in view.shown.get("releases", ()):
        releases[release["status"]] = releases.get(release["status"], 0) + 1
    return StudyStatus(
        name=study.name,
        kind=study.kind,
        state=study.state,
        recipe=file.recipe,
        max_episodes_per_unit=file.max_episodes_per_unit,
        users=file.users,
        counting=file.counting,
        epoch=_epoch(file.people, view),
        epsilon=file.epsilon,
        delta=file.delta,
        tickets=view.shown.get("queues", {}).get(QUEUE, 0) + view.shown.get("ranges", {}).get(_NUMBERS, 0),
        plan=view.plan,
        closed=view.closed,
        blocks=list(view.ends),
        declared=dict(view.shown.get("limits", {})),
        spent=dict(view.shown.get("spent", {})),
        releases=releases,
        refusals=_refusals(study.counters),
        seconds=_seconds(study.counters),
        durations=_durations(study.counters),
        reports_per_commit=_histogram(study.counters.reports),
        failures=study.writer.failures,
        clock_behind=study.clock_watch.behind,
        last_probe=write_time(study.counters.last_probe),
        last_release=write_time(view.last_release),
        next_release_seconds=study.next_release_seconds,
        keys=[
            KeyStatus(key.name, key.role, key.added, write_time(key.expires), study.counters.arrivals[key.name])
            for key in study.keys.by_hash.values()
        ],
        certificate=dict(view.certificate),
        pilot=study.shown if isinstance(study, PilotStudy) else None,
    )


def _epoch(people: int | OpenEnded, view: PublicView) -> int | None:
    """Return the epoch of the first open block, or of the last block."""
    if not isinstance(people, OpenEnded):
        return None
    blocks = np.cumsum(people.epochs(np.array(view.ends)))
    return min(int(np.searchsorted(blocks, view.closed, side="right")) + 1, len(blocks))


def service_status(studies: ServedStudies, visible: list[AbstractServedStudy]) -> ServiceStatus:
    """Return the status of the visible studies."""
    return ServiceStatus(
        [study_status(one) for one in visible],
        _refusals(studies.counters),
        _seconds(studies.counters),
        _durations(studies.counters),
        None if studies.tls is None else write_time(studies.tls.expires),
    )


def _refusals(counters: Counters) -> dict[str, int]:
    return {reason: count for reason, count in counters.refusals.items() if count}


def _seconds(counters: Counters) -> dict[str, Quantiles]:
    found = {name: _quantiles(latest) for name, latest in sorted(counters.seconds.items())}
    return {name: quantiles for name, quantiles in found.items() if quantiles is not None}


def _durations(counters: Counters) -> dict[str, Histogram]:
    return {name: _histogram(measured) for name, measured in sorted(counters.seconds.items())}


def _histogram(measured: Measurements) -> Histogram:
    counts = itertools.accumulate(measured.counts)
    bounds = [f"{bound:g}" for bound in measured.bounds]
    return Histogram(dict(zip([*bounds, "+Inf"], counts, strict=True)), measured.sum)


def _quantiles(latest: Measurements) -> Quantiles | None:
    p50, p99 = latest.quantile(0.5), latest.quantile(0.99)
    return None if p50 is None or p99 is None else Quantiles(float(f"{p50:.2g}"), float(f"{p99:.2g}"))
