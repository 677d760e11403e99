"""The page of an evaluation that lies in a folder of its own: a policy from anywhere, compared with practice."""

from collections.abc import Sequence
from dataclasses import replace
from html import escape

import numpy as np

from privrl.mdp.assisted import AssistedPolicy
from privrl.reports.names import Names, noun_of
from privrl.reports.page import answers, code, page, paragraph
from privrl.reports.page_evaluation import evaluation_section, verdict_box
from privrl.reports.page_policy import policy_section
from privrl.reports.page_result import bounds_table, releases_table, spending, stated_table, warnings
from privrl.reports.page_situations import situations_table
from privrl.reports.words import guesses, in_words, is_private
from privrl.studies.results.certified_evaluation import CertifiedEvaluation


def evaluation_page(evaluation: CertifiedEvaluation, problems: Sequence[str] = (), names: Names | None = None) -> str:
    """The page of an evaluation with its own certificate.

    Arguments:
        evaluation: what `privrl.evaluate` gave.
        problems: what is wrong with its certificate; shown first, if anything.
        names: what states and actions are called.
    """
    signed, assisted, names = evaluation.certificate, evaluation.policy, names or Names()
    certificate = replace(signed, unit=noun_of(signed.unit))
    title = "A policy compared with practice: what was found, and what that reveals"
    alarm = f"The certificate does NOT hold, so believe nothing on this page. {' '.join(problems)}"
    unit = certificate.unit
    private = (
        f"Somebody who knows all the other records and has to guess which of two was one {unit}'s is right "
        f"{guesses(certificate)}."
        if is_private(certificate)
        else "Nobody is protected: this comparison may reveal anything about anybody."
    )
    slack = f", delta = {certificate.delta:.3g}" if certificate.delta > 0 else ""
    cited = f"Cite this one: epsilon = {certificate.epsilon:.3g}{slack}, for the comparison alone."
    parts = [
        f"<h1>{escape(title)}</h1>",
        *([paragraph(alarm, "bad")] if problems else []),
        verdict_box(evaluation),
        paragraph(
            f"A policy from elsewhere was compared with practice on {evaluation.people:,} {unit}s. {private}", "key"
        ),
        *([paragraph(cited, "key")] if is_private(certificate) and not problems else []),
        *([stated_table(certificate.stated)] if certificate.stated else []),
        *(paragraph(warning, "warn") for warning in warnings(certificate)),
        evaluation_section(evaluation, unit),
        "<h2>The advice</h2>",
        situations_table(np.asarray(assisted.advice), None, assisted, names)
        if isinstance(assisted, AssistedPolicy)
        else policy_section(assisted, names),
        "<h2>What the comparison reveals</h2>",
        answers(in_words(certificate)),
        "<h2>What was released</h2>",
        spending(certificate),
        releases_table(certificate),
        "<h2>What was enforced on every record</h2>",
        bounds_table(certificate),
        "<h2>The certificate</h2>",
        code(str(signed)),
    ]
    return page(title, "\n".join(parts))
