"""Does a certificate follow from its settings? Every number in it is derived again, and compared.

From the learner's declarations and the privatizer follow, without anybody's data: the calibrated events (mechanism,
parameter, times, group, sampling, symbols, batch), the names and numbers of releases, delta, adjacency, and what a
paper claims. From the events follow epsilon, rho, mu and the accountant. What is left to the run:

- **counted**: how many of the declared releases were made. At most as many as declared.
- **noise**: sensitivity and scale of the noise that was drawn, one for each release that was made (one for a stream).
  Each has sensitivity/scale equal to the parameter of an event of its name, no two entries the same event; where the
  declaration has a statistic, the sensitivity is the statistic's, times the continual mechanism's factor (that for
  people who come several times, where they may).
- **trades**: `Ledger.skip` and `Ledger.burn` move shares between unsampled Gaussian releases of one group (a *pool*)
  that are queried one by one. A release that was skipped is gone, one that was burnt is made once more, so that
  there are `declared - skipped + burnt` events of a name. Both keep the pool's total of mu^2 what it was calibrated to.
  The cost of a Gaussian pool is a function of that total alone, so any events with that total, whatever led to them,
  cost exactly what was calibrated. Where nothing was traded every event is the calibrated one. Streams, sampled
  releases and other noise never trade.

**Formal guarantee.** A certificate without a problem states the epsilon, delta, rho and mu that its recorded settings
give, for all releases that these settings declare. Whether the settings are those of the program that ran, and whether
it drew the noise that it wrote down, no reader of a file can know: a signature says who answers for that.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from privrl.contracts.release import Declared
from privrl.privacy.accounting.certificate import Certificate, cost_of
from privrl.privacy.accounting.composition import mu_of
from privrl.privacy.accounting.events import Event
from privrl.privacy.accounting.ledger import Ledger
from privrl.privacy.continual.participation import ONCE, Participation
from privrl.privacy.trust.channels import RunningChannel
from privrl.privacy.trust.exact_channels import ENCODER_BITS, encoder_of
from privrl.privacy.trust.privatizers import AbstractPrivatizer
from privrl.privacy.trust.repeated import distance_of_people, encoded_reach

_ACCOUNTED = 1e-6  # accountants are numerical, and may differ between computers
_EXACT = 1e-9  # closed formulas
_DRAWN = 1e-8  # whole numbers: the noise on a lattice of 2^32 units is rounded up
_SEARCHED = 1e-5  # parameters that `calibrate` finds by a search; the cost of what it found is checked to 1e-6
_ROUNDED = 1e-3  # what rounding to the lattice may add to a sensitivity
_MAX_STEPS = 2**13  # of a stream in whole numbers, whose matrices have this many rows and columns
_RELEASE = {"name", "access", "declared", "counted", "skipped", "burnt", "noise"}
_NOISE_ENTRIES = {"sensitivity", "scale", "times"}
_NOISE = ("gaussian", "laplace", "exponential", "none")  # mechanisms with a scale


@dataclass(frozen=True)
class Derived:
    """What follows from a certificate's settings.

    Attributes:
        privatizer, declared: as recorded.
        records: the public bound on records per unit, by which a table's sensitivities are multiplied.
        participation: how often people take part, online.
    """

    privatizer: AbstractPrivatizer
    declared: tuple[Declared, ...]
    records: int = 1
    participation: Participation = ONCE

    @property
    def ledger(self) -> Ledger:
        """A ledger from which nothing was spent."""
        return self.privatizer.calibrate(self.declared, self.participation)


def cost_problems(certificate: Certificate) -> list[str]:
    """Where epsilon, rho, mu or the accountant do not follow from the events."""
    if not certificate.events:
        return ["It lists no events, so nothing follows from it."]
    follows = cost_of(certificate.events, certificate.delta, certificate.adjacency)
    return [
        f"`{name}` is written as {_shown(getattr(certificate, name))} and follows as {_shown(value)}."
        for name, value in follows.items()
        if not same(getattr(certificate, name), value, _ACCOUNTED)
    ]


def release_problems(certificate: Certificate) -> list[str]:
    """Where counts and noise distributions contradict the events, or make no sense by themselves."""
    names = [str(release["name"]) for release in certificate.releases]
    problems = [] if len(set(names)) == len(names) else ["A release is listed twice."]
    problems += [f"There is no release of event `{e.name}`." for e in certificate.events if e.name not in names]
    for release in certificate.releases:
        problems += _form(release) or _noise_problems(
            release, [e for e in certificate.events if e.name == release["name"]]
        )
    return problems


def derived_problems(certificate: Certificate, derived: Derived) -> list[str]:
    """Where the certificate differs from what its settings give."""
    privatizer = derived.privatizer
    given = {"delta": privatizer.reported_delta, "adjacency": privatizer.adjacency}
    problems = [
        f"`{name}` is written as {_shown(getattr(certificate, name))}, and the settings give {_shown(value)}."
        for name, value in given.items()
        if not same(getattr(certificate, name), value, _EXACT)
    ]
    if not same(certificate.claimed, privatizer.claimed, _EXACT):
        problems.append("`claimed` is not what the settings give.")
    written = [(release["name"], release["access"], release["declared"]) for release in certificate.releases]
    declared = [(d.name, d.access, d.times) for d in derived.declared]
    if written != declared:
        return [*problems, f"The releases are written as {written}, and the settings declare {declared}."]
    problems += _event_problems(certificate, derived)
    for release, d in zip(certificate.releases, derived.declared, strict=True):
        if not all(_fits(noise["sensitivity"], _sensitivities(derived, d)) for noise in release["noise"]):
            problems.append(f"The sensitivity of `{d.name}` is not that of the statistic that was declared.")
    return problems


def _form(release: Mapping[str, Any]) -> list[str]:
    """Where one release is not made of counts and positive noise scales."""
    name = str(release["name"])
    if set(release) != _RELEASE or any(set(noise) != _NOISE_ENTRIES for noise in release["noise"]):
        return [f"Release `{name}` has entries that no ledger writes."]
    counts = {key: release[key] for key in ("declared", "counted", "skipped", "burnt")}
    if not all(type(count) is int and count >= 0 for count in counts.values()):
        return [f"The counts of release `{name}` are {counts}; they must be whole numbers of at least 0."]
    if counts["counted"] > counts["declared"] - counts["skipped"] + counts["burnt"]:
        return [f"Release `{name}` was made {counts['counted']} times, and {counts['declared']} were declared."]
    if any(type(noise["times"]) is not int or noise["times"] < 1 for noise in release["noise"]):
        return [f"A noise distribution of release `{name}` was used less than once."]
    if not all(0 < noise["sensitivity"] < math.inf and 0 <= noise["scale"] < math.inf for noise in release["noise"]):
        return [f"A noise distribution of release `{name}` has a sensitivity or a scale that is not positive."]
    return []


def _noise_problems(release: Mapping[str, Any], events: Sequence[Event]) -> list[str]:
    """Where the noise of one release is not the noise that its events certify."""
    name = str(release["name"])
    if len({e.mechanism for e in events}) > 1:
        return [f"Release `{name}` has events of different kinds."]
    left = [[e.parameter, e.times] for e in events]
    made = sum(noise["times"] for noise in release["noise"])
    needed = min(release["counted"], sum(e.times for e in events if e.mechanism in _NOISE))
    if made != needed:
        return [f"Release `{name}` has {made} noise distributions, and {needed} releases that need one."]
    for noise in release["noise"]:
        times = noise["times"]
        for entry in left:
            if same(_ratio(noise), entry[0], _DRAWN):
                taken = min(times, entry[1])
                entry[1] -= taken
                times -= taken
        if times:
            return [f"The noise of release `{name}` is not the noise that its events certify."]
    return []


def _ratio(noise: Mapping[str, Any]) -> float:
    return noise["sensitivity"] / noise["scale"] if noise["scale"] else math.inf


def _event_problems(certificate: Certificate, derived: Derived) -> list[str]:
    """Where events are not the calibrated ones, up to trades within a pool."""
    ledger = derived.ledger
    calibrated = {event.name: event for event in ledger.events()}
    releases = {release["name"]: release for release in certificate.releases}
    sums = tuple(event for event in calibrated.values() if event.mechanism != "exponential")
    closed = certificate.delta == 0 or mu_of(sums) is not None
    pools: dict[str, list[str]] = {}
    for name in calibrated:
        pools.setdefault(ledger.pool(name), []).append(name)
    problems = [f"Event `{e.name}` is not declared." for e in certificate.events if e.name not in calibrated]
    for names in pools.values():
        traded = any(releases[name]["skipped"] or releases[name]["burnt"] for name in names)
        for name in names:
            event, events = calibrated[name], [e for e in certificate.events if e.name == name]
            trades = traded and event.mechanism == "gaussian" and ledger.declared(name).access == "rounds"
            moved = releases[name]["burnt"] - releases[name]["skipped"]
            if any(_kind(e) != _kind(event) for e in events):
                problems.append(f"Event `{name}` is not of the kind that the settings give: {_kind(event)}.")
            if sum(e.times for e in events) != event.times + moved or (moved and not trades):
                problems.append(f"Event `{name}` does not occur as often as the settings give.")
            near = _EXACT if closed else _SEARCHED
            if not trades and not all(same(e.parameter, event.parameter, near) for e in events):
                problems.append(f"The parameter of event `{name}` is not the calibrated one.")
        if traded and not same(_total(certificate.events, names), _total(calibrated.values(), names), _EXACT):
            problems.append(f"The releases {', '.join(f'`{name}`' for name in names)} cost more than was calibrated.")
    return problems


def _kind(event: Event) -> dict[str, Any]:
    return {key: getattr(event, key) for key in ("mechanism", "group", "sampling", "symbols", "batch")}


def _total(events: Iterable[Event], names: Sequence[str]) -> float:
    """The mu^2 of all releases of a pool."""
    return math.fsum(e.times * e.parameter**2 for e in events if e.name in names)


def _sensitivities(derived: Derived, declared: Declared) -> Iterator[float]:
    """What the sensitivity of a release can be, rounding to a lattice aside; nothing where the settings do not say.

    Nothing is said where the query decides the statistic, where people are sampled (then it depends on the norm of
    one term), where answers are random, or where the statistic needs numbers that were not kept.
    """
    if declared.statistic is None or declared.sampling < 1:
        return
    try:
        channel = derived.privatizer.channel(replace(declared, group=None), derived.ledger)
        calibration = channel.calibration
    except (TypeError, ValueError, AttributeError):
        return
    if calibration is not None:
        yield calibration[0] * (1 if declared.statistic.per_person else derived.records)
        if isinstance(channel, RunningChannel) and channel.continual.steps <= _MAX_STEPS:
            # In whole numbers the factor is that of the encoder.
            encoder, often = encoder_of(channel.continual) / 2.0**ENCODER_BITS, derived.participation
            adjacency = derived.privatizer.adjacency
            apart = distance_of_people(channel.statistic, channel.mechanism, adjacency, often, encoder)
            yield apart * encoded_reach(channel.continual, encoder, often)


def _fits(sensitivity: float, allowed: Iterator[float]) -> bool:
    """Whether it is one of those allowed, rounding aside; true where none is named."""
    named = list(allowed)
    return not named or any(x * (1 - _EXACT) <= sensitivity <= x * (1 + _ROUNDED) for x in named)


def same(written: Any, follows: Any, tolerance: float) -> bool:
    """Equal in form and text, and for numbers up to a relative tolerance."""
    if isinstance(written, Mapping) and isinstance(follows, Mapping):
        return set(written) == set(follows) and all(same(written[k], follows[k], tolerance) for k in written)
    if isinstance(written, (list, tuple)) and isinstance(follows, (list, tuple)):
        pairs = zip(written, follows, strict=False)
        return len(written) == len(follows) and all(same(a, b, tolerance) for a, b in pairs)
    if _is_number(written) and _is_number(follows):
        return written == follows or math.isclose(written, follows, rel_tol=tolerance)
    return type(written) is type(follows) and bool(written == follows)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _shown(value: object) -> str:
    return "nothing" if value is None else f"{value:.6g}" if _is_number(value) else str(value)
