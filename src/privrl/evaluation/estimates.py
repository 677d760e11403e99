"""What an evaluation says: estimates with their intervals, what was refused, a decision, and a verdict in one line.

All numbers are functions of releases alone, in the world's own units. Intervals are two-sided (`low`, `high`) and
one-sided (`lower`, `upper`), each at 95%, and their standard error holds sampling error and privacy noise together.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypedDict

from privrl.contracts.untrusted import MALFORMED, convert
from privrl.evaluation.confidence import Interval
from privrl.evaluation.decision import Bound, Decision, Reason, gives_advice
from privrl.evaluation.group_estimates import GroupEstimate, OutcomeEstimate, worst_first
from privrl.mdp.assistance import AbstractAssisted, to_json_number
from privrl.mdp.assisted import AssistedPolicy
from privrl.mdp.assisted_measured import AssistedMeasuredPolicy

Standing = Literal["better", "worse", "not shown"]
NEGLIGIBLE = 0.027
"""Practice is taken to follow the recorded state alone where all entries of `PracticeResiduals` are surely below."""
FITTED = 0.01
"""The allowance of a gain with weights that are estimated in cells of measurements, in standard deviations of D over
people: by how much practice differs within a cell."""
BALANCED = 0.04
"""The allowance of a mean weight, if practice is estimated."""
FITTED_STATES = 0.005
"""The allowance of a gain with probabilities of practice that are estimated state by state, as a share of the range of
returns, for errors that multiply; single errors are in the standard error."""


Assumption = Literal["logged", "randomised", "recorded", "checked"]
"""What is known about who decided: a program that logged its probabilities; one that also never gave any action less
than a public probability, so that weights are never clipped; people who saw nothing but the record, as
the study team states; or nothing, so that a release needs checks of practice to be passed."""


@dataclass(frozen=True)
class PairGain:
    """What the assisted policy with one pair of limits adds to practice. The pairs of a study share the error rate."""

    max_ratio: float
    max_weight: float
    gain: Interval


class _WrittenPair(TypedDict):
    """One of the pairs of an `evaluation.json`."""

    max_ratio: float | str
    max_weight: float | str
    gain: Interval


class _WrittenGroup(TypedDict):
    """One of the groups of an `evaluation.json`."""

    name: str
    people: float
    deviation: float
    too_few: bool
    practice: Interval | None
    gain: Interval | None
    harmed: bool


class _Written(TypedDict):
    """The types of an `evaluation.json`."""

    policy: dict[str, Any]
    people: int
    practice: Interval
    unsupported: Interval
    balance: Interval | None
    gain: Interval | None
    assisted_gain: Interval | None
    model_gain: Interval | None
    trend: Interval | None
    continuity: Interval | None
    arrival: Interval | None
    public: bool
    changed: Interval | None
    bound: Bound | None
    assumption: Assumption
    markov: bool
    pairs: list[_WrittenPair]
    sensitivity: float | str | None
    by: str | None
    groups: list[_WrittenGroup]
    outcome: OutcomeEstimate | None
    refused: list[str]
    verdict: str
    reasons: list[Reason]


@dataclass(frozen=True)
class Evaluation:
    """How an assisted policy compares with practice.

    Attributes:
        policy: the assisted policy that was evaluated.
        people: the public number of people who were in it.
        practice: practice's mean return.
        gain: certified: what the assisted policy adds to it, if practice depends on the recorded state alone.
        assisted_gain: the same without a guarantee, where the probabilities of practice are estimated in cells of
            measurements (`mdp/assisted_measured.py`).
        model_gain: what the whole advice adds, by a model, without a guarantee.
        balance: the mean weight, which is 1 if the probabilities of practice are right.
        unsupported: share of decisions without supported advice.
        trend, continuity, arrival: what practice does beyond the recorded state, against the trend of the state, the
            decision before, and at the first decision of a stay; 0 if it follows the recorded state alone
            (`statistics/practice_residuals.py`).
        changed: share of decisions that the assisted policy changes, in the situations of practice.
        bound: the one-sided lower bound of the gain that decides on a release.
        assumption: what is known about who decided.
        markov: whether the study states that what happens next depends on the recorded state and the action alone.
        pairs: the gains of all pairs of limits that were compared; the largest lower bound was chosen.
            If that of the whole advice is larger still, and the model may decide, the policy has no limits.
        public: whether the probabilities of practice were, so that a gain can be certified.
        sensitivity: the odds ratio of an unrecorded influence that would overturn the verdict (`influence.py`).
        by: the column of groups, if estimates are given by group.
        groups: the estimates of each group, the worst gain first. They decide nothing.
        outcome: the estimates of a second outcome. They decide nothing either.
        refused: sentences that explain why something is missing.
    """

    policy: AbstractAssisted = field(compare=False)
    people: int
    practice: Interval
    unsupported: Interval
    balance: Interval | None = None
    gain: Interval | None = None
    assisted_gain: Interval | None = None
    model_gain: Interval | None = None
    trend: Interval | None = None
    continuity: Interval | None = None
    arrival: Interval | None = None
    changed: Interval | None = None
    bound: Bound | None = None
    assumption: Assumption = "checked"
    markov: bool = False
    pairs: tuple[PairGain, ...] = ()
    public: bool = False
    sensitivity: float | None = None
    by: str | None = None
    groups: tuple[GroupEstimate, ...] = ()
    outcome: OutcomeEstimate | None = None
    refused: tuple[str, ...] = ()

    @property
    def verdict(self) -> Standing:
        """Worse or not shown from the certified gain alone; better only if nothing speaks against a release."""
        found = verdict_of(self.gain)
        return "not shown" if found == "better" and (self.reasons or self.policy.is_silent) else found

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Why the evidence does not support a release; empty if it does.

        A release needs all of these: practice was seen to follow the recorded state alone (up to `NEGLIGIBLE`), unless
        an assumption says who decided and nothing contradicts it; weights are balanced; and the lower bound of the gain
        is above 0.
        """
        checks = (self.trend, self.continuity, self.arrival)
        found = [*practice_problems(checks, self.balance, public=self.public, assumption=self.assumption)]
        if self.policy.support.size and self.policy.is_silent:
            found.append(Reason.NO_SUPPORT)
        if self.bound is None:
            found.append(Reason.NO_ESTIMATE)
        elif not self.bound.lower > 0.0:
            found.append(Reason.NO_GAIN)
        return tuple(found)

    @property
    def released_policy(self) -> AbstractAssisted:
        """The assisted policy, without any advice if the evidence does not support a release."""
        return self.policy if not self.reasons else self.policy.without_advice()

    @property
    def decision(self) -> Decision:
        """What follows from the evidence alone; `decide_on` is about a policy that was saved."""
        return self.decide_on(self.released_policy)

    def decide_on(self, saved: object) -> Decision:
        """What was decided, computed from the policy that was saved; `None` if none was."""
        reasons, limits = self.reasons, (self.policy.max_ratio, self.policy.max_weight)
        if not gives_advice(saved):
            return Decision("withheld", 0.0, reasons, self.bound, *limits)
        if not isinstance(saved, AbstractAssisted) or saved.to_json() != self.policy.to_json():
            return Decision("released without evidence", None, (Reason.ANOTHER_POLICY, *reasons), self.bound)
        changed = None if self.changed is None else min(max(self.changed.value, 0.0), 1.0)
        return Decision("released without evidence" if reasons else "released", changed, reasons, self.bound, *limits)

    @property
    def line(self) -> str:
        """The verdict in one line, and why a lower bound above 0 does not count, if it does not."""
        return f"{self.headline} {self.objection}" if self.objection else self.headline

    @property
    def objection(self) -> str:
        """Why a lower bound above 0 does not count; empty if there is no such bound, or if it counts."""
        if self.bound is None or not self.bound.lower > 0.0 or not self.reasons:
            return ""
        return (
            f"A lower bound was computed ({self.bound.lower:+.3f}), but it does not count, because "
            f"{self.reasons[0].clause}"
        )

    @property
    def headline(self) -> str:
        """The verdict in one sentence."""
        if self.gain is not None and self.verdict == "better":
            return f"Better than practice, by at least {self.gain.lower:+.3f} with 95% confidence."
        if self.gain is not None and self.verdict == "worse":
            return f"Worse than practice: {self.gain.words()}."
        if self.bound is not None and self.bound.basis == "model" and self.decision.outcome == "released":
            return (
                f"By a model that rests on what the study team states, better than practice by at least "
                f"{self.bound.lower:+.3f}; not certified."
            )
        if self.gain is None and self.decision.outcome == "released":
            return "Not certified to be better than practice, because practice is estimated."
        return "Not shown to be better than practice."

    @property
    def words(self) -> str:
        """Sentences about everything that was estimated."""
        said = [f"Practice {self.practice.words('')}.", *_STATED[self.assumption]]
        if self.markov:
            said.append(
                "Assumed by the study team: what happens next depends on the recorded state and the action alone."
            )
        ratio = self.policy.max_ratio
        if self.gain is not None:
            raised = f"With advice raised to at most {ratio:g} times its frequency: {self.gain.words()}"
            least = "" if self.objection else f"; at least {self.gain.lower:+.3f} with 95% confidence"
            said.append(f"{raised}{least}.")
        if self.assisted_gain is not None:
            raised = f"With advice raised to at most {ratio:g} times its frequency (practice estimated, no guarantee)"
            said.append(f"{raised}: {self.assisted_gain.words()}.")
        if self.model_gain is not None:
            said.append(f"Full advice (model, no guarantee): {self.model_gain.words()}.")
        missing = min(max(self.unsupported.value, 0.0), 1.0)
        who = "the clinician decides" if not self.reasons else "the policy that was compared would not advise"
        said.append(f"In {missing:.0%} of decisions there was too little data to advise; {who}.")
        if self.sensitivity is not None and self.verdict != "not shown":
            said.append(
                "An influence that was not recorded would overturn this verdict if it changed the odds of the advised "
                f"treatment by a factor of {self.sensitivity:.2f} over an episode."
            )
        said += [] if self.outcome is None else [self.outcome.words]
        return " ".join((*said, *self.refused))

    @property
    def warnings(self) -> tuple[str, ...]:
        """One sentence for each group that the policy seems to harm."""
        return tuple(
            f"Warning: in the group {one.name} of `{self.by}` the policy is worse than practice, {one.gain.words()}."
            for one in self.groups
            if one.gain is not None and one.harmed
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; numbers that are not finite are written as text."""
        intervals = {name: getattr(self, name) for name in _INTERVALS}
        return {
            "policy": self.policy.to_json(),
            "people": self.people,
            **{name: None if one is None else asdict(one) for name, one in intervals.items()},
            "bound": None if self.bound is None else asdict(self.bound),
            "assumption": self.assumption,
            "markov": self.markov,
            "pairs": [
                {
                    "max_ratio": to_json_number(one.max_ratio),
                    "max_weight": to_json_number(one.max_weight),
                    "gain": asdict(one.gain),
                }
                for one in self.pairs
            ],
            "public": self.public,
            "sensitivity": None if self.sensitivity is None else to_json_number(self.sensitivity),
            "by": self.by,
            "groups": [one.to_json() for one in self.groups],
            "outcome": None if self.outcome is None else self.outcome.to_json(),
            "refused": list(self.refused),
            "verdict": self.verdict,
            "reasons": [reason.value for reason in self.reasons],
        }

    @classmethod
    def from_json(cls, content: Any) -> "Evaluation":
        """What `to_json` wrote; anything else, such as a verdict that does not follow from the numbers, is refused."""
        written = convert(content, _Written, "The evaluation")
        kept, sensitivity = written["policy"], written["sensitivity"]
        groups = worst_first(
            GroupEstimate(one["name"], one["people"], one["deviation"], one["practice"], one["gain"])
            for one in written["groups"]
        )
        if (written["by"] is None) != (not groups):
            raise ValueError("The evaluation is malformed: `by` and `groups` do not belong together.")
        try:
            read = cls(
                policy=(AssistedMeasuredPolicy if "columns" in kept else AssistedPolicy).from_json(kept),
                people=written["people"],
                bound=written["bound"],
                assumption=written["assumption"],
                markov=written["markov"],
                pairs=tuple(
                    PairGain(float(one["max_ratio"]), float(one["max_weight"]), one["gain"]) for one in written["pairs"]
                ),
                public=written["public"],
                sensitivity=None if sensitivity is None else float(sensitivity),
                by=written["by"],
                groups=groups,
                outcome=written["outcome"],
                refused=tuple(written["refused"]),
                **{name: written[name] for name in _INTERVALS},  # type: ignore[literal-required]
            )
            again = read.to_json()
        except MALFORMED as error:
            raise ValueError("The evaluation is malformed: it holds no assisted policy.") from error
        wrong = sorted(name for name in {*again, *content} if name not in content or again.get(name) != content[name])
        if wrong:
            named = ", ".join(f"`{name}`" for name in wrong)
            raise ValueError(f"The evaluation was changed or damaged: {named} does not follow from its numbers.")
        return read


_STATED: dict[Assumption, tuple[str, ...]] = {
    "logged": ("A program decided and logged the probability of what it did.",),
    "randomised": ("A program decided at random, and logged the probability of what it did.",),
    "recorded": ("Assumed by the study team: people decided and saw nothing but the record.",),
    "checked": (),
}
_CHECKS = ("trend", "continuity", "arrival")
_INTERVALS = ("practice", "unsupported", "balance", "gain", "assisted_gain", "model_gain", *_CHECKS, "changed")


def practice_problems(
    checks: Iterable[Interval | None], balance: Interval | None, *, public: bool, assumption: Assumption = "checked"
) -> Iterator[Reason]:
    """What the checks of practice found; nothing if they were passed.

    `checks` are the residuals that were released. Weights are balanced if 1 is in the interval of their mean; if
    practice is estimated, the interval has an allowance for errors of the estimate. Logged probabilities need no
    checks of practice, and their weights are clipped, so that only a mean above 1 contradicts them. If the study states
    that practice saw nothing but the record, checks count only if they contradict it.
    """
    seen = [one for one in checks if one is not None]
    if any(one.evidently_not_zero for one in seen):
        yield Reason.CONTRADICTED if assumption == "recorded" else Reason.FOLLOWS_MORE
    elif assumption == "checked" and (
        not seen or any(max(abs(one.lower), abs(one.upper)) > NEGLIGIBLE for one in seen)
    ):
        yield Reason.INCONCLUSIVE
    if balance is not None and not is_balanced(balance, public=public, assumption=assumption):
        yield Reason.UNBALANCED


def is_balanced(balance: Interval, *, public: bool, assumption: Assumption = "checked") -> bool:
    """Whether the mean weight may be 1; with logged probabilities, which are clipped, whether it may be at most 1."""
    if assumption == "logged":
        return balance.low <= 1.0
    allowed = balance if public else balance.wider(BALANCED)
    return allowed.low <= 1.0 <= allowed.high


def verdict_of(gain: Interval | None) -> Standing:
    """Better where the one-sided lower end is above 0, worse where the two-sided interval is below."""
    if gain is not None and gain.lower > 0.0:
        return "better"
    return "worse" if gain is not None and gain.high < 0.0 else "not shown"
