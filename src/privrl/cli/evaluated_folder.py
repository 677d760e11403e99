"""What `privrl evaluate` says first: what this evaluation supports, and then what the folder of the policy says.

A folder that `privrl fit --evaluate` saved has an evaluation of its own, and its decision follows from that one. If the
new evaluation does not support a policy that was released, this is said before everything else.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from privrl.evaluation.decision import Decision
from privrl.studies.offline.policies import AnyPolicy
from privrl.studies.results.certified_evaluation import CertifiedEvaluation
from privrl.studies.results.result import Result


@dataclass(frozen=True)
class EvaluatedFolder:
    """The folder of a policy, next to a new evaluation of it.

    Attributes:
        evaluation: the new one.
        policy: what was evaluated.
        folder: where it was read.
        replaced: whether the new evaluation was saved in this folder.
    """

    evaluation: CertifiedEvaluation
    policy: AnyPolicy
    folder: Path
    replaced: bool

    @property
    def decision(self) -> Decision | None:
        """What the folder says about its policy now; `None` if there is no folder, or no decision."""
        if not isinstance(self.policy, Result):
            return None
        return self.evaluation.decide_on(self.policy.policy) if self.replaced else self.policy.decision

    @property
    def source(self) -> str:
        """Where the decision of the folder and its bound come from."""
        if self.replaced:
            return "this evaluation, which it now holds"
        compared = isinstance(self.policy, Result) and self.policy.evaluation is not None
        return "its own, earlier evaluation" if compared else "its policy alone, without an evaluation"

    @property
    def contradiction(self) -> str:
        """Why a policy that was released needs another look; empty if this evaluation does not speak against it."""
        decision = self.decision
        if decision is None or decision.outcome != "released" or not self.evaluation.reasons:
            return ""
        if self.evaluation.verdict == "worse":
            return (
                f"This evaluation contradicts the release of the policy in `{self.folder}`. {self.evaluation.line} Do "
                "not use the policy until you know why the two evaluations differ."
            )
        return (
            f"This evaluation does not confirm the release of the policy in `{self.folder}`, which rests on "
            f"{self.source}."
        )

    def lines(self) -> Iterator[str]:
        """The first lines of the output."""
        if self.contradiction:
            yield self.contradiction
        evidence, decision = self.evaluation.evidence, self.decision
        yield f"This evaluation: {evidence.findings}"
        if decision is not None:
            known = self.evaluation.reasons if self.replaced else ()
            more = tuple(reason for reason in decision.reasons if reason not in known)
            said = replace(decision, reasons=more, bound=None if self.replaced else decision.bound)
            yield f"The folder `{self.folder}` says, from {self.source}: {said.words}"
        if not self.evaluation.reasons and (decision is None or decision.outcome != "released"):
            yield (
                "`privrl fit --evaluate` saves the policy that it compares; in Python, `evaluation.released_policy` is "
                "the one that was compared here."
            )

    def to_json(self) -> dict[str, Any]:
        """The same for the JSON of the command."""
        decision = self.decision
        return {
            "evidence": self.evaluation.evidence.to_json() | {"statement": self.evaluation.evidence.support},
            "contradiction": self.contradiction or None,
            "policy": str(self.folder),
            "policy_decision": None if decision is None else {"source": self.source, **decision.to_json()},
        }
