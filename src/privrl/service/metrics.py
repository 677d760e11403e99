"""`GET /metrics`: a fixed list of metrics for Prometheus. No label depends on a person; see `status.py`."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from privrl.service.status import Quantiles, ServiceStatus, StudyStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
NAMES = (
    "privrl_study_ready",
    "privrl_people_declared",
    "privrl_tickets",
    "privrl_plan",
    "privrl_blocks",
    "privrl_epoch",
    "privrl_charge_declared",
    "privrl_charge_spent",
    "privrl_releases",
    "privrl_refusals",
    "privrl_seconds",
    "privrl_people_per_commit",
)
"""All metrics. The names of counters end with `_total` in the output."""


def write_metrics(status: ServiceStatus) -> bytes:
    """Write a status in the format of Prometheus."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_StatusCollector(status))
    return generate_latest(registry)


class _StatusCollector(Collector):
    """The metrics of one status."""

    def __init__(self, status: ServiceStatus) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        yield from _collect_studies(self._status.studies)
        refusals = CounterMetricFamily("privrl_refusals", "refused requests", labels=["study", "reason"])
        seconds = GaugeMetricFamily(
            "privrl_seconds", "duration of the latest requests and probes", labels=["study", "what", "quantile"]
        )
        parts: list[tuple[str, ServiceStatus | StudyStatus]] = [("", self._status)]
        parts += [(one.name, one) for one in self._status.studies]
        for name, part in parts:
            for reason, count in part.refusals.items():
                refusals.add_metric([name, reason], count)
            for what, quantiles in part.seconds.items():
                _add(seconds, [name, what], quantiles)
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
        "privrl_plan": ("number of the newest plan, which equals the number of closed blocks", lambda one: one.plan),
        "privrl_blocks": ("blocks of people", lambda one: one.users and len(one.blocks)),
        "privrl_epoch": ("epoch of the next release of an open-ended study", lambda one: one.epoch),
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
    people = GaugeMetricFamily(
        "privrl_people_per_commit", "reports per commit, in a local study", labels=["study", "quantile"]
    )
    for one in studies:
        if one.people_per_commit is not None:
            _add(people, [one.name], one.people_per_commit)
    yield people


def _add(family: GaugeMetricFamily, labels: list[str], quantiles: Quantiles) -> None:
    family.add_metric([*labels, "0.5"], quantiles.p50)
    family.add_metric([*labels, "0.99"], quantiles.p99)
