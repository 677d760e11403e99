"""The part of a page for the data protection officer: files to pass on, retention, earlier studies, and a signature."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from markupsafe import Markup

from privrl.evaluation.decision import Decision
from privrl.privacy.accounting.gdp import gdp_epsilon
from privrl.privacy.shared_budget import EarlierStudy, find_study
from privrl.reports.certificate_facts import is_private, is_simulated
from privrl.reports.display_names import to_noun
from privrl.reports.rendering import HtmlTable, render
from privrl.studies.results.binding import (
    ADVICE,
    CERTIFICATE,
    EVALUATION,
    EVALUATION_CERTIFICATE,
    EXPORTED,
    POLICY,
    REPORT,
)
from privrl.studies.results.certified_evaluation import CertifiedEvaluation
from privrl.studies.results.result import Result
from privrl.studies.results.saved_policies import export_policy

_FILES = {
    CERTIFICATE: "what was released, with which noise, and the guarantee",
    POLICY: "the policy",
    EXPORTED: "the policy as JSON, for programs elsewhere",
    ADVICE: "the full advice behind the policy, which was not evaluated as a whole",
    REPORT: "public sizes, names and settings, and what releases show about situations",
    EVALUATION: "the comparison with current practice, and the policy that was compared",
    EVALUATION_CERTIFICATE: "the certificate of a comparison that was made later",
}
_ADVISES = (POLICY, EXPORTED, ADVICE, REPORT, EVALUATION)  # a withheld policy contains the advice that it does not give


def render_officer(result: Result, earlier: Sequence[EarlierStudy] | None) -> Markup:
    """Show the page for the data protection officer.

    Arguments:
        result: what was saved.
        earlier: the studies of the same people that share a budget with this one; `None` if they are not known.
    """
    certificate, decision = result.certificate, result.decision
    reserved = _find_reserved(result)
    return render(
        "officer.html",
        private=is_private(certificate) and not is_simulated(certificate),
        simulated=is_simulated(certificate),
        unit=to_noun(certificate.unit),
        decision=decision,
        files=_table_of_files(result, decision),
        earlier=None if earlier is None else _table_of_studies(earlier, certificate.delta, reserved),
        reserved=bool(reserved),
        unlisted=earlier is not None and not reserved <= {one.study for one in earlier},
        delta=certificate.delta,
        opened=certificate.opened,
        gone=result.policy is None,
        stated=certificate.stated,
    )


def _table_of_files(result: Result, decision: Decision | None) -> HtmlTable:
    """Every file of the folder, and whether it may be passed on."""
    withheld = decision is not None and decision.outcome == "withheld"
    private = is_private(result.certificate)
    present, rows = _find_files(result), []
    for name, content in _FILES.items():
        if name not in present:
            continue
        if not private:
            pass_on = "no: made without privacy"
        elif withheld and result.policy is not None and name in _ADVISES:
            pass_on = "only to reviewers: holds withheld advice"
        else:
            pass_on = "yes"
        rows.append((f"`{name}`", content, pass_on))
    return HtmlTable(("file", "content", "may be passed on"), rows, "The files of this folder", stacked=True)


def _find_files(result: Result) -> set[str]:
    """The names of the files of a saved result."""
    exported = export_policy(result.policy, {}) is not None
    there = {
        POLICY: result.policy is not None,
        EXPORTED: exported,
        ADVICE: result.advice is not None,
        EVALUATION: result.evaluation is not None,
        EVALUATION_CERTIFICATE: isinstance(result.evaluation, CertifiedEvaluation),
    }
    return {CERTIFICATE, REPORT, *(name for name, saved in there.items() if saved)}


def _find_reserved(result: Result) -> set[str]:
    """The ids of the studies of shared budgets that the certificates name."""
    certificates = [result.certificate]
    if isinstance(result.evaluation, CertifiedEvaluation):
        certificates.append(result.evaluation.certificate)
    found = {find_study(note) for certificate in certificates for note in certificate.notes}
    return {study for study in found if study is not None}


def _table_of_studies(earlier: Sequence[EarlierStudy], delta: float, own: AbstractSet[str]) -> HtmlTable:
    """The studies that reserved a part of the budget, with epsilon of their Gaussian part at this delta."""
    rows = [
        (
            one.date,
            f"{one.name} (this result)" if one.study in own else one.name,
            f"{gdp_epsilon(one.mu, delta):.3g}" if delta > 0 else "-",
            f"{one.epsilon:g}",
        )
        for one in earlier
    ]
    columns = ("date (UTC)", "study", "epsilon", "other epsilon")
    return HtmlTable(columns, rows, "Studies of the same people, from the budget file", numbers=(2, 3))
