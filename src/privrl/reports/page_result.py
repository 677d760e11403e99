"""A saved result as a page: what was learned, what it can reveal about one person, and what the budget was spent on."""

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

from privrl.figures.plots import shares_figure, to_svg
from privrl.privacy.accounting.certificate import Certificate
from privrl.recipes.registry import algorithms
from privrl.reports.names import Names
from privrl.reports.page import answers, code, drawing, listed, page, paragraph, table
from privrl.reports.page_evaluation import evaluation_section, verdict_box
from privrl.reports.page_policy import policy_section
from privrl.reports.words import in_hundred, in_words, is_private, is_simulated, shares
from privrl.studies.result import Result


def result_page(result: Result, folder: str | Path, problems: Sequence[str] = (), names: Names | None = None) -> str:
    """The page of a saved result.

    Arguments:
        result: what `Result.load` read.
        folder: where it lies; the page shows its name alone, for where it lies is nobody's business.
        problems: what is wrong with the certificate (as `privrl certify` finds it); shown first, if anything.
        names: what states, actions and one unit are called; the certificate itself is shown as it is.
    """
    names, signed = names or Names(), result.certificate
    if names.unit is not None:
        result = replace(result, certificate=replace(signed, unit=names.unit))
    certificate = result.certificate
    private, plain = "A private policy: what it is, and what it reveals", "A policy that was learned without privacy"
    title = private if is_private(certificate) else plain
    alarm = f"The certificate does NOT hold, so believe nothing on this page. {' '.join(problems)}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        *([paragraph(alarm, "bad")] if problems else []),
        *([verdict_box(result.evaluation)] if _has_practice(certificate) else []),
        paragraph(_summary(result), "key"),
        *(paragraph(warning, "warn") for warning in _warnings(certificate)),
        *([evaluation_section(result.evaluation, certificate.unit)] if result.evaluation is not None else []),
        "<h2>What was learned</h2>",
        policy_section(result.policy, names),
        "<h2>What the policy reveals</h2>",
        answers(in_words(certificate)),
        "<h2>What was released</h2>",
        spending(certificate),
        _releases(certificate),
        "<h2>What was enforced on every record</h2>",
        _bounds(certificate),
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
    said = next((a.said_of(parts) for kind, a in algorithms.items() if kind.__name__ == certificate.learner), {})
    figure = to_svg(shares_figure(parts), "Share of the privacy budget that each release was given")
    return (
        paragraph(
            f"The learner never sees a record. It sees noisy sums over many {certificate.unit}s, and each of these "
            "costs part of the budget."
        )
        + drawing(figure)
        + listed([f"`{name}`: {words}" for name, words in said.items()])
    )


def _has_practice(certificate: Certificate) -> bool:
    """Whether people were recorded under somebody's practice: a table, and no secret function."""
    return certificate.notion in ("central", "none") and not certificate.neighbours


def _summary(result: Result) -> str:
    certificate, sizes = result.certificate, result.report
    recipe = sizes.get("recipe")
    who = f"`{recipe}` (the learner {certificate.learner})" if recipe else certificate.learner or "A learner"
    users = f"{sizes['users']:,} {certificate.unit}s" if isinstance(sizes.get("users"), int) else "people"
    learned = f"{who} learned this policy from {users}."
    if not is_private(certificate):
        return f"{learned} Nobody is protected: it may reveal anything about anybody."
    slack = f", delta = {certificate.delta:.3g}" if certificate.delta > 0 else ""
    return (
        f"{learned} It is differentially private with epsilon = {certificate.epsilon:.3g}{slack} (cite this "
        "one). Somebody who knows all the other records and has to guess which of two was one "
        f"{certificate.unit}'s is right in at most {in_hundred(certificate)} of 100 cases; a coin is right in 50."
    )


def _warnings(certificate: Certificate) -> list[str]:
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
    return [*found, *certificate.notes]


_DISJOINT = "Releases about disjoint people cost the largest of them, so shares add up to more than 100 %."


def _releases(certificate: Certificate) -> str:
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


def _bounds(certificate: Certificate) -> str:
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
