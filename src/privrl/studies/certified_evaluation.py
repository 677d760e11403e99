"""An evaluation with a certificate of its own, as `evaluate` makes it, and how a saved one is read."""

import json
from dataclasses import dataclass, field, fields
from typing import Any

from privrl.learners.evaluation.estimates import Evaluation
from privrl.privacy.accounting.certificate import Certificate
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

    def together_with(self, other: Certificate) -> tuple[float, float]:
        """Epsilon and delta for somebody who is in both tables: this evaluation's, and that of another certificate."""
        delta = max(self.certificate.delta, other.delta)
        return epsilon_of((*other.events, *self.certificate.events), delta), delta

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "certificate": self.certificate.to_json()}


def read_evaluation(text: str) -> Evaluation:
    """What was written into an `evaluation.json`; with its certificate, if it has one of its own."""
    try:
        content = json.loads(text)
        evaluation = Evaluation.from_json(content)
        if "certificate" not in content:
            return evaluation
        return CertifiedEvaluation.of(evaluation, Certificate.from_json(content["certificate"]))
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise ValueError("This is not an evaluation that privrl wrote; `evaluation.json` is damaged.") from error
