"""The page of a saved result: what was learned, what it reveals about one person, and what the budget was spent on."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from markupsafe import Markup

from privrl.evaluation.decision import Decision
from privrl.evaluation.estimates import Evaluation
from privrl.mdp.rules import Rules, describe_rules
from privrl.privacy.accounting.certificate import Certificate
from privrl.privacy.shared_budget import EarlierStudy
from privrl.reports.certificate_facts import find_classes, find_terminal_states, is_private
from privrl.reports.certificate_section import CertificateParts
from privrl.reports.change_section import render_changes
from privrl.reports.display_names import Names, to_noun
from privrl.reports.evaluation_section import render_evaluation, render_verdict
from privrl.reports.officer_section import render_officer
from privrl.reports.policy_section import render_policy
from privrl.reports.rendering import render_page
from privrl.reports.situations_section import read_situations, render_advice
from privrl.studies.offline.situations import Situations
from privrl.studies.results.certified_evaluation import CertifiedEvaluation
from privrl.studies.results.result import Result

_NEIGHBOURS = {
    "replace-one": "one {unit} replaced by any other",
    "add-remove": "one {unit} added or removed",
}


def render_result(
    result: Result,
    folder: str | Path,
    problems: Sequence[str] = (),
    names: Names | None = None,
    *,
    show_withheld: bool = False,
    earlier: Sequence[EarlierStudy] | None = None,
) -> str:
    """Render the page of a saved result.

    Arguments:
        result: what `Result.load` read.
        folder: where the result is; the page shows only the name of the folder.
        problems: what is wrong with the certificate, as `privrl certify` found; shown first.
        names: the names of states and actions.
        show_withheld: show advice that was withheld, marked as not to be used.
        earlier: the studies of the same people that share a budget with this one, if known.
    """
    saved, signed = result, result.certificate
    known = result.report.get("names")
    names = (names or Names()).fill_from(known if isinstance(known, Mapping) else {})
    names = names.with_doses(_count_doses(result.report.get("table")))
    decision = saved.decision
    withheld = decision is not None and decision.outcome == "withheld"
    another = decision is not None and decision.is_about_another_policy
    certificate = replace(signed, unit=to_noun(signed.unit))
    result = replace(result, certificate=certificate)
    situations = read_situations(result)
    evaluation, users = result.evaluation, result.report.get("users")
    private = is_private(certificate)
    return render_page(
        "result.html",
        title="A private policy: what it does and what it reveals" if private else "A policy learned without privacy",
        problems=problems,
        verdict="" if decision is None else render_verdict(evaluation, decision),
        learner=_name_learner(certificate),
        recipe=result.report.get("recipe"),
        users=users if isinstance(users, int) else None,
        set_aside=_count_set_aside(evaluation),
        certificate=certificate,
        signed=str(signed),
        parts=CertificateParts.from_certificate(certificate),
        citation="" if problems else _cite(saved),
        evaluation=(
            render_evaluation(evaluation, signed.unit, situations, advice=not withheld and not another)
            if evaluation
            else ""
        ),
        alone=False,
        changes=_render_changes(result, decision, situations, names, show_withheld),
        decision=decision,
        withheld=withheld,
        gone=result.policy is None,
        show_withheld=show_withheld,
        policy=render_policy(_shown(result, withheld=withheld), names) if not withheld or show_withheld else "",
        advice=render_advice(result, situations, names, withheld=withheld) if not withheld or show_withheld else "",
        officer=render_officer(saved, earlier),
        rules_kept=_list_rules(result.policy),
        enforced=[str(rule) for rule in result.rules],
        folder=Path(folder).resolve().name,
    )


def _shown(result: Result, *, withheld: bool) -> object:
    """The policy that a page describes: the saved one or, if it was withheld, the one that was evaluated."""
    evaluation = result.evaluation
    if not withheld or evaluation is None or not evaluation.policy.support.size:
        return result.policy
    return evaluation.policy


def _render_changes(
    result: Result, decision: Decision | None, situations: Situations | None, names: Names, show_withheld: bool
) -> Markup | str:
    evaluation = result.evaluation
    if evaluation is None or decision is None or not evaluation.policy.support.size:
        return ""
    own = evaluation.certificate if isinstance(evaluation, CertifiedEvaluation) else result.certificate
    certificate = replace(own, unit=to_noun(own.unit))
    terminal = find_terminal_states(result.certificate)
    return render_changes(evaluation, decision, certificate, situations, names, terminal, show_withheld=show_withheld)


def _list_rules(policy: object) -> list[str]:
    """The public rules that a policy keeps."""
    rules = getattr(policy, "rules", None)
    return describe_rules(rules) if isinstance(rules, Rules) else []


def _count_doses(table: object) -> tuple[int, ...]:
    """How many intervals the dose of each drug has, as the schema of the table declares it; empty without doses."""
    edges = table.get("action_edges") if isinstance(table, Mapping) else None
    if not isinstance(edges, list) or not all(isinstance(one, str) for one in edges):
        return ()
    return tuple(len(one.split(",")) for one in edges)


def _name_learner(certificate: Certificate) -> str:
    settings = None if certificate.study is None else certificate.study["learner"]
    inner = [name.rpartition(".")[2] for name in find_classes(settings)]
    return inner[1] if certificate.learner == "Evaluated" and len(inner) > 1 else certificate.learner


def _count_set_aside(evaluation: Evaluation | None) -> int | None:
    """How many of the people were set aside for a comparison under the same certificate."""
    return None if evaluation is None or isinstance(evaluation, CertifiedEvaluation) else evaluation.people


def _cite(result: Result) -> str:
    """The one guarantee to cite; none if the certificates of policy and evaluation do not compose."""
    certificate, evaluation = result.certificate, result.evaluation
    if not is_private(certificate):
        return "Cite this guarantee: none. Epsilon is infinite."
    if isinstance(evaluation, CertifiedEvaluation):
        if why := evaluation.apart_from(certificate):
            return f"There is no guarantee to cite for policy and evaluation together: {why}"
        epsilon, delta = evaluation.together_with(certificate)
        what = "policy and evaluation together"
    else:
        epsilon, delta, what = certificate.epsilon, certificate.delta, "everything that was released"
    slack = f", delta = {delta:.3g}" if delta > 0 else ""
    about = certificate.neighbours or _NEIGHBOURS[certificate.adjacency].format(unit=to_noun(certificate.unit))
    return f"Cite this guarantee: epsilon = {epsilon:.3g}{slack}, for {what}, with {about}."
