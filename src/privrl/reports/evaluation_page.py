"""The page of an evaluation in a folder of its own, of a policy from any source."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from markupsafe import Markup

from privrl.mdp.assisted import AssistedPolicy
from privrl.reports.certificate_section import CertificateParts
from privrl.reports.change_section import render_changes
from privrl.reports.display_names import Names, to_noun
from privrl.reports.evaluation_section import render_evaluation, render_verdict
from privrl.reports.policy_section import render_policy
from privrl.reports.rendering import render_page
from privrl.reports.situations_section import render_situations
from privrl.studies.results.certified_evaluation import CertifiedEvaluation


def render_certified_evaluation(
    evaluation: CertifiedEvaluation,
    problems: Sequence[str] = (),
    names: Names | None = None,
    *,
    show_withheld: bool = False,
) -> str:
    """Render the page of an evaluation with its own certificate.

    Arguments:
        evaluation: what `privrl.evaluate` returned.
        problems: what is wrong with its certificate; shown first.
        names: the names of states and actions.
        show_withheld: show advice that the evidence does not support, marked as not to be used.
    """
    signed, assisted, names = evaluation.certificate, evaluation.policy, names or Names()
    certificate, decision = replace(signed, unit=to_noun(signed.unit)), evaluation.decision
    withheld = decision.outcome == "withheld"
    advice = Markup("")
    if withheld and not show_withheld:
        pass
    elif isinstance(assisted, AssistedPolicy):
        advice = render_situations(
            np.asarray(assisted.advice), None, assisted, names, at_least=evaluation.assumption == "randomised"
        )
    else:
        advice = render_policy(assisted, names)
    return render_page(
        "certified_evaluation.html",
        title="A policy compared with current practice: the outcome and what it reveals",
        problems=problems,
        verdict=render_verdict(evaluation, None, evaluation.evidence),
        people=evaluation.people,
        certificate=certificate,
        signed=str(signed),
        parts=CertificateParts.from_certificate(certificate),
        evaluation=render_evaluation(evaluation, certificate.unit, advice=not withheld),
        changes=(
            render_changes(evaluation, decision, certificate, None, names, show_withheld=show_withheld, alone=True)
            if assisted.support.size
            else ""
        ),
        alone=True,
        withheld=withheld,
        show_withheld=show_withheld,
        policy="",
        advice=advice,
    )
