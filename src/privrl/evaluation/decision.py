"""What was decided about a policy, computed from the evidence and from the policy that was saved.

    released                    the evidence supports the saved policy, which gives advice
    withheld                    the saved policy gives no advice, or no policy was saved: practice decides
    released without evidence   the saved policy gives advice that the evidence does not support

The outcome never depends on a request: a policy that was asked for and changes decisions is reported as what it is.
"""

import enum
import math
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Literal

from privrl.mdp.assistance import AbstractAssisted, to_json_number

DecisionOutcome = Literal["released", "withheld", "released without evidence"]
Basis = Literal["certified", "estimated", "model"]
"""Where a bound comes from: public or logged probabilities of practice, estimated ones, or a model of outcomes, which
decides only if the study states that the recorded state is complete."""
HIDDEN_INFORMATION = "clinicians may be using information that is not in the record"


class Reason(enum.StrEnum):
    """Why the evidence does not support a release."""

    NOT_COMPARED = "not compared"
    ANOTHER_POLICY = "another policy"
    FOLLOWS_MORE = "practice follows more than the record"
    CONTRADICTED = "a check contradicts the stated assumption"
    INCONCLUSIVE = "checks of practice inconclusive"
    UNBALANCED = "weights unbalanced"
    NO_SUPPORT = "no support"
    NO_ESTIMATE = "no estimate"
    NO_GAIN = "no gain"
    REQUIRED_BETTER = "required to be better"

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]

    @property
    def clause(self) -> str:
        """The sentence as it follows "because"."""
        return f"{self.sentence[:1].lower()}{self.sentence[1:]}"


_SENTENCES = {
    Reason.NOT_COMPARED: (
        "The policy was not compared with current practice. To compare it, set people aside: "
        "`privrl fit --evaluate .3`."
    ),
    Reason.ANOTHER_POLICY: "The saved policy is not the one that was compared with current practice.",
    Reason.FOLLOWS_MORE: f"A check of practice failed: {HIDDEN_INFORMATION}.",
    Reason.CONTRADICTED: (
        "A check of practice contradicts the assumption that the study team stated, that people saw nothing but the "
        f"record: {HIDDEN_INFORMATION}."
    ),
    Reason.INCONCLUSIVE: f"The checks of practice were inconclusive: {HIDDEN_INFORMATION}.",
    Reason.UNBALANCED: (
        "The mean weight is not 1 within its interval: the probabilities of practice may not describe how these people "
        "were treated."
    ),
    Reason.NO_SUPPORT: (
        "In no situation is there advice that is estimated to be better than practice, and that practice is known to "
        "take often enough."
    ),
    Reason.NO_ESTIMATE: "There is no estimate of the gain.",
    Reason.NO_GAIN: "The lower bound of the gain is not above 0.",
    Reason.REQUIRED_BETTER: "The policy was not shown to be better than practice, which was required.",
}


@dataclass(frozen=True)
class Bound:
    """The one-sided lower bound of a gain that decides on a release: a policy is released only if it is above 0.

    Attributes:
        lower: in the units of returns.
        error_rate: the probability with which the true gain is smaller, if the assumptions hold.
        basis: where the bound comes from; only "certified" rests on probabilities of practice that are known.
    """

    lower: float
    error_rate: float
    basis: Basis

    @property
    def sentence(self) -> str:
        how = {
            "certified": "certified",
            "estimated": "practice estimated, no guarantee",
            "model": "a model that rests on what the study team states, no guarantee",
        }
        return (
            f"The decision rests on a one-sided lower bound of the gain: {self.lower:+.3f} at error rate "
            f"{self.error_rate:g} ({how[self.basis]})."
        )


def describe_bound(bound: Bound | None, reasons: Collection[Reason]) -> str:
    """A sentence about a bound; one above 0 does not count if anything speaks against a release. Empty without one."""
    if bound is None:
        return ""
    if reasons and bound.lower > 0.0:
        these = "this reason" if len(reasons) == 1 else "these reasons"
        return f"For {these}, the lower bound of the gain that was computed ({bound.lower:+.3f}) does not count."
    return bound.sentence


@dataclass(frozen=True)
class Decision:
    """What was saved, and why.

    Attributes:
        outcome: whether a policy that gives advice was saved, and whether the evidence supports it.
        changed: the share of decisions that the saved policy changes; `None` if it is not known.
        reasons: why the evidence does not support a release; empty if it does.
        bound: the bound that decided, if there is one.
        max_ratio, max_weight: the limits of the saved policy, if it is an assisted one.
    """

    outcome: DecisionOutcome
    changed: float | None
    reasons: tuple[Reason, ...] = ()
    bound: Bound | None = None
    max_ratio: float | None = None
    max_weight: float | None = None

    @property
    def statement(self) -> str:
        """The sentence with which every output begins."""
        if self.outcome == "withheld":
            return "Withheld: decisions stay as they are."
        share = "" if self.changed is None else f"hanges {_percent(self.changed)} of decisions."
        if self.outcome == "released":
            return f"Released: c{share}" if share else "Released."
        return f"Released without evidence, at your request.{f' C{share}' if share else ''}"

    @property
    def words(self) -> str:
        """The statement, the reasons and the bound that decided."""
        said = (self.statement, *(reason.sentence for reason in self.reasons), self.bound_sentence, self.limits)
        return " ".join(sentence for sentence in said if sentence)

    @property
    def bound_sentence(self) -> str:
        """A sentence about the bound; empty without one."""
        return describe_bound(self.bound, self.reasons)

    @property
    def is_about_another_policy(self) -> bool:
        """Whether the evidence is about another policy than the one that was saved."""
        return Reason.ANOTHER_POLICY in self.reasons

    @property
    def limits(self) -> str:
        """A sentence about the limits of a policy that gives advice; empty for others."""
        if self.outcome == "withheld" or self.max_ratio is None or self.max_weight is None:
            return ""
        if math.isinf(self.max_ratio) and math.isinf(self.max_weight):
            return "The policy gives all advice that has enough support and is estimated to be better, without a limit."
        return (
            f"The policy raises the probability of the advised action by at most a factor of {self.max_ratio:g}, up to "
            f"a weight of {self.max_weight:g} per episode."
        )

    def to_json(self) -> dict[str, object]:
        """Plain JSON for the output of commands."""
        return {
            "outcome": self.outcome,
            "statement": self.statement,
            "changed": self.changed,
            "reasons": [reason.value for reason in self.reasons],
            "bound": None if self.bound is None else asdict(self.bound),
            "max_ratio": None if self.max_ratio is None else to_json_number(self.max_ratio),
            "max_weight": None if self.max_weight is None else to_json_number(self.max_weight),
        }


def gives_advice(policy: object) -> bool:
    """Whether a saved policy changes any decision: there is one, and it is not silent."""
    return policy is not None and not (isinstance(policy, AbstractAssisted) and policy.is_silent)


def _percent(share: float) -> str:
    """A share of decisions; one that noise has moved outside [0, 1] is moved back."""
    share = min(max(share, 0.0), 1.0)
    return "less than 1%" if share < 0.005 else f"{share:.0%}"
