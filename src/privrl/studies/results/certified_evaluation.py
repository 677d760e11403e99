"""An evaluation with a certificate of its own, as `evaluate` makes it, and how a saved one is read."""

from dataclasses import dataclass, field, fields, replace
from typing import Any

from privrl.evaluation.estimates import Evaluation
from privrl.privacy.accounting.certificate import Certificate, read_json
from privrl.privacy.accounting.composition import epsilon_of


@dataclass(frozen=True)
class CertifiedEvaluation(Evaluation):
    """An evaluation, and what its own releases can reveal.

    The certificate is bound to the policy that was evaluated (`result_sha256`), and covers the evaluation alone: what
    the policy itself reveals is in the policy's own certificate.
    """

    certificate: Certificate = field(kw_only=True)

    @classmethod
    def of(cls, evaluation: Evaluation, certificate: Certificate) -> "CertifiedEvaluation":
        kept = {f.name: getattr(evaluation, f.name) for f in fields(Evaluation)}
        return cls(**kept, certificate=certificate)

    def apart_from(self, policy: Certificate) -> str:
        """Why this evaluation and the policy with that certificate have no epsilon together; empty where they have."""
        for name in ("adjacency", "unit", "neighbours"):
            theirs, own = getattr(policy, name), getattr(self.certificate, name)
            if theirs != own:
                return (
                    f"the certificates of policy and evaluation do not compose: `{name}` is {theirs!r} for the policy "
                    f"and {own!r} for the evaluation. Use the same for both."
                )
        return ""

    def together_with(self, policy: Certificate) -> tuple[float, float]:
        """Epsilon and delta for somebody who is in both tables: this evaluation's, and that of the policy with this
        certificate.

        **Formal guarantee.** Both certificates are about the same neighbours, or there is a `ValueError`: a sensitivity
        holds for one relation alone. A group of the policy's people may be any of the evaluation's, so that all events
        of the evaluation count for each.
        """
        if why := self.apart_from(policy):
            raise ValueError(f"{why[:1].upper()}{why[1:]}")
        delta = max(self.certificate.delta, policy.delta)
        own = (replace(event, group=None) for event in self.certificate.events)
        return epsilon_of((*policy.events, *own), delta, adjacency=policy.adjacency), delta

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "certificate": self.certificate.to_json()}


def read_evaluation(text: str) -> Evaluation:
    """What was written into an `evaluation.json`; with its certificate, if it has one of its own."""
    damaged = "This is not an evaluation that privrl wrote; `evaluation.json` is damaged."
    try:
        content = read_json(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(damaged) from error
    try:
        evaluation = Evaluation.from_json({name: value for name, value in content.items() if name != "certificate"})
        if "certificate" not in content:
            return evaluation
        return CertifiedEvaluation.of(evaluation, Certificate.from_json(content["certificate"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(damaged) from error
