"""A saved result as a page: what was learned, what it can reveal about one person, and what the budget was spent on."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

from privrl.plots.charts import draw_shares
from privrl.plots.style import to_svg
from privrl.privacy.accounting.certificate import Certificate
from privrl.reports.names import Names, noun_of
from privrl.reports.page import answers, code, drawing, listed, page, paragraph, table
from privrl.reports.page_evaluation import evaluation_section, verdict_box
from privrl.reports.page_policy import policy_section
from privrl.reports.page_situations import advice_table, saved_situations
from privrl.reports.release_words import classes_of, release_words
from privrl.reports.words import guesses, in_words, is_private, is_simulated, shares
from privrl.studies.results.certified_evaluation import CertifiedEvaluation
from privrl.studies.results.result import Result


def result_page(result: Result, folder: str | Path, problems: Sequence[str] = (), names: Names | None = None) -> str:
    """The page of a saved result; of its report nothing is shown unless the certificate names it.

    Arguments:
        result: what `Result.load` read.
        folder: where it lies; the page shows its name alone, for where it lies is nobody's business.
        problems: what is wrong with the certificate (as `privrl certify` finds it); shown first, if anything.
        names: what states and actions are called.
    """
    saved, signed = result, result.certificate
    if not result.report_holds:  # anybody may have written it
        result = replace(result, report={})
    known = result.report.get("names")
    names = (names or Names()).with_known(known if isinstance(known, Mapping) else {})
    result = replace(result, certificate=replace(signed, unit=noun_of(signed.unit)))
    certificate = result.certificate
    situations = saved_situations(result)
    private, plain = "A private policy: what it is, and what it reveals", "A policy that was learned without privacy"
    title = private if is_private(certificate) else plain
    alarm = f"The certificate does NOT hold, so believe nothing on this page. {' '.join(problems)}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        *([paragraph(alarm, "bad")] if problems else []),
        *([verdict_box(result.evaluation, result.policy is None)] if _has_practice(certificate) else []),
        paragraph(_summary(result), "key"),
        *([] if problems else [paragraph(_to_cite(saved), "key")]),
        *([stated_table(certificate.stated)] if certificate.stated else []),
        *(paragraph(warning, "warn") for warning in warnings(certificate)),
        *([evaluation_section(result.evaluation, signed.unit, situations)] if result.evaluation else []),
        "<h2>What was learned</h2>",
        policy_section(result.policy, names),
        advice_table(result, situations, names),
        "<h2>What the policy reveals</h2>",
        answers(in_words(certificate)),
        "<h2>What was released</h2>",
        spending(certificate),
        releases_table(certificate),
        "<h2>What was enforced on every record</h2>",
        bounds_table(certificate),
        listed([str(rule) for rule in result.report.get("rules", ())]),
        "<h2>The certificate</h2>",
        code(str(signed)),
        "<h2>Use it, check it</h2>",
        _use(Path(folder).resolve().name),
    ]
    return page(title, "\n".join(parts))


def spending(certificate: Certificate) -> str:
    """How the budget was shared out, as bars, with what each release is where that is known."""
    parts = shares(certificate)
    if not parts:
        return paragraph("There was no budget: this policy is not private.")
    figure = to_svg(draw_shares(parts), "Share of the privacy budget that each release was given")
    return (
        paragraph(
            f"The learner never sees a record. It sees noisy sums over many {certificate.unit}s, and each of these "
            "costs part of the budget."
        )
        + drawing(figure)
        + listed([f"`{name}`: {words}" for name, words in release_words(certificate).items()])
    )


def _has_practice(certificate: Certificate) -> bool:
    """Whether people were recorded under somebody's practice: a table, and no secret function."""
    return certificate.notion in ("central", "none") and not certificate.neighbours


def _summary(result: Result) -> str:
    certificate, sizes = result.certificate, result.report
    recipe, evaluation = sizes.get("recipe"), result.evaluation
    inner = [name.rpartition(".")[2] for name in classes_of(certificate.study.get("learner"))]
    learner = inner[1] if certificate.learner == "Evaluated" and len(inner) > 1 else certificate.learner
    who = f"`{recipe}` (the learner {learner})" if recipe else learner or "A learner"
    users = f"{sizes['users']:,} {certificate.unit}s" if isinstance(sizes.get("users"), int) else "people"
    held = ""
    if evaluation is not None and not isinstance(evaluation, CertifiedEvaluation):
        held = f", of whom {evaluation.people:,} were held out to compare it with practice"
    learned = f"{who} learned this policy from {users}{held}."
    if not is_private(certificate):
        return f"{learned} Nobody is protected: it may reveal anything about anybody."
    return (
        f"{learned} Somebody who knows all the other records and has to guess which of two was one "
        f"{certificate.unit}'s is right {guesses(certificate)}."
    )


def _to_cite(result: Result) -> str:
    """The one epsilon to cite, with what it is about; none where the certificates of two releases do not compose."""
    certificate, evaluation = result.certificate, result.evaluation
    if not is_private(certificate):
        return "Cite this one: no privacy guarantee, epsilon is infinite."
    if isinstance(evaluation, CertifiedEvaluation):
        if why := evaluation.apart_from(certificate):
            return f"There is no epsilon for policy and evaluation together, so there is none to cite: {why}"
        epsilon, delta = evaluation.together_with(certificate)
        what = "policy and evaluation together"
    else:
        epsilon, delta, what = certificate.epsilon, certificate.delta, "everything that was released"
    slack = f", delta = {delta:.3g}" if delta > 0 else ""
    about = certificate.neighbours or _NEIGHBOURS[certificate.adjacency].format(unit=noun_of(certificate.unit))
    return f"Cite this one: epsilon = {epsilon:.3g}{slack}, for {what}, with {about}."


_NEIGHBOURS = {
    "replace-one": "one {unit} replaced by any other",
    "add-remove": "one {unit} added or removed",
}


def stated_table(stated: Mapping[str, str]) -> str:
    """What those who answer for the study state about it."""
    return table(
        ("stated", "by those who answer for the study"),
        [(name.capitalize(), text) for name, text in stated.items()],
        caption="Nothing checks these words; a signature covers them",
    )


def warnings(certificate: Certificate) -> list[str]:
    """What a reader must know before anything else."""
    found = []
    if is_simulated(certificate):
        found.append(
            "The noise came from a seed and can be drawn again. This is a simulation: it protects nobody real."
        )
    if claimed := certificate.claimed:
        found.append(
            f"This is noise as published. {claimed['source']} claims epsilon = {claimed['epsilon']:.4g} for it; exact "
            f"accounting gives {certificate.epsilon:.4g}."
        )
    notes = [note.rstrip(".") for note in certificate.notes if " SHA-256 " not in note]
    return [*found, *(f"{note[:1].upper()}{note[1:]}." for note in notes)]


_DISJOINT = "Releases about disjoint people cost the largest of them, so shares add up to more than 100 %."


def releases_table(certificate: Certificate) -> str:
    """Every release with its noise and its share of the budget."""
    parts = shares(certificate)
    rows = []
    for release in certificate.releases:
        law = release["laws"][-1] if release["laws"] else None
        burnt = release.get("burnt", 0)
        rows.append(
            (
                str(release["name"]),
                f"{release['counted']:,} of {release['declared']:,}" + (f", {burnt:,} burnt" if burnt else ""),
                f"{law['sensitivity']:.4g}" if law else "-",
                f"{law['scale']:.4g}" if law else "-",
                f"{100 * parts[release['name']]:.1f} %" if release["name"] in parts else "-",
            )
        )
    if not rows:
        return ""
    several = any(len(release["laws"]) > 1 for release in certificate.releases)
    disjoint = sum(parts.values()) > 1 + 1e-9
    return table(
        ("release", "made", "sensitivity", "noise scale", "share"),
        rows,
        caption="Every noisy sum that was declared before the first record was read",
        numbers=(1, 2, 3, 4),
    ) + paragraph(
        "Made: how many of the declared ones; the budget covers all that were declared. Sensitivity: how far one "
        f"{certificate.unit} can move the sum. Noise scale: the size of the noise on it"
        f"{' (of the latest one, where they differ)' if several else ''}. "
        f"{_DISJOINT if disjoint else ''}",
        "small",
    )


def bounds_table(certificate: Certificate) -> str:
    """What was enforced on every record."""
    if not certificate.bounds:
        return paragraph("The certificate names no bounds.")
    rows = [(str(name), _written(value)) for name, value in certificate.bounds.items()]
    return table(("bound", "value"), rows, caption="Public limits, chosen beforehand and not read off the data")


def _written(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(_written(entry) for entry in value) or "none"
    return str(value)


def usage(folder: str, line: str) -> str:
    """How to load a saved policy, use it in one line, and check its certificate."""
    lines = ("import privrl", f"result = privrl.Result.load({folder!r})", line, "print(result.certificate)")
    return code("\n".join(lines)) + code(f"$ privrl certify {folder}")


def _use(folder: str) -> str:
    return (
        paragraph(
            f"The folder `{folder}`, of which this page was made, holds the policy and its certificate, nothing about "
            "any person. Where it lies:"
        )
        + usage(folder, "result.policy  # needs none of the records")
        + paragraph(
            "The command derives every number of the certificate again from the recorded settings, and compares the "
            "policy with the one that it names. Anybody could write a file that passes: who answers for it is known "
            "only if it is signed and `--public-key` is given."
        )
    )
