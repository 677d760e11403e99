"""The page of a pilot: the verdict, z and its boundaries, estimates, arms, missing records, protocol and certificate.

Everything shown is a function of the protocol, of arrivals, arms and groups, and of releases.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from markupsafe import Markup

from privrl.contracts.printing import describe_seconds
from privrl.learners.trials.looks import ArmLook, Comparison, Look
from privrl.learners.trials.protocol import Protocol
from privrl.plots.trial_plots import LookPoint, draw_boundaries, draw_gains
from privrl.reports.certificate_section import CertificateParts
from privrl.reports.display_names import to_noun
from privrl.reports.rendering import HtmlTable, embed_plot, render, render_page
from privrl.studies.results.pilot_record import PilotRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Embedding = Callable[["Figure", str], Markup]
"""Makes a plot with a description a part of a page."""


class _PolicyCharts(NamedTuple):
    """The charts of one policy against practice."""

    policy: str
    boundaries: Markup
    gains: Markup
    table: HtmlTable


def render_pilot(record: PilotRecord, problems: Sequence[str] = ()) -> str:
    """Render the page of a pilot.

    Arguments:
        record: what the pilot has shown so far.
        problems: what is wrong with its certificate; shown first.
    """
    certificate = replace(record.certificate, unit=to_noun(record.certificate.unit))
    return render_page(
        "pilot.html",
        title=f"A private randomised trial: {record.protocol.name}",
        problems=problems,
        certificate=certificate,
        signed=str(record.certificate),
        parts=CertificateParts.from_certificate(certificate),
        result=render_pilot_result(record.protocol, record.looks),
        protocol=_table_of_protocol(record.protocol),
        sha256=record.protocol.sha256,
    )


def render_pilot_result(protocol: Protocol, looks: Sequence[Look], embed: Embedding = embed_plot) -> Markup:
    """Render what the looks have shown, as a part of a page.

    Arguments:
        embed: how a plot becomes a part of the page.
    """
    last = looks[-1] if looks else None
    return render(
        "pilot_result.html",
        protocol=protocol,
        last=last,
        kind=_kind_of(last),
        sentence="No look has been made yet." if last is None else last.sentence,
        after=_describe_serving(protocol, last),
        charts=[_chart(protocol, looks, arm.name, embed) for arm in protocol.policies if _points(looks, arm.name)],
        arms=None if last is None else _table_of_arms(last),
        missing=_describe_missing(looks),
        further=None if last is None else _table_of_further(last),
        harmed=_describe_harm(looks),
        groups=_table_of_groups(looks),
    )


def _kind_of(last: Look | None) -> Literal["key", "warn", "bad"]:
    verdicts = set() if last is None else {one.verdict for one in last.comparisons}
    return "key" if "better" in verdicts else "bad" if "worse" in verdicts else "warn"


def _describe_serving(protocol: Protocol, last: Look | None) -> str:
    if last is not None and last.serving:
        what = "current practice" if last.serving == protocol.arms[0].name else f"the policy `{last.serving}`"
        return f"The trial has ended, and every new person gets {what}."
    people = 0 if last is None else last.people
    return f"The trial goes on: {people:,} of at most {protocol.people:,} people are in closed blocks."


def _points(looks: Sequence[Look], policy: str) -> list[tuple[Look, Comparison]]:
    return [(look, one) for look in looks for one in look.comparisons if one.policy == policy]


def _chart(protocol: Protocol, looks: Sequence[Look], policy: str, embed: Embedding) -> _PolicyCharts:
    found = _points(looks, policy)
    points = [
        LookPoint(look.people, one.z, one.upper, one.lower, one.estimate, one.low, one.high) for look, one in found
    ]
    rows = [
        (
            str(look.number),
            f"{look.people:,}",
            f"{one.estimate:+.3g}",
            f"{_bound(one.low)} to {_bound(one.high)}",
            f"{one.z:+.2f}",
            _bound(one.upper),
            _bound(-one.lower),
            one.verdict or "none",
        )
        for look, one in found
    ]
    columns = ("look", "people", "gain", "repeated interval", "z", "better above", "worse below", "verdict")
    caption = f"`{policy}` against practice, at every look"
    return _PolicyCharts(
        policy,
        embed(draw_boundaries(points, protocol.people), f"z of {policy} at each look, between its boundaries"),
        embed(draw_gains(points, protocol.people), f"Gain of {policy} at each look with repeated intervals"),
        HtmlTable(columns, rows, caption, numbers=(1, 2, 3, 4, 5, 6), stacked=True),
    )


def _bound(value: float) -> str:
    return f"{value:+.3g}" if math.isfinite(value) else "none yet"


def _table_of_arms(last: Look) -> HtmlTable:
    rows = [
        (
            one.name,
            f"{one.assigned:,}",
            f"{one.received:,.0f} ± {2 * one.received_se:,.0f}",
            _missing(one),
            f"{one.mean:.3g} ± {2 * one.mean_se:.2g}",
            "open" if one.is_open else "served" if one.name == last.serving else "closed",
        )
        for one in last.arms
    ]
    columns = ("arm", "assigned", "received", "missing", "mean outcome", "state")
    caption = "Arms at the last look; ± is two standard errors"
    return HtmlTable(columns, rows, caption, numbers=(1, 2, 3, 4), stacked=True)


def _missing(arm: ArmLook) -> str:
    """The share of records that are missing, as far as the noise shows it."""
    if not arm.assigned:
        return "none assigned"
    share = min(max(1.0 - arm.received / arm.assigned, 0.0), 1.0)
    return f"{share:.0%} ± {2 * arm.received_se / arm.assigned:.0%}"


def _describe_missing(looks: Sequence[Look]) -> str:
    """Whether a verdict rests on missing records."""
    judged = [one for look in looks for one in look.comparisons if one.verdict]
    if not judged:
        return "Missing records count as the value of the protocol. There is no verdict that they could change."
    rests = [one for one in judged if one.rests_on_missing]
    if not rests:
        return "The verdict stays the same if every missing record counts against it."
    names = ", ".join(f"`{one.policy}`" for one in rests)
    return f"The verdict on {names} rests on missing records: it disappears if every missing record counts against it."


def _table_of_further(last: Look) -> HtmlTable | None:
    found = [*last.subgroups, *last.secondary]
    rows = [
        (
            one.policy,
            one.group or one.outcome,
            f"{one.estimate:+.3g}",
            f"{_bound(one.low)} to {_bound(one.high)}",
            _describe_interval(one),
        )
        for one in found
    ]
    caption = "Subgroups and secondary outcomes at the last look; intervals are not corrected for their number"
    columns = ("policy", "of", "gain", "repeated interval", "interval")
    return HtmlTable(columns, rows, caption, numbers=(2, 3), marked=_mark(found), stacked=True) if rows else None


def _describe_harm(looks: Sequence[Look]) -> list[str]:
    """Every subgroup in which a policy did worse than practice, with all looks at which it did."""
    found: dict[tuple[str, str], list[str]] = {}
    for look in looks:
        for one in look.harmed:
            found.setdefault((one.group, one.policy), []).append(f"look {look.number} ({one.estimate:+.3g})")
    return [
        f"In the subgroup `{group}` the policy `{policy}` did worse than practice: {', '.join(at)}."
        for (group, policy), at in found.items()
    ]


def _table_of_groups(looks: Sequence[Look]) -> HtmlTable | None:
    """Every subgroup at every look."""
    found = [(look, one) for look in looks for one in look.subgroups]
    rows = [
        (
            str(look.number),
            one.policy,
            one.group,
            f"{one.estimate:+.3g}",
            f"{_bound(one.low)} to {_bound(one.high)}",
            _describe_interval(one),
        )
        for look, one in found
    ]
    columns = ("look", "policy", "of", "gain", "repeated interval", "interval")
    return (
        HtmlTable(
            columns,
            rows,
            "Subgroups at every look",
            numbers=(3, 4),
            marked=_mark([one for _, one in found]),
            stacked=True,
        )
        if rows
        else None
    )


def _describe_interval(one: Comparison) -> str:
    return {"better": "above 0", "worse": "below 0"}.get(one.verdict, "contains 0")


def _mark(found: Sequence[Comparison]) -> dict[int, Literal["chosen", "bad"]]:
    return {i: "bad" for i, one in enumerate(found) if one.verdict == "worse"}


def _table_of_protocol(protocol: Protocol) -> HtmlTable:
    outcome, ends = protocol.outcome, protocol.ends
    missing = outcome.low + outcome.missing_value * (outcome.high - outcome.low)
    after = "the policy" if protocol.after_better == "policy" else "practice, until a committee has decided"
    rows = [
        ("arms", ", ".join(f"`{arm.name}`" for arm in protocol.arms)),
        ("shares", "; ".join(_describe_shares(protocol))),
        ("largest number of people", f"{protocol.people:,}"),
        ("looks", f"{len(ends)}, the first after {ends[0]:,} people"),
        ("outcome", f"`{outcome.name}`, clipped to {outcome.low:g} to {outcome.high:g}; larger is better"),
        ("a missing record counts as", f"{missing:g}"),
        ("patience", f"{describe_seconds(protocol.patience)} after the arrival of the last person of a block"),
        ("error rate of better", f"{protocol.better:g}, one-sided, spent as {protocol.spending_better}"),
        ("error rate of worse", f"{protocol.worse:g}, one-sided, spent as {protocol.spending_worse}"),
        ("budget", f"epsilon = {protocol.epsilon:g}, delta = {protocol.delta:g}"),
        ("after better", f"every new person gets {after}"),
        ("after worse, and without a verdict", "every new person gets practice"),
    ]
    rows += [(f"secondary outcome `{one.name}`", f"{one.share:g} of the budget") for one in protocol.secondary]
    rows += [(f"subgroups by `{one.name}`", ", ".join(one.groups)) for one in protocol.subgroups]
    return HtmlTable(("entry", "value"), rows, "Fixed before the first person was enrolled")


def _describe_shares(protocol: Protocol) -> list[str]:
    shares = protocol.shares
    starts = [0, *(look for look in range(1, len(shares)) if (shares[look] != shares[look - 1]).any())]
    return [f"from look {start + 1}: {', '.join(f'{share:.3g}' for share in shares[start])}" for start in starts]
