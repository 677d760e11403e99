"""`GET /metrics`: a fixed list of metrics for Prometheus. No label depends on a person; see `status.py`.

Metrics of the process are rounded: its processor time and memory vary with the load, as durations do.
"""

import platform
from collections.abc import Iterator
from datetime import datetime
from importlib.metadata import version

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from privrl.service.status import Histogram, ServiceStatus, StudyStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
NAMES = (
    "privrl_build_info",
    "privrl_tls_expires_timestamp_seconds",
    "privrl_study_ready",
    "privrl_people_declared",
    "privrl_tickets",
    "privrl_plan",
    "privrl_blocks",
    "privrl_epoch",
    "privrl_clock_behind_seconds",
    "privrl_last_probe_timestamp_seconds",
    "privrl_last_release_timestamp_seconds",
    "privrl_next_release_seconds",
    "privrl_charge_declared",
    "privrl_charge_spent",
    "privrl_releases",
    "privrl_failures",
    "privrl_refusals",
    "privrl_seconds",
    "privrl_reports_per_commit",
)
"""All metrics of privrl. The names of counters end with `_total` in the output."""
PROCESS_NAMES = {  # and what each is rounded to
    "process_start_time_seconds": 1.0,
    "process_cpu_seconds": 1.0,
    "process_resident_memory_bytes": 2.0**20,
    "process_open_fds": 10.0,
    "process_max_fds": 1.0,
}
"""All metrics of the process."""


def write_metrics(status: ServiceStatus) -> bytes:
    """Write a status in the format of Prometheus."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_StatusCollector(status))
    registry.register(_RoundedProcess())
    return generate_latest(registry)


class _RoundedProcess(Collector):
    """The metrics of this process, rounded."""

    def collect(self) -> Iterator[Metric]:
        for family in ProcessCollector(registry=None).collect():
            unit = PROCESS_NAMES.get(family.name)
            if unit is not None:
                family.samples = [one._replace(value=round(one.value / unit) * unit) for one in family.samples]
                yield family


class _StatusCollector(Collector):
    """The metrics of one status."""

    def __init__(self, status: ServiceStatus) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        build = GaugeMetricFamily("privrl_build_info", "version of privrl", labels=["version", "python"])
        build.add_metric([version("privrl"), platform.python_version()], 1)
        yield build
        if self._status.tls_expires is not None:
            moment = datetime.fromisoformat(self._status.tls_expires).timestamp()
            name, words = "privrl_tls_expires_timestamp_seconds", "when the TLS certificate expires"
            yield GaugeMetricFamily(name, words, value=moment)
        yield from _collect_studies(self._status.studies)
        refusals = CounterMetricFamily("privrl_refusals", "refused requests", labels=["study", "reason"])
        seconds = HistogramMetricFamily("privrl_seconds", "duration of requests and probes", labels=["study", "what"])
        parts: list[tuple[str, ServiceStatus | StudyStatus]] = [("", self._status)]
        parts += [(one.name, one) for one in self._status.studies]
        for name, part in parts:
            for reason, count in part.refusals.items():
                refusals.add_metric([name, reason], count)
            for what, histogram in part.durations.items():
                _add(seconds, [name, what], histogram)
        yield refusals
        yield seconds


def _collect_studies(studies: list[StudyStatus]) -> Iterator[Metric]:
    plain = {
        "privrl_study_ready": ("1 if the study accepts people", lambda one: int(one.state == "ready")),
        "privrl_people_declared": (
            "people who may take part, or reports if devices make several",
            lambda one: one.users,
        ),
        "privrl_tickets": ("issued tickets", lambda one: one.tickets),
        "privrl_plan": ("number of the newest plan", lambda one: one.plan),
        "privrl_blocks": ("blocks of people", lambda one: one.users and len(one.blocks)),
        "privrl_epoch": ("epoch of the next release of an open-ended study", lambda one: one.epoch),
        "privrl_clock_behind_seconds": (
            "seconds by which the clock is behind the latest arrival; plans stand still meanwhile",
            lambda one: one.clock_behind,
        ),
        "privrl_last_probe_timestamp_seconds": (
            "when the writer, which commits tickets and records, last answered a probe",
            lambda one: _seconds(one.last_probe),
        ),
        "privrl_last_release_timestamp_seconds": (
            "when the last block closed",
            lambda one: _seconds(one.last_release),
        ),
        "privrl_next_release_seconds": (
            "seconds until the open block closes; missing until the block is full",
            lambda one: one.next_release_seconds,
        ),
    }
    for name, (words, value) in plain.items():
        family = GaugeMetricFamily(name, words, labels=["study"])
        for one in studies:
            if value(one) is not None:  # an open-ended study has no number of people or blocks
                family.add_metric([one.name], value(one))
        yield family
    labelled = {
        "privrl_charge_declared": ("limit of a pool", "pool", lambda one: one.declared),
        "privrl_charge_spent": ("charges to a pool", "pool", lambda one: one.spent),
        "privrl_releases": ("releases, by status", "status", lambda one: one.releases),
    }
    for name, (words, label, values) in labelled.items():
        family = GaugeMetricFamily(name, words, labels=["study", label])
        for one in studies:
            for key, amount in values(one).items():
                family.add_metric([one.name, key], amount)
        yield family
    failures = CounterMetricFamily(
        "privrl_failures", "failures of the store, after which it was opened again", labels=["study"]
    )
    people = HistogramMetricFamily(
        "privrl_reports_per_commit", "reports per commit, in a local study", labels=["study"]
    )
    for one in studies:
        failures.add_metric([one.name], one.failures)
        if one.kind == "local":
            _add(people, [one.name], one.reports_per_commit)
    yield failures
    yield people


def _seconds(moment: str | None) -> float | None:
    return None if moment is None else datetime.fromisoformat(moment).timestamp()


def _add(family: HistogramMetricFamily, labels: list[str], histogram: Histogram) -> None:
    family.add_metric(labels, buckets=list(histogram.buckets.items()), sum_value=histogram.sum)
