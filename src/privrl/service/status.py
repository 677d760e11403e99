"""What an operator is shown of a study: one list, which the page, the JSON answers and the metrics all read.

**Formal guarantee.** Everything here is a function of what was declared, of arrivals, of the clock and of releases: two
runs that differ in one person's record, or in whether it ever came, show the same, but for how long things took, which
is measured at times that depend on nobody (`probes.py`) or of requests that do not depend on records, and whether they
found the queue full. How many people were *counted* in a central study is nowhere.
"""

from typing import Any

import msgspec
import numpy as np

from privrl.service.counters import Counters, Latest
from privrl.service.registry import AbstractServed, PublicView, Studies
from privrl.studies.live.arrivals import QUEUE
from privrl.studies.open_ended import OpenEnded

_NUMBERS = "tickets"  # what `Server` takes ranges of


class Quantiles(msgspec.Struct, frozen=True):
    """The median and the 99th percentile of the latest measurements."""

    p50: float
    p99: float


class KeyStatus(msgspec.Struct, frozen=True):
    """A key, without what it is; `people` is how many first arrived with it since this process started."""

    name: str
    role: str
    added: str
    people: int


class StudyStatus(msgspec.Struct, frozen=True):
    """A study as its operator sees it.

    `max_episodes_per_unit` visits of one person count, or are reported. `users` people (or reports of devices that make
    several: `counting`) take part; it is null where nobody knows how many will come, and then `epoch` is the number,
    from 1, of the one that the next release belongs to. `tickets` is how many
    were handed out (in ranges, in a local study), `blocks` the public ends of the blocks, of which the first `plan` are
    closed, `declared` and `spent` the charges of each pool, `releases` how many there are in which state, `seconds` how
    long requests and probes took, `people_per_commit` those who reported in one commit (local: in a
    central study, who is in one commit depends on what others have sent).
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
    """All studies that a key may see, and what concerns none of them."""

    studies: list[StudyStatus]
    refusals: dict[str, int]
    seconds: dict[str, Quantiles]


def status_of(served: AbstractServed) -> StudyStatus:
    """The status of one study."""
    file, view = served.file, served.view
    releases: dict[str, int] = {}
    for release in view.shown.get("releases", ()):
        releases[release["status"]] = releases.get(release["status"], 0) + 1
    return StudyStatus(
        name=served.name,
        kind=served.kind,
        state=served.state,
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
        refusals=_refusals(served.counters),
        seconds=_seconds(served.counters),
        people_per_commit=_quantiles(served.counters.reports),
        keys=[
            KeyStatus(key.name, key.role, key.added, served.counters.arrivals[key.name]) for key in served.keys.values()
        ],
        certificate=dict(view.certificate),
    )


def _epoch(people: int | OpenEnded, view: PublicView) -> int | None:
    """The epoch of the first block that is not closed, or of the last one."""
    if not isinstance(people, OpenEnded):
        return None
    blocks = np.cumsum(people.epochs(np.array(view.ends)))
    return min(int(np.searchsorted(blocks, view.plan, side="right")) + 1, len(blocks))


def status_of_all(studies: Studies, seen: list[AbstractServed]) -> ServiceStatus:
    """The status of some studies."""
    return ServiceStatus([status_of(one) for one in seen], _refusals(studies.counters), _seconds(studies.counters))


def _refusals(counters: Counters) -> dict[str, int]:
    return {reason: count for reason, count in counters.refusals.items() if count}


def _seconds(counters: Counters) -> dict[str, Quantiles]:
    found = {name: _quantiles(latest) for name, latest in sorted(counters.seconds.items())}
    return {name: quantiles for name, quantiles in found.items() if quantiles is not None}


def _quantiles(latest: Latest) -> Quantiles | None:
    p50, p99 = latest.quantile(0.5), latest.quantile(0.99)
    return None if p50 is None or p99 is None else Quantiles(float(f"{p50:.2g}"), float(f"{p99:.2g}"))
