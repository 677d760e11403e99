"""An evaluation with a certificate of its own, as `evaluate` makes it, and how a saved one is read."""

import json
from dataclasses import dataclass, field, fields
from typing import Any

from privrl.learners.evaluation.estimates import Evaluation
from privrl.privacy.accounting.certificate import Certificate


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
