"""The looks of a trial, as reports draw them: functions of releases and of public numbers.

At a look the arms have numbers assigned and received and a mean; each policy is compared with practice. The comparison
has a repeated interval [d - u se, d + w se], which holds at all looks together, also after stopping, and excludes 0
exactly if there is a verdict. It is repeated with missing records counted against the verdict, which says whether the
verdict rests on them. Subgroups and secondary outcomes have no verdict; their intervals use the boundaries of the
outcome that decides, and are not corrected for their number.
"""

import math
from dataclasses import dataclass
from typing import Literal

import jax
import numpy as np

from privrl.learners.trials.protocol import Outcome
from privrl.learners.trials.trial import ALL, Trial, TrialState

LookVerdict = Literal["better", "worse", ""]


@dataclass(frozen=True)
class ArmLook:
    """One arm at one look.

    Attributes:
        name: the name of the arm.
        assigned: the public number of people assigned to it, in all closed blocks.
        received, received_se: the released number of records received, and the standard deviation of its noise.
        mean, mean_se: the released mean outcome over all people assigned, on the scale of the outcome, with missing
            records at the value of the protocol; and its standard error.
        is_open: whether people are still randomised to it after this look.
    """

    name: str
    assigned: int
    received: float
    received_se: float
    mean: float
    mean_se: float
    is_open: bool


@dataclass(frozen=True)
class Comparison:
    """One policy against practice at one look, on the scale of the outcome.

    Attributes:
        policy: the name of the policy's arm.
        estimate, se: the estimated gain and its standard error, privacy noise included.
        z: estimate/se; 0 if se is 0.
        upper, lower: u and w: "better" if z > u, "worse" if -z > w. Infinite if nothing is spent yet.
        low, high: the repeated interval.
        verdict: the verdict at this look; empty if there is none. A comparison of a subgroup or of a secondary outcome
            says whether its interval excludes 0.
        against: the same z with missing records counted against the verdict, or against "better" if there is none.
        rests_on_missing: whether the verdict would change.
        group: the group of a subgroup comparison.
        outcome: the name of the outcome.
    """

    policy: str
    estimate: float
    se: float
    z: float
    upper: float
    lower: float
    low: float
    high: float
    verdict: LookVerdict
    against: float
    rests_on_missing: bool
    group: str = ""
    outcome: str = ""


@dataclass(frozen=True)
class Look:
    """What a look shows.

    Attributes:
        number: the number of the look, from 1.
        people: the public number of people in closed blocks.
        arms: every arm, practice first.
        comparisons: every policy that was open before this look.
        subgroups: the same by group.
        secondary: the same for secondary outcomes.
        ended: whether the trial ends with this look.
        serving: the name of the arm that new people get after the end; empty if the trial goes on.
    """

    number: int
    people: int
    arms: tuple[ArmLook, ...]
    comparisons: tuple[Comparison, ...]
    subgroups: tuple[Comparison, ...]
    secondary: tuple[Comparison, ...]
    ended: bool
    serving: str

    @property
    def sentence(self) -> str:
        """The result of the look in one sentence: every policy that was tried, first the one that is served."""
        better = sorted((one for one in self.comparisons if one.verdict == "better"), key=lambda one: -one.low)
        worse = [one for one in self.comparisons if one.verdict == "worse"]
        undecided = "; ".join(f"`{one.policy}` {_interval(one)}" for one in self.comparisons if not one.verdict)
        watched = {one.policy for one in self.comparisons}
        closed = [arm.name for arm in self.arms[1:] if not arm.is_open and arm.name not in watched]
        parts = [
            f"`{one.policy}` is {'also ' if place else ''}better than practice: {_interval(one)}"
            for place, one in enumerate(better)
        ]
        parts += [f"`{one.policy}` is worse than practice: {_interval(one)}" for one in worse]
        if parts and undecided:
            parts.append(f"no verdict {'' if self.ended else 'yet '}on {undecided}")
        elif undecided:
            further = "further " if closed else ""
            state = f"The trial ended without a {further}verdict" if self.ended else f"No {further}verdict yet"
            parts.append(f"{state} after {self.people:,} people: {undecided}")
        if better or worse:
            parts[-1] += f", after {self.people:,} people"
        parts += [f"`{name}` was closed as worse at an earlier look" for name in closed]
        return "; ".join(parts) + "."

    @property
    def harmed(self) -> tuple[Comparison, ...]:
        """The subgroups in which a policy did worse than practice at this look."""
        return tuple(one for one in self.subgroups if one.verdict == "worse")


def _interval(one: Comparison) -> str:
    if not (math.isfinite(one.low) or math.isfinite(one.high)):
        return f"{one.estimate:+.3g} (no interval yet)"
    if not math.isfinite(one.low):
        return f"{one.estimate:+.3g} (at most {one.high:+.3g})"
    if not math.isfinite(one.high):
        return f"{one.estimate:+.3g} (at least {one.low:+.3g})"
    return f"{one.estimate:+.3g} (from {one.low:+.3g} to {one.high:+.3g})"


def looks_of(trial: Trial, state: TrialState) -> tuple[Look, ...]:
    """All looks of a trial so far, from its newest state."""
    state = jax.tree.map(np.asarray, state)
    return tuple(_look(trial, state, number) for number in range(1, int(state.looks) + 1))


def _look(trial: Trial, state: TrialState, number: int) -> Look:
    protocol, t = trial.protocol, number - 1
    closed = [int(look) for look in state.closed]
    watched = [arm for arm in range(1, len(closed)) if closed[arm] == 0 or closed[arm] >= number]
    ended = int(state.ended) == number
    comparisons = [_compare(trial, state, t, arm, protocol.outcome) for arm in watched]
    subgroups = [
        _compare(trial, state, t, arm, protocol.outcome, trial.release_by(part.name), place)
        for arm in watched
        for part in protocol.subgroups
        for place in range(len(part.groups))
    ]
    secondary = [
        _compare(trial, state, t, arm, outcome, outcome.name) for arm in watched for outcome in protocol.secondary
    ]
    return Look(
        number=number,
        people=int(protocol.ends[t]),
        arms=tuple(
            _arm(trial, state, t, arm, not ended and (closed[arm] == 0 or closed[arm] > number))
            for arm in range(len(closed))
        ),
        comparisons=tuple(comparisons),
        subgroups=tuple(subgroups),
        secondary=tuple(secondary),
        ended=ended,
        serving=trial.arms[int(state.serving)] if ended else "",
    )


def _compare(
    trial: Trial, state: TrialState, t: int, arm: int, outcome: Outcome, release: str = "", place: int = 0
) -> Comparison:
    v, width = outcome.missing_value, outcome.high - outcome.low
    estimate, se, _ = (float(x) for x in trial.compare(state, t, arm, (v, v), release, place))
    upper, lower = float(state.judged.upper[t, arm]), float(state.judged.lower[t, arm])
    z = estimate / se if se > 0 else 0.0
    if not release:  # as it was judged then
        estimate, se = float(state.judged.estimate[t, arm]), float(state.judged.se[t, arm])
        z = estimate / se if se > 0 else 0.0
    verdict: LookVerdict = "better" if z > upper else "worse" if -z > lower else ""
    worst = (0.0, 1.0) if verdict == "worse" else (1.0, 0.0)
    other, other_se, _ = (float(x) for x in trial.compare(state, t, arm, worst, release, place))
    against = other / other_se if other_se > 0 else 0.0
    still: LookVerdict = "better" if against > upper else "worse" if -against > lower else ""
    group = ""
    if release and release != outcome.name:
        part = next(part for part in trial.protocol.subgroups if trial.release_by(part.name) == release)
        group = f"{part.name}: {part.groups[place]}"
    return Comparison(
        policy=trial.arms[arm],
        estimate=width * estimate,
        se=width * se,
        z=z,
        upper=upper,
        lower=lower,
        low=width * (estimate - upper * se) if se > 0 else -math.inf,
        high=width * (estimate + lower * se) if se > 0 else math.inf,
        verdict=verdict,
        against=against,
        rests_on_missing=bool(verdict) and still != verdict,
        group=group,
        outcome=outcome.name,
    )


def _arm(trial: Trial, state: TrialState, t: int, arm: int, is_open: bool) -> ArmLook:
    outcome = trial.protocol.outcome
    own, _ = trial.statistics()[outcome.name]
    n = float(state.assigned[ALL][: t + 1, arm, 0].sum())
    received, total = (float(x) for x in state.running[outcome.name][t, arm, 0])
    v, variance = outcome.missing_value, float(state.variance[outcome.name][t])
    mean = (total + (own.centre - v) * received) / n + v if n else math.nan
    inside = min(max(mean, 0.0), 1.0)
    noise = variance * (1 + (own.centre - v) ** 2 / own.record_weight**2)
    se = math.sqrt(inside * (1 - inside) / n + noise / n**2) if n else math.inf
    width = outcome.high - outcome.low
    return ArmLook(
        name=trial.arms[arm],
        assigned=round(n),
        received=received,
        received_se=math.sqrt(variance) / own.record_weight,
        mean=outcome.low + width * mean,
        mean_se=width * se,
        is_open=is_open,
    )
