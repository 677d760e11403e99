"""The status of a study for its operator: one list, which the page, the JSON responses and the metrics read.

**Formal guarantee.** Everything here is a function of the declaration, of arrivals, of the clock and of releases. Two
runs that differ in one person's record, or in whether it came, show the same, except for durations. Durations come from
probes, which are sent at fixed times, and from requests that do not depend on records. Whether such a request found the
queue full may depend on records. The number of people *counted* in a central study appears nowhere.
"""

from typing import Any

import msgspec
import numpy as np

from privrl.service.counters import Counters, Latest
from privrl.service.served_studies import AbstractServedStudy, PublicView, ServedStudies
from privrl.studies.live.arrivals import QUEUE
from privrl.studies.open_ended import OpenEnded

_NUMBERS = "tickets"  # the ranges of `Server`


class Quantiles(msgspec.Struct, frozen=True):
    """The median and the 99th percentile of the latest measurements."""

    p50: float
    p99: float


class KeyStatus(msgspec.Struct, frozen=True):
    """A key without its secret. `people` is the number who first arrived with it since this process started."""

    name: str
    role: str
    added: str
    people: int


class StudyStatus(msgspec.Struct, frozen=True):
    """A study as its operator sees it.

    Attributes:
        max_episodes_per_unit: visits of one person that count, or are reported.
        users: people, or reports if devices make several (`counting`); null if the study is open-ended.
        epoch: of the next release, from 1, if the study is open-ended.
        tickets: issued tickets; in a local study, reserved numbers.
        blocks: the public ends of the blocks, of which the first `plan` are closed.
        declared, spent: charges of each pool.
        releases: number of releases, by status.
        seconds: duration of requests and probes.
        people_per_commit: reports in one commit, in a local study. In a central study that depends on records.
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
    blocks: list[int]
    declared: dict[str, float]
    spent: dict[str, float]
    releases: dict[str, int]
    refusals: dict[str, int]
    seconds: dict[str, Quantiles]
    people_per_commit: Quantiles | None
    keys: list[KeyStatus]
    certificate: dict[str, Any]


class ServiceStatus(msgspec.Struct, frozen=True):
    """All studies that a key may see, and requests that name no study."""

    studies: list[StudyStatus]
    refusals: dict[str, int]
    seconds: dict[str, Quantiles]


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
        blocks=list(view.ends),
        declared=dict(view.shown.get("limits", {})),
        spent=dict(view.shown.get("spent", {})),
        releases=releases,
        refusals=_refusals(study.counters),
        seconds=_seconds(study.counters),
        people_per_commit=_quantiles(study.counters.reports),
        keys=[
            KeyStatus(key.name, key.role, key.added, study.counters.arrivals[key.name]) for key in study.keys.values()
        ],
        certificate=dict(view.certificate),
    )


def _epoch(people: int | OpenEnded, view: PublicView) -> int | None:
    """Return the epoch of the first open block, or of the last block."""
    if not isinstance(people, OpenEnded):
        return None
    blocks = np.cumsum(people.epochs(np.array(view.ends)))
    return min(int(np.searchsorted(blocks, view.plan, side="right")) + 1, len(blocks))


def service_status(studies: ServedStudies, visible: list[AbstractServedStudy]) -> ServiceStatus:
    """Return the status of the visible studies."""
    return ServiceStatus(
        [study_status(one) for one in visible], _refusals(studies.counters), _seconds(studies.counters)
    )


def _refusals(counters: Counters) -> dict[str, int]:
    return {reason: count for reason, count in counters.refusals.items() if count}


def _seconds(counters: Counters) -> dict[str, Quantiles]:
    found = {name: _quantiles(latest) for name, latest in sorted(counters.seconds.items())}
    return {name: quantiles for name, quantiles in found.items() if quantiles is not None}


def _quantiles(latest: Latest) -> Quantiles | None:
    p50, p99 = latest.quantile(0.5), latest.quantile(0.99)
    return None if p50 is None or p99 is None else Quantiles(float(f"{p50:.2g}"), float(f"{p99:.2g}"))
